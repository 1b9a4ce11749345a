"""JSON, by Spark's own parser: every record is decoded, or becomes a dead letter with its reason.

Stages of a dead letter:

``decode``
    A null payload (a Kafka tombstone), an empty record, bytes that are not UTF-8, or
    anything other than exactly one JSON object. ``NaN`` and ``Infinity`` are not JSON.
``schema``
    A JSON object with a value of another type than in the schema, or without a value
    for a ``NOT NULL`` field. In a ``DECIMAL`` field a number (or a text of one) with an exponent of more than
    three digits, or with more than a thousand digits, has the wrong type, however small it is. In a
    ``DOUBLE`` or ``FLOAT`` field a number larger than its type holds (``1e400``) is out of range, and not Infinity.

Accepted: fields that the schema does not name are ignored; for a repeated key
the last value counts; a ``STRING`` field takes any value, as JSON text; a decimal is
rounded to its scale; a number too small for a ``DOUBLE`` is zero; whole numbers in a ``TIMESTAMP`` field are epoch seconds;
nesting to about 990 levels (the JSON parser's limit is 1,000).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ..launch.format_kinds import Format
from ..record.projection import Projection
from ..record.tables import nullable
from . import schemas
from .base import Observe
from .decoding import out_of_range_numbers
from .decoding.rows import TOMBSTONE, reason, required, valid_text

NOT_ONE = "not exactly one JSON object"
_UTC = r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d{1,6})?Z\z"
_DATE = r"^\d{4}-"

_TEXT, _CORRUPT = "_text", "_corrupt"
"""Not names of a schema's fields, as those may not begin with _."""

_END = f"_{secrets.token_hex(8)}"
"""A name that no payload can know."""

_MARK = f'"{_END}":1}}'

_BLANKS = r"[ \t\r\n]*"

_BRACES = "}", "}\n", "}\r\n"
"""Usual last bytes of an object."""

_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": _CORRUPT,
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


@dataclass(frozen=True)
class JsonFormat(Format):
    """One JSON object in each payload; the query's ``schema`` is DDL."""

    NAMES_FIELDS = True

    kind: Literal["json"] = "json"

    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> JsonDecoder:
        """Make the decoder, see :meth:`etl.launch.format_kinds.Format.decoder`."""
        return JsonDecoder(schemas.read_ddl(spark, schema))


@dataclass(frozen=True)
class JsonDecoder:
    """Decoder of JSON objects by Spark's own parser, in one pass and without Python.

    Spark's parser reads the first JSON value of a text and ignores the rest. So the last brace is replaced
    by one more member, with a name that is random in each process, and a
    brace. The object has that member exactly if the brace was its own. In any other
    payload the member is in an inner object, in a text, after the end, or breaks the
    syntax; and no payload knows its name.

    A record that fails this check is parsed again, by the schema and with a text for each field: to find the
    reason, or because it is good after all (``{}``, blanks after the brace).

    Parameters
    ----------
    schema
        Schema of the object, from :func:`etl.formats.schemas.parse_schema`.
    """

    schema: StructType
    _projections: dict[tuple[str, ...], list[Projection]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Projections by the kept columns. The driver needs longer to build them than to plan a batch with them."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns and those of a dead letter.

        Parameters
        ----------
        rows
            With a binary column ``payload``; other columns are kept.

        Returns
        -------
        DataFrame
            The other columns; the schema's columns (all null for a dead letter); ``_bytes``
            (the payload of a dead letter), ``_stage`` and ``_error`` (null for a good record).
        """
        return self.decode_observed(rows, lambda judged, _: judged)

    def decode_observed(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """Decode rows and observe them once they are judged; see :func:`etl.formats.base.decode_observed`."""
        kept = tuple(c for c in rows.columns if c != "payload")
        if kept not in self._projections:
            steps = self._project(kept)
            self._projections[kept] = [Projection(partial(tuple, step)) for step in steps]
        *judging, taken_apart = self._projections[kept]
        for step in judging:
            rows = step.of(rows)
        return taken_apart.of(observe(rows, "exact.verdict.error"))

    def _project(self, kept: tuple[str, ...]) -> tuple[list[Column], ...]:
        """Return projections: one makes the text to parse, one parses and judges, one splits the record into fields.

        A repeated expression in the second runs once, as Spark shares what is always evaluated. The first keeps it
        short, and the last keeps the plan linear in the number of fields. Arrays or maps with a ``DOUBLE`` need one more
        between them: see :func:`etl.formats.decoding.out_of_range_numbers.all_finite`.
        """
        raw = _parse(F.col(_TEXT), _times_as_text(nullable(self.schema)))
        # Conditions on single values: on the record, each condition would contain the complete record, and the
        # driver would process thousands of expressions for every batch.
        values = {f.name: _quick_value(f, raw.getField(f.name)) for f in self.schema.fields}
        record = F.struct(*(value.alias(name) for name, value in values.items()))
        read = [raw.getField(n).isNull() | values[n].isNotNull() for n in _times(self.schema)]
        present = [~absent for _, absent in required(self.schema, values.__getitem__, F.lit(True))]
        held = [f for f in self.schema if out_of_range_numbers.is_flat(f.dataType)]
        fits = [
            ok
            for f in held
            if (ok := out_of_range_numbers.all_finite(f.dataType, values[f.name])) is not None
        ]
        fine = _all(*_whole(raw), *present, *read, *fits, valid_text(F.col("payload")))
        others = [F.col(name) for name in kept]
        judged = [
            *others,
            F.col("payload"),
            record.alias("quick"),
            # This condition comes first: Spark does not share what only a later branch evaluates.
            F.when(
                ~fine,
                F.when(F.col("payload").isNull(), self._letter(reason("decode", TOMBSTONE))).otherwise(
                    self._exact()
                ),
            ).alias("exact"),
        ]
        exact = F.col("exact")
        bad = F.col("exact.verdict").isNotNull()
        taken_apart = [
            *others,
            *(
                F.when(exact.isNull(), F.col("quick").getField(f.name))
                .when(~bad, exact["record"].getField(f.name))
                .alias(f.name)
                for f in self.schema.fields
            ),
            F.when(bad, F.col("payload")).alias("_bytes"),
            F.col("exact.verdict.stage").alias("_stage"),
            F.col("exact.verdict.error").alias("_error"),
        ]
        to_parse = [*others, F.col("payload"), self._quick_text().alias(_TEXT)]
        nested = StructType([f for f in self.schema if not out_of_range_numbers.is_flat(f.dataType)])
        infinite = out_of_range_numbers.out_of_range(nested, F.col("quick"))
        if infinite is None:
            return to_parse, judged, taken_apart
        found = F.coalesce(exact, F.when(infinite.isNotNull(), self._letter(infinite)))
        ranged = [*others, F.col("payload"), F.col("quick"), found.alias("exact")]
        return to_parse, judged, ranged, taken_apart

    def _quick_text(self) -> Column:
        """Return the text for the first parse; null where parsing could take too long."""
        suspected = out_of_range_numbers.may_have_large_exponent(_text(), self.schema)
        return _with_end() if suspected is None else F.when(~suspected, _with_end())

    def _letter(self, verdict: Column) -> Column:
        """Return a dead letter as :meth:`_exact` does, without a parse; with routes, most payloads are null for each decoder."""
        none = F.lit(None).cast(_with_marks(nullable(self.schema)))
        return F.struct(none.alias("record"), verdict.alias("verdict"))

    def _exact(self) -> Column:
        """Return ``record`` and ``verdict`` of a record that failed the first check; each parse runs once."""
        suspected = out_of_range_numbers.may_have_large_exponent(_text(), self.schema)
        if suspected is None:
            return _let(self._parses(), self._judge)
        fields = nullable(out_of_range_numbers.with_decimals(self.schema))
        harmless = _parse(_with_end_after_all(out_of_range_numbers.without_large_exponents(_text())), fields)
        return _let(F.when(suspected, harmless), lambda found: _let(self._parses(found), self._judge))

    def _parses(self, harmless: Column | None = None) -> Column:
        """Parse the record by its schema, and with a text for each field.

        Parameters
        ----------
        harmless
            The fields with decimals, parsed from a text in which none takes too long. The original text is
            parsed only if none of these fields was refused.
        """
        texts = StructType([StructField(f.name, StringType()) for f in self.schema])
        strict = _parse(_with_end_after_all(_text()), nullable(self.schema))
        if harmless is not None:
            strict = F.when(harmless.isNull() | _all(*_whole(harmless)), strict)
        return F.struct(
            strict.alias("strict"),
            _parse(_with_end_after_all(_text()), texts).alias("loose"),
            *([] if harmless is None else [harmless.alias("harmless")]),
        )

    def _judge(self, parses: Column) -> Column:
        payload = F.col("payload")
        record = parses["strict"]
        absences = required(self.schema, record.getField, record.isNotNull())
        missing = F.concat_ws(", ", *(F.when(absent, F.lit(name)) for name, absent in absences))
        verdict = F.when(F.length(payload) == 0, reason("decode", "empty record")).when(
            ~valid_text(F.col("payload")), reason("decode", "not UTF-8")
        )
        fields = out_of_range_numbers.with_decimals(self.schema)
        if fields.fields:
            harmless, text = parses["harmless"], "wrong type, or a number out of range: "
            refused = harmless.isNotNull() & ~_all(*_whole(harmless))
            verdict = verdict.when(refused, self._diagnosis(harmless, fields, parses["loose"], text))
        verdict = verdict.when(
            ~_all(*_whole(record)), self._diagnosis(record, self.schema, parses["loose"], "wrong type: ")
        )
        missed = reason("schema", F.concat(F.lit("no value for a required field: "), missing))
        verdicts = (
            verdict,
            out_of_range_numbers.out_of_range(self.schema, record),
            F.when(missing != "", missed),
        )
        found = F.coalesce(*(each for each in verdicts if each is not None))
        return F.struct(record.alias("record"), found.alias("verdict"))

    def _diagnosis(self, record: Column, fields: StructType, loose: Column, text: str) -> Column:
        """Distinguish "not an object" from "wrong type", by a parse that allows any type."""
        refused = F.concat_ws(
            ", ",
            *(
                F.when(loose.getField(f.name).isNotNull() & record.getField(f.name).isNull(), F.lit(f.name))
                for f in fields
            ),
        )
        # Not a `when`, which would contain the list of all fields twice.
        where = F.regexp_replace(refused, "^$", "inside a nested field")
        return F.when(_all(*_whole(loose)), reason("schema", F.concat(F.lit(text), where))).otherwise(
            reason("decode", NOT_ONE)
        )


def _let(value: Column, then: Callable[[Column], Column]) -> Column:
    """Apply a function to a value that is evaluated once.

    A lambda is the only way to name a value inside an expression; as a column, every good record
    would carry it too.
    """
    return F.transform(F.array(value), then).getItem(0)


def _times(schema: StructType) -> list[str]:
    return [f.name for f in schema.fields if isinstance(f.dataType, TimestampType)]


def _times_as_text(schema: StructType) -> StructType:
    text = set(_times(schema))
    return StructType([StructField(f.name, StringType() if f.name in text else f.dataType) for f in schema])


def _quick_value(field: StructField, value: Column) -> Column:
    """Return a time from its text as ``from_json`` does, or null where that is not certain; other values unchanged.

    Spark compiles a regular expression for each zone that it meets, which takes as long as the
    rest of a record. A time in UTC needs none: the session's zone is UTC. A text that
    begins like a date was a JSON text, not a number of seconds.
    """
    if not isinstance(field.dataType, TimestampType):
        return value
    without_zone = _cut(value.cast("binary"), 1)
    return F.when(value.rlike(_UTC), without_zone.cast("timestamp")).when(
        value.rlike(_DATE), value.cast("timestamp")
    )


def _with_end() -> Column:
    """Return the payload with one more member in its last object instead of the last brace; null without a last brace."""
    ways = (
        F.when(_text().endswith(brace), F.concat(_cut(F.col("payload"), len(brace)), F.lit(f",{_MARK}")))
        for brace in _BRACES
    )
    return F.coalesce(*ways)


def _with_end_after_all(text: Column) -> Column:
    """Do the same, slower, with any blanks after the brace, and for an object without members, where no comma is allowed."""
    ended = F.regexp_replace(text, rf"\}}{_BLANKS}\z", f",{_MARK}")
    return F.regexp_replace(ended, rf"^({_BLANKS}\{{){_BLANKS},({re.escape(_MARK)})\z", "$1$2")


def _cut(value: Column, last: int) -> Column:
    """Remove the last bytes and return text; on a text Spark would count characters."""
    return value.substr(F.lit(1), F.length(value) - last).cast("string")


def _with_marks(schema: StructType) -> StructType:
    return StructType([*schema, StructField(_END, IntegerType()), StructField(_CORRUPT, StringType())])


def _parse(text: Column, schema: StructType) -> Column:
    return F.from_json(text, _with_marks(schema), _OPTIONS)


def _whole(record: Column) -> tuple[Column, Column]:
    """Return conditions: nothing of a record was refused, and it ends where its text does."""
    return record[_CORRUPT].isNull(), record[_END].isNotNull()


def _all(*conditions: Column) -> Column:
    """Return a conjunction that is false where a condition is null."""
    return F.coalesce(reduce(lambda a, b: a & b, conditions), F.lit(False))


def _text() -> Column:
    """Return the payload as text; this costs nothing, as Spark keeps texts as bytes."""
    return F.col("payload").cast("string")
