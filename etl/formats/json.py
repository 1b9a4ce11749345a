"""JSON, by Spark's own parser: every record comes out either decoded or as a dead letter with its reason.

A dead letter has a stage and an error:

``decode``
    A null payload (a Kafka tombstone), an empty record, bytes that are not UTF-8, or
    anything but exactly one JSON object. ``NaN`` and ``Infinity`` are not JSON.
``schema``
    A JSON object with a value of another type than the schema's, or without a value
    for a ``NOT NULL`` field. A number for a ``DECIMAL`` field (or a text that is one) with an exponent of more than
    three digits, or of more than a thousand digits, is none of its type, however small it is. A number for a
    ``DOUBLE`` or ``FLOAT`` field that is larger than its type holds (``1e400``) is out of range, and no Infinity.

What is taken: fields that the schema does not name are ignored; of a key given twice
the last value counts; a ``STRING`` field takes any value, as JSON text; a decimal is
rounded to its scale; a number too small for a ``DOUBLE`` is zero; whole numbers in a ``TIMESTAMP`` field are seconds of the epoch;
nesting to about 990 levels (the limit of the JSON parser is 1,000).
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
"""No names of a schema's fields: those that begin with _ are taken."""

_END = f"_{secrets.token_hex(8)}"
"""A name that no payload can know."""

_MARK = f'"{_END}":1}}'

_BLANKS = r"[ \t\r\n]*"

_BRACES = "}", "}\n", "}\r\n"
"""How the bytes of an object mostly end."""

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
        """Make what decodes, as :meth:`etl.launch.format_kinds.Format.decoder` says."""
        return JsonDecoder(schemas.read_ddl(spark, schema))


@dataclass(frozen=True)
class JsonDecoder:
    """Decodes JSON objects by Spark's own parser, in one pass and without Python.

    Spark's parser reads the first JSON value of a text and is content, whatever follows. So the
    last brace gives way to one member more, under a name that is drawn again in each process, and a
    brace. The object has that member exactly if the brace was its own: of whatever else the
    payload is, the member is in an object within, in a text, after the end or breaks the
    syntax, and no payload knows its name.

    What is not fine by that is read again, by the schema and with a text for each field: for the
    reason, or because it is fine after all (``{}``, blanks after the brace).

    Parameters
    ----------
    schema
        Of the object, from :func:`etl.formats.schemas.parse_schema`.
    """

    schema: StructType
    _projections: dict[tuple[str, ...], list[Projection]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """By the columns that are kept. To build them takes the driver longer than to plan the batch with them."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns and the dead letter's.

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
        """Decode rows that are observed once they are judged; see :func:`etl.formats.base.decode_observed`."""
        kept = tuple(c for c in rows.columns if c != "payload")
        if kept not in self._projections:
            steps = self._project(kept)
            self._projections[kept] = [Projection(partial(tuple, step)) for step in steps]
        *judging, taken_apart = self._projections[kept]
        for step in judging:
            rows = step.of(rows)
        return taken_apart.of(observe(rows, "exact.verdict.error"))

    def _project(self, kept: tuple[str, ...]) -> tuple[list[Column], ...]:
        """Projections: one that makes the text to parse, one that parses and judges, one that takes the fields apart.

        What is written in the second many times runs once, as Spark shares what is evaluated in any case; with the first it is
        short, and with the last the plan stays linear in the number of fields. Where arrays or maps hold a ``DOUBLE``, one more
        is between them: see :func:`etl.formats.decoding.out_of_range_numbers.all_finite`.
        """
        raw = _parse(F.col(_TEXT), _times_as_text(nullable(self.schema)))
        # Asked of each value by itself: out of the record, each question would hold the whole of it, and the
        # driver would take apart thousands of expressions for every batch.
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
            # Whether it is fine comes first: what is asked in a later branch only is not shared.
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
        """What the quick way parses; null where that could take forever."""
        suspected = out_of_range_numbers.may_have_large_exponent(_text(), self.schema)
        return _with_end() if suspected is None else F.when(~suspected, _with_end())

    def _letter(self, verdict: Column) -> Column:
        """What :meth:`_exact` says of a dead letter, without asking it; with routes most payloads are null, for each decoder."""
        none = F.lit(None).cast(_with_marks(nullable(self.schema)))
        return F.struct(none.alias("record"), verdict.alias("verdict"))

    def _exact(self) -> Column:
        """``record`` and ``verdict`` of what the quick way could not take; each parse runs once."""
        suspected = out_of_range_numbers.may_have_large_exponent(_text(), self.schema)
        if suspected is None:
            return _let(self._parses(), self._judge)
        fields = nullable(out_of_range_numbers.with_decimals(self.schema))
        harmless = _parse(_with_end_after_all(out_of_range_numbers.without_large_exponents(_text())), fields)
        return _let(F.when(suspected, harmless), lambda found: _let(self._parses(found), self._judge))

    def _parses(self, harmless: Column | None = None) -> Column:
        """The record by its schema, and with a text for each field.

        Parameters
        ----------
        harmless
            The fields with decimals, where one may take forever, of a text in which none does. They are
            parsed as they came if nothing was refused of that.
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
        """Tell "not an object" from "wrong type", by a parse that allows any type."""
        refused = F.concat_ws(
            ", ",
            *(
                F.when(loose.getField(f.name).isNotNull() & record.getField(f.name).isNull(), F.lit(f.name))
                for f in fields
            ),
        )
        # Not a `when`, which would hold the list of all fields twice.
        where = F.regexp_replace(refused, "^$", "inside a nested field")
        return F.when(_all(*_whole(loose)), reason("schema", F.concat(F.lit(text), where))).otherwise(
            reason("decode", NOT_ONE)
        )


def _let(value: Column, then: Callable[[Column], Column]) -> Column:
    """What becomes of a value that is evaluated once.

    A lambda is the one way to name a value inside an expression; as a column of its own it would be
    carried through by every good record too.
    """
    return F.transform(F.array(value), then).getItem(0)


def _times(schema: StructType) -> list[str]:
    return [f.name for f in schema.fields if isinstance(f.dataType, TimestampType)]


def _times_as_text(schema: StructType) -> StructType:
    text = set(_times(schema))
    return StructType([StructField(f.name, StringType() if f.name in text else f.dataType) for f in schema])


def _quick_value(field: StructField, value: Column) -> Column:
    """A time out of its text as ``from_json`` has it, or null where this cannot tell; others as they are.

    Spark compiles a regular expression for each zone that it meets, which takes as long as all
    the rest of a record. A time in UTC needs none: the session's own zone is UTC. What
    begins like a date was a JSON text, not a number of seconds.
    """
    if not isinstance(field.dataType, TimestampType):
        return value
    without_zone = _cut(value.cast("binary"), 1)
    return F.when(value.rlike(_UTC), without_zone.cast("timestamp")).when(
        value.rlike(_DATE), value.cast("timestamp")
    )


def _with_end() -> Column:
    """The payload with a member more in the place of its last brace; null where it ends with none."""
    ways = (
        F.when(_text().endswith(brace), F.concat(_cut(F.col("payload"), len(brace)), F.lit(f",{_MARK}")))
        for brace in _BRACES
    )
    return F.coalesce(*ways)


def _with_end_after_all(text: Column) -> Column:
    """The same, slower, for any blanks after the brace, and for an object without members, where no comma may be."""
    ended = F.regexp_replace(text, rf"\}}{_BLANKS}\z", f",{_MARK}")
    return F.regexp_replace(ended, rf"^({_BLANKS}\{{){_BLANKS},({re.escape(_MARK)})\z", "$1$2")


def _cut(value: Column, last: int) -> Column:
    """Bytes but for the last ones, as text; of a text itself Spark would count the characters."""
    return value.substr(F.lit(1), F.length(value) - last).cast("string")


def _with_marks(schema: StructType) -> StructType:
    return StructType([*schema, StructField(_END, IntegerType()), StructField(_CORRUPT, StringType())])


def _parse(text: Column, schema: StructType) -> Column:
    return F.from_json(text, _with_marks(schema), _OPTIONS)


def _whole(record: Column) -> tuple[Column, Column]:
    """What holds of a record of which nothing was refused, and that ends where its text does."""
    return record[_CORRUPT].isNull(), record[_END].isNotNull()


def _all(*conditions: Column) -> Column:
    """All of them; false where one is unknown."""
    return F.coalesce(reduce(lambda a, b: a & b, conditions), F.lit(False))


def _text() -> Column:
    """The payload as text; costs nothing, as Spark keeps texts as bytes."""
    return F.col("payload").cast("string")
