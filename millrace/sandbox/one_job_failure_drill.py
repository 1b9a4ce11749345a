"""Failure drill of one job: fed with records, killed, started again, compared with the ledger."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Event as Flag
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from millrace.config.queries import DeriveQuery, LandQuery
from millrace.sandbox.kill_and_restart_jobs import DrillError, JobsDrill
from millrace.sandbox.local_runs import LocalJobRunner
from millrace.sandbox.localstack_deployment import Sandbox
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.run_launch_document_locally import (
    LocalJob,
    copy_then_move_event_logs,
)
from millrace.sandbox.records.ledger import Ledger, LedgerComparison, compare_with_ledger
from millrace.sandbox.records.producer import MOST_AT_ONCE, yield_at_rate
from millrace.sandbox.records.traffic_targets import sandbox_producer


@dataclass(frozen=True)
class DrillFeed:
    """Records of a drill: a backlog before the job starts, and a live tail at a steady rate after its restart."""

    backlog: Sequence[RecordToSend]
    live: Sequence[RecordToSend]
    live_per_second: float


@dataclass(frozen=True)
class DrillResult:
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


class FailureDrill(JobsDrill):
    """Drill of one job of a sandbox with a feed; ``report`` gets the phase and the counts of records, again and again."""

    moment_seconds = 1.5
    """In the first batches: a part of the backlog is left for the restarted job."""

    def __init__(
        self,
        sandbox: Sandbox,
        job: str,
        feed: DrillFeed,
        *,
        seed: int,
        report: Callable[[str, str], None],
    ) -> None:
        self._local = LocalJobRunner(spark=sandbox.spark)
        super().__init__(self._local, sandbox.names, [job], seed=seed, say=lambda _: None)
        queries = sandbox.environment.jobs[job].queries.values()
        land = next(query for query in queries if isinstance(query, LandQuery))
        derive = next(query for query in queries if isinstance(query, DeriveQuery))
        self._sandbox = sandbox
        self._job = job
        self._feed = feed
        self._report = report
        self._landed = land.table
        (self._derived,) = (
            table for path, table in derive.created_tables_by_place.items() if path[0] == "sink"
        )
        self._producer = sandbox_producer(sandbox, land.source, MOST_AT_ONCE)
        self._phase = "sending"

    def run(self) -> DrillResult:
        """Feed the job, kill it once, and return the account of every record.

        Raises
        ------
        SandboxError, DrillError
            The job ended by itself, or made no progress for minutes.
        """
        ledger = self._producer.ledger
        self._producer.send(self._feed.backlog, sent=lambda _: self._report_progress(0, 0))
        try:
            self._phase = "running"
            self.start()
            self.wait_for_first_rows(self._landed, self._job)
            self._phase = "recovering"
            self.kill_and_restart_jobs("kill -9", {self._job: [[self._landed, self._derived]]})
            self._phase = "running"
            live_from = datetime.now(UTC)
            sending = self.send_in_background(self._send_live, "live-tail")
            self.wait_while_jobs_run(lambda: sending.done, math.inf, "the live records to be sent")
            if lacking := self.wait_for_rows_and_describe_missing(
                {self._landed: len(ledger), self._derived: len(ledger) - ledger.dirty_count}
            ):
                raise DrillError(f"job {self._job}: {lacking}")
            self.stop()
        finally:
            self.stop_traffic()
            self._local.kill_all()
        runs = self._local.by_job[self._job]
        logs = self._sandbox.launch_document(self._job).content["event_logs"]
        for run in runs:
            copy_then_move_event_logs(self._sandbox.stack, run, logs)
        return self._drill_result(runs, live_from)

    def _send_live(self, stop: Flag) -> None:
        events = yield_at_rate(self._feed.live, per_second=self._feed.live_per_second, stop=stop)
        self._producer.send(events, sent=lambda _: None)

    def raise_failures(self, jobs: Sequence[str]) -> None:
        """Report the progress, too."""
        super().raise_failures(jobs)
        self._report_progress(self.count_rows(self._landed), self.count_rows(self._derived))

    def _report_progress(self, landed: int, derived: int) -> None:
        sent, total = len(self._producer.ledger), len(self._feed.backlog) + len(self._feed.live)
        self._report(self._phase, f"sent {sent}, landed {landed} of {total}, derived {derived}")

    def _drill_result(self, runs: list[LocalJob], live_from: datetime) -> DrillResult:
        landed, derived = self.names.table(self._landed), self.names.table(self._derived)
        latency = _commit_latencies(self.catalog.load_table(landed), live_from)
        batches = [e for run in runs for e in run.events() if e["event"] == "batch" and e.get("landed")]
        return DrillResult(
            job=self._job,
            ledger=self._producer.ledger,
            account=compare_with_ledger(self.catalog, self._producer.ledger, landed, derived),
            recovery_seconds=self.kills[0].recovery_seconds,
            land_seconds=sum(float(event["seconds"]) for event in batches),
            accounted=sum(int(event["landed"]) for event in batches),
            latency_p95_seconds=round(float(np.percentile(latency, 95)), 2) if latency.size else float("nan"),
            latency_records=int(latency.size),
            landed_table=landed,
            derived_table=derived,
        )


def _commit_latencies(table: Table, since: datetime) -> Any:
    """Return the seconds from arrival to commit of a row's snapshot, for rows that arrived later than ``since``.

    A batch stamps its rows when it starts to write; the first snapshot after that stamp is its own.
    """
    commits = np.sort(np.array([snapshot.timestamp_ms for snapshot in table.snapshots()], dtype=np.int64))
    rows = table.scan(selected_fields=("_arrived_at", "_landed_at")).to_arrow()
    arrived, stamped = (
        rows[name].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64()).to_numpy()
        for name in ("_arrived_at", "_landed_at")
    )
    live = arrived > since.timestamp() * 1000
    own = np.clip(np.searchsorted(commits, stamped[live], side="left"), 0, len(commits) - 1)
    return (commits[own] - arrived[live]) / 1000.0
