"""``millrace traffic`` writes to a broker and to Kinesis exactly the records of its ledger."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.sandbox.localstack_deployment import Sandbox
from millrace.sandbox.records.ledger import payload_hash
from tests.faults import sink_contents

TOPIC, STREAM = "traffic-orders", "shop-traffic-clicks"
ENVIRONMENT = f"""
project: shop
streams:
  clicks:
    kind: kinesis
    traffic: {{records_per_second: 100, record_size: 200B}}
  orders:
    kind: kafka
    cluster: main
    topic: {TOPIC}
    traffic: {{records_per_second: 100, record_size: 200B}}
kafka:
  main: {{kind: external, bootstrap_servers: "broker.example:9092", authentication: tls}}
jobs:
  shop:
    engine: glue
    rate: {{records_per_second_per_core: 1000}}
    queries:
      land-clicks: {{kind: land, source: clicks, table: clicks, schema: pipelines/shop.ddl}}
      land-orders:
        {{kind: land, source: orders, table: orders, schema: pipelines/shop.ddl, format: {{kind: csv, delimiter: ";"}}}}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "traffic.yaml").write_text(ENVIRONMENT)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "shop.ddl").write_text(
        "id BIGINT NOT NULL, city STRING NOT NULL, at TIMESTAMP\n"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def traffic(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["traffic", *arguments, "--env", "traffic", "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout.splitlines()[-1]))


def inferred(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["schema", "infer", *arguments, "--env", "traffic", "--json"])
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.stdout))


def in_topic(bootstrap: str) -> Iterator[tuple[str, bytes]]:
    for message in sink_contents.messages(bootstrap, TOPIC):
        yield f"{TOPIC}/{message.partition()}/{message.offset()}", message.value() or b""


def in_stream(client: Any) -> Iterator[tuple[str, bytes]]:
    for record in sink_contents.records(client, STREAM):
        yield f"{STREAM}/{record['SequenceNumber']}", record["Data"]


def agree(found: Iterator[tuple[str, bytes]], outcome: dict[str, Any], path: Path) -> None:
    ledger = pq.read_table(path)
    assert ledger.num_rows == outcome["records"] > 0
    assert ledger.num_rows - ledger["dirt"].null_count == outcome["dirty"] > 0
    sent = Counter(zip(ledger["id"].to_pylist(), ledger["hash"].to_pylist(), strict=True))
    assert Counter((identity, payload_hash(payload)) for identity, payload in found) == sent


@pytest.mark.slow
def test_into_kafka_at_a_rate(sandbox: Sandbox, project: Path) -> None:
    sandbox.kafka.create_topic(TOPIC, 2)
    path = project / "orders.parquet"
    outcome = traffic(
        "orders", "--kafka", sandbox.kafka.bootstrap, "--rate", "400", "--seconds", "3", "--dirty", "0.1",
        "--duplicates", "0.05", "--ledger", str(path),
    )  # fmt: skip
    assert 300 < outcome["records_per_second"] < 440
    agree(in_topic(sandbox.kafka.bootstrap), outcome, path)
    # The schema comes out of its records again; the dirty ones are counted, not taken for records.
    result = inferred(
        "orders",
        "--kafka",
        sandbox.kafka.bootstrap,
        "--format",
        "csv",
        "--columns",
        "id,city,at",
        "--sample",
        "5000",
    )
    assert result["records"] + result["unreadable"] == outcome["records"]
    assert [f["type"] for f in result["fields"]] == ["STRING", "STRING", "TIMESTAMP"]
    assert result["fields"][0]["conflicts"] == ["int and string"]  # the retyped ones


@pytest.mark.slow
def test_into_kinesis_until_so_many(sandbox: Sandbox, project: Path) -> None:
    client = sandbox.stack.client("kinesis")
    client.create_stream(StreamName=STREAM, ShardCount=2)
    client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
    path = project / "clicks.parquet"
    outcome = traffic(
        "clicks", "--kinesis", sandbox.stack.endpoint, "--rate", "500", "--records", "300", "--dirty", "0.1",
        "--ledger", str(path),
    )  # fmt: skip
    assert outcome["records"] == 300
    agree(in_stream(client), outcome, path)
    result = inferred("clicks", "--kinesis", sandbox.stack.endpoint, "--sample", "50")
    assert (result["records"] + result["unreadable"], result["schema"].count(",")) == (50, 2)
