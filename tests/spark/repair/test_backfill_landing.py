"""A backfill of a landing table adds missing records once, from a topic, a Kinesis stream or files."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.commits.duplicate_look_up_bounds import whole_table_look_up
from millrace.etl.launch.entry_script_arguments import BackfillRequest
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.repair import backfill_landing
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.parquet import committed_files
from millrace.etl.sources.base import BackfillPart
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests import kinesalite
from tests.faults import small_job_documents
from tests.kinesalite import REGION
from tests.spark.queries.test_derive import Pipeline
from tests.spark.queries.test_sinks_outside_lake import derive, settings
from tests.spark.source_batches import DDL, Events, frame, good, kafka_rows, lander
from tests.spark.task_gate import TaskGate

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]
HOUR = timedelta(hours=1)


def job(
    table: Table, source: dict[str, Any], schema: Path, form: Any = MappingProxyType({"kind": "json"})
) -> JobSettings:
    schema.write_text(DDL)
    query = {
        "kind": "land", "name": "land-flights", "source": source, "format": dict(form), "schema": str(schema),
        "decompress_up_to": None, "redact": [], "rules": [], "table": f"{table.database}.{table.name}", "trigger_seconds": 1.0,
        "repartition": None,
    }  # fmt: skip
    return parse_job_settings(
        small_job_documents.settings("flights", [query], "/nowhere", source.pop("servers", "x:1"))
    )


def topic(servers: str) -> dict[str, Any]:
    return {
        "kind": "kafka", "name": "flights", "topic": "flights-topic", "connection": "main", "start": "latest",
        "records_per_batch": 1000, "retention_seconds": 3600, "reading": None, "servers": servers,
    }  # fmt: skip


def filled(
    spark: SparkSession, settings: JobSettings, request: BackfillRequest, binds: dict[str, str] | None = None
) -> tuple[int, ...]:
    """read, written, bad, duplicates of a refill."""
    events = Events()
    run = JobRun(spark, settings, binds or {}, events.reporter)
    assert backfill_landing.make_landing_backfiller(run, request)(spark, request) == 0
    told = events.last()
    assert told["event"] == "backfilled"
    return tuple(told[name] for name in ("read", "written", "bad", "duplicates"))


def landed(spark: SparkSession, table: Table) -> list[Any]:
    rows = spark.table(str(table)).select("_id", "flight", "_error").orderBy("_id").collect()
    return [(r["_id"], r["flight"], r["_error"] is None) for r in rows]


@pytest.mark.slow
def test_a_topics_range_lands_where_it_is_lacking(
    spark: SparkSession, table: Names, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("flights-topic", 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    start = datetime.now(UTC).replace(microsecond=0) - 10 * HOUR
    for n in range(10):
        at = start + timedelta(seconds=n) + (8 * HOUR if n > 7 else timedelta(0))
        value = b"broken" if n == 3 else good(n)
        producer.produce("flights-topic", value=value, timestamp=round(at.timestamp() * 1000))
    producer.flush()
    landing = table("landing")
    lander(spark, landing, Events())
    settings = job(landing, topic(broker.bootstrap), tmp_path / "schema.ddl")
    first = BackfillRequest("land-flights", start, start + timedelta(seconds=2), origin="stream")
    assert filled(spark, settings, first) == (2, 2, 0, 0)
    asked = BackfillRequest("land-flights", start, start + timedelta(seconds=7), origin="stream")
    # Offset 7 is of the end, which is no part of the range; 8 and 9 are eight hours younger.
    assert filled(spark, settings, asked) == (7, 5, 1, 2)
    assert filled(spark, settings, asked) == (7, 0, 0, 7)
    assert landed(spark, landing) == [
        (f"flights-topic/0/{n}", None if n == 3 else n, n != 3) for n in range(7)
    ]
    later = BackfillRequest("land-flights", start, start + 10 * HOUR, origin="stream")
    assert filled(spark, settings, later)[:2] == (10, 3)


@pytest.mark.slow
@pytest.mark.faults
def test_a_record_that_claims_another_time_neither_stops_a_refill_nor_ends_it_early(
    spark: SparkSession, table: Names, broker: KafkaBroker, tmp_path: Path
) -> None:
    broker.create_topic("odd-times", 1, any_time=True)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    start = datetime.now(UTC).replace(microsecond=0) - 10 * HOUR
    claimed = {2: 2**63 - 1, 4: 9_000_000_000_000, 6: 1_764_000_000_000_000_000}
    for n in range(60):
        at = start + n * timedelta(minutes=10)
        millis = claimed.get(n, round(at.timestamp() * 1000))
        producer.produce("odd-times", value=good(n), timestamp=millis)
    assert producer.flush(30) == 0
    landing = table("odd")
    lander(spark, landing, Events())
    settings = job(landing, {**topic(broker.bootstrap), "topic": "odd-times"}, tmp_path / "schema.ddl")
    # Of the second half alone, then of all. An odd record is taken with what lies an hour beside it.
    second = BackfillRequest("land-flights", start + 5 * HOUR, start + 10 * HOUR, origin="stream")
    assert filled(spark, settings, second) == (30, 30, 0, 0)
    whole = BackfillRequest("land-flights", start, start + 10 * HOUR, origin="stream")
    assert filled(spark, settings, whole) == (60, 30, 2, 30)
    assert filled(spark, settings, whole)[1] == 0
    rows = spark.table(str(landing)).where("_error IS NOT NULL").orderBy("_id")
    assert [(r["_id"], r["_stage"]) for r in rows.select("_id", "_stage").collect()] == [
        (f"odd-times/0/{n}", "timestamp") for n in (2, 6)
    ]
    result = [r["flight"] for r in spark.table(str(landing)).select("flight").collect()]
    assert sorted(n for n in result if n is not None) == [n for n in range(60) if n not in (2, 6)]


def test_a_streams_range_lands_with_the_identities_of_its_connector(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in kinesalite.CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    landing = table("landing")
    lander(spark, landing, Events())
    with kinesalite.running(name="refill") as server:
        client = server.client()
        client.create_stream(StreamName="flights", ShardCount=2)
        client.get_waiter("stream_exists").wait(StreamName="flights", WaiterConfig={"Delay": 1})
        sent = [
            client.put_record(StreamName="flights", Data=good(n), PartitionKey=str(n))["SequenceNumber"]
            for n in range(20)
        ]
        source = {
            "kind": "kinesis", "name": "flights", "stream": "flights", "region": REGION, "start": "latest",
            "records_per_shard": 1000, "fetch_seconds": 1.0, "retention_seconds": 3600, "consumer": None, "role": None,
            "records_per_batch": None,
        }  # fmt: skip
        settings = job(landing, source, tmp_path / "schema.ddl")
        now = datetime.now(UTC)
        asked = BackfillRequest("land-flights", now - HOUR, now + HOUR, origin="stream")
        binds = {"kinesis.endpoint": server.endpoint}
        assert filled(spark, settings, asked, binds) == (20, 20, 0, 0)
        assert filled(spark, settings, asked, binds) == (20, 0, 0, 20)
    assert {identity for identity, *_ in landed(spark, landing)} == {f"flights/{number}" for number in sent}


def test_lines_of_files_land_once(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, files = table("landing"), tmp_path / "files"
    lander(spark, landing, Events())
    files.mkdir()
    lines = [good(1), b"broken", b"", good(2)]
    (files / "a.jsonl").write_bytes(b"\r\n".join(lines) + b"\n")
    with gzip.open(files / "b[1].jsonl.gz", "wb") as packed:
        packed.write(good(3))
    settings = job(landing, topic("x:1"), tmp_path / "schema.ddl")
    asked = BackfillRequest("land-flights", None, None, origin=files.as_uri())
    assert filled(spark, settings, asked) == (5, 5, 2, 0)
    assert filled(spark, settings, asked) == (5, 0, 0, 5)
    kept = {
        identity.rsplit("/", 2)[-2:][0] + identity[-2:]: flight
        for identity, flight, _ in landed(spark, landing)
    }
    assert kept == {
        "a.jsonl/0": 1,
        "a.jsonl/1": None,
        "a.jsonl/2": None,
        "a.jsonl/3": 2,
        "b[1].jsonl.gz/0": 3,
    }
    row = spark.table(str(landing)).where("flight = 3").first()
    assert row is not None
    assert abs(row["_arrived_at"].timestamp() - time.time()) < 600
    letter = spark.table(str(landing)).where("_id LIKE '%a.jsonl/1'").first()
    assert letter is not None
    assert bytes(letter["_bytes"]) == b"broken"


@pytest.mark.parametrize("first", ["backfill", "query"])
def test_what_the_query_lands_meanwhile_lands_once(
    spark: SparkSession, table: Names, tmp_path: Path, first: str
) -> None:
    landing = table("landing")
    land = lander(spark, landing, Events())
    records, gate, events = (
        frame(spark, kafka_rows(0, 0, [good(n) for n in range(12)])).coalesce(1),
        TaskGate(tmp_path),
        Events(),
    )

    def refill(rows: DataFrame) -> int:
        part = BackfillPart("an hour", rows, whole_table_look_up())
        filler = backfill_landing.LandingBackfiller(
            "land-flights", lambda *_: iter([part]), land.decoder, IcebergSink(landing), events.reporter
        )
        return filler(spark, BackfillRequest("land-flights", None, None, origin="stream"))

    slow = gate.waiting(records, "payload")
    if first == "backfill":
        gate.while_it_waits(lambda: refill(slow), lambda: land(records, 0))
    else:
        gate.while_it_waits(lambda: land(slow, 0), lambda: refill(records))
    written = 0 if first == "backfill" else 12
    assert [events.last()[name] for name in ("read", "written", "duplicates")] == [12, written, 12 - written]
    assert [row[0] for row in landed(spark, landing)] == sorted(f"flights-topic/0/{n}" for n in range(12))


@pytest.mark.parametrize("derived_before", [True, False])
def test_what_was_lost_and_lands_again_is_derived_once(
    spark: SparkSession, table: Names, tmp_path: Path, derived_before: bool
) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    records = frame(spark, kafka_rows(0, 0, [good(n) for n in range(12)]))
    pipe.land(records, 0)
    files = {"kind": "parquet", "path": str(tmp_path / "files"), "files_per_batch": 1}
    beside = settings(pipe.landing, tmp_path / "beside", files, None, transform=None)
    if derived_before:
        pipe.derive()
        derive(spark, beside, {}, Events())
    spark.sql(f"DELETE FROM {pipe.landing} WHERE flight >= 4")  # noqa: S608 - our own names
    part = BackfillPart("an hour", records, whole_table_look_up())
    filler = backfill_landing.LandingBackfiller(
        "land-flights",
        lambda *_: iter([part]),
        pipe.land.decoder,
        IcebergSink(pipe.landing),
        Events().reporter,
    )
    assert filler(spark, BackfillRequest("land-flights", None, None, origin="stream")) == 0
    pipe.land(frame(spark, kafka_rows(0, 12, [good(12), good(13)])), 1)
    assert spark.table(str(pipe.landing)).count() == 14
    # Also by a process that begins now.
    pipe.deriver = pipe.deriver_of()
    pipe.derive()
    result = sorted(row["flight"] for row in pipe.written().select("flight").collect())
    assert result == [n for n in range(14) if n % 3]
    assert sum(written for *_, written in pipe.accounts()) == len(result)
    derive(spark, beside, {}, Events())
    in_files = spark.read.parquet(*committed_files(spark, files["path"]))
    assert sorted(row["flight"] for row in in_files.collect()) == [*range(14)]


def test_what_cannot_be_refilled_says_what_can(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing = table("landing")
    settings = job(landing, topic("x:1"), tmp_path / "schema.ddl")
    nobody = BackfillRequest("flights-weather", None, None, origin="file:///nowhere")
    with pytest.raises(StartError, match="the job has no land query of this name; it has: land-flights"):
        backfill_landing.make_landing_backfiller(JobRun(spark, settings, {}, Events().reporter), nobody)
    asked = BackfillRequest("land-flights", None, None, origin="file:///nowhere")
    with pytest.raises(StartError, match="start the job, which creates it"):
        backfill_landing.make_landing_backfiller(JobRun(spark, settings, {}, Events().reporter), asked)
    lander(spark, landing, Events())
    with pytest.raises(StartError, match="--from file:///nowhere"):
        backfill_landing.make_landing_backfiller(JobRun(spark, settings, {}, Events().reporter), asked)(
            spark, asked
        )
    avro = {"kind": "avro", "framing": "none", "writers": None, "registry": None, "subject": None}
    packed = job(landing, topic("x:1"), tmp_path / "schema.ddl", avro)
    with pytest.raises(StartError, match="avro has no lines"):
        backfill_landing.make_landing_backfiller(JobRun(spark, packed, {}, Events().reporter), asked)
