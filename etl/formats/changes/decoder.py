"""Change events of a database, in any envelope: the row's columns, and the change itself in one more column.

A landed row has the fields of the row after the change; those before it if the change deletes, of which a database may log no
more than the key. :data:`CHANGE` has the rest. ``_stage`` says what is no row, and ``_error`` is null, so none of these is a dead letter:

============  ======================================================================================
``_stage``    record
============  ======================================================================================
null          an insert, an update, or a row of a snapshot
``delete``    a delete
``truncate``  all rows of the table before it are deleted
``control``   a change of a schema, a heartbeat, the begin or end of a transaction, a tombstone after a delete
============  ======================================================================================
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import ClassVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ...record.column_expression_cache import CachedSelect
from ...record.tables import with_all_fields_nullable
from ..base import Decoder
from ..decoding import times
from ..decoding.decoder_output_and_checks import (
    CHANGE,
    NOT_UTF8,
    TOMBSTONE,
    dead_letter_verdict,
    missing_fields_verdict,
    valid_utf8_condition,
)
from ..json import JsonDecoder
from .wire_types import EVENT, WireTypes

DELETE, TRUNCATE, CONTROL = "delete", "truncate", "control"
"""``_stage`` of a landed row that is no row of its table, and also its operation."""

ROWS = ("insert", "update", "snapshot")
"""Operations that leave a row."""

NO_TABLE = "an unknown table (set delete.tombstone.handling.mode to rewrite, and a delete names its table)"

_OTHER_SCHEMA = "another scale or unit of time in the event's schema than in the query's: "

BY_TIME = "time"
"""Lane of changes whose order is that of their times."""

_TEXTS = ("operation", "table", "lane", "position", "transaction")
_RAW = EVENT
_HEAD, _LETTER, _READ, _JUDGED, _MARKED = (
    f"_change_{name}" for name in ("head", "letter", "read", "judged", "marked")
)


def change_column_type(row_schema: StructType) -> StructType:
    """Return the type of :data:`CHANGE`.

    ``lane`` names a sequence in which positions can be compared, and ``position`` is the place in it. Without a position the order
    is that of ``at`` in the lane :data:`BY_TIME`, and that of the records in any other. See :mod:`etl.queries.change_order`.
    """
    texts = (StructField(name, StringType()) for name in _TEXTS)
    return StructType(
        [
            *texts,
            StructField("at", TimestampType()),
            StructField("before", with_all_fields_nullable(row_schema)),
        ]
    )


@dataclass(frozen=True)
class ChangeEnvelope(ABC):
    """Shape of the events of a program.

    Attributes
    ----------
    values
        How it writes the values of a row.
    """

    values: WireTypes

    @property
    @abstractmethod
    def fields_beside_rows(self) -> StructType:
        """Fields of an event beside its rows. What has another type in an event is null."""

    @abstractmethod
    def fields_of_rows(self, wire: StructType) -> StructType:
        """Return the fields of an event that hold rows with these fields."""

    deletes_by_key: ClassVar[bool] = False
    """Whether a record without payload deletes the row of its key."""

    def event_text(self, payload: Column, key: Column) -> Column:
        """Return the event in a payload that is UTF-8, as text; null if there is none."""
        return payload.cast("string")

    @abstractmethod
    def source_struct(self, head: Column) -> Column:
        """Return the struct that says where a change is, from a struct of :attr:`fields_beside_rows`."""

    @abstractmethod
    def columns_of_change_and_rows(self, head: Column, raw: Column, wire: StructType) -> Mapping[str, Column]:
        """Return ``operation`` and ``transaction``, and the structs ``after`` and ``before``.

        ``operation`` is null for what is no event; a row that is deleted may be in either struct.

        Parameters
        ----------
        head
            Struct of :attr:`fields_beside_rows`; null where the event is no JSON.
        raw
            The payload as it arrived.
        """

    @abstractmethod
    def columns_of_change_place(self, source: Column, operation: Column) -> Mapping[str, Column]:
        """Return ``table``, ``lane``, ``position`` and ``at`` of :func:`change_column_type`."""

    def fields_written_otherwise(self, row: StructType, raw: Column) -> Iterator[Column]:
        """Yield the fields that the schema in an event says to be written otherwise than the columns have it, and nulls."""
        yield from ()

    def reason_against_event(self, row: StructType, after: Column) -> Column | None:
        """Return why an event whose values are good is a dead letter all the same; null or None for no reason."""
        return None

    def row_completed_from_before(self, row: StructType, after: Column, before: Column) -> Column:
        """Return the row after a change, with what only the row before it has."""
        return after


@dataclass(frozen=True)
class ChangeDecoder(Decoder):
    """Decoder of change events in JSON.

    Parameters
    ----------
    row
        Schema of a row; ``NOT NULL`` holds for the row after a change.
    envelope
        Shape of the events.
    """

    row: StructType
    envelope: ChangeEnvelope
    _events: JsonDecoder = field(init=False, repr=False, compare=False)
    _steps: dict[tuple[str, ...], list[CachedSelect]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Projections by the kept columns, as :class:`~etl.formats.json.JsonDecoder` has them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_events", JsonDecoder(self.envelope.fields_of_rows(self._wire_schema)))

    @cached_property
    def _wire_schema(self) -> StructType:
        return self.envelope.values.wire_schema(self.row)

    @property
    def schema(self) -> StructType:
        """Columns of a row, and :data:`CHANGE`."""
        return StructType([*self.row, StructField(CHANGE, change_column_type(self.row))])

    def changed_table_name(self, payload: Column) -> Column:
        """Return the table of the change in a payload; null or empty for what is no change of a table."""
        event = self.envelope.event_text(payload, F.lit(None).cast("binary"))
        source = self.envelope.source_struct(F.from_json(event, self.envelope.fields_beside_rows))
        table = self.envelope.columns_of_change_place(source, F.lit(None).cast("string"))["table"]
        # A key does not say of which table it is.
        return (
            F.when(payload.isNull(), F.lit(NO_TABLE)).otherwise(table)
            if self.envelope.deletes_by_key
            else table
        )

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`; ``_stage`` without ``_error`` as in the module."""
        kept = tuple(c for c in rows.columns if c != "payload")
        if kept not in self._steps:
            self._steps[kept] = [
                CachedSelect(partial(tuple, step)) for step in self._successive_projections(kept)
            ]
        unwrapped, headed, *rest = self._steps[kept]
        found = self._events.decode(headed.select_from(unwrapped.select_from(rows)))
        for step in rest:
            found = step.select_from(found)
        return found

    def _successive_projections(self, kept: tuple[str, ...]) -> tuple[list[Column], ...]:
        """Return projections: two before the rows in an event are decoded, and the others after."""
        others, payload = [F.col(f"`{name}`") for name in kept], F.col("payload")
        key = F.col("_key") if "_key" in kept else F.lit(None).cast("binary")

        def event(payload: Column) -> Column:
            readable = valid_utf8_condition(payload) | payload.isNull()
            return F.when(readable, self.envelope.event_text(payload, key))

        head = F.from_json(payload.cast("string"), self.envelope.fields_beside_rows).alias(_HEAD)
        values, raw = self.envelope.values, F.col(_RAW)
        wire = dict(self.envelope.columns_of_change_and_rows(F.col(_HEAD), raw, self._wire_schema))
        after, before = wire.pop("after"), wire.pop("before")
        row = times.schema_with_units_in_types(self.row)
        # Of a row that is no more, what can be read: its key is among the fields that are NOT NULL.
        key_fields = (
            StructType([f for f in row if not f.nullable]) if not all(f.nullable for f in row) else row
        )
        gone = (
            name for part in (before, after) for name in values.misread_field_name_columns(key_fields, part)
        )
        wrong = F.when(wire["operation"] == DELETE, F.concat_ws(", ", *gone)).otherwise(
            F.concat_ws(", ", *values.misread_field_name_columns(row, after))
        )
        rows = (
            values.row_struct(row, after).alias("after"),
            values.row_struct(row, before).alias("before"),
        )
        letter = F.when(F.col("_error").isNotNull(), F.struct("_stage", "_error")).alias(_LETTER)
        read = F.col(_READ)
        completed = self.envelope.row_completed_from_before(self.row, read["after"], read["before"])
        place = self.envelope.columns_of_change_place(read["source"], read["operation"])
        whole = F.struct(
            *(
                read[name].alias(name)
                for name in ("operation", "transaction", "before", "wrong", "otherwise")
            ),
            *(value.alias(name) for name, value in place.items()),
            completed.alias("after"),
        )
        fields = self.envelope.fields_of_rows(self.row)
        bare = values.bare_value_columns(fields, event(raw))
        telling: list[list[Column]] = []
        if bare is not None:
            marked, tell = bare
            names = [*(f.name for f in fields), "_stage", "_error", _HEAD]
            parsed = F.when(F.col("_error").isNull(), marked).alias(_MARKED)
            told = [tell[n](F.col(_MARKED)).alias(n) if n in tell else F.col(f"`{n}`") for n in names]
            telling = [
                [*others, raw, *(F.col(f"`{n}`") for n in names), parsed],
                [*others, raw, *told],
            ]
        return (
            [*others, payload.alias(_RAW), event(payload).cast("binary").alias("payload")],
            [*others, raw, payload, head],
            *telling,
            [
                *others,
                raw,
                letter,
                F.struct(
                    *(value.alias(name) for name, value in wire.items()),
                    self.envelope.source_struct(F.col(_HEAD)).alias("source"),
                    *rows,
                    wrong.alias("wrong"),
                    F.concat_ws(", ", *self.envelope.fields_written_otherwise(row, raw.cast("string"))).alias(
                        "otherwise"
                    ),
                ).alias(_READ),
            ],
            [*others, raw, F.col(_LETTER), whole.alias(_READ)],
            [*others, raw, read, self._verdict().alias(_JUDGED)],
            [*others, *self._row_and_change_columns()],
        )

    def _verdict(self) -> Column:
        """Return the verdict on an event; null for a good one."""
        raw, read, letter = F.col(_RAW), F.col(_READ), F.col(_LETTER)
        operation, after = read["operation"], read["after"]
        tombstone = letter["_error"].eqNullSafe(TOMBSTONE)
        found = F.when(raw.isNotNull() & ~valid_utf8_condition(raw), dead_letter_verdict("decode", NOT_UTF8))
        found = found.when(tombstone & operation.isNull(), F.lit(None))
        found = found.when(
            letter.isNotNull(), F.struct(letter["_stage"].alias("stage"), letter["_error"].alias("error"))
        )
        found = found.when(operation.isNull(), dead_letter_verdict("decode", "not a change event"))
        found = found.when(
            read["wrong"] != "", dead_letter_verdict("schema", F.concat(F.lit("wrong type: "), read["wrong"]))
        )
        found = found.when(
            read["otherwise"] != "",
            dead_letter_verdict("schema", F.concat(F.lit(_OTHER_SCHEMA), read["otherwise"])),
        )
        kept = operation.isin(*ROWS)
        found = found.when(
            kept & after.isNull(), dead_letter_verdict("schema", "a change without the row after it")
        )
        found = found.when(
            (operation == DELETE) & read["before"].isNull() & after.isNull(),
            dead_letter_verdict("schema", "a delete without the row before it, not even its key"),
        )
        own = self.envelope.reason_against_event(self.row, after)
        missing = missing_fields_verdict(self.row, after.getField, kept)
        return F.coalesce(found, *(each for each in (own, missing) if each is not None))

    def _row_and_change_columns(self) -> list[Column]:
        read, bad = F.col(_READ), F.col(_JUDGED).isNotNull()
        operation = F.coalesce(read["operation"], F.lit(CONTROL))
        known = F.when(operation == DELETE, F.coalesce(read["before"], read["after"]))
        row = known.when(operation.isin(*ROWS), read["after"])
        texts = (read[name].alias(name) for name in _TEXTS if name != "operation")
        before = F.when(operation == "update", read["before"]).alias("before")
        change = F.struct(operation.alias("operation"), *texts, read["at"].alias("at"), before)
        return [
            *(F.when(~bad, row[f.name]).alias(f.name) for f in self.row),
            F.when(~bad, change).alias(CHANGE),
            F.when(bad, F.col(_RAW)).alias("_bytes"),
            F.when(bad, F.col(_JUDGED)["stage"])
            .when(operation.isin(DELETE, TRUNCATE, CONTROL), operation)
            .alias("_stage"),
            F.col(_JUDGED)["error"].alias("_error"),
        ]
