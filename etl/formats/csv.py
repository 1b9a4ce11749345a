"""CSV: one record without a header in each payload, as in RFC 4180, with a configured delimiter.

Stages of a dead letter:

``decode``
    A null or empty payload, bytes that are not UTF-8, a NUL or a byte order mark, another number of columns
    than in the schema (also from an unclosed quote), and anything after the record.
``schema``
    A value of another type than its column, a number larger than a ``DOUBLE`` or ``FLOAT`` holds (``1e400``), or no value in
    a ``NOT NULL`` column.

One line feed (or carriage return and line feed) at the end does not start a second record. A column that
holds the configured null text is null, quoted or not, and so is an empty unquoted one; with a null text
that is not empty, ``""`` is an empty text. A quote inside an unquoted value is
an ordinary character. Spark's CSV parser decides about numbers, times and flags; it takes
``NaN``, ``Inf`` and ``-Inf`` for a ``DOUBLE``.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StringType, StructField, StructType

from ..launch.format_kinds import Format
from . import schemas
from .decoding import out_of_range_numbers
from .decoding import rows as shared

MOST_DELIMITERS = 20_000
"""Most delimiters of a payload. At 20,480 columns (``maxColumns``) Spark's parser fails the complete batch in any mode."""

_END, _CORRUPT = "_end", "_corrupt"


@dataclass(frozen=True)
class CsvFormat(Format):
    """Columns between delimiters; ``quote`` is doubled inside quotes, ``null`` is the text for null."""

    kind: Literal["csv"]
    delimiter: str
    quote: str
    null: str

    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> CsvDecoder:
        """Make the decoder, see :meth:`etl.launch.format_kinds.Format.decoder`; ``schema`` is DDL."""
        return CsvDecoder(schemas.read_ddl(spark, schema), self)


@dataclass(frozen=True)
class CsvDecoder:
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
        payload = F.col("payload")
        typed = self._read(rows)
        record = F.col("_record")
        fine = F.coalesce(self._whole(record) & shared.valid_text(payload), F.lit(False))
        for _, absent in shared.required(self.schema, record.getField, record.isNotNull()):
            fine = fine & ~absent
        finite = out_of_range_numbers.all_finite(self.schema, record)
        if finite is not None:
            fine = fine & finite
        held = typed.withColumn("_verdict", F.when(~fine, self._verdict(record)))
        return shared.decoded_or_dead_letter(held, self.schema, "_record", "_verdict")

    def _read(self, rows: DataFrame) -> DataFrame:
        """Add ``_record``: the record and two internal columns; null where the parser cannot be used.

        Decimals are read as texts and converted where that does not take too long.
        """
        if not out_of_range_numbers.decimals(self.schema):
            return rows.withColumn("_record", self._parse(self.schema))
        texts = F.col("_texts")
        values = {
            f.name: out_of_range_numbers.decimal(texts[f.name], f.dataType)
            if isinstance(f.dataType, DecimalType)
            else texts[f.name]
            for f in self.schema.fields
        }
        refused = reduce(or_, (texts[n].isNotNull() & value.isNull() for n, value in values.items()))
        corrupt = F.coalesce(texts[_CORRUPT], F.when(refused, F.lit(_CORRUPT)))
        record = {**values, _END: texts[_END], _CORRUPT: corrupt}
        made = F.struct(*(value.alias(name) for name, value in record.items()))
        parsed = rows.withColumn("_texts", self._parse(out_of_range_numbers.as_texts(self.schema)))
        return parsed.withColumn("_record", F.when(texts.isNotNull(), made)).drop("_texts")

    def _parse(self, schema: StructType) -> Column:
        """Return the record and two internal columns; null where the parser cannot be used."""
        text = F.col("payload").cast("string")
        framed = F.concat(
            F.regexp_replace(text, r"\r?\n\z", ""), F.lit(self.options.delimiter), F.lit(self.mark)
        )
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
        return F.when(self._askable(), F.from_csv(framed, ddl, options))

    def _askable(self) -> Column:
        # The parser treats a line that begins with NUL as a comment, and the text after it as a record.
        return (self._delimiters() <= MOST_DELIMITERS) & ~self._marked()

    def _delimiters(self) -> Column:
        text = F.col("payload").cast("string")
        return F.length(text) - F.length(F.translate(text, self.options.delimiter, ""))

    def _marked(self) -> Column:
        text = F.col("payload").cast("string")
        return F.hex(F.substring("payload", 1, 3)).eqNullSafe("EFBBBF") | text.contains("\0")

    def _whole(self, record: Column) -> Column:
        """Return a condition: the parser refused nothing, and the record ended with the payload."""
        return record[_CORRUPT].isNull() & (record[_END] == self.mark)

    def _verdict(self, record: Column) -> Column:
        payload = F.col("payload")
        texts = StructType([StructField(f.name, StringType()) for f in self.schema.fields])
        columns = len(self.schema.fields)
        required = shared.required(self.schema, record.getField, record.isNotNull())
        missing = F.concat_ws(", ", *(F.when(absent, F.lit(name)) for name, absent in required))
        ragged = f"not one record of {columns} column{'s' * (columns != 1)}"
        # A lambda is the only way to name a value inside an expression.
        return F.transform(
            F.array(self._parse(texts)),
            lambda loose: (
                F.when(payload.isNull(), shared.reason("decode", shared.TOMBSTONE))
                .when(F.length(payload) == 0, shared.reason("decode", shared.EMPTY))
                .when(~shared.valid_text(payload), shared.reason("decode", shared.NOT_UTF8))
                .when(self._marked(), shared.reason("decode", "a NUL or a byte order mark"))
                .when(
                    self._delimiters() > MOST_DELIMITERS,
                    shared.reason("decode", f"more than {MOST_DELIMITERS:,} delimiters"),
                )
                .when(~F.coalesce(self._whole(loose), F.lit(False)), shared.reason("decode", ragged))
                .when(
                    record[_CORRUPT].isNotNull(),
                    shared.reason("schema", F.concat(F.lit("wrong type: "), self._refused(record, loose))),
                )
                .when(
                    self._infinite(record, loose) != "",
                    shared.reason(
                        "schema", F.concat(F.lit(out_of_range_numbers.RANGE), self._infinite(record, loose))
                    ),
                )
                .when(
                    missing != "",
                    shared.reason("schema", F.concat(F.lit("no value for a required field: "), missing)),
                )
            ),
        ).getItem(0)

    def _refused(self, record: Column, loose: Column) -> Column:
        names = (f.name for f in self.schema.fields)
        return F.concat_ws(
            ", ", *(F.when(loose[n].isNotNull() & record[n].isNull(), F.lit(n)) for n in names)
        )

    def _infinite(self, record: Column, loose: Column) -> Column:
        """Return the fields with a number out of range; an infinite value without a digit was written so."""
        asked = {
            f.name: out_of_range_numbers.all_finite(f.dataType, record[f.name]) for f in self.schema.fields
        }
        return F.concat_ws(
            ", ",
            *(
                F.when(~fits & loose[name].rlike("[0-9]"), F.lit(name))
                for name, fits in asked.items()
                if fits is not None
            ),
        )
