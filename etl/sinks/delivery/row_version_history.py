"""History of rows with a key: each change of a row is a version, with the time from which it was the row.

A version's ``_id`` is its key as JSON, a blank, and the identity of its change, which all records of the change have. Versions depend
on the set of records alone: not on batches, repetitions or their order.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, LongType, StructField, StructType, TimestampType

from ...formats.decoding.decoder_output_and_checks import all_texts_utf8_condition
from ..base import DELETED, HASH, JSON_OPTIONS, ORDER, refuse_unwritable_map_keys
from .keyed_rows import result_identity, texts_as_bytes, user_columns
from .record_order import CHANGE_WIDTH, time_lane_and_position_of_order

IS_DELETE, VALID_FROM, VALID_TO = "_is_delete", "_valid_from", "_valid_to"
"""Columns of a table of versions: true if the row was deleted then, and the interval, whose end is null for the row of now."""

SCHEMA = StructType(
    [
        StructField(IS_DELETE, BooleanType()),
        StructField(HASH, LongType()),
        StructField(VALID_FROM, TimestampType()),
        StructField(VALID_TO, TimestampType()),
    ]
)
"""Columns of versions beside those of results, which have ``_id`` and :data:`~etl.sinks.base.ORDER` too."""

NEW = "_new"

_OF, _POSITION, _LANE, _TIME, _SINCE, _OLD = (
    f"_version_{name}" for name in ("of", "position", "lane", "time", "since", "old")
)

_PLACES = (_SINCE, _LANE, _POSITION, "_id")
"""Columns by which the versions of a key are in order."""

_LAST = "\U0010ffff"
"""After every text."""


def versions_of_changes(rows: DataFrame, key: tuple[str, ...], name: str) -> DataFrame:
    """Return a version for each change in rows, without its end.

    Parameters
    ----------
    rows, key, name
        As in :func:`etl.sinks.delivery.keyed_rows.newest_of_each_key`.

    Returns
    -------
    DataFrame
        ``_id``, the user's columns, :data:`~etl.sinks.base.ORDER` and :data:`SCHEMA`.

    Raises
    ------
    StartError
        As there, or a column has no form as JSON, by which versions are compared.
    """
    theirs = user_columns(rows, key, name)
    refuse_unwritable_map_keys(StructType(theirs), f"transform {name}: history")
    place, columns = F.col("_position"), [F.col(f"`{f.name}`") for f in theirs]
    deleted = F.coalesce(DELETED, F.lit(False))
    # Of a delete a database may log no more than the key.
    content = F.when(~deleted, F.xxhash64(_json_of_content(StructType(theirs), F.struct(*columns))))
    row = F.struct(*columns, deleted.alias(IS_DELETE), content.alias(HASH), place["at"].alias(VALID_FROM))
    each = rows.select(
        F.concat(result_identity(rows.schema, key), F.lit(" "), place["change"]).alias("_id"),
        place.alias("_place"),
        row.alias("_row"),
    )
    last = each.groupBy("_id").agg(
        F.max_by("_row", "_place.position").alias("_row"),
        _order_of_all_copies(F.col("_place")).alias(ORDER),
    )
    return last.select("_id", "_row.*", ORDER, F.lit(None).cast("timestamp").alias(VALID_TO))


def _json_of_content(kind: StructType, row: Column) -> Column:
    """Return a row as JSON, of which equal rows have the same; with the bytes of its texts if one is not UTF-8."""
    result = F.to_json(row, dict(JSON_OPTIONS))
    valid = all_texts_utf8_condition(kind, row)
    if valid is None:
        return result
    return F.when(valid, result).otherwise(F.to_json(texts_as_bytes(kind, row), dict(JSON_OPTIONS)))


def delete_versions_of_every_key(truncates: DataFrame, schema: StructType) -> DataFrame:
    """Return versions that delete the rows of every key: ``_id`` has no key.

    Parameters
    ----------
    truncates
        ``_position``.
    schema
        Columns of versions.
    """
    place = F.col("_position")
    # Of a truncate that is repeated, the latest arrival counts, as of any change.
    each = truncates.groupBy(F.concat(F.lit(" "), place["change"]).alias("_id")).agg(
        _order_of_all_copies(place).alias(ORDER),
        F.lit(True).alias(IS_DELETE),
        F.max_by(place["at"], place["position"]).alias(VALID_FROM),
    )
    return each.select(
        *(f.name if f.name in each.columns else F.lit(None).cast(f.dataType).alias(f.name) for f in schema)
    )


def _order_of_all_copies(place: Column) -> Column:
    """Return the order of a change in an aggregation of its records."""
    return F.concat(*(F.max(place[name]) for name in ("time", "lane", "position")))


@contextmanager
def new_and_newly_ended_versions(
    new: DataFrame, stored: DataFrame, *, every: bool, erased: bool = False
) -> Iterator[DataFrame]:
    """Give the new versions, and the stored ones that end otherwise with them, while those of their keys are cached.

    A version ends where the earliest later one begins, by the times of the database; which one is later, the order says, as clocks may go
    back. So at each time there is one row of a key, or none. An empty interval, which ends where it begins, have

    - a delete,
    - a version that was followed within the resolution of the times, as in one transaction,
    - a version that equals the one that is visible before it: a repeated record, a row of a snapshot, a change of other columns.

    An erased version leaves a gap: the end of the one before it, at which no version of the table begins, shows it, and it counts as
    followed by what begins at that time or later.

    Parameters
    ----------
    new
        Versions of a batch; read several times.
    stored
        Versions of the table.
    every
        Whether ``new`` has versions of :func:`delete_versions_of_every_key`.
    erased
        Whether versions of the table may have been erased; then it is searched for their gaps.

    Yields
    ------
    DataFrame
        ``_id``, :data:`~etl.sinks.base.ORDER`, :data:`VALID_TO`, and :data:`NEW`: false if other columns stay as they are stored.
    """
    own = ("_id", ORDER, *SCHEMA.fieldNames())
    key = F.expr(f"left(_id, length(_id) - {CHANGE_WIDTH + 1})")
    new, stored = (each.select(*own, key.alias(_OF)) for each in (new, stored))
    if not every:
        touched = new.select(_OF).union(new.sparkSession.createDataFrame([("",)], f"{_OF} STRING"))
        stored = stored.join(touched.distinct(), _OF, "left_semi")
    both = stored.withColumn(NEW, F.lit(False)).unionByName(new.withColumn(NEW, F.lit(True)))
    time, lane, position = time_lane_and_position_of_order(F.col(ORDER))
    content = F.struct(IS_DELETE, HASH, VALID_FROM, NEW, position.alias(_POSITION))
    one = both.groupBy(_OF, "_id").agg(
        F.max_by(content, F.struct(position, NEW)).alias("_content"),
        F.max(lane).alias(_LANE),
        F.max(time).alias(_TIME),
        F.max(F.when(~F.col(NEW), F.struct(F.lit(True).alias("is"), VALID_FROM, VALID_TO, ORDER))).alias(
            _OLD
        ),
    )
    # Cached, as each use in a plan of its own joins and groups again: seven times the CPU of a small batch.
    flat = one.select(_OF, "_id", "_content.*", _LANE, _TIME, _OLD).persist()
    try:
        yield _changed_versions(flat, erased=erased)
    finally:
        flat.unpersist()


def _changed_versions(flat: DataFrame, *, erased: bool) -> DataFrame:
    line, marks = flat.where(f"{_OF} != ''"), flat.where(f"{_OF} = ''")
    truncated = not marks.isEmpty()
    if truncated:
        line = line.unionByName(line.select(_OF).distinct().crossJoin(F.broadcast(marks.drop(_OF))))
    # As with the last record of a key: inside a lane by position, between lanes by the latest arrival so far.
    in_lane = Window.partitionBy(_OF, _LANE).orderBy(_POSITION, "_id")
    line = line.withColumn(_SINCE, F.max(_TIME).over(in_lane))
    if erased:
        line = line.unionByName(_erased_versions(line))
    line = _versions_with_ends(line).where("NOT startswith(_id, ' ')").drop(_SINCE)
    if truncated:
        line = line.unionByName(marks.withColumn(VALID_TO, F.col(VALID_FROM)))
    order = F.concat(_TIME, _LANE, _POSITION)
    same = F.col(_OLD)[VALID_TO].eqNullSafe(F.col(VALID_TO)) & F.col(_OLD)[ORDER].eqNullSafe(order)
    return line.where(~(F.col(_OLD).isNotNull() & same & ~F.col(NEW))).select(
        "_id", order.alias(ORDER), VALID_TO, NEW
    )


def _erased_versions(line: DataFrame) -> DataFrame:
    """Return a version that deletes, for each stored end at which no stored version begins; ``_id`` is a blank."""
    old, place = F.col(_OLD), F.struct(*_PLACES)
    begins = line.select(_OF, old[VALID_FROM].alias("_end"))
    ended = line.where(old[VALID_TO] > old[VALID_FROM]).select(
        _OF, old[VALID_TO].alias("_end"), place.alias("_after")
    )
    later = line.select(F.col(_OF).alias("_of"), F.col(VALID_FROM).alias("_begun"), place.alias("_at"))
    gaps = ended.join(begins, [_OF, "_end"], "left_anti")
    follows = F.expr(f"{_OF} = _of AND _at > _after AND _begun >= _end")
    found = gaps.join(later, follows, "left").groupBy(_OF, "_end", "_after").agg(F.min("_at").alias("_at"))
    values = {
        _OF: F.col(_OF),
        "_id": F.lit(" "),
        IS_DELETE: F.lit(True),
        VALID_FROM: F.col("_end"),
        # Directly before what follows, whose identity sorts after a blank; else after all.
        **{name: F.coalesce(F.col("_at")[name], F.lit(_LAST)) for name in _PLACES[:-1]},
    }
    return found.select(
        *(values.get(f.name, F.lit(None)).cast(f.dataType).alias(f.name) for f in line.schema)
    )


def _versions_with_ends(versions: DataFrame) -> DataFrame:
    rows_before = (Window.unboundedPreceding, -1)
    earlier = Window.partitionBy(_OF).orderBy(*_PLACES).rowsBetween(*rows_before)
    # Backwards: Spark computes the frame of all following rows anew for each row.
    later = Window.partitionBy(_OF).orderBy(*map(F.desc, _PLACES)).rowsBetween(*rows_before)
    begun, ends = F.col(VALID_FROM), F.min(VALID_FROM).over(later)
    found = versions.withColumn("_seen", ends.isNull() | (begun < ends))
    before = F.last(F.when(F.col("_seen"), F.struct(HASH)), ignorenulls=True).over(earlier)[HASH]
    found = found.withColumn("_begins", F.col("_seen") & ~F.col(HASH).eqNullSafe(before))
    end = F.min(F.when(F.col("_begins"), begun)).over(later)
    is_row = F.col("_begins") & ~F.col(IS_DELETE)
    return found.withColumn(VALID_TO, F.when(is_row, end).otherwise(begun)).select(
        *versions.columns, VALID_TO
    )
