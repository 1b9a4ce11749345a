"""Random schedules against the core's queries: ``python -m tests.faults.schedules --schedules 200 --minutes 10``.

The way that Spark's own stress tests work: each schedule is a seeded row of steps (send records, start a query, stop it in the
middle of whatever it does, let it fail before its batch, or after the batch's data are committed and Spark has not noted it,
wait). Queries are built anew at each start, as a new process builds them. At the end both start once more, and the tables are
held against the producer's ledger. Even seeds land a topic and derive from the table, odd ones take the topic
directly into a sink.

What a schedule came to is kept and not run again; ``--fresh`` forgets it. Ends with 1 where a record was lost or is there twice.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job import run
from millrace.etl.launch import settings
from millrace.etl.record.accounts import Reporter
from millrace.etl.record.query import Query
from millrace.sandbox import kafka
from millrace.sandbox.process import RUN
from millrace.sandbox.producer import KafkaProducer
from tests.faults import jobs
from tests.faults.feed import DDL, events
from tests.faults.session import open_session

HOME = RUN / "faults-schedules"
STEPS = 100
PARTITIONS = 2
MOST_AT_ONCE = 200
"""Records of one step."""

PATIENCE_SECONDS = 90.0
WEIGHTS = {"send": 35, "start": 25, "stop": 15, "fail_before": 8, "fail_after": 8, "wait": 9}


class InjectedError(Exception):
    """A failure that a schedule asked for."""


class StuckError(RuntimeError):
    """A query did not come to an end of its own."""


@dataclass(frozen=True)
class Outcome:
    """What one schedule came to."""

    seed: int
    kind: str
    steps: dict[str, int]
    sent: int
    lost: int
    duplicated: int
    other: int
    seconds: float

    @property
    def met(self) -> bool:
        """Whether everything is there once."""
        return not (self.lost or self.duplicated or self.other)


@dataclass
class Place:
    """One query of a schedule: whether it runs, and what is to go wrong with its next batch."""

    name: str
    query: Any = None
    fault: str | None = None
    busy: threading.Lock = field(default_factory=threading.Lock)

    @property
    def active(self) -> bool:
        return self.query is not None and bool(self.query.isActive)

    def handle(self, spec: Query, batch: DataFrame, number: int) -> None:
        """Run a batch, or fail before it or after its data are committed."""
        with self.busy:
            if self.fault == "fail_before":
                raise InjectedError("before the batch")
            spec.handle(batch, number)
            if self.fault == "fail_after":
                raise InjectedError("after its commit")

    def stop(self) -> None:
        """End it wherever it is; what its batch still does in Python comes to its end, as in a process that ends."""
        if self.query is not None:
            self.query.stop()
            if not self.busy.acquire(timeout=PATIENCE_SECONDS):
                raise StuckError(f"{self.name}: a batch still runs {PATIENCE_SECONDS:.0f} s after the stop")
            self.busy.release()


class Schedule:
    """One topic, its tables, and the steps."""

    def __init__(self, spark: SparkSession, broker: kafka.Kafka, home: Path, seed: int) -> None:
        self._spark = spark
        self._bootstrap = broker.bootstrap
        self._home = home / str(seed)
        self._choose = random.Random(seed)
        self._seed = seed
        self.kind = "direct" if seed % 2 else "land, derive"
        self._names = ("direct",) if seed % 2 else ("land", "derive")
        self._places = {name: Place(name) for name in self._names}
        self._topic = f"schedule-{seed}"
        broker.create_topic(self._topic, PARTITIONS)
        self._producer = KafkaProducer(self._bootstrap, self._topic)
        self._first = 0
        self._home.mkdir(parents=True, exist_ok=True)
        (self._home / "schema.ddl").write_text(DDL)
        self.taken: Counter[str] = Counter()

    def play(self, steps: int) -> Counter[str]:
        """Take the steps, let everything come to its end, and compare."""
        try:
            for _ in range(steps):
                step = self._choose.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
                self._step(step)
            self._finish()
        finally:
            for place in self._places.values():
                place.stop()
        return jobs.wrong("direct" if self._seed % 2 else "derive", self._producer.ledger, self._rows)

    def _step(self, step: str) -> None:
        place = self._places[self._choose.choice(self._names)]
        if step == "start" and not place.active:
            self._start(place)
        elif step == "stop" and place.active:
            time.sleep(self._choose.uniform(0, 0.8))  # somewhere in a batch
            place.stop()
        elif step.startswith("fail") and place.active:
            self._fail(place, step)
        elif step == "wait":
            for each in self._places.values():
                if each.active:
                    each.query.processAllAvailable()
        else:
            step = "send"
            self._send(self._choose.randint(1, MOST_AT_ONCE))
        self.taken[step] += 1

    def _send(self, count: int) -> None:
        self._producer.send(events(count, self._choose, first=self._first), sent=lambda _: None)
        self._first += count

    def _start(self, place: Place) -> None:
        built = run.build(self._spark, settings.parse(self._job()), {}, Reporter("schedules", io.StringIO()))
        spec = next(each for each in built if each.name == place.name)
        place.fault = None
        place.query = (
            spec.rows.writeStream.queryName(f"{place.name}-{self._seed}-{time.monotonic_ns()}")
            .option("checkpointLocation", spec.checkpoint)
            .outputMode(spec.output_mode)
            .foreachBatch(lambda batch, number: place.handle(spec, batch, number))
            .start()
        )

    def _fail(self, place: Place, how: str) -> None:
        """Let its next batch fail; one of a derive query needs rows that land first."""
        place.fault = how
        self._send(5)
        if place.name == "derive" and not self._places["land"].active:
            self._start(self._places["land"])
        until = time.monotonic() + PATIENCE_SECONDS
        while place.active:
            if time.monotonic() > until:
                raise StuckError(f"{place.name}: no batch within {PATIENCE_SECONDS:.0f} s that could fail")
            time.sleep(0.02)

    def _finish(self) -> None:
        for place in self._places.values():
            place.stop()
        for name in self._names:  # what lands comes before what derives
            self._start(self._places[name])
            self._places[name].query.processAllAvailable()

    def _job(self) -> dict[str, Any]:
        # Small batches, so that a schedule has many.
        kind, source = "direct" if self._seed % 2 else "derive", jobs.topic(self._topic, 60)
        queries = jobs.queries(kind, source, self._home / "schema.ddl", self._table)
        return jobs.settings("schedules", queries, str(self._home / "checkpoints"), self._bootstrap)

    def _table(self, what: str) -> str:
        return f"schedules.s{self._seed}_{what}"

    def _rows(self, what: str, *columns: str) -> pa.Table:
        frame = self._spark.table(f"lake.{self._table(what)}").select(*columns)
        rows = [tuple(row) for row in frame.collect()]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})

    @property
    def sent(self) -> int:
        """How many records were sent."""
        return len(self._producer.ledger)

    def clean(self) -> None:
        """Drop the tables."""
        for what in ("landed", "out", "letters"):
            self._spark.sql(f"DROP TABLE IF EXISTS lake.{self._table(what)} PURGE")


def play(spark: SparkSession, broker: kafka.Kafka, home: Path, seed: int, steps: int = STEPS) -> Outcome:
    """Play one schedule."""
    begun = time.monotonic()
    schedule = Schedule(spark, broker, home, seed)
    found = schedule.play(steps)
    schedule.clean()
    return Outcome(
        seed, schedule.kind, dict(schedule.taken), schedule.sent, found["lost"], found["doubled"], found["others"],
        round(time.monotonic() - begun, 1),
    )  # fmt: skip


def kept(file: Path) -> list[Outcome]:
    """Read what was played before."""
    return [Outcome(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.schedules", description="Random schedules against the core's queries."
    )
    reading.add_argument("--schedules", type=int, default=200, help="in all, with those of earlier runs")
    reading.add_argument("--minutes", type=float, default=float("inf"), help="no schedule begins later")
    reading.add_argument("--fresh", action="store_true", help="forget what was played before")
    return reading


def seeds(done: list[Outcome], wanted: int, minutes: float) -> Iterator[int]:
    """Seeds that are still to be played, until the time is up."""
    until = time.monotonic() + minutes * 60
    played = {outcome.seed for outcome in done}
    for seed in itertools.islice(
        (n for n in itertools.count() if n not in played), max(0, wanted - len(done))
    ):
        if time.monotonic() > until:
            return
        yield seed


def main(arguments: list[str] | None = None) -> int:
    """Play what is left, and tell of all."""
    given = parser().parse_args(arguments)
    HOME.mkdir(parents=True, exist_ok=True)
    file = HOME / "outcomes.jsonl"
    if given.fresh:
        file.unlink(missing_ok=True)
    done = kept(file)
    with kafka.running() as broker:
        spark = open_session(HOME / "lake")
        try:
            for seed in seeds(done, given.schedules, given.minutes):
                outcome = play(spark, broker, HOME, seed)
                done.append(outcome)
                with file.open("a") as lines:
                    lines.write(json.dumps(asdict(outcome)) + "\n")
                sys.stdout.write(f"{outcome}\n")
                sys.stdout.flush()
        except StreamingQueryException as error:
            sys.stdout.write(f"a query failed that nobody had asked to: {error}\n")
            return 1
        finally:
            spark.stop()
    wrong = [outcome.seed for outcome in done if not outcome.met]
    steps: Counter[str] = Counter()
    for outcome in done:
        steps.update(outcome.steps)
    told = ", ".join(f"{step} {count:,}" for step, count in sorted(steps.items()))
    sys.stdout.write(
        f"{len(done)} schedules, {steps.total():,} steps ({told}), {sum(o.sent for o in done):,} records: "
        f"{sum(o.lost for o in done)} lost, {sum(o.duplicated for o in done)} twice, {sum(o.other for o in done)} "
        f"others{f'; seeds {wrong}' if wrong else ''}\n"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
