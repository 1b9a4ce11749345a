"""List of the advisor's runs: how each is made, and which findings are expected."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer

from millrace.advisor.findings.model import Kind
from millrace.config.engines.versions import LINES
from millrace.sandbox.programs import jars, kafka_broker
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.toolchain import ROOT, java_home, state_folder

JOB = ROOT / "tests" / "advisor" / "job.py"
HOME = RUN / "advisor"
SPARKS = {
    name: Path(sys.executable)
    if line.is_default_line
    else state_folder() / f"spark-{name}" / "bin" / "python"
    for name, line in LINES.items()
}
"""By Spark line, the interpreter that has it."""

BURNERS = 6
"""Processes that take the processor away: three for each of the job's two cores."""


@dataclass(frozen=True)
class Run:
    """One run.

    Attributes
    ----------
    name
        Of the job in ``tests/advisor/job_with_one_fault.py``.
    fault
        What is wrong with it, in words; empty for a clean one.
    wanted
        Any of these must be found; of a clean run, nothing may be.
    waiting, rate
        Records in the topic before it starts, and records a second meanwhile; 0 and 0 where it reads none.
    """

    name: str
    fault: str
    wanted: frozenset[Kind]
    waiting: int = 0
    rate: int = 0
    disturbed: bool = False

    @property
    def reads_kafka(self) -> bool:
        return bool(self.waiting or self.rate)


def _run(
    name: str, fault: str = "", *wanted: Kind, waiting: int = 0, rate: int = 0, disturbed: bool = False
) -> Run:
    return Run(name, fault, frozenset(wanted), waiting, rate, disturbed)


RUNS = {
    run.name: run
    for run in (
        _run("clean-plain"),
        _run("clean-window"),
        _run("clean-cached"),
        _run("clean-kafka", rate=500),
        _run(
            "hit-limit", "the limit is hit and the backlog grows", "silent-backlog", "at-capacity", rate=1500
        ),
        _run(
            "unstable-start",
            "the first batch takes all that waited",
            "unstable-start",
            waiting=400_000,
            rate=300,
        ),
        _run("skewed-key", "one key has nine tenths of the records", "skewed-tasks"),
        _run("two-sinks", "two sinks and no cache", "missing-cache"),
        _run("needless-cache", "a cache that one action reads", "needless-cache"),
        _run("retried-tasks", "a task fails in every batch", "retried-tasks"),
        _run("short-trigger", "a trigger of 50 ms", "trigger-too-short", rate=300),
        _run("slow-checkpoint", "renames in the checkpoint take 0.4 s", "slow-checkpoint"),
        _run("small-files", "sixteen files a batch", "small-files"),
        _run("few-partitions", "one partition on two cores", "too-few-partitions"),
        _run("waves", "three partitions on two cores", "queued-partitions"),
        _run("many-partitions", "fifty keys in a hundred partitions", "too-many-partitions"),
        _run("growing-state", "duplicates sought without a watermark", "growing-state"),
        _run("contention", "others take the processors in the second half", disturbed=True),
    )
}


def folder(spark: str, run: Run) -> Path:
    """Where a run's log is kept."""
    return HOME / spark / run.name


def play(
    spark: str, run: Run, seconds: float, broker: kafka_broker.KafkaBroker | None, work: float = 1.0
) -> Path:
    """Make one run and return the folder with its event log; ``work`` is the share of what each record costs otherwise.

    Raises
    ------
    RuntimeError
        The job ended with an error; says where its output is.
    """
    home = folder(spark, run)
    shutil.rmtree(home, ignore_errors=True)
    logs, scratch = home / "logs", home / "scratch"
    logs.mkdir(parents=True)
    scratch.mkdir()
    command: list[str | Path] = [
        *(SPARKS[spark], JOB, run.name, "--logs", logs, "--scratch", scratch),
        *("--seconds", str(seconds), "--work", str(work)),
    ]
    if run.reads_kafka:
        assert broker
        topic = f"{run.name}-{time.time_ns()}"
        broker.create_topic(topic, 2)
        command += ["--kafka", broker.bootstrap, "--topic", topic]
        command += ["--jars", ",".join(map(str, jars.jar_files("kafka-client", LINES[spark])))]
    environment = {
        **{key: value for key, value in os.environ.items() if key != "SPARK_HOME"},
        "JAVA_HOME": str(java_home()),
        "PYSPARK_PYTHON": str(SPARKS[spark]),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    with (home / "output").open("wb") as output:
        if run.reads_kafka:
            assert broker
            with produced(broker.bootstrap, topic, run):
                status = _wait(command, environment, scratch, output.fileno(), None)
        else:
            after = seconds / 2 + 10 if run.disturbed else None
            status = _wait(command, environment, scratch, output.fileno(), after)
    if status:
        raise RuntimeError(f"{run.name} on Spark {spark} ended with status {status}: {home / 'output'}")
    shutil.rmtree(scratch)
    return logs


def _wait(
    command: list[str | Path], environment: dict[str, str], home: Path, output: int, burn_after: float | None
) -> int:
    """Run a job to its end; from a moment on with others that want the processor."""
    job = subprocess.Popen(command, env=environment, cwd=home, stdout=output, stderr=output)
    burners: list[subprocess.Popen[bytes]] = []
    try:
        if burn_after is not None:
            try:
                return job.wait(burn_after)
            except subprocess.TimeoutExpired:
                burners = [
                    subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)
                ]
        return job.wait()
    finally:
        for each in (*burners, job):
            if each.poll() is None:
                each.terminate()
                each.wait()


@contextmanager
def produced(bootstrap: str, topic: str, run: Run) -> Iterator[None]:
    """Fill a topic, and continue at the run's rate while the block runs."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 3})
    ended = threading.Event()
    value = b"x" * 200

    def send(count: int) -> None:
        for number in range(count):
            producer.produce(topic, value, partition=number % 2)
            if number % 5000 == 4999:
                producer.flush()
        producer.flush()

    def go_on() -> None:
        begun, sent = time.monotonic(), 0
        while not ended.wait(0.1):
            due = int((time.monotonic() - begun) * run.rate)
            send(due - sent)
            sent = due

    send(run.waiting)
    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
