"""Speed of landing, compared with the shortest hand-written code and with that of tutorials.

``python -m tests.performance.kafka_landing_speed --events 2000000 --pairs 5``. On each line of Spark, all runs read one
preloaded Kafka topic of flight events in one session, turn about, so that what
else the machine does falls on all of them; the figures to trust are ratios of a round. They are printed against
the targets, and kept with the commit in ``results/core.jsonl`` beside this file.

same_columns
    ``plain`` with identity, envelope and hash of the payload too, as a landing table and the sink of a direct query
    without a transform have them; no checks.
tutorial
    A Python function per record, a sink for good and one for bad records, nothing held
    in memory, no limit on a batch.
landing
    The core's land query, built from job settings as on any engine: identity,
    envelope, dead letters, accounts, duplicates looked up.
direct
    The core's direct query: the same topic to the sink without a landing table, dead letters and accounts on.

Not by default:

plain
    What a Spark expert would write by hand in ten lines: ``from_json`` with the
    schema, one append to an Iceberg table partitioned and written like ours.
tutorial_same_columns
    ``tutorial`` with the columns of ``same_columns``.
ten_rules
    ``landing`` with ten data rules that every record meets.
watched
    ``landing`` with all that a job measures beside it: ages of the records, the monitor, every output.
listener
    ``watched`` with a Python ``StreamingQueryListener`` more, the other way to hear of progress.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from millrace.config.engines.versions import LINES
from millrace.etl.job import build_queries
from millrace.etl.launch import settings
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.toolchain import ROOT, spark_submit_variables
from tests.launch_document_defaults import with_route
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.cpu_time import cpu_since_now, task_seconds
from tests.performance.hand_written_baselines import (
    HOME,
    SCHEMA,
    plain,
    same_columns,
    tutorial,
    tutorial_same_columns,
)
from tests.performance.metrics_overhead import listener, watched
from tests.performance.preloaded_input import PARTITIONS, TOPIC, preload
from tests.performance.target_comparison import Round, screen

CONSOLE = Console(width=200, highlight=False, markup=False)
RESULTS = ROOT / "tests/performance/results/core.jsonl"

RULES = tuple(
    {"name": f"rule_{number}", "where": where, "where_landed": where, "action": action}
    for number, (where, action) in enumerate(
        (
            ("flight > 0", "dead-letter"),
            ("length(carrier) = 2", "dead-letter"),
            ("origin IN ('EWR', 'JFK', 'LGA')", "dead-letter"),
            ("length(dest) = 3", "dead-letter"),
            ("year BETWEEN 2000 AND 2100", "fail"),
            ("month BETWEEN 1 AND 12", "warn"),
            ("day BETWEEN 1 AND 31", "warn"),
            ("distance IS NULL OR distance < 10000", "warn"),
            ("sched_dep_time < 2400", "warn"),
            ("tailnum IS NULL OR tailnum RLIKE '^[A-Z0-9]+$'", "warn"),
        )
    )
)
"""Ten conditions that every flight meets."""


@dataclass(frozen=True)
class Bench:
    """What every case reads and where it writes."""

    spark: SparkSession
    bootstrap: str
    per_batch: int
    events: int
    log: TextIO
    topic: str = TOPIC

    def land_query(
        self,
        name: str,
        report: EventReporter | None = None,
        *,
        direct: bool = False,
        rules: Sequence[Mapping[str, str]] = (),
    ) -> ReadyQuery:
        """The core's query, built from settings as a launch document has them; or its direct one."""
        source = {"kind": "kafka", "name": "flights", "topic": self.topic, "connection": "main"}
        source |= {"start": "earliest", "records_per_batch": self.per_batch, "retention_seconds": 86400}
        source |= {"reading": None}
        query = {
            "kind": "land",
            "name": name,
            "source": source,
            "format": {"kind": "json"},
            "schema": SCHEMA,
            "redact": [],
            "rules": list(rules),
            "decompress_up_to": None,
        }
        query |= {"trigger_seconds": 0, "repartition": None}
        if direct:
            query |= {
                "kind": "direct",
                "enrich": [],
                "transform": None,
                "dead_letters": f"bench.{name}_letters",
            }
            query |= {"sink": {"kind": "iceberg", "table": f"bench.{name}"}}
        else:
            query |= {"table": f"bench.{name}"}
        main = {"cluster": None, "authentication": "none"}
        job = {"version": 1, "environment": "bench", "job": "flights", "engine": "sandbox", "catalog": "lake"}
        job |= {
            "checkpoints": str(HOME),
            "batch_retries": 0,
            "dead_letters_kept_seconds": None,
            "erase_share": 0.1,
            "upkeep": None,
            "run_every_seconds": None,
            "queries": [with_route(query)],
        }
        job |= {"connections": {"main": main | {"bootstrap_servers": self.bootstrap}}}
        report = report or EventReporter("flights", self.log)
        return build_queries.build_queries(JobRun(self.spark, settings.parse_job_settings(job), {}, report))[
            0
        ]

    def source(self, limit: int | None = None, *, headers: bool = False) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        if limit is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(limit))
        reader = reader.option("includeHeaders", str(headers).lower())
        return reader.option("subscribe", self.topic).option("startingOffsets", "earliest").load()


Case = Callable[[Bench, str], Any]
"""Starts a streaming query that writes to tables under a name of its own."""


def landing(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name))


def direct(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name, direct=True))


def ten_rules(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name, rules=RULES))


def _started(query: ReadyQuery) -> Any:
    return (
        query.rows.writeStream.foreachBatch(query.handle)
        .option("checkpointLocation", query.checkpoint)
        .start()
    )


CASES: Mapping[str, Case] = {
    "plain": plain,
    "same_columns": same_columns,
    "tutorial": tutorial,
    "tutorial_same_columns": tutorial_same_columns,
    "landing": landing,
    "ten_rules": ten_rules,
    "direct": direct,
    "watched": watched,
    "listener": listener,
}


DEFAULT = ("same_columns", "tutorial", "landing", "direct")
"""Those that have targets."""


def measure(bench: Bench, case: str, number: int) -> dict[str, float]:
    """Run one case over the whole topic, from a fresh checkpoint into fresh tables.

    Returns
    -------
    dict
        ``rate`` in records per second of the batches; ``cpu`` of the JVM, its Python workers and the driver's Python, and
        ``tasks``, the part of it in tasks, in microseconds per record.
    """
    name = f"{case}_{number}"
    since, tasks = cpu_since_now(bench.spark), task_seconds(bench.spark)
    batches = _run(bench, case, name)
    cpu, tasks = since(), task_seconds(bench.spark) - tasks
    if (landed := bench.spark.table(f"lake.bench.{name}").count()) != bench.events:
        raise SystemExit(f"{case}: {landed:,} rows of {bench.events:,} records")
    _drop(bench)
    seconds = sum(b["durationMs"]["triggerExecution"] for b in batches) / 1000
    return {
        "rate": bench.events / seconds,
        "cpu": cpu / bench.events * 1e6,
        "tasks": tasks / bench.events * 1e6,
    }


SMALL = "small"

EMPTY_EVERY_SECONDS = 0.1
"""How often Spark tells of a trigger that found nothing; 10 s by default."""

SMALL_BATCHES = 30
"""Of one record for each partition; the first ten warm up."""

_WARM = 10

EMPTY_TRIGGERS = 20
"""Without a record: Spark asks the source for its end, and runs no batch."""

_EMPTY_SECONDS = 60.0


def little(bench: Bench, case: str, number: int) -> dict[str, float]:
    """What a query costs that has next to nothing to do, and nothing.

    Returns
    -------
    dict
        Seconds: ``small`` is the median of a batch of a few records, ``small_cpu`` the mean of its CPU (see :func:`measure`),
        ``empty`` the median of a trigger that finds none.
    """
    few = replace(bench, per_batch=PARTITIONS, topic=SMALL)
    since = cpu_since_now(bench.spark)
    found: dict[str, float] = {}

    def then(query: Any) -> None:
        found["small_cpu"] = since() / SMALL_BATCHES
        found["empty"] = _seconds(_empty_triggers(query))

    batches = _run(few, case, f"{case}_small_{number}", then)
    _drop(bench)
    if len(batches) != SMALL_BATCHES:
        raise SystemExit(f"{case}: {len(batches)} batches of {SMALL_BATCHES}")
    return found | {"small": _seconds(batches[_WARM:])}


def _run(
    bench: Bench, case: str, name: str, then: Callable[[Any], object] = lambda _: None
) -> list[Mapping[str, Any]]:
    """Let a case process its topic, and return its batches with records."""
    query = CASES[case](bench, name)
    try:
        query.processAllAvailable()
        batches = [b for b in query.recentProgress if b["numInputRows"]]
        then(query)
    finally:
        query.stop()
    return batches


def _drop(bench: Bench) -> None:
    for table in bench.spark.catalog.listTables("lake.bench"):
        bench.spark.sql(f"DROP TABLE lake.bench.{table.name} PURGE")


def _seconds(progress: Sequence[Mapping[str, Any]]) -> float:
    return float(np.median([each["durationMs"]["triggerExecution"] for each in progress])) / 1000


def _empty_triggers(query: Any) -> list[Mapping[str, Any]]:
    """Wait for triggers that find nothing."""
    found: dict[str, Mapping[str, Any]] = {}
    until = time.monotonic() + _EMPTY_SECONDS
    while len(found) < EMPTY_TRIGGERS and time.monotonic() < until:
        time.sleep(EMPTY_EVERY_SECONDS)
        found |= {each["timestamp"]: each for each in query.recentProgress if not each["numInputRows"]}
    if len(found) < EMPTY_TRIGGERS:
        raise SystemExit(f"{len(found)} triggers without a record in {_EMPTY_SECONDS:g} s")
    return list(found.values())


def pairs(text: str) -> int:
    """How many pairs are asked for: an interval needs two."""
    found = int(text)
    if found < 2:
        raise argparse.ArgumentTypeError(f"{found}: at least 2, or there is no interval")
    return found


def parser() -> argparse.ArgumentParser:
    reading = argparse.ArgumentParser(
        prog="tests.performance.kafka_landing_speed", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--events", type=int, default=600_000)
    reading.add_argument("--pairs", type=pairs, default=3, help="measured rounds")
    reading.add_argument("--per-batch", type=int, default=200_000)
    reading.add_argument("--cores", type=int, default=2)
    reading.add_argument("--cases", nargs="+", choices=CASES, default=DEFAULT)
    reading.add_argument("--lines", nargs="+", choices=LINES, default=("3.5", "4.1"), help="of Spark")
    reading.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    return reading


def rounds_here(given: argparse.Namespace) -> tuple[str, list[Round]]:
    """Measure on this interpreter's Spark; return its version, and the rounds."""
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    rounds: list[Round] = []
    with kafka_broker.running_broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        preload(broker.bootstrap, given.events)
        broker.create_topic(SMALL, PARTITIONS)
        preload(broker.bootstrap, PARTITIONS * SMALL_BATCHES, SMALL)
        conf = {"spark.sql.streaming.noDataProgressEventInterval": f"{1000 * EMPTY_EVERY_SECONDS:.0f}"}
        with spark_session(given.cores, conf=conf) as spark, (HOME / "events.jsonl").open("w") as log:
            bench = Bench(spark, broker.bootstrap, given.per_batch, given.events, log)
            # The first round warms the JVM up and is not counted.
            for number in range(given.pairs + 1):
                found = {case: measure(bench, case, number) for case in in_turn(given.cases, number)}
                rounds.append({case: found[case] for case in given.cases})
                rates = ", ".join(f"{case} {found[case]['rate']:,.0f}/s" for case in given.cases)
                which = f"round {number}" if number else "warm-up"
                CONSOLE.print(f"Spark {spark.version}, {which}: {rates}")
            # Not between the rounds: what Java compiled for whole batches is not what it would compile for these.
            for number, taken in enumerate(rounds[1:], start=1):
                # Without a limit, as in tutorials, all of it is one batch.
                few = [case for case in given.cases if not case.startswith("tutorial")]
                for case in in_turn(few, number):
                    taken[case] |= little(bench, case, number)
            version = spark.version
    shutil.rmtree(HOME)
    return version, rounds[1:]


def _git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    if given.into:
        given.into.write_text(json.dumps(rounds_here(given)))
        return 0
    commit, changed = (
        _git("rev-parse", "--short", "HEAD"),
        bool(_git("status", "--porcelain", "--", ".", ":!tests/performance/results")),
    )
    about = {"commit": commit, "changed": changed, "at": datetime.now(UTC).isoformat(timespec="seconds")}
    about |= {"processor": platform.machine(), "cores": os.cpu_count(), "load": round(os.getloadavg()[2], 1)}
    settings = {key: value for key, value in vars(given).items() if key not in ("into", "lines")}
    lines: dict[str, list[Round]] = {}
    with tempfile.TemporaryDirectory() as folder:
        into = Path(folder) / "rounds.json"
        for line in given.lines:
            python = spark_submit_variables(LINES[line])["PYSPARK_PYTHON"]
            subprocess.run(
                [python, "-m", "tests.performance.kafka_landing_speed", *arguments, "--into", str(into)],
                check=True,
                cwd=ROOT,
            )
            version, rounds = json.loads(into.read_text())
            lines[version] = rounds
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    with RESULTS.open("a") as out:
        out.write(json.dumps({**about, "settings": settings, "rounds": lines}) + "\n")
    CONSOLE.print(
        "\n".join([*screen(lines), "", f"kept in {RESULTS.relative_to(ROOT)}, commit {commit[:8]}"])
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
