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


def wrapped(columns: list[dict[str, Any]], **row: Any) -> dict[str, Any]:
    after = {"field": "after", "type": "struct", "fields": columns, "optional": True}
    return {"schema": {"type": "struct", "fields": [after]}, "payload": event("orders", after=row)}


def column(field: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "type": kind, **more}


def inferred(home: Path, records: list[Any], form: str = "debezium") -> tuple[str, dict[str, list[str]]]:
    done = infer(home, records, "--format", form, "--json")
    assert done.exit_code == 0, done.output
    [table] = json.loads(done.stdout)["tables"].values()
    return table["schema"], {each["name"]: each["conflicts"] for each in table["fields"]}


def test_numbers_keep_their_digits_and_have_the_types_of_json(tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    for numbers in (["12.50", "13.20"], ["1234567890123456.78", "1234567890123456.79"], ["1e400"]):
        rows = [f'{{"price":{each}}}' for each in numbers]
        sample.write_text("\n".join(rows))
        command = ["schema", "infer", "--json", "--file", str(sample)]
        plain = json.loads(CliRunner().invoke(app, command).stdout)
        metadata = '{"record-type":"data","schema-name":"s","table-name":"t"}'
        sample.write_text("\n".join(f'{{"data":{row},"metadata":{metadata}}}' for row in rows))
        [found] = json.loads(CliRunner().invoke(app, [*command, "--format", "dms"]).stdout)["tables"].values()
        assert (found["schema"], found["fields"]) == (plain["schema"], plain["fields"])


def test_columns_of_all_schemas_of_the_sample_are_in_the_file(tmp_path: Path) -> None:
    first = [column("id", "int32"), column("gone", "string"), column("n", "int32")]
    second = [column("id", "int32"), column("n", "int64"), column("new", "int32")]
    records = [wrapped(first, id=1, gone="x", n=1), wrapped(second, id=2, n=5_000_000_000, new=1)]
    for some in (records, records[::-1]):
        schema, remarks = inferred(tmp_path, some)
        assert set(schema.replace("\n", "").split(",")) == {
            "id INT NOT NULL", "gone STRING", "n BIGINT NOT NULL", "new INT",
        }  # fmt: skip
        assert not any(remarks.values())
    schema, remarks = inferred(tmp_path, [*records, event("orders", after={"id": 1, "late": True})])
    assert "late BOOLEAN" in schema
    assert "no schema in the events" in remarks["late"][0]


def test_declared_types_that_no_column_reads_both_of_are_named(tmp_path: Path) -> None:
    def decimal(scale: int, precision: int) -> dict[str, Any]:
        more = {"scale": str(scale), "connect.decimal.precision": str(precision)}
        return column("d", "bytes", name="org.apache.kafka.connect.data.Decimal", parameters=more)

    def moment(unit: str) -> dict[str, Any]:
        return column("s", "struct", fields=[column("at", "int64", name=f"io.debezium.time.{unit}")])

    row = {"d": "AQ==", "s": {"at": 1700000000000}, "k": 1}
    first = [decimal(2, 5), moment("Timestamp"), column("k", "int32")]
    second = [decimal(4, 9), moment("MicroTimestamp"), column("k", "string")]
    schema, remarks = inferred(tmp_path, [wrapped(first, **row), wrapped(second, **row)])
    assert "d DECIMAL(9,4)" in schema
    told = {name: [each.partition(": no type")[0] for each in some] for name, some in remarks.items()}
    assert told == {
        "d": ["d: DECIMAL(5,2) in some events, DECIMAL(9,4) in later ones"],
        "s": ["s.at: epoch milliseconds in some events, epoch microseconds in later ones"],
        "k": ["k: INT in some events, STRING in later ones"],
    }
    wider = [decimal(2, 9), moment("Timestamp"), column("k", "int32")]
    schema, remarks = inferred(tmp_path, [wrapped(first, **row), wrapped(wider, **row)])
    assert "d DECIMAL(9,2)" in schema
    assert "s STRUCT<at: TIMESTAMP NOT NULL COMMENT 'epoch milliseconds'>" in schema
    assert not any(remarks.values())


def test_records_that_no_decoder_reads_are_counted_at_each_table(tmp_path: Path) -> None:
    sample = tmp_path / "sample.jsonl"
    good = json.dumps(event("orders", after={"id": 1}))
    sample.write_text("\n".join([good, good.replace('"id": 1', f'"id": {"1" * 1001}'), "{", '{"ts_ms":1}']))
    command = ["schema", "infer", "--json", "--file", str(sample), "--format", "debezium"]
    [found] = json.loads(CliRunner().invoke(app, command).stdout)["tables"].values()
    assert (found["records"], found["unreadable"]) == (1, 2)
    assert "more than 1,000 digits" in found["reason"]


def test_a_declared_type_that_no_query_can_have_is_not_written(tmp_path: Path) -> None:
    scale = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "50"}}
    record = wrapped([{"field": "d", "type": "bytes", **scale}], d="AQ==")
    out = tmp_path / "schemas"
    done = infer(tmp_path, [record], "--format", "debezium", "--out", str(out))
    assert done.exit_code == 2
    shown = " ".join(done.output.replace("│", " ").split())
    assert "no query can have" in shown
    assert "decimal(38,50)" in shown
    assert not out.exists()


def test_what_a_declared_type_does_not_hold_is_named(tmp_path: Path) -> None:
    scaled = {"type": "struct", "name": "io.debezium.data.VariableScaleDecimal"}
    nanos = {"type": "int64", "name": "io.debezium.time.NanoTimestamp"}
    columns = [
        {"field": "v", **scaled},
        column("a", "array", items={"type": "array", "items": nanos}),
        column("s", "struct", fields=[{"field": "w", **scaled}]),
        column("z", "string", name="io.debezium.time.ZonedTimestamp"),
        column("f", "double"),
        column("g", "array", items={"type": "float"}),
        column("_x", "int32"),
    ]
    number = {"scale": 12, "value": "Gw=="}
    row = {
        "v": number,
        "a": [[1]],
        "s": {"w": number},
        "z": "2024-01-01T00:00:00.123456789Z",
        "f": 0.1,
        "g": [0.5],
        "_x": 1,
    }
    schema, remarks = inferred(tmp_path, [wrapped(columns, **row)])
    assert "a ARRAY<ARRAY<TIMESTAMP>> NOT NULL COMMENT 'epoch nanoseconds'" in schema
    assert ("f DOUBLE" in schema, "g ARRAY<FLOAT>" in schema) == (True, True)
    places = {name: [each.partition(":")[0] for each in some] for name, some in remarks.items()}
    assert places == {
        "v": ["v"],
        "a": ["a[][]"],
        "s": ["s.w"],
        "z": ["z"],
        "f": [],
        "g": [],
        "_x": ["left out"],
    }
