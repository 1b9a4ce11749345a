"""CSV: one record without a header in each payload, as in RFC 4180, with a configured delimiter.

Stages of a dead letter:

``decode``
    A null or empty payload, bytes that are not UTF-8, a NUL or a byte order mark, another number of columns
    than in the schema (also from an unclosed quote), anything after the record or after a closing quote, and a line break
    outside quotes.
``schema``
    A value of another type than its column, a number larger than a ``DOUBLE`` or ``FLOAT`` holds (``1e400``), a time outside
    the years 1 to 9999, or no value in a ``NOT NULL`` column.

One line feed (or carriage return and line feed) at the end does not start a second record. A column that
holds the configured null text is null, quoted or not, and so is an empty unquoted one; with a null text
that is not empty, ``""`` is an empty text. A quote inside an unquoted value is
an ordinary character. Spark's CSV parser decides about numbers and flags; it takes
``NaN``, ``Inf`` and ``-Inf`` for a ``DOUBLE``, but ``1d`` and ``0x1p3`` are none. Times are read by :mod:`.decoding.times`.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
)

from ..launch.formats import CsvFormat
from . import schema_files
from .base import Decoder
from .decoding import decoder_output_and_checks as shared
from .decoding import out_of_range_numbers, times

MISPLACED = "a quote or a line break where RFC 4180 has none"

MOST_DELIMITERS = 20_000
"""Most delimiters of a payload. At 20,480 columns (``maxColumns``) Spark's parser fails the complete batch in any mode."""

_END, _CORRUPT = "_end", "_corrupt"
_JAVA = r"[0-9.][dDfF]\s*\z|0[xX]"


def open_decoder(form: CsvFormat, spark: SparkSession, schema: str, _open_up_to: int | None) -> CsvDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`; ``schema`` is DDL."""
    return CsvDecoder(schema_files.read_ddl_schema(spark, schema), form)


@dataclass(frozen=True)
class CsvDecoder(Decoder):
    """Decoder of CSV by Spark's own parser, in one pass and without Python.

    Spark's parser reads the first record of a text and ignores the rest. So one more column with a random
    value is added after the payload: it is the record's last column only if the record
    ends where the payload does.

    Parameters
    ----------
    schema
        The columns, in their order; the configuration has checked that each holds one value.
    options
        Delimiter, quote and null text.
    mark
        The random value after the payload.
    """

    schema: StructType
    options: CsvFormat
    mark: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`."""
        payload, record = F.col("payload"), F.col("_record")
        # Together with the conditions on columns this would be more code than Java compiles.
        well = (
            self._well_quoted_condition()
            & ~self._possible_java_number_condition()
            & shared.valid_utf8_condition(payload)
        )
        parsed = rows.withColumns(
            {"_record": self._parse_payload_column(_parser_schema(self.schema)), "_made_well": well}
        )
        made = {
            f.name: _value_of_text(f.dataType, record[f.name])
            for f in times.schema_with_units_in_types(self.schema)
            if _is_read_as_text(f.dataType)
        }
        names = {name: f"_made_{n}" for n, name in enumerate(made)}
        typed = parsed.withColumns({names[name]: value for name, value in made.items()})
        values = {f.name: F.col(names[f.name]) if f.name in names else record[f.name] for f in self.schema}
        read = (record[name].isNull() | values[name].isNotNull() for name in made)
        absences = shared.required_field_absences(self.schema, values.__getitem__, record.isNotNull())
        finite = out_of_range_numbers.all_numbers_finite_condition(self.schema, record)
        checks = [
            self._read_completely_condition(record),
            F.col("_made_well"),
            *read,
            *(~absent for _, absent in absences),
            *([] if finite is None else [finite]),
        ]
        fine = F.coalesce(reduce(and_, checks), F.lit(False))
        held = typed.withColumn("_verdict", F.when(~fine, self._dead_letter_verdict(record, values)))
        return shared.decoded_or_dead_letter(held, self.schema, "_record", "_verdict", values)

    def _parse_payload_column(self, schema: StructType) -> Column:
        """Return the record and two internal columns; null where the parser cannot be used."""
        line = F.regexp_replace(F.col("payload").cast("string"), r"\r?\n\z", "")
        framed = F.concat(line, F.lit(self.options.delimiter), F.lit(self.mark))
        fields = [StructField(f.name, f.dataType) for f in schema.fields]
        wanted = StructType([*fields, StructField(_END, StringType()), StructField(_CORRUPT, StringType())])
        options = {
            "mode": "PERMISSIVE",
            "columnNameOfCorruptRecord": _CORRUPT,
            "sep": self.options.delimiter,
            "quote": self.options.quote,
            "escape": self.options.quote,
            "nullValue": self.options.null,
            "emptyValue": "",
        }
        ddl = ", ".join(f"`{f.name}` {f.dataType.simpleString()}" for f in wanted.fields)
        short = (F.octet_length("payload") <= MOST_DELIMITERS) | ~self._too_many_delimiters_condition()
        # The parser treats a line that begins with NUL as a comment, and the text after it as a record.
        return F.when(short & ~self._byte_order_mark_or_nul_condition(), F.from_csv(framed, ddl, options))

    def _too_many_delimiters_condition(self) -> Column:
        text = F.col("payload").cast("string")
        return F.length(text) - F.length(F.translate(text, self.options.delimiter, "")) > MOST_DELIMITERS

    def _byte_order_mark_or_nul_condition(self) -> Column:
        text = F.col("payload").cast("string")
        return F.hex(F.substring("payload", 1, 3)).eqNullSafe("EFBBBF") | text.contains("\0")

    def _well_quoted_condition(self) -> Column:
        """Return a condition: quotes and line breaks are where RFC 4180 has them; Spark's parser takes them elsewhere, too."""
        quote, delimiter = (re.escape(each) for each in (self.options.quote, self.options.delimiter))
        column = rf"(?:{quote}(?:[^{quote}]++|{quote}{quote})*+{quote}|(?!{quote})[^{delimiter}\r\n]*+)"
        text = F.col("payload").cast("string")
        plain = reduce(or_, (text.contains(each) for each in (self.options.quote, "\n", "\r")))
        return ~plain | text.rlike(rf"^{column}(?:{delimiter}{column})*+(?:\r?\n)?+\z")

    def _possible_java_number_condition(self) -> Column:
        """Return a condition: there may be a number as only Java writes it; these end in a letter, or have sixteen digits."""
        if not self._float_column_names:
            return F.lit(False)
        return F.col("payload").cast("string").rlike(r"[0-9.][dDfF]|0[xX]")

    @property
    def _float_column_names(self) -> list[str]:
        return [f.name for f in self.schema if isinstance(f.dataType, DoubleType | FloatType)]

    def _read_completely_condition(self, record: Column) -> Column:
        """Return a condition: the parser refused nothing, and the record ended with the payload."""
        return record[_CORRUPT].isNull() & (record[_END] == self.mark)

    def _dead_letter_verdict(self, record: Column, values: Mapping[str, Column]) -> Column:
        payload = F.col("payload")
        texts = StructType([StructField(f.name, StringType()) for f in self.schema.fields])
        columns = len(self.schema.fields)
        missing = shared.missing_fields_verdict(self.schema, values.__getitem__, record.isNotNull())
        ragged = f"not one record of {columns} column{'s' * (columns != 1)}"
        # A lambda is the only way to name a value inside an expression.
        return F.transform(
            F.array(self._parse_payload_column(texts)),
            lambda loose: (
                F.when(payload.isNull(), shared.dead_letter_verdict("decode", shared.TOMBSTONE))
                .when(F.length(payload) == 0, shared.dead_letter_verdict("decode", shared.EMPTY))
                .when(
                    ~shared.valid_utf8_condition(payload),
                    shared.dead_letter_verdict("decode", shared.NOT_UTF8),
                )
                .when(
                    self._byte_order_mark_or_nul_condition(),
                    shared.dead_letter_verdict("decode", "a NUL or a byte order mark"),
                )
                .when(
                    self._too_many_delimiters_condition(),
                    shared.dead_letter_verdict("decode", f"more than {MOST_DELIMITERS:,} delimiters"),
                )
                .when(
                    ~F.coalesce(self._read_completely_condition(loose), F.lit(False)),
                    shared.dead_letter_verdict("decode", ragged),
                )
                .when(~self._well_quoted_condition(), shared.dead_letter_verdict("decode", MISPLACED))
                .when(
                    record[_CORRUPT].isNotNull() | (self._refused_field_names(values, loose) != ""),
                    shared.dead_letter_verdict(
                        "schema", F.concat(F.lit("wrong type: "), self._refused_field_names(values, loose))
                    ),
                )
                .when(
                    self._out_of_range_field_names(record, loose) != "",
                    shared.dead_letter_verdict(
                        "schema",
                        F.concat(
                            F.lit(out_of_range_numbers.RANGE), self._out_of_range_field_names(record, loose)
                        ),
                    ),
                )
                .otherwise(missing)
            ),
        ).getItem(0)

    def _refused_field_names(self, values: Mapping[str, Column], loose: Column) -> Column:
        def name_with_unit_hint(field: StructField) -> Column:
            told = F.lit(field.name)
            return (
                F.concat(told, times.unit_hint(field.dataType, loose[field.name]))
                if times.is_time_or_date_type(field.dataType)
                else told
            )

        return F.concat_ws(
            ", ",
            *(
                F.when(
                    (loose[f.name].isNotNull() & values[f.name].isNull())
                    | (loose[f.name].rlike(_JAVA) if f.name in self._float_column_names else F.lit(False)),
                    name_with_unit_hint(f),
                )
                for f in times.schema_with_units_in_types(self.schema)
            ),
        )

    def _out_of_range_field_names(self, record: Column, loose: Column) -> Column:
        """Return the fields with a number out of range; an infinite value without a digit was written so."""
        asked = {
            f.name: out_of_range_numbers.all_numbers_finite_condition(f.dataType, record[f.name])
            for f in self.schema.fields
        }
        return F.concat_ws(
            ", ",
            *(
                F.when(~fits & loose[name].rlike("[0-9]"), F.lit(name))
                for name, fits in asked.items()
                if fits is not None
            ),
        )


def _parser_schema(schema: StructType) -> StructType:
    """Return the types that the parser reads: decimals and times as texts, which are converted where that takes not too long."""
    return StructType(
        [StructField(f.name, StringType() if _is_read_as_text(f.dataType) else f.dataType) for f in schema]
    )


def _is_read_as_text(kind: DataType) -> bool:
    return isinstance(kind, DecimalType) or times.is_time_or_date_type(kind)


def _value_of_text(kind: DataType, text: Column) -> Column:
    """Return the value of a column that was read as a text; null if it is none."""
    if isinstance(kind, DecimalType):
        return out_of_range_numbers.decimal_of_text(text, kind)
    if not times.is_time_or_date_type(kind):
        return text
    # The rare forms in a lambda, which is not compiled into the code of all records.
    rare = shared.evaluate_once(text, lambda each: times.time_from_text(kind, each))
    return F.coalesce(times.time_from_common_form(kind, text), F.when(text.isNotNull(), rare))
