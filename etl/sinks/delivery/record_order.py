"""Order of the records of a key: which of two is the later one.

It is a total order, written as one text of fixed width, which a sink keeps with its row (:data:`ORDER`):

========  ==========  ==============================================================================================
part      characters  content
========  ==========  ==============================================================================================
order     any         value of the column ``latest_by.order``; empty without it. Of a change that has a time and no place
                      in a log, its time
time      17          the latest arrival so far of the key's records in the lane with the same first part: milliseconds
                      since 1970 and, in Kafka, the last 22 bits of the offset, in hexadecimal. A producer's batch has
                      one time, so between lanes of a partition the offset decides
lane      16          hash of the sequence in which positions can be compared: a partition of a topic, or the records
                      of one partition key of a stream, whose numbers rise through splits and merges
position  64          offset or sequence number in 56 digits, and the place in an aggregate in 8
========  ==========  ==============================================================================================

Of two texts with the same order and lane the position decides; otherwise the text. So the last record of a lane is the
last by its position, whatever its times are, and between lanes the one that arrived later. The time is the latest so far and
not the record's own, since "the position inside a lane, else the time" is not transitive. Lines of a backfilled file are
before all records of streams: a file's time is that of its upload. ``docs/design/order.md`` has the reasons.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ...record.errors import StartError
from ..base import ORDER

POSITION = StructType(
    [
        *(StructField(name, StringType()) for name in ("position", "time", "lane", "change")),
        StructField("at", TimestampType()),
    ]
)
"""Type of ``_position`` in the input and the result of a transform with ``latest_by``: a transform passes it on.

``change`` identifies what the record says, in :data:`CHANGE_WIDTH` characters: records of the same change have the same.
"""

_TIME, _LANE, _PLACE = 17, 16, 64
_TAIL = _TIME + _LANE + _PLACE
CHANGE_WIDTH = _LANE + _PLACE
"""Characters of the identity of a change: its lane and place."""

_LANE_NUMBER = "xxhash64(_source, _shard, CASE WHEN _shard IS NULL THEN _key END)"
"""Number of a record's lane, in SQL: of its partition, or of its stream and partition key."""

_OFFSET_BITS = 22
"""Beside them 64 bits hold milliseconds until the year 2109."""

_STREAM = "1"
"""First character of a time of a stream's record; that of a backfilled file's line is lower."""
_DIGITS = 56
"""Digits of a sequence number of Kinesis; an offset of Kafka has at most 19."""

_DECIMAL_DIGITS = 39
"""Digits of Spark's widest DECIMAL, and the 0 before its point: a column that a schema change makes wider keeps the form of its values."""

_WHOLE: dict[type[DataType], str] = {
    ByteType: "{}",
    ShortType: "{}",
    IntegerType: "{}",
    LongType: "{}",
    DateType: "unix_date({})",
    TimestampType: "unix_micros({})",
    TimestampNTZType: "unix_micros(CAST({} AS TIMESTAMP))",
}
"""SQL of a value as a whole number, by its type."""


def with_position_struct(records: DataFrame) -> DataFrame:
    """Replace ``_position`` of good records by :data:`POSITION`, which a transform passes on.

    Parameters
    ----------
    records
        Rows of a landing table, with the envelope's columns.
    """
    # As text, it is one call into the JVM; as columns a hundred, for each batch.
    # Of a producer library's aggregate: `stream/number/place`. Only Kinesis has no shard.
    place = "CASE WHEN _shard IS NULL THEN regexp_extract(_id, '^[^/]+/[0-9]+/([0-9]+)', 1) ELSE '' END"
    file = "contains(_id, ':/')"
    micros = "greatest(coalesce(unix_micros(_arrived_at), 0), 0)"
    # A sequence number of Kinesis is too long, and null here.
    offset = f"CASE WHEN _shard IS NOT NULL AND NOT {file} THEN try_cast(_position AS BIGINT) END"
    moment = f"shiftleft(floor({micros} / 1000), {_OFFSET_BITS}) | (coalesce({offset}, 0) & {(1 << _OFFSET_BITS) - 1})"
    position = f"concat(lpad(_position, {_DIGITS}, '0'), lpad({place}, {_PLACE - _DIGITS}, '0'))"
    time = f"concat(CASE WHEN {file} THEN '0' ELSE '{_STREAM}' END, lpad(hex({moment}), {_TIME - 1}, '0'))"
    lane = f"lpad(hex({_LANE_NUMBER}), {_LANE}, '0')"
    parts = (position, time, lane, f"concat({lane}, {position})", f"timestamp_micros({micros})")
    fields = (f"{part} AS {name}" for part, name in zip(parts, POSITION.names, strict=True))
    return records.withColumn("_position", F.expr(f"struct({', '.join(fields)})"))


def time_lane_and_position_of_order(order: Column) -> tuple[Column, Column, Column]:
    """Return the time with what is before it, the lane and the position of an order."""
    begin, lane = (
        order.substr(F.lit(1), F.length(order) - CHANGE_WIDTH),
        F.substring(order, -CHANGE_WIDTH, _LANE),
    )
    return begin, lane, F.substring(order, -_PLACE, _PLACE)


def order_prefix(schema: StructType, column: str | None, name: str) -> Column:
    """Return the first part of the order: a text that sorts like the values of a column, null first.

    A sign and the digits without the point, of a negative number their complement. They are the same in each type to which a
    schema change may widen the column (:mod:`etl.record.schema_evolution`), which keeps the scale of a DECIMAL.

    Parameters
    ----------
    column
        Column of the transform's result; None for an empty part.
    name
        Name of the transform, for messages.

    Raises
    ------
    StartError
        The column is missing, or of a type without such a text.
    """
    if column is None:
        return F.lit("")
    kind = next((f.dataType for f in schema.fields if f.name == column), None)
    if kind is None:
        raise StartError(f"transform {name}: its result lacks column {column}, which latest_by.order names")
    if isinstance(kind, DecimalType):
        scale, value = kind.scale, F.col(f"`{column}`")
    elif type(kind) in _WHOLE:
        scale, value = 0, F.expr(_WHOLE[type(kind)].format(f"`{column}`")).cast(DecimalType(20, 0))
    else:
        raise StartError(
            f"transform {name}: column {column} of latest_by.order has type {kind.simpleString()}; it must "
            "be a whole number, a DECIMAL, a DATE or a TIMESTAMP: cast it"
        )
    # A cast to text writes small decimals with an exponent.
    digits = F.lpad(F.translate(F.format_number(value, scale), "-,.", ""), _DECIMAL_DIGITS, "0")
    negative = F.concat(F.lit("1"), F.translate(digits, "0123456789", "9876543210"))
    text = F.when(value < 0, negative).otherwise(F.concat(F.lit("2"), digits))
    return F.coalesce(text, F.lit("0" * (_DECIMAL_DIGITS + 1)))


def latest_row_of_each_id(rows: DataFrame) -> DataFrame:
    """Return the last row of each ``_id``, with its order.

    Parameters
    ----------
    rows
        ``_id``, ``_position`` (:data:`POSITION`), ``_row``, and ``_prefix``, the result of :func:`order_prefix`.

    Returns
    -------
    DataFrame
        ``_id``, ``_row``, :data:`ORDER`, and ``_lanes``: true if the key has records in several lanes; of no meaning where
        ``_prefix`` is not empty.
    """
    lanes = (
        # By the hash of the key, which sorts fast, records are shuffled once for both steps.
        rows.selectExpr("xxhash64(_id) AS _part", "_id", "_row", "_prefix", "_position.*")
        .repartition("_part")
        # As in `order_after_replacement_sql`: the time of a lower value says nothing of a higher one.
        .groupBy("_part", "_id", "lane", "_prefix")
        .agg(F.expr("max_by(struct(_row, position), position) AS _last"), F.expr("max(time) AS time"))
    )
    order = f"concat(_prefix, time, lane, _last.position) AS {ORDER}"
    return (
        lanes.selectExpr("_part", "_id", "_last._row", order, f"startswith(time, '{_STREAM}') AS _streamed")
        .groupBy("_part", "_id")
        .agg(
            F.expr(f"max_by(struct(_row, {ORDER}), {ORDER}) AS _last"),
            F.expr("count_if(_streamed) > 1 AS _lanes"),
        )
        .select("_id", "_last.*", "_lanes")
    )


def not_older_sql(new: str, old: str) -> str:
    """Return a condition in SQL of Spark and PostgreSQL: a record is not older than the one of a row.

    Parameters
    ----------
    new, old
        Orders, as expressions in SQL; in Spark better those of :func:`order_bytes_sql`.
    """
    return (
        f"({old} IS NULL OR CASE WHEN {_same_lane_sql(new, old)} "
        f"THEN {_end_sql(new, _PLACE)} >= {_end_sql(old, _PLACE)} ELSE {new} >= {old} END)"
    )


def order_bytes_sql(order: str) -> str:
    """Return an order as bytes, in Spark's SQL: of a text Spark counts the characters for each part that it takes."""
    return f"CAST({order} AS BINARY)"


def _end_sql(order: str, characters: int, taken: int | None = None) -> str:
    """Return the last characters of an order, or of them as many as are taken from their beginning."""
    return f"substr({order}, length({order}) - {characters - 1}{'' if taken is None else f', {taken}'})"


def _prefix_sql(order: str) -> str:
    return f"substr({order}, 1, length({order}) - {_TAIL})"


def order_after_replacement_sql(new: str, old: str) -> str:
    """Return the order of a row after a record has replaced another, in the same SQL: the time is the later of the two."""
    times = ", ".join(_end_sql(each, _TAIL, _TIME) for each in (new, old))
    return (
        f"CASE WHEN {old} IS NOT NULL AND {_same_lane_sql(new, old)} "
        f"THEN concat({_prefix_sql(new)}, greatest({times}), {_end_sql(new, CHANGE_WIDTH)}) ELSE {new} END"
    )


def _same_lane_sql(one: str, other: str) -> str:
    """Return a condition: two orders have the same first part and lane."""
    lanes = " = ".join(_end_sql(each, CHANGE_WIDTH, _LANE) for each in (one, other))
    return f"{lanes} AND {_prefix_sql(one)} = {_prefix_sql(other)}"


def decided_by_arrival_sql(new: str, old: str) -> str:
    """Return a condition in the same SQL: nothing but the arrival says which of two records of streams is the later one."""
    streamed = (f"length({each}) = {_TAIL} AND left({each}, 1) = '{_STREAM}'" for each in (new, old))
    return f"({' AND '.join(streamed)} AND NOT ({_same_lane_sql(new, old)}))"


def is_decided_by_arrival(new: str, old: str) -> bool:
    """Return what :func:`decided_by_arrival_sql` says of two texts."""
    streamed = all(len(each) == _TAIL and each.startswith(_STREAM) for each in (new, old))
    return streamed and lane_and_position(new)[0] != lane_and_position(old)[0]


def lane_and_position(order: str) -> tuple[str, str]:
    """Return the parts of an order that say whether positions can be compared, and the position."""
    return f"{order[:-_TAIL]} {order[-_LANE - _PLACE : -_PLACE]}", order[-_PLACE:]


def is_not_older(new: str, old: str) -> bool:
    """Return what :func:`not_older_sql` says of two texts."""
    (lane, place), (old_lane, old_place) = lane_and_position(new), lane_and_position(old)
    return place >= old_place if lane == old_lane else new >= old


def order_after_replacement(new: str, old: str) -> str:
    """Return what :func:`order_after_replacement_sql` says of two texts."""
    if lane_and_position(new)[0] != lane_and_position(old)[0]:
        return new
    times = (each[-_TAIL : -_LANE - _PLACE] for each in (new, old))
    return f"{new[:-_TAIL]}{max(times)}{new[-_LANE - _PLACE :]}"
