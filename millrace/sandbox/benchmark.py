"""Benchmark of a job's queries on this machine: a real broker with a filled topic, local Spark, the job's own settings."""

from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from millrace.benchmark.measurements import Measurements
from millrace.benchmark.run_schedule import schedule_document
from millrace.config.engines import KINDS
from millrace.config.engines.versions import SparkLine, spark_line_of
from millrace.etl.launch import typed_json
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun
from millrace.etl.launch.sources import KafkaSource
from millrace.sandbox.programs import jars, start_spark_submit
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, local_catalog_settings
from millrace.sandbox.programs.toolchain import CORE, java_home, program_variables, python_import_path
from millrace.sandbox.records.producer import produce_with_backpressure

HOME = RUN / "benchmark"

TOPIC = "benchmark"

_CONNECTION = "benchmark"

_FLUSH_SECONDS = 120


@dataclass(frozen=True)
class BenchmarkJob:
    """Job and queries of a benchmark.

    Attributes
    ----------
    document
        The job's launch document.
    queries
        The query that reads the topic, then those that derive from it.
    references
        Tables for their enrichment, by their names in the document (``database.table``).
    """

    document: Mapping[str, Any]
    queries: tuple[str, ...]
    references: Mapping[str, pa.Table]


def fill_topic_and_return_records_sent(
    bootstrap: str, payloads: Sequence[bytes], records: Mapping[int, int]
) -> int:
    """Fill the partitions of the topic with the payloads, again and again, each in the same order.

    Parameters
    ----------
    payloads
        At least one.
    records
        Number of records by partition.

    Returns
    -------
    int
        Records sent.

    Raises
    ------
    SandboxError
        The broker did not take them all.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "compression.type": "lz4",
            "message.max.bytes": 10_485_760,
            "queue.buffering.max.messages": 200_000,
        }
    )
    sent = 0
    for partition, count in records.items():
        for payload in itertools.islice(itertools.cycle(payloads), count):
            produce_with_backpressure(producer, TOPIC, payload, partition=partition)
            sent += 1
            if sent % 1000 == 0:
                producer.poll(0)
    if left := producer.flush(_FLUSH_SECONDS):
        raise SandboxError(
            f"{left:,} of {sent:,} records did not reach the Kafka broker within {_FLUSH_SECONDS} s; "
            "read kafka.log, or send fewer records"
        )
    return sent


def records_needed_by_partition(runs: Sequence[BenchmarkRun]) -> dict[int, int]:
    """Return the records that each partition must hold so that all batches of all runs are full."""
    needed: dict[int, int] = {}
    for run in runs:
        for partition in range(run.partitions):
            count = -(-run.limit // run.partitions) * (run.batches + 1)
            needed[partition] = max(needed.get(partition, 0), count)
    return needed


def run_benchmark_schedule(
    subject: BenchmarkJob,
    runs: Sequence[BenchmarkRun],
    bootstrap: str,
    *,
    cores: int,
    done: Callable[[int, int], None],
) -> Measurements:
    """Run a schedule on local Spark and return its measurements; with the Spark line of the job's engine version.

    Parameters
    ----------
    bootstrap
        Address of a broker with the filled topic.
    cores
        Tasks that run at once.
    done
        Called after each run with its number, from 1 on, and the number of runs.

    Raises
    ------
    SandboxError
        It stopped early; the message has its output.
    JarError, ToolchainError
        The line is not installed; the message has the command that installs it.
    """
    home = HOME / f"cores-{cores}"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    result = home / "measured.json"
    count = max(run.partitions for run in runs)
    (home / "schedule.json").write_text(
        json.dumps(schedule_document(runs, subject.queries, count, result.as_uri()))
    )
    (home / "launch.json").write_text(json.dumps(_local_launch_document(subject, home, bootstrap)))
    line = spark_line_of(
        KINDS[subject.document["engine"]].spark_of_version(subject.document["engine_version"])
    )
    settings = _spark_settings(subject.document, home, cores, line)
    _create_reference_tables(subject, home)
    files = (
        "--launch-document",
        (home / "launch.json").as_uri(),
        "--benchmark",
        (home / "schedule.json").as_uri(),
    )
    environment = {**program_variables(), "JAVA_HOME": str(java_home()), "PYTHONPATH": python_import_path()}
    entry = CORE / "main.py"
    with start_spark_submit.start_driver(
        "benchmark",
        home,
        entry,
        settings,
        [*files, "--engine", "sandbox"],
        environment=environment,
        line=line,
    ) as process:
        told = 0
        while process.is_alive:
            time.sleep(0.2)
            for event in itertools.islice(start_spark_submit.read_driver_events(process), told, None):
                told += 1
                if event["event"] == "measured":
                    done(event["number"] + 1, event["of"])
        status = process.popen.returncode
    if status != 0 or not result.exists():
        raise SandboxError(f"the benchmark ended with status {status}:\n{process.last_log_lines(20)}")
    measured = Measurements.model_validate_json(result.read_text())
    shutil.rmtree(home)
    return measured


def _source_as_local_topic(given: dict[str, Any]) -> Any:
    """Return the topic on this machine in the place of a source."""
    retention = given["retention_seconds"]
    return typed_json.to_json_value(KafkaSource(given["name"], TOPIC, _CONNECTION, "earliest", 1, retention))


def _local_launch_document(subject: BenchmarkJob, home: Path, bootstrap: str) -> dict[str, Any]:
    """Return the launch document with source, checkpoints and connections on this machine."""
    settings = dict(subject.document["settings"])
    queries = []
    for query in settings["queries"]:
        if query["name"] not in subject.queries:
            continue
        if "routes" in query:
            query = query | {
                "routes": [
                    route | {"source": _source_as_local_topic(route["source"])} for route in query["routes"]
                ]
            }
        queries.append(query)
    settings |= {
        "queries": queries,
        "checkpoints": str(home / "checkpoints"),
        "upkeep": None,
        "dead_letters_kept_seconds": None,
        "erase_share": 0.1,
        "connections": {
            _CONNECTION: {"cluster": None, "bootstrap_servers": bootstrap, "authentication": "none"}
        },
    }
    return {**subject.document, "settings": settings}


def _spark_settings(launch: Mapping[str, Any], home: Path, cores: int, line: SparkLine) -> dict[str, str]:
    name = launch["settings"]["catalog"]
    paths = [*jars.jar_files("sandbox", line), *jars.jar_files("kafka-client", line)]
    return {
        **SandboxSpark.without_replaced_settings(launch["spark"]),
        **start_spark_submit.LOCAL,
        **local_catalog_settings(name, home / "catalog.db", f"file://{home}/warehouse"),
        "spark.app.name": f"benchmark/{launch['job']}",
        "spark.jars": ",".join(map(str, paths)),
        "spark.master": f"local[{cores}]",
        "spark.log.level": "ERROR",
        "spark.ui.retainedStages": "10000",
        "spark.ui.retainedJobs": "10000",
        "spark.sql.streaming.numRecentProgressUpdates": "1000",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.eventLog.enabled": "false",
    }


def _create_reference_tables(subject: BenchmarkJob, home: Path) -> None:
    catalog = SqlCatalog(
        "lake",
        uri=f"sqlite:///{home / 'catalog.db'}",
        warehouse=f"file://{home}/warehouse",
        **{"py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO"},
    )
    for name, rows in subject.references.items():
        catalog.create_namespace_if_not_exists(name.partition(".")[0])
        catalog.create_table(name, schema=rows.schema).append(rows)
    catalog.close()
