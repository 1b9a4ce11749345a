"""Order of the changes of a database, and the rows that a change leaves and removes.

The order is that of :mod:`etl.sinks.delivery.record_order`, with other lanes and positions: the place of a change in the database's log decides, and
not that of its record. So a repeated or moved record never turns time back. Rows of a snapshot and the changes have lanes of their
own, of which the later arrival decides: a log has no place for the moment of a snapshot (:mod:`etl.formats.changes.debezium`).

===============  ============================================  ========================================  ==============
change           lane                                          time                                      position
===============  ============================================  ========================================  ==============
with a position  the change's lane                             arrival                                   50 digits, the rank, 13 of the offset
by its time      the record's lane, and the time               the change's, then arrival                the record's
any other        the record's lane                             arrival                                   the record's
===============  ============================================  ========================================  ==============

The rank is 1, or 0 for a row that a change removes: if the key stays, the row after it replaces it. A connector writes the change of a
primary key as a delete and an insert at one place of the log, in two records: so there the rank stands before the record's offset, and
in a position of a record behind it.
"""

from __future__ import annotations

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..formats.changes.decoder import BY_TIME, DELETE, TRUNCATE
from ..formats.decoding.decoder_output_and_checks import CHANGE
from ..sinks.base import DELETED, ORDER, STAGE, RowOrderLister, Sink
from ..sinks.delivery.record_order import POSITION, not_older_sql, with_position_struct

_AFTER = "_after"
_LOGGED, _WHOLE, _DIGITS = 50, 63, 56


def is_change_table(rows: DataFrame) -> bool:
    """Check that rows of a landing table are changes."""
    return CHANGE in rows.columns


def rows_and_deletes_of_changes(records: DataFrame) -> DataFrame:
    """Return the rows of changes, of an update the one before it too, which is deleted.

    Parameters
    ----------
    records
        Good records of a landing table, with :data:`~etl.sinks.base.DELETED`, ``_position`` of
        :func:`~etl.sinks.delivery.record_order.with_position_struct` and :data:`~etl.formats.decoding.decoder_output_and_checks.CHANGE`.
    """
    change = records.schema[CHANGE].dataType
    assert isinstance(change, StructType)
    before = change["before"].dataType
    assert isinstance(before, StructType)
    sides = F.when(F.col(CHANGE)["before"].isNotNull(), F.array(F.lit(False), F.lit(True)))
    sided = records.where(~_truncate_condition()).select(
        "*", F.explode(sides.otherwise(F.array(F.lit(True)))).alias(_AFTER)
    )
    after, old, place = F.col(_AFTER), F.col(CHANGE)["before"], _position_struct_of_change()
    logged = F.col(CHANGE)["position"].isNotNull()
    removed = ~after | (logged & (F.col(CHANGE)["operation"] == DELETE))
    rank = F.when(removed, F.lit("0")).otherwise(F.lit("1"))
    in_front = F.when(logged, F.lit(_LOGGED)).otherwise(F.lit(_WHOLE))
    whole = place["position"]
    position = F.concat(whole.substr(F.lit(1), in_front), rank, whole.substr(in_front + 2, F.lit(_WHOLE)))
    changed = {
        "_position": place.withField("position", position),
        DELETED: F.col(DELETED) | ~after,
        **{
            name: F.when(after, F.col(f"`{name}`")).otherwise(old[name])
            for name in before.fieldNames()
            if name in records.columns
        },
    }
    return sided.select(
        *(changed[name].alias(name) if name in changed else F.col(f"`{name}`") for name in records.columns)
    )


def orders_of_truncates(records: DataFrame) -> list[str]:
    """Return the orders of the changes in a batch that delete all rows of the table."""
    if not is_change_table(records):
        return []
    place = F.col("_position")
    order = F.concat(place["time"], place["lane"], place["position"])
    return [row[0] for row in positions_of_truncates(records).select(order).distinct().collect()]


def positions_of_truncates(records: DataFrame) -> DataFrame:
    """Return ``_position`` of the changes in a batch that delete all rows of the table."""
    return with_position_struct(records.where(_truncate_condition())).select(
        _position_struct_of_change().alias("_position")
    )


def dead_letters_of_truncates(records: DataFrame) -> DataFrame:
    """Return the truncates of a batch in the shape of :data:`~etl.sinks.base.LETTER`, for a sink that cannot list its rows."""
    reason = (
        "the table was truncated in the source database, and this sink cannot list its rows: delete by hand those that "
        "are older than this change; later ones are written"
    )
    return records.where(_truncate_condition()).select(
        *("_id", "_source", "_arrived_at", "_landed_at"),
        F.to_json(CHANGE).cast("binary").alias("_bytes"),
        F.lit(STAGE).alias("_stage"),
        F.lit(reason).alias("_error"),
    )


def rows_and_deletes_after_truncates(rows: DataFrame, orders: list[str], sink: Sink) -> DataFrame:
    """Return the rows that are later than the truncates, and a delete for each older row of a sink that can list its rows.

    Parameters
    ----------
    rows
        ``_id``, :data:`~etl.sinks.base.ORDER`, :data:`~etl.sinks.base.DELETED` and the columns of the sink.
    orders
        Result of :func:`orders_of_truncates`.
    """
    if not orders:
        return rows
    later = rows.where(~older_than_any_condition(orders))
    if not isinstance(sink, RowOrderLister):
        return later
    gone = (
        sink.identities_and_orders(rows.sparkSession)
        .where(older_than_any_condition(orders))
        .join(later.select("_id"), "_id", "left_anti")
    )
    # Each with the order of its row: of several truncates, no single one is later than all rows.
    known = {
        ORDER: F.coalesce(ORDER, F.lit(min(orders))),
        DELETED: F.lit(True),
        "_id": F.col("_id"),
    }
    deletes = (known.get(f.name, F.lit(None).cast(f.dataType)).alias(f.name) for f in rows.schema)
    return later.unionByName(gone.select(*deletes))


def older_than_any_condition(orders: list[str]) -> Column:
    """Return a condition: a row is older than one of the orders; one without an order is."""
    older = reduce(or_, (F.expr(f"NOT {not_older_sql(ORDER, repr(order))}") for order in orders))
    return F.coalesce(older, F.lit(True))


def _truncate_condition() -> Column:
    return F.col(CHANGE)["operation"].eqNullSafe(TRUNCATE)


def _position_struct_of_change() -> Column:
    """Return the place of a change, of the type of ``_position`` (:data:`~etl.sinks.delivery.record_order.POSITION`)."""
    change, own = F.col(CHANGE), F.col("_position")
    # Of two records of the same change, or of a snapshot's row and the change before it.
    offset = F.substring(own["position"], _DIGITS - 12, 13)
    tie = F.when(F.col("_shard").isNotNull(), offset).otherwise(F.substring(own["time"], 2, 13))
    micros = F.greatest(F.coalesce(F.unix_micros(change["at"]), F.lit(0)), F.lit(0))

    def position_fields(position: Column, time: Column, lane: Column, identity: Column) -> Column:
        at = F.coalesce(change["at"], own["at"])
        parts = (position, time, lane, F.concat(lane, identity), at)
        return F.struct(*(part.alias(name) for part, name in zip(parts, POSITION.names, strict=True)))

    def hash_of_change(*parts: Column) -> Column:
        return F.lpad(F.hex(F.xxhash64(F.lit("change"), *parts)), 16, "0")

    logged = position_fields(
        F.concat(change["position"], F.lit("1"), tie),
        own["time"],
        hash_of_change(change["lane"]),
        # Without the record's offset: a repeated change is no other one.
        F.rpad(change["position"], _WHOLE + 1, "0"),
    )
    whole = _position_with_spare_digit(own["position"])
    timed = position_fields(
        whole,
        # Of equal times in two lanes, such as a truncate and a row, the arrival decides.
        F.concat(F.lit("1"), F.lpad(micros.cast("string"), 16, "0"), own["time"]),
        hash_of_change(own["lane"], micros),
        whole,
    )
    by_time = (change["lane"] == BY_TIME) & change["at"].isNotNull()
    other = position_fields(whole, own["time"], own["lane"], whole)
    return F.when(change["position"].isNotNull(), logged).when(by_time, timed).otherwise(other)


def _position_with_spare_digit(position: Column) -> Column:
    """Return a record's position with room for one more digit: an aggregate has less than ten million records."""
    return F.concat(F.substring(position, 1, _DIGITS), F.substring(position, _DIGITS + 2, 7), F.lit("1"))
