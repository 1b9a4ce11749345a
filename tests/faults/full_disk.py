"""Disks that are full: ``python -m tests.faults.full_disk``, as root, since it mounts small file systems.

A job lands a topic. The checkpoints, Spark's local directory or the tables lie on a file system in memory that is filled while
the job runs, or before it starts. The job must end by itself with status 1 (2 where it did not start) and one message that says
that there is no space; or, with retries, outlast the shortage. Once there is space again, the next run must go on, and the
table hold what the ledger says.
"""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.sandbox.process import RUN, Process, only_one
from millrace.sandbox.producer import KafkaProducer
from tests.faults.feed import Feed
from tests.faults.kafka import KafkaStage
from tests.faults.stage import Stage, StalledError

HOME = RUN / "faults-full-disk"
SIZE_MIB = 24
NO_SPACE = "No space left on device"
FILLER = "filler"
PATIENCE_SECONDS = 120.0


class NotAllowedError(RuntimeError):
    """File systems cannot be mounted here."""


@dataclass
class Disk:
    """A small file system in memory."""

    place: Path

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
        (self.place / FILLER).unlink()


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
        # Lazily: a run that was killed may not have closed its files yet.
        subprocess.run(["umount", "-l", str(place)], check=True)


@dataclass
class SmallStage(KafkaStage):
    """A topic and a job whose local directory can be filled.

    Attributes
    ----------
    retries
        Of a batch that fails.
    """

    retries: int = 0

    def create_stream(self, shards: int) -> None:
        """Make the topic, and send to it."""
        super().create_stream(shards)
        self.feed = Feed(KafkaProducer(self._broker.bootstrap, self.stream), self.choose)

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        found = super()._job_settings(schema)
        found["batch_retries"] = self.retries
        # Shuffled, so that there is something in the local directory.
        found["queries"][0]["repartition"] = 3
        return found

    def _spark_settings(self) -> dict[str, str]:
        return {**super()._spark_settings(), "spark.local.dir": str(self.home / "local")}


Case = Callable[[SmallStage, Disk, int], str]


def while_running(stage: SmallStage, small: Disk, records: int) -> str:
    """Fill it under a running job."""
    stage.feed.backlog(records // 4)
    stage.start()
    stage.until_complete()
    small.fill()
    stage.feed.backlog(records // 4)
    said = _ends(stage)
    small.free()
    _goes_on(stage, records)
    return said


def before_the_start(stage: SmallStage, small: Disk, records: int) -> str:
    """Fill it while the job is stopped."""
    stage.feed.backlog(records // 4)
    stage.start()
    stage.until_complete()
    stage.job.stop(60)
    small.fill()
    stage.feed.backlog(records // 4)
    stage.start()
    said = _ends(stage)
    small.free()
    _goes_on(stage, records)
    return said


def before_the_first(stage: SmallStage, small: Disk, records: int) -> str:
    """Fill it before the job has ever run."""
    small.fill()
    stage.feed.backlog(records // 2)
    stage.start()
    said = _ends(stage)
    small.free()
    _goes_on(stage, records)
    return said


def outlasted(stage: SmallStage, small: Disk, records: int) -> str:
    """With retries the same run goes on when there is space again."""
    stage.retries = 6
    stage.feed.backlog(records // 4)
    stage.start()
    stage.until_complete()
    small.fill()
    stage.feed.backlog(records // 4)
    retried = lambda: [e for e in stage.reported() if e["event"] == "retrying"]  # noqa: E731
    stage.until(lambda: bool(retried()), PATIENCE_SECONDS, "a retry")
    small.free()
    stage.feed.backlog(records - stage.feed.sent)
    stage.until_complete()
    if len(stage.runs) != 1 or NO_SPACE not in retried()[0]["error"]:
        raise StalledError(f"it was another error: {retried()[0]['error']}")
    return f"retried {len(retried())} times in the same run"


CASES: Mapping[str, tuple[str, Case]] = {
    "checkpoints, running": ("checkpoints", while_running),
    "checkpoints, before a start": ("checkpoints", before_the_start),
    "checkpoints, before the first start": ("checkpoints", before_the_first),
    "checkpoints, outlasted": ("checkpoints", outlasted),
    "local directory, running": ("local", while_running),
    "local directory, outlasted": ("local", outlasted),
    "tables, running": ("lake", while_running),
    "tables, outlasted": ("lake", outlasted),
}


def _ends(stage: Stage) -> str:
    """Wait for the job to end by itself; what it said, which must be one message about the space."""
    run = stage.job
    deadline = time.monotonic() + PATIENCE_SECONDS
    while run.alive:
        if time.monotonic() > deadline:
            raise StalledError(f"the job did not end by itself in {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.1)
    return _said(stage, run)


def _said(stage: Stage, run: Process) -> str:
    text = run.log.read_text(errors="replace")
    failures = [e["error"] for e in stage.reported() if e["event"] == "failed"]
    refusals = [line for line in text.splitlines() if line.startswith("error: ")]
    status = run.popen.returncode
    if "Traceback (most recent call last)" in text:
        raise StalledError(f"it ended with {status} and a traceback:\n{run.tail(25)}")
    told = failures + refusals
    if len(told) != 1 or NO_SPACE not in told[0] or status != (1 if failures else 2):
        raise StalledError(f"it ended with {status}, and said: {told}\n{run.tail(25)}")
    return f"status {status}: {told[0].splitlines()[-1]}"


def _goes_on(stage: Stage, records: int) -> None:
    stage.start()
    stage.feed.backlog(records - stage.feed.sent)
    stage.until_complete()


def play(name: str, seed: int, records: int) -> tuple[bool, str]:
    """Play one case; whether all held, and what it came to."""
    where, case = CASES[name]
    home = HOME / name.replace(", ", "-").replace(" ", "-")
    # No stream: the topic stands in its place.
    kinesis: Any = _NoKinesis()
    choose = random.Random(seed)  # noqa: S311 - repeatable on purpose
    stage = SmallStage(kinesis, home, f"full-{where}-{seed}", choose)
    begun, stalled, said = time.monotonic(), "", ""
    with disk(home / where) as small:
        stage.create_stream(0)
        try:
            said = case(stage, small, records)
            for run in stage.runs:
                run.kill()
            found = stage.account()
        except StalledError as error:
            stalled = str(error)
            found = stage.account()
        finally:
            stage.close()
    wrong = f"{found.lost} lost, {found.duplicated} twice, {found.unknown + found.misjudged + found.altered} others"
    figures = f"{found.produced} records: {wrong}; {time.monotonic() - begun:.0f} s"
    return found.exact and not stalled, f"{name}: {stalled or said} | {figures}"


class _NoKinesis:
    """What a stage of a topic asks a Kinesis for: nothing."""

    endpoint = ""

    def client(self) -> None:
        """No client."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.full_disk", description="Disks that are full."
    )
    reading.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    reading.add_argument("--records", type=int, default=2000)
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main() -> int:
    """Fill, free, compare, print a line for each."""
    given = parser().parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    missed = []
    with only_one():
        for name in given.only:
            held, line = play(name, given.seed, given.records)
            missed += [] if held else [name]
            sys.stdout.write(f"{'ok' if held else 'NOT OK'}: {line}\n")
            sys.stdout.flush()
    sys.stdout.write(
        f"{len(given.only) - len(missed)} of {len(given.only)} shortages told or outlasted, and every table exact"
        f"{'; missed: ' + '; '.join(missed) if missed else ''}\n"
    )
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
