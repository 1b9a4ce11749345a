"""Change events of Debezium: with and without the schema wrapper of Kafka Connect, or flattened by ExtractNewRecordState.

The order of changes is that of the database's log (:meth:`_ConnectorEvents.columns_of_change_place`). The rows of a snapshot have a lane of their own: a
transaction that was open during the snapshot has an earlier place in the log and is later all the same, so between them the record
that arrived later decides. Rows of an incremental snapshot are among the changes, with the place of the change before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from ...launch.formats import DebeziumFormat
from .. import schema_files
from ..base import Decoder
from ..decoding import times
from ..decoding.decoder_output_and_checks import valid_utf8_condition, verdict_naming_fields
from . import avro_events_as_json, connect_schemas
from .decoder import CONTROL, DELETE, TRUNCATE, ChangeDecoder, ChangeEnvelope
from .wire_types import WireTypes, no_placeholder_condition

_TEXTS = (
    "connector",
    "name",
    "db",
    "schema",
    "table",
    "snapshot",
    "sequence",
    "gtid",
    "file",
    "commit_scn",
)
_LSNS = ("change_lsn", "commit_lsn")
_NUMBERS = ("ts_ms", "lsn", "server_id", "pos", "row", "txSeq", "event_serial_no")
_SOURCE = StructType(
    [
        *(StructField(name, StringType()) for name in (*_TEXTS, *_LSNS)),
        *(StructField(name, LongType()) for name in _NUMBERS),
    ]
)
"""Fields of ``source`` that say where a change is; each connector has some of them."""

_HEAD = StructType(
    [
        *(StructField(name, StringType()) for name in ("op", "status")),
        StructField("ts_ms", LongType()),
        StructField("source", _SOURCE),
        StructField("transaction", StructType([StructField("id", StringType())])),
        StructField("tableChanges", ArrayType(StringType())),
    ]
)

_PREFIXES = "__source_", "__"

_OPERATIONS = {"c": "insert", "u": "update", "r": "snapshot", "d": DELETE, "t": TRUNCATE, "m": CONTROL}

_WRAPPED = (
    r'(?s)\A\s*+\{\s*+"schema"\s*+:(?=.*\}\s*+\z)\s*+(?:null|\{.*?\})\s*+,\s*+"payload"\s*+:(.*)\}\s*+\z'
)
"""Form that Connect's JsonConverter gives an event with ``schemas.enable``; no schema has a field ``payload`` of its own.
The end is looked for first: where it is missing, each possible beginning of the payload would be read to the end."""

_HEARTBEAT = r'\A\s*+\{\s*+"ts_ms"\s*+:\s*+\d++\s*+\}\s*+\z'
_GTID = r"(?:-\d+-|:)(\d+)\z"
"""The number of a transaction, behind its origin: ``UUID:NUMBER`` or ``UUID:TAG:NUMBER`` (MySQL), ``DOMAIN-SERVER-NUMBER`` (MariaDB)."""

_DIGITS = 20


def open_decoder(form: DebeziumFormat, spark: SparkSession, schema: str, open_up_to: int | None) -> Decoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`."""
    envelope = debezium_envelope(unscaled=form.decimals == "precise", flattened=form.flattened)
    decoder = ChangeDecoder(schema_files.read_ddl_schema(spark, schema), envelope)
    return (
        decoder
        if form.avro is None
        else avro_events_as_json.open_decoder(decoder, form.avro, spark, schema, open_up_to)
    )


def debezium_envelope(*, unscaled: bool = True, flattened: bool = False) -> ChangeEnvelope:
    """Return the shape of events; the parameters as in :class:`DebeziumFormat`."""
    return (_FlattenedEvents if flattened else _ConnectorEvents)(WireTypes(numeric=True, unscaled=unscaled))


@dataclass(frozen=True)
class _ConnectorEvents(ChangeEnvelope):
    """Events as the connectors write them."""

    @property
    def fields_beside_rows(self) -> StructType:
        return _HEAD

    def fields_of_rows(self, wire: StructType) -> StructType:
        return StructType([StructField("before", wire), StructField("after", wire)])

    def event_text(self, payload: Column, key: Column) -> Column:
        return _without_schema_wrapper(payload)

    def source_struct(self, head: Column) -> Column:
        source = head["source"]
        values = {f.name: source[f.name] for f in _SOURCE}
        return F.when(source.isNotNull(), _struct_with_parsed_sequence(values))

    def columns_of_change_and_rows(self, head: Column, raw: Column, wire: StructType) -> Mapping[str, Column]:
        heartbeat = _without_schema_wrapper(raw).rlike(_HEARTBEAT)
        ends = head["status"].isin("BEGIN", "END") & head["ts_ms"].isNotNull()
        control = head["op"].isNull() & (head["tableChanges"].isNotNull() | ends | heartbeat)
        operation = F.coalesce(_operation_name(head["op"]), F.when(control, CONTROL))
        return {
            "operation": operation,
            "transaction": head["transaction"]["id"],
            "after": F.col("after"),
            "before": F.col("before"),
        }

    def columns_of_change_place(self, source: Column, operation: Column) -> Mapping[str, Column]:
        """Return the place of a change: its table, lane and position in it, and time."""
        sequence = source["sequence"]
        # Rows of an incremental snapshot are among the changes.
        whole = F.coalesce(
            (operation == "snapshot") & ~source["snapshot"].eqNullSafe("incremental"), F.lit(False)
        )
        # No commit is known before the first transaction after a start.
        first = sequence.isNotNull() & sequence[0].isNull() & ~whole
        commit = F.when(~whole, sequence[0])
        position = F.coalesce(
            *(
                F.when(_hexadecimal_parts_condition(parts), _join_position_parts(parts))
                for parts in _log_position_of_each_database(source, commit)
            )
        )
        # Another server has other files, and the same numbers of transactions.
        origin = F.when(source["gtid"].rlike(_GTID), F.regexp_replace(source["gtid"], _GTID, ""))
        lane = F.concat_ws(
            "/",
            F.coalesce(source["connector"], F.lit("")),
            F.coalesce(source["name"], F.lit("")),
            F.coalesce(origin, source["server_id"].cast("string"), F.lit("")),
            F.when(whole, "snapshot").when(first, "first").otherwise(""),
        )
        return {
            "table": F.concat_ws(".", F.coalesce(source["schema"], source["db"]), source["table"]),
            "lane": lane,
            "position": position,
            "at": times.time_from_milliseconds(source["ts_ms"]),
        }

    def row_completed_from_before(self, row: StructType, after: Column, before: Column) -> Column:
        """Return the row after a change, with values that the database did not log from the row before it."""
        values = []
        for f in row:
            value, old = after[f.name], before[f.name]
            given = no_placeholder_condition(f.dataType, value)
            known = value if given is None else F.when(given | old.isNull(), value).otherwise(old)
            values.append(known.alias(f.name))
        return F.when(after.isNotNull(), F.struct(*values))

    def fields_written_otherwise(self, row: StructType, raw: Column) -> Iterator[Column]:
        return connect_schemas.fields_of_other_schema(row, raw, unscaled=self.values.unscaled)

    def reason_against_event(self, row: StructType, after: Column) -> Column | None:
        given = ((f.name, no_placeholder_condition(f.dataType, after[f.name])) for f in row)
        return verdict_naming_fields(
            "a value that the database did not log (PostgreSQL: set REPLICA IDENTITY FULL): ",
            ((name, ~each) for name, each in given if each is not None),
        )


@dataclass(frozen=True)
class _FlattenedEvents(_ConnectorEvents):
    """Rows that ExtractNewRecordState has made of events, with ``add.fields`` as ``__NAME`` or ``__source_NAME``."""

    deletes_by_key = True

    @property
    def fields_beside_rows(self) -> StructType:
        names = (StructField(name, StringType()) for name in ("__op", "__deleted"))
        return StructType(
            [*names, *(StructField(f"{p}{f.name}", f.dataType) for f in _SOURCE for p in _PREFIXES)]
        )

    def fields_of_rows(self, wire: StructType) -> StructType:
        return wire

    def event_text(self, payload: Column, key: Column) -> Column:
        """Return the row; for a tombstone, which is all that the default leaves of a delete, its key."""
        return F.coalesce(
            _without_schema_wrapper(payload),
            _without_schema_wrapper(F.when(payload.isNull() & valid_utf8_condition(key), key)),
        )

    def source_struct(self, head: Column) -> Column:
        return _struct_with_parsed_sequence(
            {f.name: F.coalesce(*(head[f"{p}{f.name}"] for p in _PREFIXES)) for f in _SOURCE}
        )

    def columns_of_change_and_rows(self, head: Column, raw: Column, wire: StructType) -> Mapping[str, Column]:
        fields = [F.col(f"`{f.name}`") for f in wire]
        deletes = F.coalesce((head["__deleted"] == "true") | raw.isNull(), F.lit(False))
        named = F.when(head["__op"].isNull(), F.lit("update")).otherwise(_operation_name(head["__op"]))
        given = reduce(lambda one, other: one | other, (each.isNotNull() for each in fields))
        return {
            "operation": F.when(given, F.when(deletes, F.lit(DELETE)).otherwise(named)),
            "transaction": F.lit(None).cast("string"),
            "after": F.struct(*fields),
            "before": F.lit(None).cast(wire),
        }


def _struct_with_parsed_sequence(values: Mapping[str, Column]) -> Column:
    """Return a struct with ``sequence`` as an array: parsed once here, and again in each expression that uses a text."""
    parsed = {"sequence": F.from_json(values["sequence"], "array<string>")}
    return F.struct(*(value.alias(name) for name, value in ({**values, **parsed}).items()))


def _without_schema_wrapper(payload: Column) -> Column:
    """Return the payload of Connect's wrapper, any other text unchanged, and null for a null in the wrapper."""
    text = payload.cast("string")
    inner = F.when(text.rlike(_WRAPPED), F.regexp_extract(text, _WRAPPED, 1)).otherwise(text)
    return F.when(~inner.rlike(r"\A\s*+null\s*+\z"), inner)


def _operation_name(op: Column) -> Column:
    return F.coalesce(*(F.when(op == letter, name) for letter, name in _OPERATIONS.items()))


def _log_position_of_each_database(source: Column, before: Column) -> Sequence[tuple[Column, Column, Column]]:
    """Return the position in the log of each database, as three texts that are compared in turn; null where it has no such log.

    ``before`` is the commit before the transaction, in PostgreSQL.

    ==========  =========================================================================================================
    PostgreSQL  the commit before the transaction, and the place of the change (``sequence``): transactions are read as they
                commit, and their changes have places of before
    MySQL       number of the transaction of its origin (``gtid``), or of the binlog file; position in the file, number of the
                row in the event
    SQL Server  the commit, the change, its number (1 before, 2 after an update)
    Oracle      SCN of the commit, and the number of the change in its transaction; null without it (XStream)
    ==========  =========================================================================================================
    """
    none = F.lit("0")
    log = F.coalesce(
        *(
            F.when(each != "", each)
            for each in (
                F.regexp_extract(source["gtid"], _GTID, 1),
                F.regexp_extract(source["file"], r"\.(\d+)\z", 1),
            )
        )
    )
    change, commit = (F.lower(F.translate(source[name], ":", "")) for name in ("change_lsn", "commit_lsn"))
    lsn = source["lsn"].cast("string")
    return (
        (F.coalesce(before, none), lsn, none),
        (
            log,
            source["pos"].cast("string"),
            F.coalesce(source["row"].cast("string"), none),
        ),
        (commit, F.coalesce(change, none), F.coalesce(source["event_serial_no"].cast("string"), none)),
        (source["commit_scn"], source["txSeq"].cast("string"), none),
    )


def _hexadecimal_parts_condition(parts: tuple[Column, Column, Column]) -> Column:
    fits = (part.rlike(rf"^[0-9a-f]{{1,{digits}}}\z") for part, digits in zip(parts, _WIDTHS, strict=True))
    return F.coalesce(reduce(lambda one, other: one & other, fits), F.lit(False))


_WIDTHS = (_DIGITS, _DIGITS, 10)


def _join_position_parts(parts: tuple[Column, Column, Column]) -> Column:
    return F.concat(*(F.lpad(part, digits, "0") for part, digits in zip(parts, _WIDTHS, strict=True)))
