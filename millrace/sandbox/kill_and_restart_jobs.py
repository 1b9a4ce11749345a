"""Kills and restarts of deployed jobs while records flow, until their tables have everything."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from threading import Event as Flag

from pyiceberg.catalog import Catalog

from millrace.config.aws.resource_names import Names
from millrace.lifecycle.aws_error_messages import ThrottledError, translating_aws_errors
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import StalledError, wait_until
from millrace.sandbox.records.ledger import load_table_if_exists, row_count
from millrace.sandbox.records.producer import BackgroundThread, RecordProducer
from millrace.sandbox.records.traffic import TrafficFeed, send_feed

Say = Callable[[str], None]


class DrillError(RuntimeError):
    """A drill or a verification that cannot continue; the message says why, and what to do."""


class DrillTimeoutError(DrillError):
    """A wait of a drill that ended without its result."""


@dataclass(frozen=True)
class DrillTimeLimits:
    """Longest time of each part, in seconds; after it the drill ends as failed.

    Attributes
    ----------
    start
        From the start of a job to its first commit.
    end
        From the request to end a run to its end.
    recover
        From the end of a killed run to the next commit.
    land
        Without a further row in any table, after all records were sent.
    reshard
        Until a stream takes its new number of shards.
    remove
        Until all is deleted.
    vanish
        Until AWS no longer lists deleted resources.
    """

    start: float
    end: float
    recover: float
    land: float
    reshard: float
    remove: float
    vanish: float


@dataclass(frozen=True)
class JobKill:
    """One kill of a job.

    Attributes
    ----------
    ending_seconds
        From the request to the end of the run.
    recovery_seconds
        From the end of the run to the next commit of its tables, the slowest of them.
    """

    job: str
    number: int
    ending_seconds: float
    recovery_seconds: float


class JobRunner(ABC):
    """Runs of the jobs of an environment, wherever it is deployed."""

    patience: DrillTimeLimits

    @abstractmethod
    def catalog(self, names: Names) -> Catalog:
        """Open the catalog of the environment's tables."""

    @abstractmethod
    def start(self, names: Names, job: str) -> None:
        """Start a job."""

    @abstractmethod
    def kill_run(self, names: Names, job: str) -> None:
        """End a job's run at once, without grace, and return when it has ended."""

    def restart_killed_job(self, names: Names, job: str) -> None:  # noqa: B027 - as its docstring says
        """Restart a killed job, where nothing else does."""

    def why_ended(self, _names: Names, _job: str) -> str | None:
        """Return why a job will not continue by itself; None while it runs, or where it is restarted within a time limit."""
        return None

    def progress_marker(self) -> str:
        """Return what changes while the jobs work, for waits; always the same where nothing shows it."""
        return ""

    @abstractmethod
    def stop(self, names: Names, job: str) -> None:
        """End a job's run with grace, permanently."""


class JobsDrill:
    """Drill of jobs.

    Parameters
    ----------
    runs, names, jobs
        The jobs, and their environment.
    seed
        The same seed gives the same times of kills in a batch.
    say
        Called with each step.
    """

    moment_seconds = 3.0
    """Longest pause before a kill: longer than a trigger, so that a kill hits any part of a batch or the time between two."""

    def __init__(self, runs: JobRunner, names: Names, jobs: Sequence[str], *, seed: int, say: Say) -> None:
        self.runs, self.names, self.jobs, self.say = runs, names, tuple(jobs), say
        self.catalog = runs.catalog(names)
        self.kills: list[JobKill] = []
        self.sending: list[BackgroundThread] = []
        self.restarted = Flag()
        """Set when all jobs have been killed and started again."""
        self._choose = random.Random(seed)
        self._started: list[str] = []

    def send_in_background(
        self,
        name: str,
        feed: TrafficFeed,
        producer: RecordProducer,
        *,
        pass_event: Callable[[RecordToSend], object],
        most: int | None = None,
    ) -> BackgroundThread:
        """Start to send a feed in a thread, which is returned; the parameters are those of :func:`send_feed`."""
        sending = partial(send_feed, feed, producer, most=most, pass_event=pass_event)
        self.sending.append(BackgroundThread(lambda stop: sending(stop=stop), name))
        return self.sending[-1]

    def start(self) -> None:
        """Start all jobs."""
        for job in self.jobs:
            self.say(f"starting job {job}")
            self._started.append(job)
            self.runs.start(self.names, job)

    def wait_for_first_rows(self, table: str, job: str) -> None:
        """Wait for the first rows of a table that a job writes.

        Raises
        ------
        DrillError
            There are none in time.
        """
        what = f"the first records in {table}"
        self.say(f"waiting for {what}")
        self.wait_while_jobs_run(lambda: self.count_rows(table) > 0, self.runs.patience.start, what, [job])

    def kill_and_restart_jobs(self, what: str, tables: Mapping[str, Sequence[Sequence[str]]]) -> None:
        """Kill every job at some time in its batches, and start it again.

        Parameters
        ----------
        what
            The kill, for people.
        tables
            Groups of tables by job; the next commit to one table of each group is waited for.

        Raises
        ------
        DrillError
            A job does not commit again in time.
        """
        number, dead, took = len(self.kills) // len(self.jobs) + 1, {}, {}
        for job in self.jobs:
            time.sleep(self._choose.uniform(0.0, self.moment_seconds))
            self.raise_failures(())
            self.say(f"{what}: {job}")
            began = time.monotonic()
            self.runs.kill_run(self.names, job)
            took[job], dead[job] = time.monotonic() - began, datetime.now(UTC)
            self.runs.restart_killed_job(self.names, job)
        self.restarted.set()
        for job, groups in tables.items():
            self.say(f"{what}: waiting for the next commit of {job}")
            back = max(self._measure_recovery_seconds(job, group, dead[job], what) for group in groups)
            self.kills.append(JobKill(job, number, round(took[job], 1), round(back, 1)))

    def _measure_recovery_seconds(self, job: str, tables: Sequence[str], dead: datetime, what: str) -> float:
        """Wait for the first commit to one of some tables after their job's run ended; return the seconds to it."""
        after = dead.timestamp() * 1000
        event = f"a commit to {' or '.join(tables)} after {what}"
        self.wait_while_jobs_run(
            lambda: self._first_commit_ms_after(tables, after) is not None,
            self.runs.patience.recover,
            event,
            [job],
        )
        return ((self._first_commit_ms_after(tables, after) or after) - after) / 1000

    def wait_for_rows_and_describe_missing(self, wanted: Mapping[str, int]) -> str:
        """Wait until tables have their rows.

        Parameters
        ----------
        wanted
            Number of rows by table.

        Returns
        -------
        str
            Missing rows, for people, when none has come for a long time; empty without any.
        """
        counts, patience = dict[str, int](), self.runs.patience.land

        def count_rows_and_tell_if_all() -> bool:
            counts.update({table: self.count_rows(table) for table in wanted})
            return not missing_rows_text()

        def missing_rows_text() -> str:
            lacking = ((table, have, wanted[table]) for table, have in counts.items() if have < wanted[table])
            return ", ".join(f"{table} has {have} of {count}" for table, have, count in lacking)

        try:
            self.wait_while_jobs_run(
                count_rows_and_tell_if_all, patience, "all rows", progress=missing_rows_text
            )
        except DrillTimeoutError:
            return f"no further row for {patience:.0f} s: {missing_rows_text()}"
        return ""

    def stop(self) -> None:
        """Stop with grace the jobs that were started and are not stopped yet.

        Raises
        ------
        DrillError
            A job does not stop.
        """
        while self._started:
            job = self._started[-1]
            self.say(f"stopping job {job}")
            self.runs.stop(self.names, job)
            self._started.pop()

    def stop_traffic(self) -> None:
        """Stop the traffic, whatever its result."""
        for sending in self.sending:
            sending.ask_to_stop()

    def count_rows(self, name: str) -> int:
        """Return the number of rows of a table of the environment."""
        table = self.names.table(name)
        with translating_table_errors(table):
            return row_count(self.catalog, table)

    def _first_commit_ms_after(self, names: Sequence[str], after_ms: float) -> float | None:
        """Return the time in ms of the first commit to some tables after a time, by the clock of the committing process."""
        times: list[int] = []
        for name in map(self.names.table, names):
            with translating_table_errors(name):
                table = load_table_if_exists(self.catalog, name)
            times += [snapshot.timestamp_ms for snapshot in table.snapshots()] if table else []
        return min((at for at in times if at > after_ms), default=None)

    def wait_while_jobs_run(
        self,
        reached: Callable[[], bool],
        seconds: float,
        what: str,
        jobs: Sequence[str] | None = None,
        progress: Callable[[], str] | None = None,
    ) -> None:
        """Wait for a condition while records are sent and jobs run: some, or all of the drill.

        Parameters
        ----------
        seconds, progress
            Longest wait without progress, by default that of the jobs.

        Raises
        ------
        DrillError
            A job or the sending ended; :class:`DrillTimeoutError` if the time ran out.
        """

        def raise_failures_or_check_condition() -> bool:
            self.raise_failures(self.jobs if jobs is None else jobs)
            return reached()

        wait_for_condition(
            raise_failures_or_check_condition, seconds, what, progress=progress or self.runs.progress_marker
        )

    def raise_failures(self, jobs: Sequence[str]) -> None:
        """Raise the error of sending, or of a job that has ended by itself."""
        for sending in self.sending:
            sending.raise_error_of_work()
        for job in jobs:
            if (why := self.runs.why_ended(self.names, job)) is not None:
                raise DrillError(f"job {job}: {why}")


def wait_for_condition(
    reached: Callable[[], bool],
    seconds: float,
    what: str,
    *,
    progress: Callable[[], str] | None = None,
    poll_seconds: float = 0.5,
) -> None:
    """Wait for a condition; a request that AWS throttles is repeated later.

    Parameters
    ----------
    reached
        The condition, which is polled; it may raise boto3's errors.
    seconds, progress
        Longest wait, without progress if that is given.
    what
        Name of the condition, for the message.

    Raises
    ------
    DrillTimeoutError
        The time ran out.
    AwsError
        AWS refuses a request.
    """
    last = ""

    def check_condition_unless_throttled() -> bool:
        nonlocal last
        last = ""
        try:
            with translating_aws_errors(f"error while waiting for {what}"):
                return reached()
        except ThrottledError as error:
            last = f" ({error})"
            return False

    try:
        wait_until(
            check_condition_unless_throttled,
            seconds=seconds,
            what=what,
            progress=progress,
            poll_seconds=poll_seconds,
        )
    except StalledError as error:
        raise DrillTimeoutError(f"timeout after {seconds:.0f} s of waiting for {what}{last}") from error


@contextmanager
def translating_table_errors(what: str) -> Iterator[None]:
    """Raise errors of reading tables, in the catalog and in their files, as one message.

    Raises
    ------
    AwsError
        The catalog refuses the request.
    DrillError
        A file cannot be read.
    """
    try:
        with translating_aws_errors(f"cannot read {what} from the catalog"):
            yield
    except OSError as error:
        raise DrillError(f"{what} cannot be read: {error}") from error
