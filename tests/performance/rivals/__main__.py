"""Other ways to land the same topic on this machine: ``python -m tests.performance.rivals``.

Each rival lands flights of one Kafka topic in an Iceberg table of its own, commits every two seconds where it can be told, and has two
cores. A run starts it on a topic with some records, which warm it up; holds it (SIGSTOP) while more are sent, lets it go and takes the time and
the CPU until all are in the table; sends at a steady rate, for the age of a record when it can be read; kills it twice (kill -9)
at that rate, once anywhere, once in the moment of a commit, and starts it again; and counts lost and doubled records by their numbers. Rounds
take rivals in turn. Results are kept in ``results/rivals.jsonl``; the table is of those of the last ``--since`` hours.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import psutil
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, SandboxError, wait_until
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.toolchain import ROOT
from tests.performance.case_order import in_turn
from tests.performance.cpu_time import between, used
from tests.performance.median_intervals import interval
from tests.performance.preloaded_input import PARTITIONS, clean
from tests.performance.rivals.downloads import UnavailableError
from tests.performance.rivals.flink import Flink
from tests.performance.rivals.kafka_connect import Connect, create_control_topic
from tests.performance.rivals.millrace import Millrace
from tests.performance.rivals.plain_spark import PlainSpark, SparkBatches
from tests.performance.rivals.python_loop import Loop
from tests.performance.rivals.rival_interface import NAMESPACE, SCHEMA, Place, Rival, load, payloads
from tests.performance.rivals.table_watcher import Watcher, ages, ids

HOME = RUN / "rivals"
RESULTS = ROOT / "tests/performance/results/rivals.jsonl"
RIVALS: dict[str, Rival] = {
    "millrace": Millrace(), "spark": PlainSpark(), "spark-batches": SparkBatches(), "flink": Flink(),
    "connect": Connect(), "loop": Loop(),
}  # fmt: skip
SECONDS = 2.0
"""Between commits."""

STALL_SECONDS = 90.0
"""Without a new row for so long, what is missing is lost."""


class Sender:
    """Sends flights, and knows how many: the ledger, as their numbers count from 0."""

    def __init__(self, bootstrap: str, topic: str, templates: list[bytes]) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "compression.type": "lz4"})
        self._topic, self._templates, self.sent = topic, templates, 0
        self._ended: threading.Event | None = None

    def send(self, count: int) -> None:
        """Send so many at once, and wait for the broker."""
        for number, payload in enumerate(payloads(self._templates, self.sent, count), self.sent):
            while True:
                try:
                    self._producer.produce(self._topic, payload, partition=number % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self._producer.poll(0)
        if left := self._producer.flush(60):
            raise SandboxError(f"{left} records were not delivered")
        self.sent += count

    def steadily(self, rate: int) -> None:
        """Send at a rate until :meth:`rest`."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._send_portions, args=(rate, self._ended), daemon=True)
        self._thread.start()

    def rest(self) -> None:
        assert self._ended is not None
        self._ended.set()
        self._thread.join()

    def _send_portions(self, rate: int, ended: threading.Event) -> None:
        due = time.monotonic()
        while not ended.wait(max(0.0, due - time.monotonic())):
            self.send(rate // 20)
            due += 0.05


def _signal(process: ChildProcess, number: signal.Signals) -> None:
    """Signal a process and all below it, those in groups of their own too."""
    with suppress(psutil.NoSuchProcess):
        first = psutil.Process(process.popen.pid)
        for each in (*first.children(recursive=True), first):
            with suppress(psutil.NoSuchProcess):
                each.send_signal(number)


def _kill(process: ChildProcess) -> None:
    _signal(process, signal.SIGKILL)
    process.kill()


def _more(watcher: Watcher, rows: int) -> bool:
    return watcher.rows > rows


def _until(watcher: Watcher, count: int, process: ChildProcess) -> None:
    wait_until(
        lambda: watcher.rows >= count, seconds=STALL_SECONDS, what="landed", runs=(process,),
        progress=lambda: f"{watcher.rows:,} of {count:,}", poll_seconds=0.01,
    )  # fmt: skip


def measure(
    rival: Rival,
    broker: KafkaBroker,
    number: int,
    templates: list[bytes],
    given: argparse.Namespace,
    result: dict[str, Any],
) -> None:
    """Run one rival once; its figures are in ``result``, as many as there are, also after an error."""
    table = f"{rival.job.partition('.')[0]}_{number}"
    home = HOME / table
    shutil.rmtree(home, ignore_errors=True)
    (home / "lake").mkdir(parents=True)
    (home / "job").mkdir()
    place = Place(
        broker.bootstrap, table, home / "job", home / "catalog.db", f"file://{home}/lake", table, SECONDS
    )
    catalog = SqlCatalog("lake", uri=f"sqlite:///{place.database}?timeout=30", warehouse=place.warehouse)
    with closing(sqlite3.connect(place.database)) as database:
        database.execute("PRAGMA journal_mode=WAL")
    catalog.create_namespace(NAMESPACE)
    if not rival.makes_table:
        catalog.create_table(f"{NAMESPACE}.{table}", SCHEMA)
    broker.create_topic(table, PARTITIONS)
    if isinstance(rival, Connect):
        create_control_topic(broker, table)
    sender, watcher = Sender(broker.bootstrap, table, templates), Watcher(place.database, table)
    sender.send(given.warm)
    process = rival.start(place)
    try:
        begun = time.time()
        _until(watcher, sender.sent, process)
        result["first_commit"] = watcher.commits[1].at - begun
        time.sleep(2 * SECONDS)
        _signal(process, signal.SIGSTOP)
        sender.send(given.records)
        before, since = used(process.popen.pid), time.time()
        _signal(process, signal.SIGCONT)
        _until(watcher, sender.sent, process)
        cpu = between(before, used(process.popen.pid))
        result["rate"] = given.records / (watcher.commits[-1].at - since)
        result["cpu"] = cpu / given.records * 1e6
        sender.steadily(given.rate)
        time.sleep(3 * SECONDS)
        first = sender.sent
        before = used(process.popen.pid)
        time.sleep(given.steady)
        result["steady_cpu"] = between(before, used(process.popen.pid)) / given.steady
        last = sender.sent
        result["recovered"] = []
        for at_commit in (False, True):
            if at_commit:
                watcher.until_commit()
            else:
                time.sleep(random.uniform(2, 4) * SECONDS)
            _kill(process)
            process, restarted, before_kill = rival.start(place), time.time(), watcher.rows
            wait_until(
                partial(_more, watcher, before_kill),
                seconds=STALL_SECONDS,
                what="on",
                runs=(process,),
                poll_seconds=0.01,
            )
            result["recovered"].append(watcher.commits[-1].at - restarted)
        time.sleep(2 * SECONDS)
        sender.rest()
        try:
            _until(watcher, sender.sent, process)
        except SandboxError as error:
            result["stalled"] = str(error).splitlines()[0]
        time.sleep(3 * SECONDS)
    finally:
        if sender._ended is not None:
            sender.rest()
        _kill(process)
        watcher.close()
    age = ages(catalog, table, watcher.commits, range(first, last))
    found = ids(catalog, table)
    distinct = np.unique(found)
    result |= {
        "p50": float(np.percentile(age, 50)), "p95": float(np.percentile(age, 95)), "sent": sender.sent,
        "lost": sender.sent - len(distinct), "doubled": len(found) - len(distinct), "kills": 2,
    }  # fmt: skip
    catalog.close()
    shutil.rmtree(home)


UNITS = {
    "rate": "records/s", "cpu": "CPU s / 10⁶", "steady_cpu": "cores, steady", "p50": "p50 age, s", "p95": "p95 age, s",
    "first_commit": "first commit, s", "recovered": "after a kill, s",
}  # fmt: skip


COUNTS = ("lost", "doubled", "kills")


def screen(runs: Sequence[dict[str, Any]]) -> list[str]:
    """One table of all runs: medians, with intervals of ratios to Millrace in the same round."""
    units = (*UNITS.values(), *COUNTS, "lines")
    result = [f"{'':26}" + "".join(f"{unit:>17}" for unit in units)]
    by_round = {(run["rival"], run["at_round"]): run for run in runs}
    for name, rival in RIVALS.items():
        mine = [run for run in runs if run["rival"] == name]
        cells = []
        for each in (*UNITS, *COUNTS):
            values = np.ravel([run[each] for run in mine if each in run])
            median = f"{np.median(values):,.{0 if each == 'rate' else 2}f}" if len(values) else "-"
            cells.append(f"{sum(values):,.0f}" if each in COUNTS and len(values) else median)
        result.append(f"{rival.name:26}" + "".join(f"{cell:>17}" for cell in (*cells, str(rival.lines))))
        result += [
            f"{'':26}failed: {line}" for run in mine for line in run.get("failed", "").splitlines()[:1]
        ]
        for each in ("rate", "cpu"):
            pairs = [
                (run[each], by_round.get(("millrace", run["at_round"]), {}).get(each))
                for run in mine
                if each in run
            ]
            ratios = [ours / theirs for theirs, ours in pairs if ours is not None]
            if name != "millrace" and ratios:
                middle, low, high = interval(ratios)
                words = f"{middle:.2f} [{low:.2f}, {high:.2f}], {len(ratios)} rounds"
                result.append(f"{'':26}{UNITS[each]} of Millrace to this: {words}")
    return result


def parser() -> argparse.ArgumentParser:
    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.rivals", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--only", nargs="+", choices=RIVALS, default=list(RIVALS))
    reading.add_argument("--rounds", type=int, default=3)
    reading.add_argument("--records", type=int, default=600_000, help="that each has to catch up")
    reading.add_argument("--warm", type=int, default=100_000, help="records before")
    reading.add_argument("--rate", type=int, default=2000, help="records a second of the steady part")
    reading.add_argument("--steady", type=float, default=30.0, help="its seconds")
    reading.add_argument(
        "--since", type=float, default=12.0, help="hours: results of before are not in the table"
    )
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what is asked for; print one table."""
    given = parser().parse_args(arguments)
    HOME.mkdir(parents=True, exist_ok=True)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    templates = [event.payload for event in clean(20_000)]

    def keep(run: dict[str, Any]) -> None:
        with RESULTS.open("a") as out:
            out.write(json.dumps(run) + "\n")
        sys.stderr.write(f"{json.dumps(run)}\n")

    names, unavailable = [], {}
    for name in given.only:
        try:
            RIVALS[name].fetch()
            names.append(name)
        except UnavailableError as error:
            unavailable[name] = str(error)
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    for number in range(given.rounds if names else 0):
        for name in in_turn(names, number):
            about: dict[str, Any] = {
                "rival": name,
                "at": datetime.now(UTC).isoformat(timespec="seconds"),
                "load": load(),
            }
            about |= {
                "at_round": f"{begun}/{number}",
                "cores": os.cpu_count(),
                "records": given.records,
                "rate_sent": given.rate,
            }
            try:
                with kafka_broker.running_broker(name="kafka-rivals") as broker:
                    measure(RIVALS[name], broker, number, templates, given, about)
            except SandboxError as error:
                about["failed"] = str(error)[:2000]
            keep(about)
    for name, why in unavailable.items():
        keep({"rival": name, "at": begun, "at_round": f"{begun}/0", "failed": why})
    after = time.time() - 3600 * given.since
    runs = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    sys.stdout.write(
        "\n".join(screen([run for run in runs if datetime.fromisoformat(run["at"]).timestamp() > after]))
        + "\n"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
