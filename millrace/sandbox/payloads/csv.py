"""CSV records for test traffic."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

from millrace.config.formats.csv import CsvFormat
from millrace.sandbox.payloads import PayloadSpoiler, PayloadWriters, to_plain_value
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import Values


def make_payload_writers(form: CsvFormat, path: Path) -> PayloadWriters:
    """Return the writers of records; a broken record has more columns than any of the schema."""
    schema = ddl_and_pyspark_types.read_ddl_file(path)
    extra = form.delimiter.encode() * (1 + len(schema.fields))

    def encode_record(values: Values) -> bytes:
        out = io.StringIO()
        writer = csv.writer(out, delimiter=form.delimiter, quotechar=form.quote, lineterminator="")
        writer.writerow([_csv_cell_value(value, form.null) for value in values.values()])
        return out.getvalue().encode()

    return PayloadWriters(
        schema, encode_record, PayloadSpoiler(schema, encode_record, lambda payload, _: payload + extra)
    )


def _csv_cell_value(value: Any, null: str) -> Any:
    if value is None:
        return null
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    return value if isinstance(value, str | int | float) else str(to_plain_value(value))
