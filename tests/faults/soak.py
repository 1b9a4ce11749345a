"""Endurance test of one job: ``python -m tests.faults.soak --minutes 60``.

Environment ``local`` is deployed to LocalStack, its job ``flights`` (land a topic, derive from the table with an enrichment,
upkeep on) started from the launch document, and fed at a steady rate. Every so often the driver is measured: its memory
after a collection, its open files, what its checkpoints, its event log and its tables hold. For each figure the slope
(Theil–Sen) is printed with its 95 % interval, after a warm-up; at the end every record is held against the ledger.

Ends with 1 where a record is missing or twice, or where memory or open files rise for certain.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from scipy import stats

from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from millrace.sandbox.programs.toolchain import java_home
from millrace.sandbox.records.ledger import compare_with_ledger, row_count
from millrace.sandbox.records.producer import BackgroundThread, KafkaProducer
from tests.faults.batch_commits import commit_times
from tests.flight_records import flight_records
from tests.steady_rate import yield_at_rate

JOB = "flights"
LANDED, DERIVED = "flights_landed", "flights_weather"
DIRTY_SHARE = 0.01
WARM_UP = 0.25
"""Share of the measurements that are left out: code is compiled and caches fill."""

PATIENCE_SECONDS = 300.0
MUST_NOT_RISE = ("heap_mib", "open_files")
"""What an endless job has to hold; what it writes may grow, at a rate that is told."""
SUMMED_UP = ("heap_mib", "open_files", "checkpoint_mib", "event_log_mib", "metadata_mib")
"""What the last line tells."""

_MIB = 1024**2


@dataclass
class Watch:
    """Measures a running job and what it writes."""

    sandbox: Sandbox
    job: LocalJob
    begun: float = field(default_factory=time.monotonic)
    rows: list[dict[str, float]] = field(default_factory=list)

    def look(self, sent: int) -> dict[str, float]:
        """Take one measurement."""
        java = next(p for p in self._tree() if p.name() == "java")
        checkpoints = self._stored("checkpoints", "")
        metadata = self._stored("lake", f"/{LANDED}/metadata/")
        data = self._stored("lake", f"/{LANDED}/data/")
        row = {
            "hours": (time.monotonic() - self.begun) / 3600,
            "sent": float(sent),
            "heap_mib": _live_heap(java.pid) / _MIB,
            "resident_mib": sum(p.memory_info().rss for p in self._tree()) / _MIB,
            "open_files": float(java.num_fds()),
            "threads": float(java.num_threads()),
            "checkpoint_files": checkpoints[0],
            "checkpoint_mib": checkpoints[1] / _MIB,
            "event_log_mib": sum(f.stat().st_size for f in self.job.event_logs.rglob("*") if f.is_file())
            / _MIB,
            "metadata_files": metadata[0],
            "metadata_mib": metadata[1] / _MIB,
            "data_files": data[0],
        }
        self.rows.append(row)
        return row

    def _tree(self) -> list[psutil.Process]:
        root = psutil.Process(self.job.process.popen.pid)
        return [root, *root.children(recursive=True)]

    def _stored(self, bucket: Literal["lake", "checkpoints"], part: str) -> tuple[float, float]:
        """Number and bytes of a bucket's objects whose key has a part."""
        pages = self.sandbox.stack.client("s3").get_paginator("list_objects_v2")
        sizes = [
            each["Size"]
            for page in pages.paginate(Bucket=self.sandbox.names.bucket(bucket))
            for each in page.get("Contents", ())
            if part in each["Key"]
        ]
        return float(len(sizes)), float(sum(sizes))


def _live_heap(pid: int) -> float:
    """Bytes of a JVM's heap that are still used after a full collection."""
    tool = java_home() / "bin" / "jcmd"
    if not tool.exists():
        return float("nan")  # a runtime without tools: memory is told by what is resident
    subprocess.run([tool, str(pid), "GC.run"], check=True, capture_output=True)
    told = subprocess.run(
        [tool.with_name("jstat"), "-gc", str(pid)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    figures = dict(
        zip(told[0].split(), told[1].split(), strict=True)
    )  # "-" where a collector has no such figure
    return sum(float(figures[used]) for used in ("S0U", "S1U", "EU", "OU") if figures[used] != "-") * 1024


def slopes(rows: list[dict[str, float]]) -> dict[str, tuple[float, float, float]]:
    """Rise in an hour of each figure, with its 95 % interval (Theil–Sen), after the warm-up."""
    kept = rows[int(len(rows) * WARM_UP) :]
    hours = np.array([row["hours"] for row in kept])
    result = {}
    for name in kept[0]:
        values = np.array([row[name] for row in kept])
        if name != "hours" and np.isfinite(values).all():
            slope, _, low, high = stats.theilslopes(values, hours, 0.95)
            result[name] = float(slope), float(low), float(high)
    return result


def endless() -> Iterator[RecordToSend]:
    """The flights of ten days, again and again: the same payload sent twice is two records."""
    table = records_from_nycflights.read_departures(days=10)
    for seed in itertools.count():
        yield from flight_records(table, dirty_share=DIRTY_SHARE, seed=seed)


def held(sandbox: Sandbox, producer: KafkaProducer) -> Any:
    """Compare both tables with the ledger."""
    catalog, table = sandbox.spark.catalog(sandbox.names.warehouse_url), sandbox.names.table
    return compare_with_ledger(catalog, producer.ledger, table(LANDED), table(DERIVED))


def rows_of(sandbox: Sandbox, table: str) -> int:
    """Rows by the table's last state."""
    return row_count(sandbox.spark.catalog(sandbox.names.warehouse_url), sandbox.names.table(table))


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.soak", description="A job that runs on and on."
    )
    reading.add_argument("--minutes", type=float, default=60.0)
    reading.add_argument("--per-second", type=float, default=300.0, help="records that are sent")
    reading.add_argument("--every", type=float, default=15.0, help="seconds between two measurements")
    reading.add_argument("--out", type=Path, help="all measurements, as JSON lines")
    return reading


def main(arguments: list[str] | None = None) -> int:
    """Run, measure, compare, print."""
    options = parser().parse_args(arguments)
    shutil.rmtree(RUN / "jobs", ignore_errors=True)
    with running_localstack_and_kafka() as (stack, broker):
        sandbox = deploy_sandbox("local", stack, broker)
        producer = KafkaProducer(sandbox.kafka.bootstrap, sandbox.names.stream("flights"))
        producer.send(itertools.islice(endless(), 1_000), sent=lambda _: None)
        job = sandbox.spark.submit(sandbox.launch_document(JOB), f"{JOB}-1")

        def feed(stop: threading.Event) -> None:
            events = yield_at_rate(endless(), per_second=options.per_second, stop=stop)
            producer.send(events, sent=lambda _: None)

        try:
            with BackgroundThread(feed, "soak-feed"):
                watch = _watched(sandbox, job, producer, options)
            account = _finished(sandbox, job, producer)
        finally:
            job.process.kill()
    return _tell(watch.rows, account, options)


def _watched(sandbox: Sandbox, job: LocalJob, producer: KafkaProducer, given: argparse.Namespace) -> Watch:
    watch = Watch(sandbox, job)
    until = time.monotonic() + given.minutes * 60
    while time.monotonic() < until and job.process.is_alive:
        time.sleep(given.every)
        if commit_times(job):
            row = watch.look(len(producer.ledger))
            sys.stderr.write(
                f"{row['hours'] * 60:5.1f} min: {row['sent']:,.0f} sent, heap {row['heap_mib']:.0f} MiB, "
                f"{row['open_files']:.0f} files open\n"
            )
    if not job.process.is_alive:
        raise SystemExit(f"the job ended by itself:\n{job.process.last_log_lines(25)}")
    return watch


def _finished(sandbox: Sandbox, job: LocalJob, producer: KafkaProducer) -> Any:
    """Wait for what is under way, end the job, compare."""
    wanted = len(producer.ledger)

    def whole() -> bool:
        derived = wanted - producer.ledger.dirty_count
        return rows_of(sandbox, LANDED) >= wanted and rows_of(sandbox, DERIVED) >= derived

    with suppress(SandboxError):  # what is missing is told by the account
        job.process.wait_until(whole, seconds=PATIENCE_SECONDS, what="landed and derived")
    job.process.stop(grace_seconds=60)
    return held(sandbox, producer)


def _tell(rows: list[dict[str, float]], account: Any, given: argparse.Namespace) -> int:
    if given.out is not None:
        given.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result: Mapping[str, tuple[float, float, float]] = slopes(rows)
    sys.stdout.write(f"{given.minutes:g} minutes, {len(rows)} measurements, {account}\n")
    sys.stdout.write("figure            first      last   a hour more [95 %]\n")
    rising = []
    for name, (slope, low, high) in result.items():
        first, last = rows[int(len(rows) * WARM_UP)][name], rows[-1][name]
        sys.stdout.write(
            f"{name:<16} {first:>8,.1f}  {last:>8,.1f}   {slope:+,.1f} [{low:+,.1f}, {high:+,.1f}]\n"
        )
        if name in MUST_NOT_RISE and low > 0:
            rising.append(name)
    for name in rising:
        sys.stdout.write(f"{name} rises for certain\n")
    told = ", ".join(
        f"{name.replace('_', ' ')} {result[name][0]:+,.1f} [{result[name][1]:+,.1f}, {result[name][2]:+,.1f}]"
        for name in SUMMED_UP
        if name in result
    )
    sys.stdout.write(f"{given.minutes:g} minutes, {account}; an hour more: {told}\n")
    return int(bool(rising) or not account.exact)


if __name__ == "__main__":
    raise SystemExit(main())
