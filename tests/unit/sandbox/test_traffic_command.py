"""``millrace traffic``: output, refusals, and AWS only with its option."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import boto3
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.run.traffic import _parse_burst
from millrace.config import ConfigurationError
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.records.ledger import payload_hash
from millrace.sandbox.records.producer import KinesisProducer

STREAM = "shop-traffic-clicks"
ENVIRONMENT = """
project: shop
account: "123456789012"
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 100, record_size: 200B}
  orders:
    kind: kafka
    cluster: main
    traffic: {records_per_second: 100, record_size: 200B}
kafka:
  main: {kind: external, bootstrap_servers: "broker.example:9092", authentication: tls}
jobs:
  shop:
    engine: glue
    rate: {records_per_second_per_core: 1000}
    queries:
      land-clicks: {kind: land, source: clicks, table: clicks, schema: pipelines/shop.ddl}
      land-orders: {kind: land, source: orders, table: orders, schema: pipelines/shop.ddl}
      lines: {kind: land, source: orders, table: lines, schema: pipelines/line.ddl, format: text}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "traffic.yaml").write_text(ENVIRONMENT)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "shop.ddl").write_text(
        "id BIGINT NOT NULL, city STRING NOT NULL, at TIMESTAMP\n"
    )
    (tmp_path / "pipelines" / "line.ddl").write_text("line STRING\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["traffic", *arguments, "--env", "traffic"])
    if isinstance(done.exception, ConfigurationError):
        return 2, str(done.exception)
    return done.exit_code, " ".join(done.output.replace("│", " ").split())


def test_a_dry_run_shows_records_and_sends_none(project: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["traffic", "clicks", "--env", "traffic", "--dry-run", "--json", "--records", "7", "--dirty", "0.5"],
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, len(lines)) == (0, 7)
    good = [json.loads(line["payload"]) for line in lines if line["dirt"] is None]
    assert good
    assert all(row["city"] for row in good)
    status, shown = run("orders", "--query", "shop.lines", "--dry-run")
    assert status == 0
    assert "{" not in shown


REFUSED = {
    "an unknown stream": (("click",), "did you mean clicks?"),
    "a stream of two formats": (
        ("orders", "--dry-run"),
        "choose one of them with --query: shop.land-orders, shop.lines",
    ),
    "no such query": (("orders", "--query", "shop.other"), "queries that do: shop.land-orders, shop.lines"),
    "a burst that is none": (("clicks", "--burst", "5x10s"), "must be FACTORxLENGTH/EVERY"),
    "a burst longer than its period": (("clicks", "--burst", "5x60s/10s"), "must be FACTORxLENGTH/EVERY"),
    "two kinds of keys": (("clicks", "--key", "city", "--keys", "3"), "--key and --keys cannot be combined"),
    "AWS and a server here": (
        ("clicks", "--aws", "--kinesis", "http://127.0.0.1:1"),
        "--aws cannot be combined with",
    ),
    "spoiled records of a file": (
        ("clicks", "--from", "pipelines/shop.ddl", "--dirty", "0.1"),
        "--dirty and --late cannot be combined with it",
    ),
    "a rate of nothing": (("clicks", "--rate", "0"), "--rate"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_with_status_2(project: Path, name: str) -> None:
    arguments, message = REFUSED[name]
    status, shown = run(*arguments)
    assert status == 2
    assert message in shown


FAILED = {
    "no sandbox": (("clicks",), "is not running in the sandbox"),
    "another machine": (
        ("clicks", "--kinesis", "https://kinesis.us-east-1.amazonaws.com"),
        "is sent to another machine",
    ),
    "a broker elsewhere": (
        ("orders", "--query", "shop.lines", "--kafka", "127.0.0.1:1,b.example:9092"),
        "b.example",
    ),
    "a key that is no field": (("clicks", "--key", "town", "--dry-run"), "no field town for the key"),
}


@pytest.mark.parametrize("name", FAILED)
def test_what_is_not_there_is_one_message(project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments, message = FAILED[name]
    monkeypatch.setattr("millrace.sandbox.operate_running_sandbox._RECORD", project / "none.json")
    status, shown = run(*arguments)
    assert status == 1
    assert shown.startswith("millrace traffic: ")
    assert message in shown


def test_bursts_are_read() -> None:
    assert _parse_burst("2.5x10s/1m") == (2.5, 10.0, 60.0)


@pytest.fixture
def moto(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """AWS, of account 123456789012, with nothing in it."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    for name, value in (
        ("ENDPOINT_URL", f"http://{host}:{port}"),
        ("ACCESS_KEY_ID", "x"),
        ("SECRET_ACCESS_KEY", "x"),
    ):
        monkeypatch.setenv(f"AWS_{name}", value)
    reset = urllib.request.Request(f"http://{host}:{port}/moto-api/reset", method="POST")
    urllib.request.urlopen(reset).close()
    yield
    server.stop()


def test_aws_asks_first_and_then_takes_what_the_ledger_says(project: Path, moto: None) -> None:
    client = boto3.client("kinesis", region_name="us-east-1")
    client.create_stream(StreamName=STREAM, ShardCount=1)
    status, shown = run("clicks", "--aws", "--records", "40", "--rate", "1000")
    assert status == 2
    assert "Send 40 records to stream shop-traffic-clicks on AWS, us-east-1?" in shown
    assert "repeat the command with --yes" in shown
    path = project / "ledger.parquet"
    status, shown = run(
        "clicks", "--aws", "--yes", "--records", "40", "--rate", "1000", "--ledger", str(path)
    )
    assert status == 0
    assert shown.startswith("40 records to stream shop-traffic-clicks on AWS")
    [shard] = client.list_shards(StreamName=STREAM)["Shards"]
    start = client.get_shard_iterator(
        StreamName=STREAM, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
    )["ShardIterator"]
    records = client.get_records(ShardIterator=start)["Records"]
    ledger = pq.read_table(path)
    result = Counter((f"{STREAM}/{r['SequenceNumber']}", payload_hash(r["Data"])) for r in records)
    assert result == Counter(zip(ledger["id"].to_pylist(), ledger["hash"].to_pylist(), strict=True))
    assert ledger.num_rows == 40


def test_what_aws_refuses_is_one_message(project: Path, moto: None, monkeypatch: pytest.MonkeyPatch) -> None:
    status, shown = run("clicks", "--aws", "--yes", "--records", "4")
    assert status == 1
    assert shown.startswith(
        f"millrace traffic: cannot put records into stream {STREAM}: PutRecords was refused:"
    )
    file = project / "environments" / "traffic.yaml"
    file.write_text(ENVIRONMENT.replace("123456789012", "111122223333"))
    status, shown = run("clicks", "--aws", "--yes", "--records", "4")
    assert status == 2
    assert "belongs to account 111122223333, but these credentials belong to account 123456789012" in shown
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which has found credentials before
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(project / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(project / "none"))
    status, shown = run("clicks", "--aws", "--yes", "--records", "4")
    assert status == 2
    assert "there are no complete AWS credentials" in shown


def test_large_records_are_put_by_as_many_as_one_call_takes() -> None:
    class Kinesis:
        calls: ClassVar[list[int]] = []

        def put_records(self, Records: list[dict[str, Any]], **_: str) -> Any:
            self.calls.append(len(Records))
            assert sum(len(r["Data"]) + len(r["PartitionKey"]) for r in Records) <= 5 * 1024**2
            return {"Records": [{"SequenceNumber": str(n)} for n in range(len(Records))]}

    events = [RecordToSend(b"k", b"x" * 1_000_000, None)] * 12 + [RecordToSend(b"k", b"x", None)] * 600
    sent: list[int] = []
    KinesisProducer(Kinesis(), "s").send(events, sent=sent.append)
    assert Kinesis.calls == sent == [5, 5, 500, 102]
