"""Records of a file: its own lines, or values that a schema encodes where a record is no line of text."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.config.formats import PayloadFormat
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.formats.csv import CsvFormat
from millrace.sandbox.payloads import PayloadWriters
from millrace.sandbox.schemas.read_sample_records import read_nonempty_lines
from millrace.sandbox.schemas.traffic_values import SampleError, Values, read_sample_file

_ROWS = ("payload", "before", "after", "data")
"""Parts of a change event that have its row; the later ones count."""


@dataclass(frozen=True)
class FileRecord:
    """Record of a file.

    Attributes
    ----------
    row
        Values by field, for the key of the record; empty for a payload that cannot be read.
    """

    row: Mapping[str, Any]
    payload: bytes


def read_file_records(path: Path, form: PayloadFormat, payloads: PayloadWriters) -> list[FileRecord]:
    """Read the records of a file, in order.

    Each line that is not empty is a payload as it is, good or bad; of CSV without a header of the schema's names. The schema
    encodes JSON lines of Avro and Protobuf, and the rows of a file ``.csv`` for JSON.

    Raises
    ------
    SampleError
        The schema cannot encode a value, or there is no record.
    """
    if not form.launch_settings().is_payload_one_text_line or (form.kind, path.suffix) == ("json", ".csv"):
        encode = payloads.encode_given or payloads.encode

        def encode_values(values: Values) -> FileRecord:
            return FileRecord(values, encode(values))

        return read_sample_file(path, payloads.schema, encode_values)
    read_row = _csv_row_reader(form, payloads) if isinstance(form, CsvFormat) else _json_row_reader(form)
    records = [FileRecord(read_row(line), line) for line in read_nonempty_lines(path, sys.maxsize, b"\r\n")]
    if isinstance(form, CsvFormat) and records and records[0].row:
        # A header has no other texts than names.
        first = records[0].row
        records = records[set(first.values()) <= set(first) :]
    if not records:
        raise SampleError(f"{path} has no records")
    return records


def _csv_row_reader(form: CsvFormat, payloads: PayloadWriters) -> Callable[[bytes], Mapping[str, Any]]:
    names = payloads.schema.fieldNames()

    def read_csv_row(line: bytes) -> Mapping[str, Any]:
        text = line.decode(errors="replace")
        try:
            return dict(
                zip(
                    names,
                    next(csv.reader([text], delimiter=form.delimiter, quotechar=form.quote)),
                    strict=False,
                )
            )
        except csv.Error:
            return {}

    return read_csv_row


def _json_row_reader(form: PayloadFormat) -> Callable[[bytes], Mapping[str, Any]]:
    def read_json_row(line: bytes) -> Mapping[str, Any]:
        try:
            parts = [json.loads(line)]
        except (ValueError, RecursionError):
            return {}
        for name in _ROWS if isinstance(form, ChangeFormat) else ():
            parts += [each[name] for each in parts if isinstance(each, dict) and name in each]
        return {name: value for part in parts if isinstance(part, dict) for name, value in part.items()}

    return read_json_row
