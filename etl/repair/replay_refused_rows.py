"""Replay of rows that the sink of a derive query refused.

A letter of stage ``sink`` holds the refused row and the identity of its record.
A row is corrected in one of two ways: its record goes through the query again after a fix of the transform
(or of the sink); or a corrected row replaces the refused one. Only rows with open letters are
written: good rows are not written again, whether or not the sink knows identities.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from ..commits.commit_beside_streams import NoErasureSinceSnapshot
from ..commits.duplicate_look_up_bounds import whole_table_look_up
from ..formats.decoding.decoder_output_and_checks import all_leaves_condition, contains_type
from ..formats.decoding.decoder_per_topic import rows_of_route
from ..formats.json import JsonDecoder
from ..queries.transform import EnrichThenTransform, good_records
from ..record.batch_accounts import ReplayAccounts
from ..record.envelope import CARRIED
from ..record.tables import Table
from ..sinks.base import JSON_OPTIONS, LETTER, STAGE, Sink
from ..sinks.iceberg import IcebergSink
from .replay_dead_letters import (
    FAMILY,
    LetterReplay,
    LetterSelection,
    next_identity_column,
    refuse_ambiguous_corrections,
    with_root_and_attempt,
)

MARK = "#sent"
"""Separator between a letter's identity and the number of its replay. It differs from that of landing tables (``docs/design/repair.md#refused-rows``), whose
replays are records that a sink may refuse in turn."""

_ERROR, _UNKNOWN, _ROW, _CORRUPT = "_why", "_unknown", "_row", "_corrupt"


@dataclass(frozen=True)
class RefusedRowReplayer(LetterReplay):
    """Replay of refused rows to their sink; only one replay of a query may run at a time.

    A corrected payload is a row in the form of the letter: JSON with the sink's columns, read as records in JSON are; identity
    and times are taken from the letter. In it a number that JSON cannot write (``"NaN"``) is refused.

    Parameters
    ----------
    query
        Name of the derive query.
    table
        Its table of dead letters, which exists.
    landing
        Table that it derives from; None for a query with state: its row cannot be made from one record again and
        is taken from the letter.
    compose
        Enrichment and transform.
    route
        Route of the landing table.
    schema
        Schema of the sink's rows.
    sink
        Sink after ``prepare``.
    """

    BETWEEN = MARK
    NOTHING = ReplayAccounts(0, 0, 0, 0, 0, 0)

    landing: Table | None
    compose: EnrichThenTransform
    route: str | None
    schema: StructType
    sink: Sink

    def replay_and_list_missing(
        self, held: DataFrame, selection: LetterSelection | None, fence: NoErasureSinceSnapshot
    ) -> tuple[ReplayAccounts, list[str]]:
        """See :meth:`etl.repair.replay_dead_letters.LetterReplay.replay_and_list_missing`."""
        # Results of many records have no source, and null equals nothing.
        held = held.fillna("", ["_source"])
        letters = with_root_and_attempt(held.where(F.col("_error").isNotNull()), MARK)
        settled = with_root_and_attempt(held.where(F.col("_error").isNull()), MARK).select(*FAMILY).distinct()
        row = F.struct("_attempt", *LETTER.fieldNames())
        last = letters.groupBy(*FAMILY).agg(F.max_by(row, "_attempt").alias("last")).select("_root", "last.*")
        missing: list[str] = []
        if selection is not None:
            named = selection.as_dataframe(held.sparkSession)
            missing = [r["_root"] for r in named.join(last, "_root", "left_anti").collect()]
            last = last.join(named, "_root")
            refuse_ambiguous_corrections(last, selection)
        else:
            last = last.withColumn("_corrected", F.lit(None).cast("binary"))
        still = last.join(settled, [*FAMILY], "left_anti").persist()
        try:
            count, open_ = last.count(), still.count()
            figures = (
                self._send_and_count(still, fence)
                if open_
                else {"good": 0, "filtered": 0, "bad": 0, "landed": 0}
            )
            return ReplayAccounts(count, already=count - open_, **figures), missing
        finally:
            still.unpersist()

    def _send_and_count(self, still: DataFrame, fence: NoErasureSinceSnapshot) -> Mapping[str, int]:
        spark = still.sparkSession
        as_it_was = self.landing is None or still.where("_corrected IS NOT NULL").limit(1).count() > 0
        rows, failed = (
            self._rows_and_unreadable_letters(still)
            if as_it_was
            else self._recomputed_rows_and_recordless_letters(still)
        )
        rows = rows.persist()
        try:
            refused: list[tuple[str, str, str]] = []

            def note_refused_again(letters: DataFrame) -> None:
                sendable = letters.select("_source", "_id", "_error").collect()
                refused.extend((r["_source"] or "", r["_id"], r["_error"]) for r in sendable)

            offered = rows.count()
            if offered:
                self.sink.write(rows, None, note_refused_again)
            shape = f"_source STRING, _root STRING, {_ERROR} STRING"
            sendable = spark.createDataFrame(refused, shape).dropDuplicates([*FAMILY])
            bad = sendable.unionByName(failed).persist()
            try:
                count, again = still.count(), bad.count()
                self._append_rows_of_settled_letters(still, bad, fence)
                figures = {"good": offered - sendable.count(), "bad": again, "filtered": count - again}
                changed = still.join(bad, [*FAMILY], "left_semi").where(_corrected_bytes_condition()).count()
            finally:
                bad.unpersist()
            figures["filtered"] -= figures["good"]
            return figures | {"landed": count - again + changed}
        finally:
            rows.unpersist()

    def _append_rows_of_settled_letters(
        self, still: DataFrame, bad: DataFrame, fence: NoErasureSinceSnapshot
    ) -> None:
        """Append a row for each settled letter, and for each corrected one that is refused again."""
        result = still.join(bad, [*FAMILY], "left").where(
            F.col(_ERROR).isNull() | _corrected_bytes_condition()
        )
        again = F.col(_ERROR).isNotNull()
        known = {
            "_id": next_identity_column(F.col("_root"), F.col("_attempt"), MARK),
            "_source": F.when(F.col("_source") != "", F.col("_source")),
            "_landed_at": F.current_timestamp(),
            "_bytes": F.when(again, F.col("_corrected")),
            "_stage": F.when(again, F.lit(STAGE)),
            "_error": F.col(_ERROR),
        }
        rows = result.select(*(known.get(name, F.col(name)).alias(name) for name in LETTER.fieldNames()))
        IcebergSink(self.table).append(rows, whole_table_look_up(), fence=fence)

    def _rows_and_unreadable_letters(self, still: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return rows from letters or corrected payloads, and the letters from which no row can be read."""
        own: dict[str, Column] = {"_id": F.col("_root"), "_written_at": F.current_timestamp()}
        own |= {name: F.col(name) for name in CARRIED[1:]}
        columns = StructType([f for f in self.schema.fields if f.name == "_id" or f.name not in own])
        keys = all_leaves_condition(columns, F.col(_ROW), _keys_castable_condition)
        no_keys = (
            [] if keys is None else [F.when(~keys, "a name in a map that is no key of its type, or twice")]
        )
        changed = _corrected_bytes_condition()
        read, corrections = _rows_as_written(still.where(~changed), columns), still.where(changed)
        if not corrections.isEmpty():
            read = read.unionByName(_rows_of_corrections(corrections, columns))
        read = read.withColumn(_ERROR, F.concat(F.lit("millrace: "), F.coalesce(_ERROR, *no_keys)))
        fields = [
            own.get(f.name, _value_with_cast_keys(f.dataType, F.col(_ROW)[f.name]))
            .cast(f.dataType)
            .alias(f.name)
            for f in self.schema.fields
        ]
        good = F.col(_ERROR).isNull()
        return read.where(good).select(*fields), read.where(~good).select(*FAMILY, _ERROR)

    def _recomputed_rows_and_recordless_letters(self, still: DataFrame) -> tuple[DataFrame, DataFrame]:
        """Return rows that the current transform makes from their records, and letters without a record."""
        assert self.landing is not None, f"{self.query}: keeps state"
        spark = still.sparkSession
        # As numbers: Spark's range of times is larger than Python's.
        ends = (F.expr(f"{end}(unix_micros(_arrived_at))") for end in ("min", "max"))
        [span] = still.agg(*ends).collect()
        first, last = (F.expr(f"timestamp_micros({micros}L)") for micros in span)
        records = good_records(spark.table(str(self.landing))).where(
            F.col("_arrived_at").between(first, last)
        )
        # A row's identity is its record's, with an ordinal after a slash for each explode.
        parts = F.split("_root", "/")
        begins = F.transform(
            F.sequence(F.lit(1), F.size(parts)), lambda n: F.array_join(F.slice(parts, F.lit(1), n), "/")
        )
        wanted = still.select("_root", "_source", F.explode(begins).alias("_id"))
        there = wanted.join(records.select("_id", "_source"), ["_id", "_source"], "left_semi")
        taken = records.join(there.select("_id", "_source").distinct(), ["_id", "_source"], "left_semi")
        rows = self.compose(rows_of_route(taken, self.route, str(self.landing)))
        rows = rows.join(
            still.select("_source", F.col("_root").alias("_id")), ["_source", "_id"], "left_semi"
        )
        lost = still.join(there.select(*FAMILY).distinct(), [*FAMILY], "left_anti")
        why = F.lit(f"millrace: its record is not in {self.landing}").alias(_ERROR)
        return rows.select(*(F.col(f"`{c}`") for c in self.schema.fieldNames())), lost.select(*FAMILY, why)


def _corrected_bytes_condition() -> Column:
    """Return a condition, never null: a letter was corrected, with other bytes."""
    return F.col("_corrected").isNotNull() & ~F.col("_corrected").eqNullSafe(F.col("_bytes"))


def _rows_as_written(letters: DataFrame, columns: StructType) -> DataFrame:
    """Read the rows that letters hold, as :func:`etl.sinks.base.row_as_json` writes them: with ``"NaN"``, and columns of then.

    Returns
    -------
    DataFrame
        ``_root`` and times; the row, with texts as the keys of maps; and the reason why there is none: also a value under a
        name that is no column any more, such as one that got another name, as it would be lost without a word.
    """
    shape = StructType([*_type_parsed_from_json(columns), StructField(_CORRUPT, StringType())])
    options = {**JSON_OPTIONS, "columnNameOfCorruptRecord": _CORRUPT}
    read = F.from_json(F.col("_bytes").cast("string"), shape, options)
    row = F.col(_ROW)
    broken = row.isNull() | row[_CORRUPT].isNotNull()
    unknown = _unknown_names_of_payload(columns, F.col("_bytes"))
    why = F.when(broken, "no row of this sink's columns, in JSON").otherwise(_reason_of_unknown_names())
    return letters.select("_root", *CARRIED[1:], read.alias(_ROW), unknown).select(
        "_root", *CARRIED[1:], _struct_of(columns, row.getField), why.alias(_ERROR)
    )


def _rows_of_corrections(letters: DataFrame, columns: StructType) -> DataFrame:
    """Read corrected payloads strictly, as records are: a person wrote them. Returns as :func:`_rows_as_written`."""
    payload = F.col("_corrected")
    unknown = _unknown_names_of_payload(columns, payload)
    given = letters.select("_root", *CARRIED[1:], unknown, payload.alias("payload"))
    # Cut off: Spark would put the decoder's expressions into each place that uses a column, and of maps in maps not end its plan.
    read = JsonDecoder(_type_parsed_from_json(columns)).decode(given).localCheckpoint()
    return read.select(
        "_root",
        *CARRIED[1:],
        _struct_of(columns, lambda name: F.col(f"`{name}`")),
        F.coalesce("_error", _reason_of_unknown_names()).alias(_ERROR),
    )


def _unknown_names_of_payload(columns: StructType, payload: Column) -> Column:
    return F.udf(partial(_unknown_names, columns))(payload.cast("string")).alias(_UNKNOWN)


def _reason_of_unknown_names() -> Column:
    return F.when(F.col(_UNKNOWN) != "", F.concat(F.lit("no column of this sink: "), _UNKNOWN))


def _unknown_names(columns: StructType, text: str) -> str:
    """Return the names in a row's JSON, with those around them, for which the sink's columns have no field."""

    def within(kind: DataType, value: object, path: str) -> Iterator[str]:
        if isinstance(kind, ArrayType) and isinstance(value, list):
            for each in value:
                yield from within(kind.elementType, each, path)
        if isinstance(kind, MapType) and isinstance(value, dict):
            for each in value.values():
                yield from within(kind.valueType, each, path)
        if isinstance(kind, StructType) and isinstance(value, dict):
            for name, each in value.items():
                if name in kind.fieldNames():
                    yield from within(kind[name].dataType, each, f"{path}{name}.")
                elif path or not name.startswith("_"):  # a letter's own columns are taken from it
                    yield path + name

    try:
        return ", ".join(dict.fromkeys(within(columns, json.loads(text), "")))
    except (ValueError, RecursionError):
        return ""  # the decoder says what it is


def _struct_of(columns: StructType, value_of: Callable[[str], Column]) -> Column:
    return F.struct(*(value_of(f.name).alias(f.name) for f in columns)).alias(_ROW)


def _type_parsed_from_json(kind: StructType) -> StructType:
    """Return a row's type with texts as the keys of maps, because Spark parses no others, and with every field nullable."""

    def parsed(kind: DataType) -> DataType:
        if isinstance(kind, ArrayType):
            return ArrayType(parsed(kind.elementType))
        if isinstance(kind, MapType):
            return MapType(StringType(), parsed(kind.valueType))
        return _type_parsed_from_json(kind) if isinstance(kind, StructType) else kind

    return StructType([StructField(f.name, parsed(f.dataType)) for f in kind.fields])


def _has_cast_keys(kind: DataType) -> bool:
    return isinstance(kind, MapType) and not isinstance(kind.keyType, StringType)


def _keys_castable_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: the names of a parsed map are keys of its type, all different."""
    if not isinstance(kind, MapType) or not _has_cast_keys(kind):
        return None
    keys = F.transform(F.map_keys(value), lambda name: name.cast(kind.keyType))
    return F.forall(keys, lambda key: key.isNotNull()) & (F.size(F.array_distinct(keys)) == F.size(keys))


def _value_with_cast_keys(kind: DataType, value: Column) -> Column:
    """Return a value of :func:`_type_parsed_from_json` whose maps have keys of their own type."""
    if not contains_type(kind, _has_cast_keys):
        return value
    if isinstance(kind, ArrayType):
        return F.transform(value, lambda one: _value_with_cast_keys(kind.elementType, one))
    if isinstance(kind, MapType):

        def entry(one: Column) -> Column:
            return F.struct(
                one["key"].cast(kind.keyType), _value_with_cast_keys(kind.valueType, one["value"])
            )

        return F.map_from_entries(F.transform(F.map_entries(value), entry))
    assert isinstance(kind, StructType), kind
    parts = (_value_with_cast_keys(f.dataType, value[f.name]).alias(f.name) for f in kind.fields)
    return F.when(value.isNotNull(), F.struct(*parts))
