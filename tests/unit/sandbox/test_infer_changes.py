"""Schemas inferred from change events: a file for each table, and its route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.config.formats import ddl
from tests.spark.change_events import dms, postgres, unscaled

NUMBER = {
    "type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "optional": True,
    "parameters": {"scale": "2", "connect.decimal.precision": "9"},
}  # fmt: skip
COLUMNS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "price", **NUMBER},
    {"field": "day", "type": "int32", "name": "io.debezium.time.Date", "optional": True},
    {"field": "at", "type": "int64", "name": "io.debezium.time.MicroTimestamp", "optional": True},
    {"field": "tags", "type": "array", "items": {"type": "string", "optional": True}, "optional": True},
]
ROW = {"id": 1, "price": unscaled("12.30"), "day": 19723, "at": 1700000000123456, "tags": []}


def event(table: str, **rows: Any) -> dict[str, Any]:
    found = postgres("u" if "before" in rows else "c", 10, 5, **rows)
    return {**found, "source": {**found["source"], "table": table}}


def infer(home: Path, records: list[Any], *arguments: str) -> Any:
    sample = home / "sample.jsonl"
    sample.write_text("".join(json.dumps(each) + "\n" for each in records))
    return CliRunner().invoke(app, ["schema", "infer", "--file", str(sample), *arguments])


def test_events_with_schemas_say_their_types_and_each_table_gets_a_file(tmp_path: Path) -> None:
    schema = {
        "type": "struct",
        "fields": [{"field": "after", "type": "struct", "fields": COLUMNS, "optional": True}],
    }
    records = [
        {"schema": schema, "payload": event("orders", after=ROW)},
        event("customers", after={"id": "c1", "name": None}),
        {"ts_ms": 1},
        "no event",
    ]
    out = tmp_path / "schemas"
    done = infer(tmp_path, records, "--format", "debezium", "--out", str(out))
    assert done.exit_code == 0, done.output
    assert (out / "orders.ddl").read_text() == (
        "id BIGINT NOT NULL,\nprice DECIMAL(9,2),\nday DATE,\nat TIMESTAMP COMMENT 'epoch microseconds',\ntags ARRAY<STRING>\n"
    )
    assert ddl.parse_ddl((out / "orders.ddl").read_text())[3].comment == "epoch microseconds"
    assert (out / "customers.ddl").read_text() == "id STRING,\nname STRING\n"
    assert "no schema in the events" in " ".join(done.output.split())
    assert (
        f"orders: {{source: STREAM, changes_of: public.orders, format: {{kind: debezium}}, schema: {out}/orders.ddl}}"
        in done.output
    )
    again = infer(tmp_path, records, "--format", "debezium", "--out", str(out))
    assert again.exit_code == 2
    assert "exists" in again.output


def test_records_of_dms_say_theirs_by_their_values(tmp_path: Path) -> None:
    records = [
        dms("insert", "2026-01-01T00:00:00Z", {"id": 1, "at": "2026-01-01T10:00:00Z"}),
        dms("create-table", "2026-01-01T00:00:00Z"),
    ]
    done = infer(tmp_path, records, "--format", "dms", "--json", "--required")
    assert done.exit_code == 0, done.output
    tables = json.loads(done.stdout)["tables"]
    assert {name: each["schema"] for name, each in tables.items()} == {
        "shop.orders": "id BIGINT NOT NULL,\nat TIMESTAMP NOT NULL\n"
    }


@pytest.mark.parametrize("form", ["debezium", "dms"])
def test_a_sample_without_a_change_says_so(tmp_path: Path, form: str) -> None:
    done = infer(tmp_path, [{"ts_ms": 1}, {"metadata": {"record-type": "control"}}], "--format", form)
    assert done.exit_code != 0
    assert (
        f"no record of the sample is a change of a row in format {form}" in str(done.exception) + done.output
    )
