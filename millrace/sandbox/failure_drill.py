"""Failure drill of one job: fed with records, killed, started again, compared with the ledger."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from millrace.config.queries import DeriveQuery, LandQuery
from millrace.sandbox import lake_tables
from millrace.sandbox.child_processes import SandboxError, wait_until
from millrace.sandbox.deployment import Sandbox
from millrace.sandbox.flights import Event
from millrace.sandbox.ledger import Ledger, LedgerComparison, compare
from millrace.sandbox.producer import MOST_AT_ONCE, Background, at_rate
from millrace.sandbox.spark import Job, ship_event_logs
from millrace.sandbox.traffic_targets import in_sandbox

_STALL_SECONDS = 120.0
"""Longest time without a landed or derived record; after it the drill has failed."""

_START_SECONDS = 300.0
"""The same for a run that has committed nothing: longer than Spark takes on a busy laptop from its start to a first commit."""


_TERMINATED = 128 + signal.SIGTERM
"""Exit status of a JVM that was asked to end, after its shutdown hooks let the current batches finish."""


@dataclass(frozen=True)
class Feed:
    """Records of a drill: a backlog before the job starts, and a live tail at a steady rate after its restart."""

    backlog: Sequence[Event]
    live: Sequence[Event]
    live_per_second: float

    @property
    def total(self) -> int:
        """Number of all records."""
        return len(self.backlog) + len(self.live)


@dataclass(frozen=True)
class DrillProgress:
    """Progress of a drill."""

    phase: str
    sent: int
    landed: int
    derived: int
    total: int


@dataclass(frozen=True)
class Outcome:
    """Result of a drill.

    Attributes
    ----------
    recovery_seconds
        From kill -9 to the first batch that the restarted job committed.
    land_seconds
        Time of land batches, from the logs of both runs.
    accounted
        Records landed by those batches; a killed run may have landed more than it logged.
    latency_p95_seconds
        Seconds from arrival to commit, for the records sent while the job ran.
    """

    job: str
    ledger: Ledger
    account: LedgerComparison
    recovery_seconds: float
    land_seconds: float
    accounted: int
    latency_p95_seconds: float
    latency_records: int
    landed_table: str
    derived_table: str

    @property
    def rows_per_second(self) -> int:
        """Landed records for each second of a land batch."""
        return round(self.accounted / self.land_seconds)


class Drill:
    """Drill of one job of a sandbox with a feed."""

    def __init__(
        self, sandbox: Sandbox, job: str, feed: Feed, *, seed: int, report: Callable[[DrillProgress], None]
    ) -> None:
        queries = sandbox.environment.jobs[job].queries.values()
        land = next(query for query in queries if isinstance(query, LandQuery))
        derive = next(query for query in queries if isinstance(query, DeriveQuery))
        self._sandbox = sandbox
        self._job = job
        self._feed = feed
        self._report = report
        self._choose = random.Random(seed)
        self._landed_table = sandbox.names.table(land.table)
        (sink,) = (table for path, table in derive.writes.items() if path[0] == "sink")
        self._derived_table = sandbox.names.table(sink)
        self._catalog: SqlCatalog = sandbox.spark.catalog(sandbox.warehouse)
        self._producer = in_sandbox(
            sandbox.environment, land.source, kafka=sandbox.kafka.bootstrap, kinesis=sandbox.stack.endpoint
        ).producer(MOST_AT_ONCE)
        self._phase = "sending"
        self._last_counts = (0, 0)

    def run(self) -> Outcome:
        """Feed the job, kill it once, and account for every record.

        Raises
        ------
        SandboxError
            The job ended by itself, or made no progress for 120 seconds, 300 up to its first commit.
        """
        self._producer.send(self._feed.backlog, sent=lambda _: self._tell())
        launch = self._sandbox.launch_document(self._job)
        spark = self._sandbox.spark
        first = spark.submit(launch, f"{self._job}-1")
        try:
            self._phase = "running"
            self._wait(first, lambda landed, _: landed > 0)
            # A random time in the next batches: between them, during a write, during a commit.
            time.sleep(self._choose.uniform(0, 1.5))
        finally:
            first.process.kill()
        killed = datetime.now(UTC)
        self._phase = "recovering"
        second = spark.submit(launch, f"{self._job}-2")
        try:
            recovery = self._recover(second, killed)
            self._phase = "running"
            live_from = datetime.now(UTC)
            self._send_live(second)
            status = second.process.stop(grace_seconds=60)
        finally:
            second.process.kill()
        if status not in (0, _TERMINATED):
            raise SandboxError(f"job {self._job} stopped with status {status}:\n{second.process.tail()}")
        for run in (first, second):
            ship_event_logs(self._sandbox.stack, run, launch.content["event_logs"])
        return self._outcome([first, second], recovery, live_from)

    def _recover(self, job: Job, killed: datetime) -> float:
        total = len(self._feed.backlog)
        self._wait(
            job,
            lambda landed, _: bool(job.commit_times()) or (landed >= total and not self._feed.live),
        )
        committed = job.commit_times()
        # Nothing was left to commit: only the restart can be measured.
        first = min(committed) if committed else datetime.now(UTC)
        return (first - killed).total_seconds()

    def _send_live(self, job: Job) -> None:
        def produce(stop: threading.Event) -> None:
            events = at_rate(self._feed.live, per_second=self._feed.live_per_second, stop=stop)
            self._producer.send(events, sent=lambda _: None)

        with Background(produce, "live-tail") as sending:

            def reached(*_: int) -> bool:
                sending.check()
                return sending.done and self._complete()

            self._wait(job, reached)

    def _complete(self) -> bool:
        landed, derived = self._last_counts
        ledger = self._producer.ledger
        return landed >= len(ledger) and derived >= len(ledger) - ledger.dirty

    def _wait(self, job: Job, reached: Callable[[int, int], bool]) -> None:
        def look() -> bool:
            tables = (self._landed_table, self._derived_table)
            landed, derived = (lake_tables.row_count(self._catalog, table) for table in tables)
            self._last_counts = landed, derived
            self._tell()
            return reached(landed, derived)

        def progress() -> str:
            landed, derived = self._last_counts
            return f"{landed} of {self._feed.total} records landed, {derived} derived"

        patience = _STALL_SECONDS if job.commit_times() else _START_SECONDS
        wait_until(
            look, seconds=patience, what="at its end", progress=progress, runs=(job.process,), poll_seconds=0.5
        )  # fmt: skip

    def _tell(self) -> None:
        landed, derived = self._last_counts
        self._report(
            DrillProgress(self._phase, len(self._producer.ledger), landed, derived, self._feed.total)
        )

    def _outcome(self, runs: list[Job], recovery: float, live_from: datetime) -> Outcome:
        landed_table, derived_table = (
            self._catalog.load_table(self._landed_table),
            self._catalog.load_table(self._derived_table),
        )
        columns = ("_id", "_hash", "_error", "_bytes", "_arrived_at", "_landed_at")
        landed = landed_table.scan(selected_fields=columns).to_arrow()
        derived = derived_table.scan(selected_fields=("_id",)).to_arrow()
        latency = _latencies(landed_table, landed, live_from)
        batches = [e for run in runs for e in run.events() if e["event"] == "batch" and e.get("landed")]
        return Outcome(
            job=self._job,
            ledger=self._producer.ledger,
            account=compare(self._producer.ledger, landed, derived["_id"]),
            recovery_seconds=round(recovery, 1),
            land_seconds=sum(float(event["seconds"]) for event in batches),
            accounted=sum(int(event["landed"]) for event in batches),
            latency_p95_seconds=round(float(np.percentile(latency, 95)), 2) if latency.size else float("nan"),
            latency_records=int(latency.size),
            landed_table=self._landed_table,
            derived_table=self._derived_table,
        )


def _latencies(table: Table, landed: pa.Table, since: datetime) -> Any:
    """Return the seconds from arrival to commit of a row's snapshot, for rows that arrived later than ``since``.

    A batch stamps its rows when it starts to write; the first snapshot after that stamp is its own.
    """
    commits = np.sort(np.array([snapshot.timestamp_ms for snapshot in table.snapshots()], dtype=np.int64))
    arrived, stamped = (
        landed[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
        for name in ("_arrived_at", "_landed_at")
    )
    live = arrived > since.timestamp() * 1000
    own = np.clip(np.searchsorted(commits, stamped[live], side="left"), 0, len(commits) - 1)
    return (commits[own] - arrived[live]) / 1000.0
