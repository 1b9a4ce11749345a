"""A job that starts and stops within this process in seconds."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import StreamingQueryException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job import build_queries, lease
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.launch import settings
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import StartError, describe_error
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.records.producer import KafkaProducer
from tests.faults import small_job_documents
from tests.faults.record_sender import DDL, events

PORTION = 60
PARTITIONS = 2


@dataclass(frozen=True)
class RunResult:
    """Exit status and failures of a run of a job."""

    status: int
    message: str


class Job:
    """A topic, a job that reads it, its checkpoints and tables."""

    def __init__(
        self,
        spark: SparkSession,
        broker: kafka_broker.KafkaBroker,
        home: Path,
        number: int,
        kind: str,
        checkpoints: str | None = None,
        catalog: str = "lake",
    ) -> None:
        """Make the topic.

        Parameters
        ----------
        home
            Folder of this job and others.
        number
            Its own, among them.
        kind
            ``land``, ``direct``, ``derive`` or ``state``.
        checkpoints
            URL, where they do not lie in a folder.
        catalog
            Of its tables.
        """
        self._spark, self._kind, self._number, self.retries = spark, kind, number, 0
        self.binds: dict[str, str] = {}
        self.run_every_seconds: float | None = None
        self.events: list[dict[str, Any]] = []
        self._choose = random.Random(number)
        self._topic = f"{home.name}-{number}"
        self._bootstrap = broker.bootstrap
        broker.create_topic(self._topic, PARTITIONS, any_time=True)
        self._producer = KafkaProducer(broker.bootstrap, self._topic)
        self._first = 0
        self.home = home / str(number)
        self.checkpoints = self.home / "checkpoints"
        self._catalog = catalog
        self._url = checkpoints or str(self.checkpoints)
        self.drop()  # what a run that was killed has left
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "schema.ddl").write_text(DDL)

    def send(self) -> None:
        """Send a portion."""
        self._producer.send(events(PORTION, self._choose, first=self._first), sent=lambda _: None)
        self._first += PORTION

    def run(self, *, dies: bool = False, disturbed: Callable[[], None] | None = None) -> RunResult:
        """Run the job over what is there, as ``etl.main`` does it.

        Parameters
        ----------
        dies
            After its first batch's commit, before Spark has noted it.
        disturbed
            Called at the beginning of each batch.
        """
        said = io.StringIO()
        report = EventReporter("in-process", said)
        held = lease.lease_of_checkpoints(self._url, "in-process", (), lambda _: None)
        back = held.release if held is not None else lambda: None
        try:
            if held is not None:
                held.acquire()
            queries = build_queries.build_queries(
                JobRun(self._spark, settings.parse_job_settings(self._job()), self.binds, report)
            )
        except StartError as error:
            back()
            return RunResult(2, str(error))
        except (OSError, CapturedException, Py4JJavaError) as error:
            back()
            return RunResult(1, describe_error(error))
        if dies:
            queries = (*queries[:-1], _dying(queries[-1]))
        if disturbed is not None:
            queries = (*queries[:-1], _disturbed(queries[-1], disturbed))
        bounded, over = self.run_every_seconds is not None, threading.Event()
        supervisor = Supervisor(
            self._spark, report, retries=RetryLimits(self.retries, 2.0), lease=held, bounded=bounded
        )
        watch = threading.Thread(target=self._end, args=(supervisor, len(queries), over), daemon=True)
        if not bounded:
            watch.start()
        status = supervisor.run_to_exit_status(queries)
        over.set()
        if not bounded:
            watch.join()
        self.events = [json.loads(line) for line in said.getvalue().splitlines()]
        failures = [each["error"] for each in self.events if each["event"] == "failed"]
        return RunResult(status, "\n".join(failures))

    def _end(self, supervisor: Supervisor, count: int, over: threading.Event) -> None:
        """Stop the job when it has read all."""
        while len(self._spark.streams.active) < count:
            if over.wait(0.05):
                return
        while not over.is_set():
            try:
                for query in sorted(self._spark.streams.active, key=lambda each: each.name != "land"):
                    query.processAllAvailable()
            except StreamingQueryException:
                # The supervisor tells, or tries again.
                over.wait(0.2)
                continue
            if len(self._spark.streams.active) == count:
                supervisor.request_stop()
                return
            over.wait(0.1)

    def wrong(self) -> Counter[str]:
        """Hold the tables against the ledger."""
        return small_job_documents.wrong(self._kind, self._producer.ledger, self._rows)

    def _full(self, what: str) -> str:
        return f"{self._catalog}.{self._table(what)}"

    def _table(self, what: str) -> str:
        return f"in_process.t{self._number}_{what}"

    def _rows(self, what: str, *columns: str) -> pa.Table:
        rows = [tuple(row) for row in self._spark.table(self._full(what)).select(*columns).collect()]
        return pa.table({name: [row[at] for row in rows] for at, name in enumerate(columns)})

    def _job(self) -> dict[str, Any]:
        job = small_job_documents.settings(
            "in-process",
            self._queries(),
            self._url,
            self._bootstrap,
            catalog=self._catalog,
            retries=self.retries,
        )
        return job | {"run_every_seconds": self.run_every_seconds}

    def _queries(self) -> list[dict[str, Any]]:
        source = small_job_documents.topic(self._topic, PORTION)
        # A topic is split by ranges of offsets, without a shuffle.
        return small_job_documents.queries(
            self._kind, source, self.home / "schema.ddl", self._table, repartition=3
        )

    def drop(self) -> None:
        """Remove what it left."""
        for what in ("landed", "out", "letters"):
            self._spark.sql(f"DROP TABLE IF EXISTS {self._full(what)} PURGE")
        shutil.rmtree(self.home, ignore_errors=True)


class UnexpectedResultError(AssertionError):
    """A scenario ended in another state than expected."""


def run_scenario(job: Job, story: Callable[[], str], heal: Callable[[], None]) -> tuple[bool, str]:
    """Run a scenario of a job and remove what it left; return whether it went as expected, and a line with its result.

    Parameters
    ----------
    story
        Returns a line with its result, or raises :class:`UnexpectedResultError`.
    heal
        Ends the fault; the job must then go on, and its tables be exact.
    """
    begun = time.monotonic()
    try:
        try:
            line = story()
        except UnexpectedResultError as error:
            return False, str(error)
        finally:
            heal()
        job.send()
        job.retries = 0
        last = job.run()
        if last.status:
            return False, f"{line} | then it ended with {last.status}: {last.message}"
        wrong = job.wrong()
        return not wrong, f"{line} | then {dict(wrong) or 'exact'}, {time.monotonic() - begun:.0f} s"
    finally:
        job.drop()


def report_results(stories: Iterable[tuple[str, tuple[bool, str]]], what: str) -> int:
    """Print a line for each scenario when it has ended, and a total; return the exit status of the program."""
    missed, count = [], 0
    for name, (held, line) in stories:
        sys.stdout.write(f"{'ok' if held else 'NOT OK'}: {name}: {line}\n")
        sys.stdout.flush()
        count += 1
        missed += [] if held else [name]
    sys.stdout.write(
        f"{count - len(missed)} of {count} {what} told or outlasted, and every table exact"
        f"{'; missed: ' + '; '.join(missed) if missed else ''}\n"
    )
    return int(bool(missed))


class KilledError(Exception):
    """Ends a batch whose data are committed."""


def _dying(query: ReadyQuery) -> ReadyQuery:
    def handle(batch: DataFrame, number: int) -> None:
        query.handle(batch, number)
        raise KilledError("killed")

    return replace(query, handle=handle)


def _disturbed(query: ReadyQuery, disturb: Callable[[], None]) -> ReadyQuery:
    def handle(batch: DataFrame, number: int) -> None:
        disturb()
        query.handle(batch, number)

    return replace(query, handle=handle)
