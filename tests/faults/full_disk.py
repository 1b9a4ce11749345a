"""Fault test with full disks, as root because it mounts small file systems: ``python -m tests.faults.full_disk``.

A job lands a topic. The checkpoints, Spark's local directory or the tables lie on a file system in memory that is filled before a
start or in the middle of a batch. The job must end with one message that says that there is no space, with status 1 (2 where
it did not start); or, with retries, outlast the shortage. Once there is space again it must go on, and the table hold what the
ledger says.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.sandbox.programs import jars, kafka_broker, open_spark_session
from millrace.sandbox.programs.child_processes import RUN
from tests.faults.in_process_job import Job, RunResult, UnexpectedResultError, report_results, run_scenario

HOME = RUN / "faults-full-disk"
SIZE_MIB = 16
NO_SPACE = "No space left on device"
FILLER = "filler"
RETRIES = 5


class NotAllowedError(RuntimeError):
    """File systems cannot be mounted here."""


@dataclass
class Disk:
    """A small file system in memory."""

    place: Path

    @property
    def full(self) -> bool:
        """Whether it was filled."""
        return (self.place / FILLER).exists()

    def fill(self) -> None:
        """Leave no byte of it."""
        with (self.place / FILLER).open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while file.write(b"\0" * size):
                        pass
                except OSError:
                    continue

    def free(self) -> None:
        """Give all of it back."""
        (self.place / FILLER).unlink(missing_ok=True)


@contextmanager
def disk(place: Path) -> Iterator[Disk]:
    """Mount one.

    Raises
    ------
    NotAllowedError
        This user or this machine may not.
    """
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MIB}m", "tmpfs", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotAllowedError(f"a file system of {SIZE_MIB} MiB was not mounted: {done.stderr.strip()}")
    try:
        yield Disk(place)
    finally:
        # Lazily: the session still has files of it open.
        subprocess.run(["umount", "-l", str(place)], check=True)


def before_the_first_start(job: Job, small: Disk) -> str:
    """Fill it before the job has ever run."""
    job.send()
    return _told(job, small, filled=True)


def before_a_start(job: Job, small: Disk) -> str:
    """Fill it while the job is stopped."""
    job.send()
    job.run()
    job.send()
    return _told(job, small, filled=True)


def in_a_batch(job: Job, small: Disk) -> str:
    """Fill it in the middle of a batch."""
    job.send()
    job.run()
    job.send()
    return _told(job, small, filled=False)


def outlasted(job: Job, small: Disk) -> str:
    """Fill it in the middle of a batch, and free it before the batch comes again."""
    job.send()
    job.run()
    job.send()
    job.retries = RETRIES
    result = job.run(disturbed=lambda: small.free() if small.full else small.fill())
    errors = [event["error"] for event in job.events if event["event"] == "retrying"]
    if result.status or not errors or NO_SPACE not in errors[0]:
        raise UnexpectedResultError(f"status {result.status}, retried after {errors}: {result.message}")
    return f"outlasted with {len(errors)} retries"


def _told(job: Job, small: Disk, *, filled: bool) -> str:
    """Run the job, which must tell that there is no space; then with space again."""
    if filled:
        small.fill()
    ended: RunResult = job.run(disturbed=None if filled else small.fill)
    small.free()
    if ended.status not in (1, 2) or NO_SPACE not in ended.message:
        raise UnexpectedResultError(f"status {ended.status}: {ended.message}")
    again = job.run()
    if again.status:
        raise UnexpectedResultError(f"with space again it ended with {again.status}: {again.message}")
    return f"told with status {ended.status}: {ended.message.splitlines()[-1]}"


CASES: Mapping[str, tuple[str, ...]] = {
    "checkpoints": ("before_the_first_start", "before_a_start", "in_a_batch", "outlasted"),
    "local": ("in_a_batch", "outlasted"),
    "tables": ("before_a_start", "in_a_batch", "outlasted"),
}
SHUFFLES = "local"
"""Only a query that shuffles has anything in Spark's local directory: the job on this disk counts by key."""

STORIES = {story.__name__: story for story in (before_the_first_start, before_a_start, in_a_batch, outlasted)}


def play(
    spark: SparkSession,
    broker: kafka_broker.KafkaBroker,
    number: int,
    small: Disk | None,
    story: str,
    kind: str = "land",
) -> tuple[bool, str]:
    """Play one case; whether all held, and what it came to. Without a disk, the job's checkpoints get one."""
    job = Job(spark, broker, HOME, number, kind)
    with nullcontext(small) if small is not None else disk(job.checkpoints) as on:
        return run_scenario(job, lambda: STORIES[story](job, on), on.free)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.full_disk", description="Disks that are full."
    )
    reading.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="DISK")
    return reading


def main() -> int:
    """Fill, free, compare, print a line for each."""
    options = parser().parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    with ExitStack() as ending:
        tables = ending.enter_context(disk(HOME / "lake"))
        broker = ending.enter_context(kafka_broker.running_broker())
        os.environ["SPARK_LOCAL_DIRS"] = str(HOME / "local")
        files = [*jars.jar_files("sandbox"), *jars.jar_files("kafka-client")]
        spark = ending.enter_context(open_spark_session.running_spark_session(files, warehouse=HOME / "lake"))
        # Only where blocks and shuffles lie; libraries are beside it.
        (blocks,) = (HOME / "local").rglob("blockmgr-*")
        disks = {"local": ending.enter_context(disk(blocks)), "tables": tables}
        cases = [(where, story) for where in options.only for story in CASES[where]]
        return report_results(
            (
                (f"{where}, {story.replace('_', ' ')}",
                 play(spark, broker, n, disks.get(where), story, "state" if where == SHUFFLES else "land"))
                for n, (where, story) in enumerate(cases)
            ),
            "shortages",
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
