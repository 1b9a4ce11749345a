"""JSON, by Spark's own parser: every record is decoded, or becomes a dead letter with its reason.

Stages of a dead letter:

``decode``
    A null payload (a Kafka tombstone), an empty record, bytes that are not UTF-8, the escape of half a character, or
    anything other than exactly one JSON object. ``NaN`` and ``Infinity`` are not JSON.
``schema``
    A JSON object with a value of another type than in the schema, or without a value
    for a ``NOT NULL`` field, or a name twice in a ``MAP``. In a ``DECIMAL`` field a number (or a text of one) with an exponent of more than
    three digits, or with more than a thousand digits, has the wrong type, however small it is. In a
    ``DOUBLE`` or ``FLOAT`` field a number larger than its type holds (``1e400``) is out of range, and not Infinity;
    so is a time outside the years 1 to 9999.

Accepted: fields that the schema does not name are ignored; for a repeated key
the last value counts; a ``STRING`` field takes any value, as JSON text (:mod:`.decoding.json_texts_as_sent`); a decimal is
rounded to its scale; a number too small for a ``DOUBLE`` is zero; whole numbers in a ``TIMESTAMP`` field are epoch seconds,
or of the unit that the schema declares (:mod:`.decoding.times`); nesting to about 990 levels (the JSON parser's limit is 1,000).
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from ..launch.formats import JsonFormat
from ..record.column_expression_cache import CachedSelect
from ..record.tables import with_all_fields_nullable
from . import schema_files
from .base import UNCERTAIN, Decoder, Observe
from .decoding import json_texts_as_sent, json_values, out_of_range_numbers, times
from .decoding.decoder_output_and_checks import (
    TOMBSTONE,
    all_leaves_condition,
    contains_type,
    dead_letter_verdict,
    evaluate_once,
    missing_fields_verdict,
    required_field_absences,
    valid_utf8_condition,
    verdict_naming_fields,
    with_replaced_leaves,
)

NOT_ONE = "not exactly one JSON object"
LONG_NAME = f"a name of more than {json_texts_as_sent.LONGEST_NAME:,} characters"
HALF = "not UTF-8: the escape of half a character (a lone surrogate)"

_TEXT, _SUPPORTED, _CORRUPT = "_text", "_supported", "_corrupt"
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


def open_decoder(_form: JsonFormat, spark: SparkSession, schema: str, _open_up_to: int | None) -> JsonDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`."""
    return JsonDecoder(schema_files.read_ddl_schema(spark, schema))


@dataclass(frozen=True)
class JsonDecoder(Decoder):
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
        Schema of the object, from :func:`etl.formats.schema_files.parse_ddl_schema`.
    only_certain, marking
        See :meth:`etl.formats.base.Decoder.failing_if_uncertain`.
    """

    schema: StructType
    only_certain: bool = False
    marking: bool = False
    _projections: dict[tuple[str, ...], list[CachedSelect]] = field(
        default_factory=dict, repr=False, compare=False
    )
    """Projections by the kept columns. The driver needs longer to build them than to plan a batch with them."""

    def failing_if_uncertain(self, marking: bool = False) -> JsonDecoder:
        """See :meth:`etl.formats.base.Decoder.failing_if_uncertain`."""
        return JsonDecoder(self.schema, only_certain=True, marking=marking)

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
        return self.decode_and_observe(rows, lambda judged, _: judged)

    def decode_and_observe(self, rows: DataFrame, observe: Observe) -> DataFrame:
        """Decode rows and observe them once they are judged; see :meth:`etl.formats.base.Decoder.decode_and_observe`."""
        kept = tuple(c for c in rows.columns if c != "payload")
        if kept not in self._projections:
            steps = self._successive_projections(kept)
            self._projections[kept] = [CachedSelect(partial(tuple, step)) for step in steps]
        *judging, taken_apart = self._projections[kept]
        for step in judging:
            rows = step.select_from(rows)
        return taken_apart.select_from(observe(rows, "exact.verdict.error"))

    def _successive_projections(self, kept: tuple[str, ...]) -> tuple[list[Column], ...]:
        """Return projections: one makes the text to parse, one parses and judges, one splits the record into fields.

        A repeated expression in the second runs once, as Spark shares what is always evaluated. The first keeps it
        short, and the last keeps the plan linear in the number of fields. Conditions on the items of arrays and maps need one
        more between them: see :func:`etl.formats.decoding.out_of_range_numbers.all_numbers_finite_condition`.
        """
        raw = _parse_json_column(
            F.col(_TEXT), with_all_fields_nullable(json_values.parser_schema(self.schema))
        )
        flat, nested = (
            StructType(
                [
                    f
                    for f in self._schema_with_units
                    if out_of_range_numbers.has_no_array_or_map(f.dataType) == one
                ]
            )
            for one in (True, False)
        )
        # Conditions on single values: on the record, each condition would contain the complete record, and the
        # driver would process thousands of expressions for every batch.
        values = {f.name: raw.getField(f.name) for f in self.schema}
        values |= {f.name: json_values.quick_value(f.dataType, values[f.name]) for f in flat}
        record = F.struct(*(value.alias(name) for name, value in values.items()))
        present = [
            ~absent for _, absent in required_field_absences(self.schema, values.__getitem__, F.lit(True))
        ]
        # Before the parse: with it, this would be more code than Java compiles.
        text = _all_true_condition(json_texts_as_sent.exactly_readable_condition(_payload_text()))
        fine = _all_true_condition(
            F.col(_SUPPORTED),
            *_completeness_conditions(raw),
            *present,
            *json_values.certainty_conditions_of_quick_values(flat, raw.getField),
        )
        others = [F.col(name) for name in kept]
        to_parse = [
            *others,
            F.col("payload"),
            self._text_for_first_parse().alias(_TEXT),
            text.alias(_SUPPORTED),
        ]
        parsed = [*others, F.col("payload"), record.alias("quick")]
        quick = F.col("quick")
        within = list(json_values.certainty_conditions_of_quick_values(nested, quick.getField))
        steps = [to_parse]
        if within:
            steps.append([*parsed, fine.alias("fine")])
            parsed, fine = [*others, F.col("payload"), quick], _all_true_condition(F.col("fine"), *within)
        # This condition comes first: Spark does not share what only a later branch evaluates.
        tombstone = self._unparsed_dead_letter(dead_letter_verdict("decode", TOMBSTONE))
        if self.marking:
            otherwise = self._unparsed_dead_letter(dead_letter_verdict(UNCERTAIN, UNCERTAIN))
        else:
            failure = F.raise_error(F.lit(UNCERTAIN))
            otherwise = failure if self.only_certain else self._exact_record_and_verdict()
        exact = F.when(~fine, F.when(F.col("payload").isNull(), tombstone).otherwise(otherwise))
        found = F.col("exact")
        bad = F.col("exact.verdict").isNotNull()
        fields = {f.name: quick.getField(f.name) for f in self.schema}
        fields |= {f.name: json_values.quick_value(f.dataType, fields[f.name]) for f in nested}
        taken = {name: F.when(found.isNull(), value) for name, value in fields.items()}
        if not self.only_certain:
            taken = {n: value.when(~bad, found["record"].getField(n)) for n, value in taken.items()}
        taken_apart = [
            *others,
            *(value.alias(name) for name, value in taken.items()),
            F.when(bad, F.col("payload")).alias("_bytes"),
            F.col("exact.verdict.stage").alias("_stage"),
            F.col("exact.verdict.error").alias("_error"),
        ]
        return *steps, [*parsed, exact.alias("exact")], taken_apart

    @property
    def _schema_with_units(self) -> StructType:
        return times.schema_with_units_in_types(self.schema)

    def _text_for_first_parse(self) -> Column:
        """Return the text for the first parse; null where parsing could take too long, or misread a decimal."""
        suspected = out_of_range_numbers.possible_misread_decimal_condition(_payload_text(), self.schema)
        return (
            _payload_with_end_member()
            if suspected is None
            else F.when(~suspected, _payload_with_end_member())
        )

    def _unparsed_dead_letter(self, verdict: Column) -> Column:
        """Return a dead letter as :meth:`_exact_record_and_verdict` does, without a parse; with routes, most payloads are null for each decoder."""
        none = F.lit(None).cast(with_all_fields_nullable(self.schema))
        return F.struct(none.alias("record"), verdict.alias("verdict"))

    def _exact_record_and_verdict(self) -> Column:
        """Return ``record`` and ``verdict`` of a record that failed the first check; each parse runs once."""
        suspected = out_of_range_numbers.possible_large_exponent_condition(_payload_text(), self.schema)
        if suspected is None:
            return evaluate_once(self._strict_and_text_parses(), self._record_and_verdict_of_parses)
        fields = with_all_fields_nullable(
            json_values.parser_schema(out_of_range_numbers.schema_of_decimal_fields(self.schema))
        )
        harmless = _parse_json_column(
            _text_with_end_member(out_of_range_numbers.with_large_exponents_replaced(_payload_text())), fields
        )
        return evaluate_once(
            F.when(suspected, harmless),
            lambda found: evaluate_once(
                self._strict_and_text_parses(found), self._record_and_verdict_of_parses
            ),
        )

    def _strict_and_text_parses(self, harmless: Column | None = None) -> Column:
        """Parse the record by its schema, and what is or may be a text in it as it was written.

        Parameters
        ----------
        harmless
            The fields with decimals, parsed from a text in which none takes too long. The original text is
            parsed only if none of these fields was refused.
        """
        strict = _parse_json_column(
            _text_with_end_member(_payload_text()),
            with_all_fields_nullable(json_values.parser_schema(self.schema)),
        )
        if harmless is not None:
            strict = F.when(
                harmless.isNull() | _all_true_condition(*_completeness_conditions(harmless)), strict
            )
        shape = json_values.type_reading_values_as_texts(self._schema_with_units)
        marked = _text_with_end_member(json_texts_as_sent.with_marked_texts(_payload_text()))
        texts = _parse_json_column(marked, shape) if isinstance(shape, StructType) else strict
        # For the reason of a refused record: parsed here, as one more lambda would double the time of planning.
        any_type = StructType([StructField(f.name, StringType()) for f in self.schema])
        structs = _texts_in_structs(self.schema)
        inner = _parse_json_column(_text_with_end_member(_payload_text()), structs)
        return F.struct(
            strict.alias("strict"),
            texts.alias("texts"),
            _parse_json_column(_text_with_end_member(_payload_text()), any_type).alias("loose"),
            *([inner.alias("inner")] if structs.fields else []),
            *([] if harmless is None else [harmless.alias("harmless")]),
        )

    def _record_and_verdict_of_parses(self, parses: Column) -> Column:
        """Return ``record`` and ``verdict``: each value of the type in the schema, made of what was written."""
        groups = json_values.column_names_read_from_text_by_type(self._schema_with_units)
        made = F.struct(
            parses.alias("parses"),
            *(
                _exact_values_of_type(kind, parses["texts"], names).alias(f"_{n}")
                for n, (kind, names) in enumerate(groups)
            ),
        )
        places = {name: (n, at) for n, (_, names) in enumerate(groups) for at, name in enumerate(names)}

        def field_value(of: Column, field: StructField) -> Column:
            if field.name in places:
                group, at = places[field.name]
                return of[f"_{group}"][at]
            strict, texts = (of["parses"][part][field.name] for part in ("strict", "texts"))
            return with_replaced_leaves(
                field.dataType, strict, texts, json_values.is_read_as_other_type, json_values.exact_value
            )

        def parses_and_record_struct(of: Column) -> Column:
            fields = F.struct(*(field_value(of, f).alias(f.name) for f in self._schema_with_units))
            return F.struct(of["parses"].alias("parses"), fields.alias("record"))

        def record_with_verdict(of: Column) -> Column:
            return F.struct(
                of["record"], self._dead_letter_verdict(of["parses"], of["record"]).alias("verdict")
            )

        return evaluate_once(
            made, lambda of: evaluate_once(parses_and_record_struct(of), record_with_verdict)
        )

    def _dead_letter_verdict(self, parses: Column, record: Column) -> Column:
        payload, strict, texts = F.col("payload"), parses["strict"], parses["texts"]
        verdict = (
            F.when(F.length(payload) == 0, dead_letter_verdict("decode", "empty record"))
            .when(~valid_utf8_condition(payload), dead_letter_verdict("decode", "not UTF-8"))
            .when(
                json_texts_as_sent.lone_surrogate_condition(_payload_text()),
                dead_letter_verdict("decode", HALF),
            )
            .when(
                json_texts_as_sent.too_long_name_condition(_payload_text()),
                dead_letter_verdict("decode", LONG_NAME),
            )
        )
        fields = out_of_range_numbers.schema_of_decimal_fields(self.schema)
        if fields.fields:
            harmless, text = parses["harmless"], "wrong type, or a number out of range: "
            refused = harmless.isNotNull() & ~_all_true_condition(*_completeness_conditions(harmless))
            verdict = verdict.when(
                refused, self._not_object_or_wrong_type_verdict(parses, harmless, fields, text, {})
            )
        readable = {
            f.name: texts[f.name].isNull() | record[f.name].isNotNull()
            if times.is_time_or_date_type(f.dataType)
            else ok
            for f in self._schema_with_units
            if (ok := all_leaves_condition(f.dataType, texts[f.name], json_values.written_as_type_condition))
            is not None
        }
        verdict = verdict.when(
            ~_all_true_condition(*_completeness_conditions(strict), *readable.values()),
            self._not_object_or_wrong_type_verdict(
                parses, strict, self._schema_with_units, "wrong type: ", readable
            ),
        )
        verdicts = (
            verdict,
            self._repeated_map_key_verdict(strict),
            out_of_range_numbers.out_of_range_verdict(self.schema, record),
            missing_fields_verdict(self.schema, record.getField, strict.isNotNull()),
        )
        return F.coalesce(*(each for each in verdicts if each is not None))

    def _repeated_map_key_verdict(self, strict: Column) -> Column | None:
        """Return the verdict on a record with a map that has a name twice; None if there is no map in the schema."""
        once = {
            f.name: all_leaves_condition(f.dataType, strict[f.name], json_values.map_keys_distinct_condition)
            for f in self.schema
        }
        twice = ((name, ~each) for name, each in once.items() if each is not None)
        return verdict_naming_fields("a name twice in a map: ", twice)

    def _not_object_or_wrong_type_verdict(
        self, parses: Column, record: Column, fields: StructType, text: str, readable: Mapping[str, Column]
    ) -> Column:
        """Return the verdict "not an object" or "wrong type", by parses that allow any type."""
        loose = parses["loose"]

        def name_if_wrong(f: StructField, name: str, given: Column, wrong: Column) -> Column:
            timed = contains_type(f.dataType, times.is_time_or_date_type)
            said = F.concat(F.lit(name), times.unit_hint(f.dataType, given)) if timed else F.lit(name)
            return F.when(wrong, said)

        def refused_field_names() -> Iterator[Column]:
            for f in fields:
                wrong = loose[f.name].isNotNull() & record[f.name].isNull()
                wrong = wrong | ~readable[f.name] if f.name in readable else wrong
                whole = name_if_wrong(f, f.name, loose[f.name], wrong)
                if not isinstance(f.dataType, StructType):
                    yield whole
                    continue
                names = []
                for part in f.dataType:
                    given = parses["inner"][f.name][part.name]
                    missing = given.isNotNull() & record[f.name][part.name].isNull()
                    written = (
                        all_leaves_condition(
                            part.dataType,
                            parses["texts"][f.name][part.name],
                            json_values.written_as_type_condition,
                        )
                        if readable
                        else None
                    )
                    missing = missing if written is None else missing | ~written
                    names.append(name_if_wrong(part, f"{f.name}.{part.name}", given, missing))
                yield F.coalesce(F.nullif(F.concat_ws(", ", *names), F.lit("")), whole)

        # Not a `when`, which would contain the list of all fields twice.
        where = F.regexp_replace(F.concat_ws(", ", *refused_field_names()), "^$", "inside a nested field")
        return F.when(
            _all_true_condition(*_completeness_conditions(loose)),
            dead_letter_verdict("schema", F.concat(F.lit(text), where)),
        ).otherwise(dead_letter_verdict("decode", NOT_ONE))


def _texts_in_structs(schema: StructType) -> StructType:
    """Return the fields that are structs, with a text for each of their fields."""
    structs = ((f.name, f.dataType) for f in schema if isinstance(f.dataType, StructType))
    return StructType(
        [
            StructField(name, StructType([StructField(f.name, StringType()) for f in kind]))
            for name, kind in structs
        ]
    )


def _exact_values_of_type(kind: DataType, texts: Column, names: Sequence[str]) -> Column:
    """Return the values of columns of one type, as an array; with an expression for each, plans would be several times as long."""
    return F.transform(
        F.array(*(texts[n] for n in names)), lambda text: json_values.exact_value(kind, text, text)
    )


def _payload_with_end_member() -> Column:
    """Return the payload with one more member in its last object instead of the last brace; null without a last brace."""
    ways = (
        F.when(
            _payload_text().endswith(brace),
            F.concat(_without_last_bytes(F.col("payload"), len(brace)), F.lit(f",{_MARK}")),
        )
        for brace in _BRACES
    )
    return F.coalesce(*ways)


def _text_with_end_member(text: Column) -> Column:
    """Return the same of a text, slower, with any blanks after the brace, and for an object without members, where no comma is allowed."""
    ended = F.regexp_replace(text, rf"\}}{_BLANKS}\z", f",{_MARK}")
    return F.regexp_replace(ended, rf"^({_BLANKS}\{{){_BLANKS},({re.escape(_MARK)})\z", "$1$2")


def _without_last_bytes(value: Column, last: int) -> Column:
    """Remove the last bytes and return text; on a text Spark would count characters."""
    return value.substr(F.lit(1), F.length(value) - last).cast("string")


def _parse_json_column(text: Column, schema: StructType) -> Column:
    with_end = StructType([*schema, StructField(_END, IntegerType()), StructField(_CORRUPT, StringType())])
    return F.from_json(text, with_end, _OPTIONS)


def _completeness_conditions(record: Column) -> tuple[Column, Column]:
    """Return conditions: nothing of a record was refused, and it ends where its text does."""
    return record[_CORRUPT].isNull(), record[_END].isNotNull()


def _all_true_condition(*conditions: Column) -> Column:
    """Return a conjunction that is false where a condition is null."""
    return F.coalesce(reduce(lambda a, b: a & b, conditions), F.lit(False))


def _payload_text() -> Column:
    """Return the payload as text; this costs nothing, as Spark keeps texts as bytes."""
    return F.col("payload").cast("string")
