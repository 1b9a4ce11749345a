"""Schema from a sample of records: the narrowest type that takes all seen values, with whole numbers as BIGINT."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import fastavro
from pyspark.sql.types import DataType, NullType, StructField, StructType

from millrace.etl.launch.formats import texts_spark_compares
from millrace.sandbox.schemas.avro_types_and_encoding import AvroSchema
from millrace.sandbox.schemas.value_types import (
    clashing_names,
    common_type_and_remark,
    number_of_text,
    remarks_on_field,
    remarks_on_lost_digits,
    shortened,
    type_for_schema_file,
    type_of_csv_cell,
    type_of_json_value,
)

EXAMPLES = 3
_DEEPEST = 64
"""Levels of a record; a type of more is no help to anybody."""

_MOST_DIGITS = 1_000
"""Digits of a number in JSON that Spark's parser reads."""

_HALF = re.compile("[\ud800-\udfff]")

_AVRO_HEADER: dict[str, Any] = {
    "type": "record",
    "name": "org.apache.avro.file.Header",
    "fields": [
        {"name": "magic", "type": {"type": "fixed", "name": "Magic", "size": 4}},
        {"name": "meta", "type": {"type": "map", "values": "bytes"}},
    ],
}
"""Beginning of an Avro file (Avro's specification, "Object Container Files")."""


class InferenceError(ValueError):
    """A sample without any information on a schema."""


class UnreadableRecordError(ValueError):
    """A record of which a decoder makes a dead letter."""


@dataclass
class FieldReport:
    """Observations on one field of a sample.

    Attributes
    ----------
    kind
        The type that takes all its values.
    absent
        Records without a value.
    conflicts
        Why no narrower type fits, or why the field is left out; else empty.
    """

    name: str
    kind: DataType
    absent: int = 0
    examples: list[str] = field(default_factory=list)
    conflicts: list[str] = field(default_factory=list)
    usable: bool = True


@dataclass(frozen=True)
class InferredSchema:
    """A schema, and the observations behind it.

    Attributes
    ----------
    records
        Number of readable records of the sample.
    unreadable
        Number of unreadable records; ``reason`` is that of the first.
    """

    schema: StructType
    fields: tuple[FieldReport, ...]
    records: int
    unreadable: int = 0
    reason: str | None = None


def infer_from_json(
    payloads: Iterable[bytes], *, required: bool = False, narrow: bool = False
) -> InferredSchema:
    """Return the schema of JSON objects.

    Parameters
    ----------
    payloads
        Payloads, one object each.
    required
        Whether a field that no record lacks is ``NOT NULL``.
    narrow
        Whether whole numbers within 32 bits are INT. An id that grows past them would be a dead letter.

    Raises
    ------
    InferenceError
        None of them is an object.
    """
    rows: list[dict[str, Any]] = []
    refused: list[str] = []
    for payload in payloads:
        try:
            rows.append(read_json_object(payload))
        except UnreadableRecordError as error:
            refused.append(str(error))
    return infer_from_objects(rows, refused, required=required, narrow=narrow)


def infer_from_objects(
    rows: Sequence[dict[str, Any]], refused: Sequence[str], *, required: bool, narrow: bool
) -> InferredSchema:
    """Return the schema of objects of :func:`read_json_object`; ``refused`` are the reasons of unreadable records."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    kinds = {name: [type_of_json_value(value) for value in values] for name, values in columns.items()}
    return _infer_columns(columns, kinds, len(rows), refused, required=required, narrow=narrow)


def read_json_object(payload: bytes) -> dict[str, Any]:
    """Return a JSON object, whose fractions are decimals with all their digits.

    Raises
    ------
    UnreadableRecordError
        A decoder makes a dead letter of it.
    """
    try:
        row = json.loads(
            payload.decode(),
            parse_float=lambda text: number_of_text(_text_of_number(text)),
            parse_int=lambda text: int(_text_of_number(text)),
            parse_constant=_refuse_constant,
            object_pairs_hook=_object_of_pairs,
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableRecordError(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise UnreadableRecordError("not a JSON object")
    if _is_nested_too_deep(row):
        raise UnreadableRecordError(f"nested deeper than {_DEEPEST}")
    if _HALF.search(json.dumps(row, ensure_ascii=False, default=str)):
        raise UnreadableRecordError("the escape of half a character (a lone surrogate)")
    return row


def _text_of_number(text: str) -> str:
    if sum(map(str.isdigit, text)) > _MOST_DIGITS:
        raise ValueError(f"a number of more than {_MOST_DIGITS:,} digits")
    return text


def _object_of_pairs(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object; of a name that is there twice Spark takes the last value, after it has read the first by the same type."""
    row = dict(pairs)
    for name, value in pairs if len(row) < len(pairs) else ():
        if type_of_json_value(value) != type_of_json_value(row[name]):
            raise ValueError(f"{shortened(name)} is there twice, with values of two types")
    return row


def _refuse_constant(name: str) -> None:
    raise ValueError(name)


def _is_nested_too_deep(value: Any) -> bool:
    layer, depth = [value], 0
    while layer and depth <= _DEEPEST:
        inside = (each.values() if isinstance(each, dict) else each for each in layer)
        layer = [one for each in inside for one in each if isinstance(one, dict | list)]
        depth += 1
    return bool(layer)


def _column_names_and_remarks(names: Sequence[str]) -> Iterator[tuple[str, str | None]]:
    """Yield names of columns, and why one has another than in the file: columns go by their places, so none can be left out."""
    taken = {text for name in names for text in texts_spark_compares(name.strip())}
    compared: set[str] = set()
    for place, name in enumerate(map(str.strip, names), 1):
        if (why := _reason_left_out(name, compared)) is not None:
            odd = f"its name in the file, {name or 'none'}, {why}"
            name = next(each for n in range(len(names) + 1) if (each := f"c{place}{'_' * n}") not in taken)
            taken.add(name)
        compared |= texts_spark_compares(name)
        yield name, None if why is None else odd


def infer_from_csv(
    payloads: Iterable[bytes],
    names: Sequence[str] | None,
    *,
    delimiter: str,
    null: str = "",
    required: bool = False,
    narrow: bool = False,
) -> InferredSchema:
    """Return the schema of CSV records without a header.

    Parameters
    ----------
    payloads
        Payloads, one record each.
    names
        Names of the columns; None means ``c1``, ``c2`` and so on.
    delimiter, null
        Format of the records; a column that is empty or ``null`` has no value.
    required, narrow
        As for :func:`infer_from_json`.

    Raises
    ------
    InferenceError
        None of them has as many columns as the first, or as there are names.
    """
    rows: list[list[str | None]] = []
    refused: list[str] = []
    for payload in payloads:
        try:
            text = payload.decode()
            records = list(csv.reader(io.StringIO(text), delimiter=delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            refused.append(str(error))
            continue
        names = names or ([f"c{n}" for n in range(1, len(records[0]) + 1)] if records else None)
        if "\0" in text or text.startswith("\ufeff"):
            refused.append("a NUL or a byte order mark")
        elif len(records) == 1 and names and len(records[0]) == len(names):
            rows.append(_cells_or_null(records[0], text, delimiter, null))
        else:
            refused.append(f"not one record of {len(names or ())} columns")
    renamed = dict(_column_names_and_remarks(names or ()))
    columns = {name: [row[place] for row in rows] for place, name in enumerate(renamed)}
    kinds = {
        name: [NullType() if value is None else type_of_csv_cell(value) for value in values]
        for name, values in columns.items()
    }
    inferred = _infer_columns(columns, kinds, len(rows), refused, required=required, narrow=narrow)
    for each in inferred.fields:
        each.conflicts += [odd for odd in [renamed[each.name]] if odd is not None]
    return inferred


def _cells_or_null(cells: Sequence[str], text: str, delimiter: str, null: str) -> list[str | None]:
    """Return the values of a record, as ``etl.formats.csv`` has them: beside another null text, ``""`` is an empty text."""
    between = re.escape(delimiter)
    column = rf'("(?:[^"]|"")*"|[^{between}\r\n]*)(?:{between}|\r?\n?\Z)'
    written = re.findall(column, text) if null and '""' in text else cells
    return [
        None if cell == null or (not cell and quoted != '""') else cell
        for cell, quoted in zip(cells, written, strict=False)
    ]


def _infer_columns(
    columns: dict[str, list[Any]],
    kinds: dict[str, list[DataType]],
    records: int,
    refused: Sequence[str],
    *,
    required: bool,
    narrow: bool,
) -> InferredSchema:
    if not records:
        raise InferenceError(
            f"no record of the sample can be read: {refused[0]}" if refused else "the sample is empty"
        )
    reports: list[FieldReport] = []
    compared: set[str] = set()
    for name, values in columns.items():
        kind: DataType = NullType()
        report = FieldReport(name, kind, sum(value is None for value in values))
        for each in kinds[name]:
            kind, odd = common_type_and_remark(kind, each)
            if odd and odd not in report.conflicts:
                report.conflicts.append(odd)
        if isinstance(kind, NullType):
            report.conflicts.append("no value seen")
        report.kind = type_for_schema_file(kind, narrow=narrow)
        report.conflicts += remarks_on_field(name, kind, values)
        report.conflicts += remarks_on_lost_digits(name, kind, values)
        report.examples = _example_values(values)
        if clash := sorted(set(clashing_names(kind))):
            report.conflicts.append(f"kept as JSON text: names in it that no column has: {', '.join(clash)}")
        if why := _reason_left_out(name, compared):
            report.conflicts.append(f"left out: its name {why}")
            report.usable = False
        compared |= texts_spark_compares(name)
        reports.append(report)
    fields = [StructField(r.name, r.kind, not required or r.absent > 0) for r in reports if r.usable]
    if not fields:
        raise InferenceError("no field of the sample can be a column of a table")
    return InferredSchema(
        StructType(fields), tuple(reports), records, len(refused), refused[0] if refused else None
    )


def _reason_left_out(name: str, compared: set[str]) -> str | None:
    if name.startswith("_"):
        return "begins with _"
    if not name or "`" in name:
        return "is empty or holds a backtick"
    return None if compared.isdisjoint(texts_spark_compares(name)) else "differs from another in case only"


def _example_values(values: Sequence[Any]) -> list[str]:
    shown = (
        json.dumps(v, ensure_ascii=False, default=float) if not isinstance(v, str | Decimal) else str(v)
        for v in values
        if v is not None
    )
    return list(dict.fromkeys(map(shortened, shown)))[:EXAMPLES]


def read_avro_schema_text_and_fields(data: bytes) -> tuple[str, InferredSchema]:
    """Return the schema in an Avro file.

    Parameters
    ----------
    data
        An object container file, or its first part.

    Returns
    -------
    tuple
        The schema in JSON, and its fields; no record is read.

    Raises
    ------
    InferenceError
        The data is not such a file.
    """
    try:
        # Other metadata may be any bytes.
        header: Any = fastavro.schemaless_reader(io.BytesIO(data), _AVRO_HEADER, None)
        text = header["meta"]["avro.schema"].decode()
    except (ValueError, EOFError, KeyError, IndexError) as error:
        raise InferenceError(f"the file is not an Avro file, or has no schema: {error}") from error
    schema = AvroSchema(text).struct
    reports = tuple(FieldReport(f.name, f.dataType) for f in schema.fields)
    for each in reports:
        if clash := sorted(set(clashing_names(each.kind))):
            each.conflicts.append(f"no table has it: names that differ in case only: {', '.join(clash)}")
    return json.dumps(json.loads(text), indent=2) + "\n", InferredSchema(schema, reports, 0)
