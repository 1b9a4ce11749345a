"""How fast landing is: against the least code by hand, and against the way of the tutorials.

``python -m tests.performance.core --events 2000000 --pairs 5``. All runs read one
preloaded Kafka topic of flight events in one Spark session, turn about, so that what
else the machine does falls on all of them; the figures to trust are ratios of a round.

plain
    What a Spark expert would write by hand in ten lines: ``from_json`` with the
    schema, one append to an Iceberg table partitioned and written like ours.
tutorial
    A Python function per record, a sink for good and one for bad records, nothing held
    in memory, no limit on a batch.
tutorial_same_columns
    The same with the columns of ``same_columns``.
same_columns
    ``plain`` with identity, envelope and hash of the payload too, as a landing table and the sink of a direct query
    without a transform have them; no checks.
landing
    The core's land query, built from job settings as on any engine: identity,
    envelope, dead letters, accounts, duplicates looked up.
ten_rules
    ``landing`` with ten data rules that every record meets (not by default).
direct
    The core's direct query: the same topic to the sink without a landing table, dead letters and accounts on.
watched
    ``landing`` with all that a job measures beside it: ages of the records, the monitor, every output.
listener
    ``watched`` with a Python ``StreamingQueryListener`` more, the other way to hear of progress (not by default).
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TextIO

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from millrace.etl.job import run
from millrace.etl.launch import settings
from millrace.etl.record.batch_accounts import Reporter
from millrace.etl.record.query import Query
from millrace.sandbox.programs import kafka
from tests.documents import with_route
from tests.performance.by_hand import HOME, SCHEMA, plain, same_columns, tutorial, tutorial_same_columns
from tests.performance.cpu import cpu_since_now, task_seconds
from tests.performance.intervals import interval
from tests.performance.preloaded import PARTITIONS, TOPIC, preload
from tests.performance.rounds import in_turn
from tests.performance.session import spark_session
from tests.performance.watching import listener, watched

PARTS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Of a micro-batch, as Spark reports them (``StreamingQueryProgress.durationMs``)."""


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
        report: Reporter | None = None,
        *,
        direct: bool = False,
        rules: Sequence[Mapping[str, str]] = (),
    ) -> Query:
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
        report = report or Reporter("flights", self.log)
        return run.build(self.spark, settings.parse(job), {}, report)[0]

    def source(self, limit: int | None = None, *, headers: bool = False) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        if limit is not None:
            reader = reader.option("maxOffsetsPerTrigger", str(limit))
        reader = reader.option("includeHeaders", str(headers).lower())
        return reader.option("subscribe", self.topic).option("startingOffsets", "earliest").load()


@dataclass(frozen=True)
class Outcome:
    """One run: records, seconds of all batches that held some, seconds of each part, and seconds of CPU.

    CPU is that of the JVM and its Python workers: what others on the machine take is not in it. That of
    the tasks alone is steadier: what the JVM does beside them (compiling, collecting garbage) is left out.
    """

    records: int
    seconds: float
    cpu: float
    task_cpu: float
    parts: Mapping[str, float]

    @property
    def rate(self) -> float:
        return self.records / self.seconds


Case = Callable[[Bench, str], Any]
"""Starts a streaming query that writes to tables under a name of its own."""


def landing(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name))


def direct(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name, direct=True))


def ten_rules(bench: Bench, name: str) -> Any:
    return _started(bench.land_query(name, rules=RULES))


def _started(query: Query) -> Any:
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


OURS = ("landing", "direct")

DEFAULT = ("plain", "same_columns", "tutorial", "tutorial_same_columns", "landing", "direct", "watched")
"""What a listener costs has a case of its own."""


def measure(bench: Bench, case: str, number: int) -> Outcome:
    """Run one case over the whole topic, from a fresh checkpoint into fresh tables."""
    name = f"{case}_{number}"
    since, tasks = cpu_since_now(bench.spark), task_seconds(bench.spark)
    query = CASES[case](bench, name)
    try:
        query.processAllAvailable()
        batches = [b for b in query.recentProgress if b["numInputRows"]]
    finally:
        query.stop()
    cpu, tasks = since(), task_seconds(bench.spark) - tasks
    records = bench.events
    if (landed := bench.spark.table(f"lake.bench.{name}").count()) != records:
        raise SystemExit(f"{case}: {landed:,} rows of {records:,} records")
    for table in bench.spark.catalog.listTables("lake.bench"):
        bench.spark.sql(f"DROP TABLE lake.bench.{table.name} PURGE")
    parts = {part: sum(b["durationMs"].get(part, 0) for b in batches) / 1000 for part in PARTS}
    return Outcome(
        records, sum(b["durationMs"]["triggerExecution"] for b in batches) / 1000, cpu, tasks, parts
    )


SMALL = "small"

EMPTY_EVERY_SECONDS = 0.1
"""How often Spark tells of a trigger that found nothing; 10 s by default."""

SMALL_BATCHES = 40
"""Of one record for each partition; the first ten warm up."""

_WARM = 10

EMPTY_TRIGGERS = 30
"""Without a record: Spark asks the source for its end, and runs no batch."""

_EMPTY_SECONDS = 60.0


@dataclass(frozen=True)
class Little:
    """Median seconds of a batch of a few records, and of a trigger that finds none."""

    small: float
    empty: float


def little(bench: Bench, case: str, number: int) -> Little:
    """What a query costs that has next to nothing to do, and nothing."""
    name = f"{case}_small_{number}"
    query = CASES[case](replace(bench, per_batch=PARTITIONS, topic=SMALL), name)
    try:
        query.processAllAvailable()
        batches = [b for b in query.recentProgress if b["numInputRows"]]
        empty = _empty_triggers(query)
    finally:
        query.stop()
    for table in bench.spark.catalog.listTables("lake.bench"):
        bench.spark.sql(f"DROP TABLE lake.bench.{table.name} PURGE")
    if len(batches) != SMALL_BATCHES:
        raise SystemExit(f"{case}: {len(batches)} batches of {SMALL_BATCHES}")
    return Little(_seconds(batches[_WARM:]), _seconds(empty))


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


def report_little(console: Console, rounds: Sequence[Mapping[str, Little]]) -> None:
    """Print what a batch of nearly nothing takes, and a trigger that finds nothing."""
    figures: Mapping[str, Callable[[Little], float]] = {
        f"a batch of {PARTITIONS} records": lambda each: each.small,
        "a trigger without a record": lambda each: each.empty,
    }
    for what, of in figures.items():
        console.print(f"\n{what}: median seconds of the rounds, and the ratio [95 % interval]")
        for case in rounds[0]:
            console.print(f"  {case:12} {np.median([of(r[case]) for r in rounds]):.4f} s")
        for ours in (case for case in OURS if case in rounds[0]):
            for case in (c for c in rounds[0] if c not in OURS):
                median, low, high = interval([of(r[ours]) / of(r[case]) for r in rounds])
                console.print(f"  {ours:7} / {case:12} {median:.2f} [{low:.2f}, {high:.2f}]")


def pairs(text: str) -> int:
    """How many pairs are asked for: an interval needs two."""
    found = int(text)
    if found < 2:
        raise argparse.ArgumentTypeError(f"{found}: at least 2, or there is no interval")
    return found


def report(console: Console, rounds: Sequence[Mapping[str, Outcome]]) -> None:
    """Print rates, where the time goes, and the ratios of each round."""
    console.print(
        "\nrecords per second: median of the runs [95 % interval]; seconds of each part of the batches"
    )
    for case in rounds[0]:
        median, low, high = interval([r[case].rate for r in rounds])
        micros = np.median([r[case].cpu / r[case].records * 1e6 for r in rounds])
        parts = ", ".join(f"{p} {np.median([r[case].parts[p] for r in rounds]):.2f}" for p in PARTS)
        console.print(
            f"  {case:12} {median:9,.0f} [{low:,.0f}, {high:,.0f}]; {micros:.1f} µs CPU a record; {parts}"
        )
    figures: Mapping[str, Callable[[Outcome], float]] = {
        "rate": lambda o: o.rate,
        "CPU economy": lambda o: o.records / o.cpu,
        "CPU economy of the tasks alone": lambda o: o.records / o.task_cpu,
    }
    for what, of in figures.items():
        console.print(f"\n{what}, ours against the others: median of the rounds' ratios [95 % interval]")
        for ours in (case for case in OURS if case in rounds[0]):
            for case in (c for c in rounds[0] if c not in OURS):
                each = [of(r[ours]) / of(r[case]) for r in rounds]
                median, low, high = interval(each)
                listed = " ".join(f"{x:.2f}" for x in each)
                console.print(
                    f"  {ours:7} / {case:12} {median:.2f} [{low:.2f}, {high:.2f}]   rounds: {listed}"
                )


def parser() -> argparse.ArgumentParser:
    reading = argparse.ArgumentParser(prog="tests.performance.core", description=__doc__.splitlines()[0])
    reading.add_argument("--events", type=int, default=2_000_000)
    reading.add_argument("--pairs", type=pairs, default=5, help="measured rounds")
    reading.add_argument("--per-batch", type=int, default=200_000)
    reading.add_argument("--cores", type=int, default=2)
    reading.add_argument("--cases", nargs="+", choices=CASES, default=DEFAULT)
    return reading


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    console = Console(width=200, highlight=False)
    with kafka.running() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        preload(broker.bootstrap, given.events)
        with spark_session(given.cores) as spark, (HOME / "events.jsonl").open("w") as log:
            bench = Bench(spark, broker.bootstrap, given.per_batch, given.events, log)
            rounds: list[dict[str, Outcome]] = []
            # The first round warms the JVM up and is not counted.
            for number in range(given.pairs + 1):
                turn = in_turn(given.cases, number)
                outcomes = {case: measure(bench, case, number) for case in turn}
                rounds.append({case: outcomes[case] for case in given.cases})
                rates = ", ".join(f"{case} {outcomes[case].rate:,.0f}/s" for case in turn)
                console.print(f"{'warm-up' if number == 0 else f'round {number}'}: {rates}")
            report(console, rounds[1:])
            broker.create_topic(SMALL, PARTITIONS)
            preload(broker.bootstrap, PARTITIONS * SMALL_BATCHES, SMALL)
            # Without a limit, as in tutorials, all of it is one batch.
            few = [case for case in given.cases if not case.startswith("tutorial")]
            spark.conf.set(
                "spark.sql.streaming.noDataProgressEventInterval", f"{1000 * EMPTY_EVERY_SECONDS:.0f}"
            )
            found = [{case: little(bench, case, n) for case in few} for n in range(given.pairs)]
            report_little(console, found)
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
