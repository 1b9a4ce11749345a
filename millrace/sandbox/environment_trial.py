"""Trial of an environment on this machine: deployed to LocalStack, its jobs on local Spark, generated records in its streams.

Each job is killed once with SIGKILL and started again; then every landing table is compared with the ledger of the sent
records.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, Landing, SourceQuery
from millrace.sandbox import lake_tables, traffic, traffic_targets
from millrace.sandbox.child_processes import SandboxError
from millrace.sandbox.deployment import Sandbox, open_sandbox, servers
from millrace.sandbox.ledger import Ledger, LedgerComparison
from millrace.sandbox.producer import Background, Producer
from millrace.sandbox.running_sandbox import save_endpoints
from millrace.sandbox.spark import Job

_LOOK_SECONDS = 1.0
_START_SECONDS = 300.0
"""Longest wait for a first row: longer than Spark takes on a busy laptop from its start to a first commit."""

_OTHERS_SECONDS = 90.0
"""Longest wait for tables without rows, after each table that gets its first row."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class LandedTable:
    """Content of a table after a trial.

    Attributes
    ----------
    first_seconds
        Seconds from the command's start to the first row; None for a table without rows, while others have some.
    example
        One row, by column, if any; without the core's own columns.
    account
        Account of a landing table whose query reads its streams from the beginning, by the ledger of the sent records.
    """

    rows: int
    first_seconds: float | None
    example: Mapping[str, Any]
    account: LedgerComparison | None


@dataclass(frozen=True)
class TrialFeed:
    """Records for a stream.

    Attributes
    ----------
    most
        Number of records that are sent; None for generated ones, which are sent until the end.
    """

    feed: traffic.Feed
    most: int | None


def needed_jobs(environment: Environment, job: str | None) -> tuple[str, ...]:
    """Return a job and those that land, directly or indirectly, what it derives from; all jobs for None."""
    if job is None:
        return tuple(environment.jobs)
    writer = {table: own for own, _, query in environment.queries for table in query.writes.values()}
    needed = [job]
    for each in needed:
        for query in environment.jobs[each].queries.values():
            tables = [table for table, _ in query.reads] if isinstance(query, DeriveQuery) else []
            needed += [other for table in tables if (other := writer.get(table)) and other not in needed]
    return tuple(name for name in environment.jobs if name in needed)


def needed_streams(environment: Environment, jobs: Sequence[str]) -> tuple[str, ...]:
    """Return the streams that some jobs read, in the file's order."""
    read = {
        stream
        for job, _, query in environment.queries
        if job in jobs and isinstance(query, SourceQuery)
        for stream in query.streams
    }
    return tuple(stream for stream in environment.streams if stream in read)


def run(
    name: str,
    jobs: Sequence[str],
    feeds: Mapping[str, TrialFeed],
    *,
    seconds: float,
    say: Say,
    keep: bool = False,
) -> dict[str, LandedTable]:
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
    SandboxError
        A server or a job did not start, a job ended by itself, or nothing landed in five minutes.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        say("starting LocalStack and Kafka")
        local, broker = stack.enter_context(servers(keep=keep))
        say("deploying to LocalStack")
        sandbox = open_sandbox(name, local, broker)
        trial = _Trial(sandbox, jobs, feeds, say)
        stack.callback(trial.stop)
        trial.start_jobs()
        say(f"running {', '.join(jobs)} on local Spark; sending to {', '.join(feeds)}")
        generated, held = (
            [
                stack.enter_context(Background(partial(_send, feed, trial.producers[stream]), stream))
                for stream, feed in feeds.items()
                if (feed.most is not None) is file
            ]
            for file in (False, True)
        )
        first = trial.first_rows([*generated, *held], began)
        say(f"killing {', '.join(jobs)} with SIGKILL, and starting again")
        trial.kill_jobs()
        trial.start_jobs()
        if generated:
            trial.go_on(generated, seconds)
        for each in generated:
            each.stop()
        trial.finish(held)
        say("waiting until everything that was sent has landed")
        trial.settle()
        # A table without any row is not a success either.
        found = {table: trial.landed(table, first.get(table)) for table in {**first, **trial.ledgers()}}
        if keep:
            save_endpoints(sandbox)
        return found


def _send(feed: TrialFeed, producer: Producer, stop: threading.Event) -> None:
    traffic.send(feed.feed, producer, most=feed.most, seconds=None, stop=stop, sent=lambda _: None)


class _Trial:
    """Jobs of a sandbox, producers of its streams, and its tables."""

    def __init__(
        self, sandbox: Sandbox, jobs: Sequence[str], feeds: Mapping[str, TrialFeed], say: Say
    ) -> None:
        self._sandbox, self._names, self._say = sandbox, jobs, say
        self._queries = [query for job, _, query in sandbox.environment.queries if job in jobs]
        self._catalog = sandbox.spark.catalog(sandbox.warehouse)
        self._starts = 0
        self._jobs: dict[str, Job] = {}
        self.producers = {stream: self._producer(stream, each.feed) for stream, each in feeds.items()}

    def _producer(self, stream: str, feed: traffic.Feed) -> Producer:
        sandbox = self._sandbox
        target = traffic_targets.in_sandbox(
            sandbox.environment, stream, kafka=sandbox.kafka.bootstrap, kinesis=sandbox.stack.endpoint
        )
        return target.producer(max(1, min(500, round(feed.shape.per_second / 5))))

    def start_jobs(self) -> None:
        self._starts += 1
        for job in self._names:
            document = self._sandbox.launch_document(job)
            self._jobs[job] = self._sandbox.spark.submit(document, f"{job}-{self._starts}")

    def kill_jobs(self) -> None:
        for job in self._jobs.values():
            job.process.kill()

    def stop(self) -> None:
        for job in self._jobs.values():
            job.process.stop()

    def _check(self, sending: Sequence[Background] = ()) -> None:
        for each in sending:
            each.check()
        for name, job in self._jobs.items():
            if not job.process.alive:
                raise SandboxError(f"job {name} ended by itself:\n{job.process.tail(25)}")

    def first_rows(self, sending: list[Background], began: float) -> dict[str, float]:
        """Wait for the first row of each table; return the seconds to it, by table."""
        written = [
            table
            for query in self._queries
            for place, table in query.writes.items()
            if place[-1] != "dead_letters"
        ]
        missing = list(dict.fromkeys(written))
        first: dict[str, float] = {}
        until = time.monotonic() + _START_SECONDS
        while missing and time.monotonic() < until:
            self._check(sending)
            for table in [table for table in missing if self._rows(table)]:
                missing.remove(table)
                first[table] = time.monotonic() - began
                self._say(f"{self._sandbox.names.table(table)}: first rows after {first[table]:.0f} s")
                # Other tables may wait for a watermark, for longer than anybody waits.
                until = time.monotonic() + _OTHERS_SECONDS
            time.sleep(_LOOK_SECONDS)
        if not first:
            logs = ", ".join(str(job.process.log) for job in self._jobs.values())
            raise SandboxError(
                f"nothing came into {', '.join(missing)} within {_START_SECONDS:.0f} s; the jobs' logs: {logs}"
            )
        return first

    def go_on(self, sending: list[Background], seconds: float) -> None:
        until = time.monotonic() + seconds
        self._wait(lambda: time.monotonic() >= until, sending)

    def finish(self, sending: Sequence[Background]) -> None:
        self._wait(lambda: all(each.done for each in sending), sending)

    def _wait(self, done: Callable[[], bool], sending: Sequence[Background] = ()) -> None:
        while not done():
            self._check(sending)
            time.sleep(_LOOK_SECONDS)

    def settle(self) -> None:
        """Wait until each landing table has as many rows as were sent; rows that are still missing after a long wait are lost."""
        sent = self.ledgers()
        until = time.monotonic() + _START_SECONDS
        self._wait(
            lambda: (
                time.monotonic() > until
                or all(self._rows(table) >= len(ledger) for table, ledger in sent.items())
            )
        )

    def landed(self, table: str, first_seconds: float | None) -> LandedTable:
        full = self._sandbox.names.table(table)
        ledger = self.ledgers().get(table)
        account = None if ledger is None else lake_tables.compare_with_ledger(self._catalog, ledger, full)
        rows = self._rows(table)
        example = _example(self._catalog.load_table(full)) if rows else {}
        return LandedTable(rows, first_seconds, example, account)

    def _rows(self, table: str) -> int:
        return lake_tables.row_count(self._catalog, self._sandbox.names.table(table))

    def ledgers(self) -> dict[str, Ledger]:
        """Return the ledgers of all streams of each landing table, without tables whose queries skip earlier records."""
        found: dict[str, set[str]] = {}
        skipping = set()
        landing = (
            query for query in self._queries if isinstance(query, Landing) and isinstance(query, SourceQuery)
        )
        for query in landing:
            found.setdefault(query.table, set()).update(query.streams)
            if query.start != "earliest":
                skipping.add(query.table)
        return {
            table: Ledger.merge(self.producers[stream].ledger for stream in sorted(streams))
            for table, streams in found.items()
            if table not in skipping
        }


def _example(table: Any) -> Mapping[str, Any]:
    (row,) = table.scan(limit=1).to_arrow().slice(0, 1).to_pylist()
    return {name: value for name, value in row.items() if not name.startswith("_")}
