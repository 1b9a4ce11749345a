"""A query that failed is built again as by a start of its job: a failure in the middle of a batch leaves no half knowledge of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job.build_queries import build_queries
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.queries import offsets_already_in_table
from millrace.etl.record import hadoop_files
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults import small_job_documents
from tests.spark.source_batches import Events

Names = Callable[[str], Table]
TOPIC = "rebuilt-after-failures"
RECORDS, BATCH = 30, 10


@pytest.fixture(scope="module")
def sent(broker: KafkaBroker) -> KafkaBroker:
    broker.create_topic(TOPIC, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"record {number}".encode(), partition=0)
    assert producer.flush(30) == 0
    return broker


def landing(broker: KafkaBroker, folder: Path, checkpoints: Path, table: Table) -> Any:
    (schema := folder / "text.ddl").write_text("text STRING")
    land = {
        "kind": "land", "name": "land", "source": small_job_documents.topic(TOPIC, BATCH), "table": f"tests.{table.name}",
        "format": {"kind": "text"}, "schema": str(schema), "decompress_up_to": None, "redact": [], "rules": [],
        "trigger_seconds": 0.1, "repartition": None,
    }  # fmt: skip
    return parse_job_settings(
        small_job_documents.settings("shop", [land], str(checkpoints), broker.bootstrap)
    )


def run(spark: SparkSession, job: Any, batches: int, *, fails: bool = False) -> list[str]:
    """Run a job's query until it has written so many batches, of which the first may fail once; return the events of its failures."""
    events = Events()
    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(3, first_seconds=0.1))
    (query,) = build_queries(JobRun(spark, job, {}, events.reporter))
    faults, written = [OSError("S3: 503 Slow Down")] * fails, set[int]()

    def stopping(built: Any) -> Any:
        def handle(batch: DataFrame, number: int) -> None:
            if faults:
                raise faults.pop()
            built.handle(batch, number)
            written.add(number)
            if len(written) == batches:
                supervisor.request_stop()

        return replace(built, handle=handle, rebuild=lambda: stopping(built.rebuild()))

    assert supervisor.run_to_exit_status([stopping(query)]) == 0
    return [e["event"] for e in events.all() if e["event"] in ("retrying", "failed")]


@pytest.mark.slow
@pytest.mark.faults
def test_a_look_up_that_fails_once_in_a_later_run_of_a_reset_query_doubles_nothing(
    spark: SparkSession, table: Names, tmp_path: Path, sent: KafkaBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed = table("landed")
    run(spark, landing(sent, tmp_path, tmp_path / "first", landed), RECORDS // BATCH)
    again = landing(sent, tmp_path, tmp_path / "after_reset", landed)
    run(spark, again, 1)
    known, asked = offsets_already_in_table.landed_end_offsets, []

    def fails_once(*given: Any) -> Any:
        asked.append(given)
        if len(asked) == 1:
            raise OSError("S3: 503 Slow Down")
        return known(*given)

    monkeypatch.setattr(offsets_already_in_table, "landed_end_offsets", fails_once)
    assert run(spark, again, 2) == ["retrying"]
    assert len(asked) > 1
    count = Counter(row["_id"] for row in spark.table(str(landed)).select("_id").collect())
    assert (len(count), set(count.values())) == (RECORDS, {1})


@pytest.mark.slow
@pytest.mark.faults
def test_the_manifest_of_another_version_is_replaced_although_its_first_batch_failed_once(
    spark: SparkSession, table: Names, tmp_path: Path, sent: KafkaBroker
) -> None:
    job = landing(sent, tmp_path, tmp_path / "checkpoints", table("landed"))
    run(spark, job, 1)
    url = f"{tmp_path}/checkpoints/_millrace/land.manifest.json"
    written = hadoop_files.read_text(spark, url)
    hadoop_files.write_text(spark, url, written.replace('"core": "', '"core": "0.0.'))
    assert run(spark, job, 1, fails=True) == ["retrying"]
    assert hadoop_files.read_text(spark, url) == written
