"""Trial of an environment on this machine: deployed to LocalStack, its jobs on local Spark, generated records in its streams.

Each job is killed once with SIGKILL and started again; then every landing table is compared with the ledger of the sent
records, and every derived table with one batch of its transform over the landed ones.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Flag
from typing import Any

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, LandingQueryBase
from millrace.sandbox.kill_and_restart_jobs import JobsDrill, Say
from millrace.sandbox.local_runs import LocalJobRunner
from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.operate_running_sandbox import run_job_once_locally, save_endpoints
from millrace.sandbox.programs.child_processes import (
    SandboxError,
    StalledError,
    stop_left_programs,
    wait_until,
)
from millrace.sandbox.records import traffic
from millrace.sandbox.records.ledger import Ledger, LedgerComparison, compare_with_ledger
from millrace.sandbox.records.producer import BackgroundThread
from millrace.sandbox.records.traffic_targets import sandbox_producer

_COMPARISON = Path(__file__).parent / "records" / "derived_tables_against_batch.py"
_LOOK_SECONDS = 1.0
_START_SECONDS = 300.0
"""Longest wait for a first row without a line in a job's log."""

_OTHERS_SECONDS = 90.0
"""Longest wait for tables without rows, after each table that gets its first row."""


@dataclass(frozen=True)
class DerivedTableComparison:
    """Comparison of a derived table with one batch of its transform over all landed records.

    Attributes
    ----------
    rows
        Rows of that batch.
    lost, doubled, different, unknown
        Rows that the table lacks, has more than once, has with other values, or has without any such record.
    pending
        Rows that the table lacks because they are written when the watermark has passed them.
    left_out
        Columns that are not compared, since two runs of the transform differ in them.
    differing
        Columns with differences.
    reason
        Why there is no comparison; None where there is one.
    """

    rows: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    unknown: int = 0
    pending: int = 0
    left_out: Sequence[str] = ()
    differing: Sequence[str] = ()
    reason: str | None = None

    @property
    def is_wrong(self) -> bool:
        """True if the table has other rows than the batch."""
        return bool(self.lost or self.doubled or self.different or self.unknown)


@dataclass(frozen=True)
class TableAfterTrial:
    """Content of a table after a trial.

    Attributes
    ----------
    first_seconds
        Seconds from the command's start to the first row; None for a table without rows, while others have some.
    example
        One row, by column, if any; without the core's own columns.
    account
        Account of a landing table whose query reads its streams from the beginning, by the ledger of the sent records.
    comparison
        Comparison of a derived table; None for other tables.
    """

    rows: int
    first_seconds: float | None
    example: Mapping[str, Any]
    account: LedgerComparison | None
    comparison: DerivedTableComparison | None = None

    @property
    def is_wrong(self) -> bool:
        """True if a record is lost or doubled, or a row is another one."""
        return any(
            (self.account and self.account.has_lost_or_doubled, self.comparison and self.comparison.is_wrong)
        )


@dataclass(frozen=True)
class TrialFeed:
    """Records for a stream.

    Attributes
    ----------
    most
        Number of records that are sent; None for generated ones, which are sent until the end.
    """

    feed: traffic.TrafficFeed
    most: int | None


def jobs_with_upstream(environment: Environment, job: str | None) -> tuple[str, ...]:
    """Return a job and those that land, directly or indirectly, what it derives from; all jobs for None."""
    if job is None:
        return tuple(environment.jobs)
    writer = {
        table: own
        for own, _, query in environment.queries
        for table in query.created_tables_by_place.values()
    }
    needed = [job]
    for each in needed:
        for query in environment.jobs[each].queries.values():
            others = (writer.get(table) for table, _ in query.source_tables_and_routes)
            needed += [other for other in others if other and other not in needed]
    return tuple(name for name in environment.jobs if name in needed)


def streams_read_by(environment: Environment, jobs: Sequence[str]) -> tuple[str, ...]:
    """Return the streams that some jobs read, in the file's order."""
    read = {
        stream for job, _, query in environment.queries if job in jobs for stream in query.source_stream_names
    }
    return tuple(stream for stream in environment.streams if stream in read)


def run_trial(
    name: str,
    jobs: Sequence[str],
    feeds: Mapping[str, TrialFeed],
    *,
    seconds: float,
    say: Say,
    keep: bool = False,
) -> dict[str, TableAfterTrial]:
    """Deploy an environment, run its jobs, feed its streams, kill and restart the jobs, and account for every record.

    Parameters
    ----------
    name
        The environment on the command line: its name or its file.
    jobs
        The jobs to run.
    feeds
        Records by stream.
    seconds
        Seconds of sending after the restart of the jobs, where records are generated.
    say
        Called with each step.
    keep
        Whether the servers are left running.

    Returns
    -------
    dict
        By table, in the order of their first rows.

    Raises
    ------
    SandboxError, DrillError
        A server or a job did not start, a job ended by itself, or nothing landed in five minutes without progress.
    """
    began = time.monotonic()
    if left := stop_left_programs():
        say(
            f"stopped {' and '.join(left)} of an earlier run, with its tables; this run begins with empty ones"
        )
    with ExitStack() as stack:
        say("starting LocalStack and Kafka")
        local, broker = stack.enter_context(running_localstack_and_kafka(keep=keep))
        say("deploying to LocalStack")
        sandbox = deploy_sandbox(name, local, broker)
        trial = _EnvironmentTrial(sandbox, jobs, feeds, say)
        stack.callback(trial.local.kill_all)
        stack.callback(trial.stop_traffic)
        trial.start()
        say(f"running {', '.join(jobs)} on local Spark; sending to {', '.join(feeds)}")
        generated = [trial.send_stream(stream) for stream, feed in feeds.items() if feed.most is None]
        producers = [trial.send_stream(stream) for stream, feed in feeds.items() if feed.most is not None]
        first = trial.measure_seconds_to_first_rows(began)
        trial.kill_and_restart_jobs("kill -9", {})
        until = time.monotonic() + (seconds if generated else 0.0)
        trial.wait_while_jobs_run(
            lambda: time.monotonic() >= until, seconds + _START_SECONDS, "further records"
        )
        for each in generated:
            each.stop()
        trial.wait_while_jobs_run(
            lambda: all(each.done for each in producers), math.inf, "all records to be sent"
        )
        say("waiting until all sent records have landed")
        # Rows that are still missing after a long wait are lost.
        trial.wait_for_rows_and_describe_missing(
            {table: len(ledger) for table, ledger in trial.ledger_by_table().items()}
        )
        trial.store_derived_comparisons()
        # A table without any row is not a success either.
        tables = {
            table: trial.table_after_trial(table, first.get(table))
            for table in {**first, **trial.ledger_by_table(), **trial.derived}
        }
        trial.stop()
        if keep:
            save_endpoints(sandbox)
        return tables


class _EnvironmentTrial(JobsDrill):
    """Drill of jobs of a sandbox on all their tables."""

    def __init__(
        self, sandbox: Sandbox, jobs: Sequence[str], feeds: Mapping[str, TrialFeed], say: Say
    ) -> None:
        self.local = LocalJobRunner(spark=sandbox.spark)
        super().__init__(self.local, sandbox.names, jobs, seed=0, say=say)
        self._queries = [query for job, _, query in sandbox.environment.queries if job in jobs]
        self._feeds = feeds
        self._environment = sandbox.environment
        self.derived: dict[str, DerivedTableComparison] = {}
        self.producers = {
            name: sandbox_producer(sandbox, name, max(1, min(500, round(each.feed.shape.per_second / 5))))
            for name, each in feeds.items()
        }

    def send_stream(self, stream: str) -> BackgroundThread:
        """Start to send the records of a stream, and return the thread that does so."""
        feed, producer = self._feeds[stream], self.producers[stream]

        def send_until_stopped(stop: Flag) -> None:
            traffic.send_feed(
                feed.feed, producer, most=feed.most, seconds=None, stop=stop, sent=lambda _: None
            )

        return self.send_in_background(send_until_stopped, stream)

    def measure_seconds_to_first_rows(self, began: float) -> dict[str, float]:
        """Wait for the first row of each table; return the seconds to it, by table."""
        written = [
            table
            for query in self._queries
            for place, table in query.created_tables_by_place.items()
            if place[-1] != "dead_letters"
        ]
        missing = list(dict.fromkeys(written))
        first: dict[str, float] = {}

        def note_first_rows_and_tell_if_all() -> bool:
            self.raise_failures(self.jobs)
            for table in [table for table in missing if self.count_rows(table)]:
                missing.remove(table)
                first[table] = time.monotonic() - began
                self.say(f"{self.names.table(table)}: first rows after {first[table]:.0f} s")
            return not missing

        logs = ", ".join(str(runs[-1].process.log) for runs in self.local.by_job.values())
        what = f"a first row in {', '.join(missing)}; the jobs' logs: {logs}"
        self.wait_while_jobs_run(
            lambda: note_first_rows_and_tell_if_all() or bool(first), _START_SECONDS, what
        )
        # Other tables may wait for a watermark, for longer than anybody waits.
        with suppress(StalledError):
            wait_until(
                note_first_rows_and_tell_if_all,
                seconds=_OTHERS_SECONDS,
                what="all with rows",
                progress=lambda: str(len(first)),
                poll_seconds=_LOOK_SECONDS,
            )
        return first

    def store_derived_comparisons(self) -> None:
        """Compare the derived tables of each job with one batch of their transforms, while the jobs may still write."""
        for job in self.jobs:
            tables = {
                self.names.table(table): table
                for query in self._environment.jobs[job].queries.values()
                if isinstance(query, DeriveQuery)
                for place, table in query.created_tables_by_place.items()
                if place[0] == "sink"
            }
            if not tables:
                continue
            self.say(f"comparing {', '.join(tables.values())} with one batch of the transform")
            try:
                done = run_job_once_locally(
                    self.local.spark, self._environment, job, "comparison", (), "compared", _COMPARISON
                )
            except SandboxError as error:
                self.derived |= dict.fromkeys(tables.values(), DerivedTableComparison(reason=str(error)))
            else:
                self.derived |= {
                    tables[name]: DerivedTableComparison(**result) for name, result in done["tables"].items()
                }

    def table_after_trial(self, table: str, first_seconds: float | None) -> TableAfterTrial:
        """Return a table's content after the trial."""
        full = self.names.table(table)
        ledger = self.ledger_by_table().get(table)
        account = None if ledger is None else compare_with_ledger(self.catalog, ledger, full)
        rows = self.count_rows(table)
        example = _example_row(self.catalog.load_table(full)) if rows else {}
        return TableAfterTrial(rows, first_seconds, example, account, self.derived.get(table))

    def ledger_by_table(self) -> dict[str, Ledger]:
        """Return the ledgers of all streams of each landing table, without tables whose queries skip earlier records."""
        result: dict[str, set[str]] = {}
        skipping = set()
        landing = (query for query in self._queries if isinstance(query, LandingQueryBase))
        for query in landing:
            result.setdefault(query.table, set()).update(query.source_stream_names)
            if query.start != "earliest":
                skipping.add(query.table)
        return {
            table: Ledger.merge(self.producers[stream].ledger for stream in sorted(streams))
            for table, streams in result.items()
            if table not in skipping
        }


def _example_row(table: Any) -> Mapping[str, Any]:
    (row,) = table.scan(limit=1).to_arrow().slice(0, 1).to_pylist()
    return {name: value for name, value in row.items() if not name.startswith("_")}
