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
    remarks_on_field,
    type_for_schema_file,
    type_of_csv_cell,
    type_of_json_value,
)

EXAMPLES = 3
_DEEPEST = 64
"""Levels of a record; a type of more is no help to anybody."""

_LONGEST_EXAMPLE = 24

_MOST_DIGITS = 400
"""Digits of a whole number that no DOUBLE holds; Python reads no number of thousands of digits as an int."""

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
            row = json.loads(
                payload.decode(),
                parse_float=Decimal,
                parse_int=_whole_number,
                parse_constant=_refuse_constant,
            )
        except (ValueError, RecursionError) as error:
            refused.append(f"not JSON: {error}")
            continue
        if not isinstance(row, dict):
            refused.append("not a JSON object")
        elif _is_nested_too_deep(row):
            refused.append(f"nested deeper than {_DEEPEST}")
        elif _HALF.search(json.dumps(row, ensure_ascii=False, default=str)):
            refused.append("the escape of half a character (a lone surrogate)")
        else:
            rows.append(row)
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [row.get(name) for row in rows] for name in names}
    kinds = {name: [type_of_json_value(value) for value in values] for name, values in columns.items()}
    return _infer_columns(columns, kinds, len(rows), refused, required=required, narrow=narrow)


def _whole_number(digits: str) -> int | Decimal:
    return int(digits) if len(digits) < _MOST_DIGITS else Decimal(digits)


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
    rows: list[list[str]] = []
    refused: list[str] = []
    for payload in payloads:
        try:
            records = list(csv.reader(io.StringIO(payload.decode()), delimiter=delimiter, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            refused.append(str(error))
            continue
        names = names or ([f"c{n}" for n in range(1, len(records[0]) + 1)] if records else None)
        if len(records) == 1 and names and len(records[0]) == len(names):
            rows.append(records[0])
        else:
            refused.append(f"not one record of {len(names or ())} columns")
    renamed = dict(_column_names_and_remarks(names or ()))
    columns = {
        name: [None if row[place] in ("", null) else row[place] for row in rows]
        for place, name in enumerate(renamed)
    }
    kinds = {name: [type_of_csv_cell(value or "") for value in values] for name, values in columns.items()}
    inferred = _infer_columns(columns, kinds, len(rows), refused, required=required, narrow=narrow)
    for each in inferred.fields:
        each.conflicts += [odd for odd in [renamed[each.name]] if odd is not None]
    return inferred


def _infer_columns(
    columns: dict[str, list[Any]],
    kinds: dict[str, list[DataType]],
    records: int,
    refused: list[str],
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
    cut = (s if len(s) <= _LONGEST_EXAMPLE else s[: _LONGEST_EXAMPLE - 1] + "…" for s in shown)
    return list(dict.fromkeys(cut))[:EXAMPLES]


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
