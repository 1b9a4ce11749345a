"""A benchmark of a query runs the planned batches at the limit's size, records their tasks, and drops its tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.job.benchmark import (
    BenchmarkRunner,
    describe_machine,
    read_schedule,
)
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun, BenchmarkSchedule
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from tests.faults import small_job_documents
from tests.spark.source_batches import Events

pytestmark = pytest.mark.slow


def job(tmp_path: Path, kind: str = "kafka") -> JobSettings:
    source = {"name": "flights", "start": "earliest", "retention_seconds": 3600}
    source |= (
        {"kind": "kafka", "topic": "flights", "connection": "main", "records_per_batch": 7, "reading": None}
        if kind == "kafka"
        else {
            "kind": "kinesis", "stream": "flights", "region": "us-east-1", "records_per_shard": 1,
            "fetch_seconds": 1.0, "consumer": None, "role": None, "records_per_batch": None,
        }
    )  # fmt: skip
    query = {
        "kind": "land",
        "name": "land-flights",
        "source": source,
        "format": {"kind": "json"},
        "schema": "x.ddl",
    }
    query |= {
        "decompress_up_to": None,
        "redact": [],
        "rules": [],
        "table": "tests.landed",
        "trigger_seconds": 5.0,
    }
    return parse_job_settings(
        small_job_documents.settings(
            "flights", [query | {"repartition": 2}], str(tmp_path / "checkpoints"), None
        )
    )


def schedule(
    tmp_path: Path, *runs: BenchmarkRun, queries: tuple[str, ...] = ("land-flights",)
) -> BenchmarkSchedule:
    return BenchmarkSchedule(queries, 2, str(tmp_path / "measured.json"), runs)


@pytest.mark.parametrize(
    ("queries", "kind", "said"),
    [
        (
            ("land",),
            "kafka",
            "the benchmark measures query land, which the job does not have; the job has land-flights",
        ),
        (
            ("land-flights",),
            "kinesis",
            "land-flights cannot be measured; the benchmark measures only a query that reads one Kafka topic",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(
    spark: SparkSession, tmp_path: Path, queries: tuple[str, ...], kind: str, said: str
) -> None:
    def never(_run: JobRun, _name: str, _most: int | None) -> ReadyQuery:
        raise AssertionError("nothing is opened")

    measured = BenchmarkRunner(JobRun(spark, job(tmp_path, kind), {}, Events().reporter), never)
    with pytest.raises(StartError, match=said):
        measured(schedule(tmp_path, BenchmarkRun(0, 10, 1, 0, 3), queries=queries))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such file"),
        ("{", "Expecting property name"),
        ('{"version": 99}', "format version 99 is not supported; this release reads version 1"),
        (
            '{"version": 1, "queries": [], "topic_partitions": 1, "result": "file:/x", "runs": []}',
            "names no queries or no runs",
        ),
    ],
)
def test_a_schedule_that_cannot_be_read_is_an_error_of_the_start(
    spark: SparkSession, tmp_path: Path, text: str | None, said: str
) -> None:
    file = tmp_path / "schedule.json"
    if text is not None:
        file.write_text(text, encoding="utf-8")
    with pytest.raises(StartError, match=f"--benchmark {file.as_uri()}: .*{said}"):
        read_schedule(spark, file.as_uri())


def test_a_run_has_its_own_limit_table_and_checkpoint_and_ends(spark: SparkSession, tmp_path: Path) -> None:
    seen: list[tuple[str, int, tuple[int, ...] | None, str]] = []
    sizes: list[int] = []

    def opened(run: JobRun, name: str, _most: int | None) -> ReadyQuery:
        settings = run.job
        (query,) = settings.queries
        assert query.kind == "land"
        [source] = query.sources
        assert source.kind == "kafka"
        assert source.reading is not None
        seen.append((query.table, source.records_per_batch, source.reading.partitions, settings.checkpoints))
        rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", source.records_per_batch)
        rows = rate.option("numPartitions", 2).load()
        return ReadyQuery(
            name, rows, lambda batch, _id: sizes.append(batch.count()), f"{settings.checkpoints}/{name}", 0.0
        )

    events = Events()
    done = BenchmarkRunner(JobRun(spark, job(tmp_path), {}, events.reporter), opened)(
        schedule(tmp_path, BenchmarkRun(0, 10, 1, -1, 2), BenchmarkRun(1, 30, 2, 0, 3))
    )
    assert done == 0
    assert [each[:3] for each in seen] == [
        ("tests.landed_benchmark", 10, (0,)),
        ("tests.landed_benchmark", 30, (0, 1)),
    ]
    assert seen[0][3] != seen[1][3]
    assert not any(Path(each[3]).exists() for each in seen)
    assert [e["number"] for e in events.all() if e["event"] == "measured"] == [0, 1]
    from json import loads

    measured = loads((tmp_path / "measured.json").read_text())
    first, second = measured["runs"]
    assert [batch["records"] for batch in second["batches"]] == [30, 30, 30]
    assert len(first["batches"]) == 2
    for batch in second["batches"]:
        assert batch["seconds"]["triggerExecution"] > 0
        assert batch["tasks"]
        assert all(task >= 0 for stage in batch["tasks"] for task in stage)
    assert measured["cores"] == 2
    assert describe_machine(spark)["spark"] == spark.version
