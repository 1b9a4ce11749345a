"""Runs an environment on this machine: deployed to LocalStack, its jobs on local Spark, made-up records in its streams."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from millrace.config.model import Environment
from millrace.sandbox import lake, traffic, traffic_targets
from millrace.sandbox.deployment import Sandbox, open_sandbox, servers
from millrace.sandbox.process import SandboxError
from millrace.sandbox.producer import Background
from millrace.sandbox.spark import Job

_LOOK_SECONDS = 1.0
_START_SECONDS = 300.0
"""Longer than Spark takes on a busy laptop from its start to a first commit."""

_OTHERS_SECONDS = 90.0
"""For tables that have no row yet, after each that gets its first."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Landed:
    """What a table holds.

    Attributes
    ----------
    first_seconds
        From the command's begin to the first row that was seen.
    example
        One row, by column; the core's own columns are left out.
    """

    rows: int
    first_seconds: float
    example: Mapping[str, Any]


def run(
    name: str, environment: Environment, feeds: Mapping[str, traffic.Feed], *, seconds: float, say: Say
) -> dict[str, Landed]:
    """Deploy an environment, run its jobs, feed its streams, and watch its tables.

    Parameters
    ----------
    name
        The environment as it was given: its name or its file.
    environment
        It; of this machine's account, or of none.
    feeds
        By stream, what is sent.
    seconds
        So long records are sent after each table has its first.
    say
        Told what is being done.

    Returns
    -------
    dict
        By table, in the order in which they got their first row.

    Raises
    ------
    SandboxError
        A server or a job did not start, or nothing landed in five minutes.
    """
    began = time.monotonic()
    with ExitStack() as stack:
        say("starting LocalStack and Kafka")
        local, broker = stack.enter_context(servers())
        say("deploying to LocalStack")
        sandbox = open_sandbox(name, local, broker)
        jobs = {job: stack.enter_context(_running(sandbox, job)) for job in environment.jobs}
        say(f"running {', '.join(jobs)} on local Spark; sending to {', '.join(feeds)}")
        sending = []
        for stream, feed in feeds.items():
            target = traffic_targets.in_sandbox(
                environment, stream, kafka=broker.bootstrap, kinesis=local.endpoint
            )
            sending.append(stack.enter_context(Background(partial(_send, feed, target), stream)))
        return _watch(sandbox, jobs, sending, began=began, seconds=seconds, say=say)


@contextmanager
def _running(sandbox: Sandbox, job: str) -> Iterator[Job]:
    run = sandbox.spark.submit(sandbox.launch_document(job), f"{job}-1")
    try:
        yield run
    finally:
        run.process.stop()


def _send(feed: traffic.Feed, target: traffic_targets.Target, stop: threading.Event) -> None:
    producer = target.producer(max(1, min(500, round(feed.shape.per_second / 5))))
    traffic.send(feed, producer, most=None, seconds=None, stop=stop, sent=lambda _: None)


def _watch(
    sandbox: Sandbox,
    jobs: Mapping[str, Job],
    sending: Sequence[Background],
    *,
    began: float,
    seconds: float,
    say: Say,
) -> dict[str, Landed]:
    catalog = sandbox.spark.catalog(sandbox.warehouse)
    queries = [query for job in sandbox.environment.jobs.values() for query in job.queries.values()]
    written = [(place, table) for query in queries for place, table in query.writes.items()]
    tables = list(dict.fromkeys(table for place, table in written if place[-1] != "dead_letters"))
    found: dict[str, Landed] = {}
    started = time.monotonic()
    until = started + _START_SECONDS
    while time.monotonic() < until:
        for each in sending:
            each.check()
        for name, job in jobs.items():
            if not job.process.alive:
                raise SandboxError(f"job {name} ended by itself:\n{job.process.tail(25)}")
        for name in tables:
            full = sandbox.names.table(name)
            if not (rows := lake.rows(catalog, full)):
                continue
            if name in found:
                found[name] = Landed(rows, found[name].first_seconds, found[name].example)
                continue
            found[name] = Landed(rows, time.monotonic() - began, _example(catalog.load_table(full)))
            say(f"{full}: first rows after {found[name].first_seconds:.0f} s")
            # Others may wait for a watermark, for longer than anybody looks.
            until = time.monotonic() + (seconds if len(found) == len(tables) else _OTHERS_SECONDS)
        time.sleep(_LOOK_SECONDS)
    if not found:
        logs = ", ".join(str(job.process.log) for job in jobs.values())
        raise SandboxError(
            f"nothing came into {', '.join(tables)} within {_START_SECONDS:.0f} s; the jobs' logs: {logs}"
        )
    return found


def _example(table: Any) -> Mapping[str, Any]:
    (row,) = table.scan(limit=1).to_arrow().slice(0, 1).to_pylist()
    return {name: value for name, value in row.items() if not name.startswith("_")}
