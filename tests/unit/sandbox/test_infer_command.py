"""`millrace schema infer`: what it writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import fastavro
import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.config.formats import ddl as of_ddl
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import read_sample_file
from tests.unit.sandbox.test_infer import AVSC, container

INNER = {"type": "record", "name": "I", "fields": [{"name": "m", "type": "int"}]}


PART = {
    "type": "record",
    "name": "P",
    "fields": [{"name": "n", "type": "int"}, {"name": "of", "type": INNER}],
}


@pytest.mark.parametrize(
    ("kind", "written"),
    [
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "TIMESTAMP_NTZ"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, "TIMESTAMP_NTZ"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 60, "scale": 2}, None),
        ({"type": "record", "name": "E", "fields": []}, None),
        ({"type": "array", "items": PART}, "ARRAY<STRUCT<n: INT, of: STRUCT<m: INT>>>"),
        ({"type": "map", "values": PART}, "MAP<STRING, STRUCT<n: INT, of: STRUCT<m: INT>>>"),
        (PART, "STRUCT<n: INT NOT NULL, of: STRUCT<m: INT NOT NULL> NOT NULL>"),
    ],
)
def test_a_ddl_file_has_the_types_of_spark_or_is_not_written(
    tmp_path: Path, kind: dict[str, object], written: str | None
) -> None:
    file, out = tmp_path / "o.avro", tmp_path / "o.ddl"
    with file.open("wb") as stream:
        fields = [{"name": "a", "type": kind}]
        schema = kind if kind.get("name") == "E" else {"type": "record", "name": "R", "fields": fields}
        fastavro.writer(stream, schema, [], validator=False)
    status, _ = run("--file", str(file), "--out", str(out))
    assert (out.read_text() if out.exists() else None) == (written and f"a {written} NOT NULL\n")
    assert (status == 0) == bool(written)
    assert not written or list(of_ddl.ddl_field_problems(of_ddl.parse_ddl(out.read_text()))) == []


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["schema", "infer", *arguments])
    return done.exit_code, done.output


def test_the_command_writes_the_file_once(tmp_path: Path) -> None:
    sample, out = tmp_path / "orders.jsonl", tmp_path / "pipelines" / "order.ddl"
    sample.write_text('{"id":1,"city":"Rome"}\n{"id":2}\n')
    status, shown = run("--file", str(sample), "--out", str(out))
    assert status == 0
    assert "city" in shown
    assert "50%" in shown
    assert out.read_text() == "id BIGINT,\ncity STRING\n"
    assert read_sample_file(sample, ddl_and_pyspark_types.parse_ddl(out.read_text()), dict)[1] == {
        "id": 2,
        "city": None,
    }
    status, shown = run("--file", str(sample), "--out", str(out))
    assert status == 2
    assert "--force" in shown
    sample.write_text('{"id":1.5}\n')
    status, shown = run("--file", str(sample), "--out", str(out), "--force", "--json", "--required")
    assert (status, json.loads(shown)["fields"][0]["type"]) == (0, "DOUBLE")
    assert out.read_text() == "id DOUBLE NOT NULL\n"


def test_the_command_reads_csv_with_a_header_and_avro(tmp_path: Path) -> None:
    (tmp_path / "o.csv").write_text("id;city\n1;Rome\n2;\n")
    status, shown = run("--file", str(tmp_path / "o.csv"), "--json")
    assert (status, json.loads(shown)["schema"]) == (0, "id BIGINT,\ncity STRING\n")
    (tmp_path / "o.avro").write_bytes(container(AVSC))
    status, _ = run("--file", str(tmp_path / "o.avro"), "--out", str(tmp_path / "o.avsc"))
    assert (status, json.loads((tmp_path / "o.avsc").read_text())) == (0, json.loads(AVSC))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give STREAM and --env, or --file, but not both"),
        (("orders",), "--env"),
        (("--file", __file__, "--out", "x.txt"), ".ddl"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments: tuple[str, ...], message: str) -> None:
    status, shown = run(*arguments)
    assert status == 2
    assert message in shown.replace("\n", " ")
