"""Trial of an environment on this machine: deployed to LocalStack, its jobs on local Spark, generated records in its streams.

Each job is killed once with SIGKILL and started again; then every landing table is compared with the ledger of the sent
records, and every derived table with one batch of its transform over the landed ones. ``millrace demo`` is such a trial.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from threading import Event as Flag

from pyiceberg.table import Table

from millrace.config.base import grouped
from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, LandingQueryBase
from millrace.sandbox.kill_and_restart_jobs import DrillTimeoutError, JobsDrill, Say
from millrace.sandbox.local_runs import LocalJobRunner
from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.operate_running_sandbox import run_job_once_locally, save_endpoints
from millrace.sandbox.programs.child_processes import (
    RUN,
    SandboxError,
    stop_left_programs,
)
from millrace.sandbox.programs.history_server import start_sandbox_history_server
from millrace.sandbox.programs.run_launch_document_locally import EVENT_LOGS, copy_then_move_event_logs
from millrace.sandbox.records.ledger import Ledger, compare_with_ledger
from millrace.sandbox.records.producer import BackgroundThread
from millrace.sandbox.records.traffic import TrafficFeed
from millrace.sandbox.records.traffic_targets import sandbox_producer
from millrace.sandbox.trial_results import (
    DerivedTableComparison,
    LandingAfterKill,
    TableAfterTrial,
    example_dead_letter,
    example_row,
    landing_after_kill,
)

_COMPARISON = Path(__file__).parent / "records" / "derived_tables_against_batch.py"
_START_SECONDS = 300.0
"""Longest wait for a first row without a line in a job's log."""

_OTHERS_SECONDS = 90.0
"""Longest wait for tables without rows, after each table that gets its first row."""


@dataclass(frozen=True)
class TrialFeed:
    """Records for a stream.

    Attributes
    ----------
    most
        Number of records that are sent; None for generated ones, which are sent until the end.
    after_kill
        How many of them, the last ones, are sent after the kill, half of these when the jobs have recovered.
    """

    feed: TrafficFeed
    most: int | None
    after_kill: int = 0


def jobs_with_upstream(environment: Environment, job: str | None) -> tuple[str, ...]:
    """Return a job and those that land, directly or indirectly, what it derives from; all jobs for None."""
    if job is None:
        return tuple(environment.jobs)
    writers, needed = environment.table_writers, [job]
    for each in needed:
        for query in environment.jobs[each].queries.values():
            others = (one for table, _ in query.source_tables_and_routes for one in writers.get(table, ()))
            needed += [other for other in dict.fromkeys(others) if other not in needed]
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
        for leftover in (RUN / "jobs", EVENT_LOGS):  # only now: no other run uses them any more
            shutil.rmtree(leftover, ignore_errors=True)
        say("deploying to LocalStack")
        sandbox = deploy_sandbox(name, local, broker)
        tables = EnvironmentTrial(sandbox, jobs, feeds, say=say).run(began, seconds)
        if keep:
            save_endpoints(sandbox)
            say(f"Spark's history server: {start_sandbox_history_server()}")
        return tables


class EnvironmentTrial(JobsDrill):
    """Drill of jobs of a sandbox on all their tables; the parameters are those of :func:`run_trial`."""

    def __init__(
        self, sandbox: Sandbox, jobs: Sequence[str], feeds: Mapping[str, TrialFeed], *, say: Say
    ) -> None:
        self._local = LocalJobRunner(spark=sandbox.spark)
        super().__init__(self._local, sandbox.names, jobs, seed=0, say=say)
        self._sandbox = sandbox
        self._queries = [query for job, _, query in sandbox.environment.queries if job in jobs]
        self._landing = [
            (job, query)
            for job, _, query in sandbox.environment.queries
            if job in jobs and isinstance(query, LandingQueryBase)
        ]
        self._feeds = feeds
        self._recovered = Flag()
        self._producers = {
            name: sandbox_producer(sandbox, name, max(1, min(500, round(each.feed.shape.per_second / 5))))
            for name, each in feeds.items()
        }

    def run(self, began: float, seconds: float) -> dict[str, TableAfterTrial]:
        """Run the jobs, feed their streams, kill and restart the jobs, and account for every record.

        Parameters
        ----------
        began
            Time from which the seconds to the first rows count, of the monotonic clock.
        """
        try:
            self.start()
            self.say(f"running {', '.join(self.jobs)} on local Spark; sending to {', '.join(self._feeds)}")
            generated = [
                self._send_stream(stream) for stream, feed in self._feeds.items() if feed.most is None
            ]
            producers = [
                self._send_stream(stream) for stream, feed in self._feeds.items() if feed.most is not None
            ]
            first = self._measure_seconds_to_first_rows(began)
            growing = self._tables_that_grow_after_kill()
            self.kill_and_restart_jobs("kill -9", growing)
            self._recovered.set()
            recovered = datetime.now(UTC)
            until = time.monotonic() + (seconds if generated else 0.0)
            self.wait_while_jobs_run(
                lambda: time.monotonic() >= until, seconds + _START_SECONDS, "further records"
            )
            for each in generated:
                each.stop()
            self.wait_while_jobs_run(
                lambda: all(each.done for each in producers), math.inf, "all records to be sent"
            )
            self.say("waiting until all sent records have landed")
            ledgers = self.ledger_by_table()
            # Rows that are still missing after a long wait are lost.
            self.wait_for_rows_and_describe_missing({table: len(ledger) for table, ledger in ledgers.items()})
            derived = self._derived_comparisons()
            self.stop()
        finally:
            self.stop_traffic()
            self._local.kill_all()
        self._keep_event_logs()
        after_kill = {
            table: landing_after_kill(self._load_table(table), kill.recovery_seconds, recovered)
            for kill in self.kills
            for (table,) in growing[kill.job]
        }
        # A table without any row is not a success either.
        return {
            table: self._table_after_trial(table, first.get(table), derived.get(table), after_kill.get(table))
            for table in {**first, **ledgers, **derived}
        }

    def stop_traffic(self) -> None:
        """Let no sender wait any more, too."""
        self.restarted.set()
        self._recovered.set()
        super().stop_traffic()

    def _send_stream(self, stream: str) -> BackgroundThread:
        feed, numbers = self._feeds[stream], count(1)

        def wait_for_phase(_: object) -> None:
            """Wait with the last records for the kill and for the recovery."""
            left = math.inf if feed.most is None else feed.most - next(numbers)
            if left < feed.after_kill:
                self.restarted.wait()
            if left < feed.after_kill / 2:
                self._recovered.wait()

        return self.send_in_background(
            stream, feed.feed, self._producers[stream], most=feed.most, pass_event=wait_for_phase
        )

    def _tables_that_grow_after_kill(self) -> dict[str, list[list[str]]]:
        """Return, by job, each landing table whose streams get records after the kill, as a group of its own."""
        fed = {name for name, feed in self._feeds.items() if feed.most is None or feed.after_kill}
        return grouped(
            (job, [query.table])
            for job, query in self._landing
            if fed.intersection(query.source_stream_names)
        )

    def _measure_seconds_to_first_rows(self, began: float) -> dict[str, float]:
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
            for table in [table for table in missing if self.count_rows(table)]:
                missing.remove(table)
                first[table] = time.monotonic() - began
                self.say(f"{self.names.table(table)}: first rows after {first[table]:.0f} s")
            return not missing

        logs = ", ".join(str(runs[-1].process.log) for runs in self._local.by_job.values())
        what = f"a first row in {', '.join(missing)}; the jobs' logs: {logs}"
        self.wait_while_jobs_run(
            lambda: note_first_rows_and_tell_if_all() or bool(first), _START_SECONDS, what
        )
        # Other tables may wait for a watermark, for longer than anybody waits.
        with suppress(DrillTimeoutError):
            self.wait_while_jobs_run(
                note_first_rows_and_tell_if_all,
                _OTHERS_SECONDS,
                "first rows of all",
                progress=lambda: str(len(first)),
            )
        return first

    def _derived_comparisons(self) -> dict[str, DerivedTableComparison]:
        """Compare the derived tables of each job with one batch of their transforms, while the jobs may still write."""
        environment, result = self._sandbox.environment, dict[str, DerivedTableComparison]()
        for job in self.jobs:
            tables = {
                self.names.table(table): table
                for query in environment.jobs[job].queries.values()
                if isinstance(query, DeriveQuery)
                for place, table in query.created_tables_by_place.items()
                if place[0] == "sink"
            }
            if not tables:
                continue
            self.say(f"comparing {', '.join(tables.values())} with one batch of the transform")
            try:
                done = run_job_once_locally(
                    self._local.spark, environment, job, "comparison", (), "compared", _COMPARISON
                )
            except SandboxError as error:
                result |= dict.fromkeys(tables.values(), DerivedTableComparison(reason=str(error)))
            else:
                result |= {
                    tables[name]: DerivedTableComparison(**compared)
                    for name, compared in done["tables"].items()
                }
        return result

    def _keep_event_logs(self) -> None:
        """Copy the event logs of all runs to where the deployed jobs write them, and to the history server's folder."""
        for job, runs in self._local.by_job.items():
            place = self._sandbox.launch_document(job).content["event_logs"]
            for run in runs:
                copy_then_move_event_logs(self._sandbox.stack, run, place)

    def _table_after_trial(
        self,
        name: str,
        first: float | None,
        comparison: DerivedTableComparison | None,
        after_kill: LandingAfterKill | None,
    ) -> TableAfterTrial:
        account, letter, rows = None, None, self.count_rows(name)
        if (ledger := self.ledger_by_table().get(name)) is not None:
            ledger.write(RUN / "ledgers" / f"{name}.parquet")
            account = compare_with_ledger(self.catalog, ledger, self.names.table(name))
            letter = example_dead_letter(self._load_table(name)) if account.dead_letters else None
        example = example_row(self._load_table(name)) if rows else {}
        return TableAfterTrial(rows, first, example, account, comparison, after_kill, letter)

    def _load_table(self, name: str) -> Table:
        return self.catalog.load_table(self.names.table(name))

    def ledger_by_table(self) -> dict[str, Ledger]:
        """Return the ledgers of all streams of each landing table, without tables whose queries skip earlier records."""
        landed = grouped(
            (query.table, stream) for _, query in self._landing for stream in query.source_stream_names
        )
        skipping = {query.table for _, query in self._landing if query.start != "earliest"}
        return {
            table: Ledger.merge(self._producers[stream].ledger for stream in sorted({*streams}))
            for table, streams in landed.items()
            if table not in skipping
        }
