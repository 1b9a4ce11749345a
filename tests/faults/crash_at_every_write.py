"""Crash a job at every write of a batch: ``python -m tests.faults.crash_at_every_write --kind land-kafka``.

A batch's every mutation outside its process is numbered: writes to S3 (checkpoints, data, metadata), and statements of PostgreSQL
that change something (the catalog's commits, the rows of a sink). Proxies stand before both. At each number, in a batch of its
own, a real driver is killed with SIGKILL before the mutation takes effect, or after it did, or the answer is lost and the driver
lives on, or it is killed before it and the driver that recovers is killed before the same number of its own. It starts again, or
tries again; at the end of each point all tables are held against the ledger of what was sent.
A point counts when it was met: the numbers go up until a batch has no more mutations than that.

What each point came to is kept and not run again with the same core; ``--fresh`` forgets it. Ends with 1 where a record is lost or doubled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path

from millrace.sandbox.programs.child_processes import RUN, wait_until
from millrace.sandbox.programs.toolchain import ROOT
from tests.faults.crashed_job import KINDS, PATIENCE_SECONDS, Crashed, Servers, servers
from tests.faults.numbered_writes import MODES, Mode

HOME = RUN / "faults-crash-points"


@dataclass(frozen=True)
class PointResult:
    """What one point came to.

    Attributes
    ----------
    label
        The mutation; empty where a batch had none of that number, which ends the count.
    starts
        Of drivers, after the one that met it.
    """

    kind: str
    mode: Mode
    number: int
    label: str
    starts: int = 0
    wrong: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    said: str = ""

    @property
    def held(self) -> bool:
        """Whether everything is there once."""
        return not self.wrong and not self.said


def meet(job: Crashed, kind: str, mode: Mode, number: int) -> PointResult:
    """Let a batch meet one point, and hold the tables against the ledger."""
    begun, points = time.monotonic(), job.servers.points
    said, label, before = "", "", len(job.runs)
    try:
        job.begin(mode, number)
        before = len(job.runs)
        label = _met(job, mode)
        if label and mode == "twice":
            points.arm(mode, number, job.kill)
            job.start()
            label += ", met again" if _met(job, mode) else ", not met again"
        if not job.job.is_alive:
            if job.kind.stream:
                job.send()  # a stream's batch that comes again holds what has come since as well
            job.start()
        job.settle()
    except RuntimeError as error:
        label, said = label or (points.labels[-1] if points.labels else "?"), str(error)
    finally:
        points.disarm()
    starts, wrong = len(job.runs) - before, dict(job.wrong())
    return PointResult(kind, mode, number, label, starts, wrong, round(time.monotonic() - begun, 1), said)


def _met(job: Crashed, mode: Mode) -> str:
    """Wait until the point is met, and give what it is; empty where the job came to its end before."""
    points = job.servers.points

    def over() -> bool:
        if points.fired.is_set():
            return True
        if mode == "lost" and not job.job.is_alive:
            job.start()
        return job.settled()

    wait_until(over, seconds=PATIENCE_SECONDS, what=f"met, nor at its end: {job.job.log}")
    points.disarm()
    return points.labels[-1] if points.fired.is_set() else ""


def played(
    given: Servers, home: Path, kind: str, mode: Mode, numbers: Iterable[int], classes: Path | None = None
) -> Iterator[PointResult]:
    """Meet points one after the other, each in the next batch of the same job, until a batch has no more of them."""
    name = f"{kind}-{mode}-{int(time.time())}".replace("-", "_")
    job = Crashed(given, KINDS[kind], name, home / name, classes)
    try:
        job.send()
        job.start()
        job.settle()
        if classes is not None and not classes.exists():
            job.job.stop(grace_seconds=PATIENCE_SECONDS)
            job.start()
            job.settle()
        for number in numbers:
            outcome = meet(job, kind, mode, number)
            yield outcome
            if outcome.said or not outcome.label:
                return
    finally:
        job.end()


def version() -> str:
    """Of the core: what another one came to says nothing of this one."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "etl").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def kept(file: Path) -> list[PointResult]:
    """Read what was played before."""
    return (
        [PointResult(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
    )


def figures(kind: str, done: Sequence[PointResult]) -> str:
    """Say what the points of a kind came to, in a line."""
    met = [one for one in done if one.kind == kind and (one.label or not one.held)]
    ended = {one.mode for one in done if one.kind == kind and not one.label}
    counts = [
        f"{sum(one.mode == mode for one in met)}{'' if mode in ended else ' (not all)'}" for mode in MODES
    ]
    wrong = [sum(one.wrong.get(what, 0) for one in met) for what in ("lost", "doubled")]
    others = sum(sum(one.wrong.values()) for one in met) - sum(wrong)
    stuck = sum(bool(one.said) for one in met)
    return (
        f"{kind}: killed before {counts[0]} and after {counts[1]} mutations of a batch, answers to {counts[2]} lost, "
        f"killed twice at {counts[3]}: "
        f"{sum(one.held for one in met)} of {len(met)} exact, "
        f"{wrong[0]} lost, {wrong[1]} doubled, {others} others, {stuck} stuck; "
        f"{sum(one.seconds for one in done if one.kind == kind) / 60:.0f} minutes in all"
    )


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.crash_at_every_write",
        description="Every write of a batch a crash point.",
    )
    reading.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS), metavar="KIND")
    reading.add_argument("--mode", nargs="+", choices=MODES, default=list(MODES), metavar="MODE")
    reading.add_argument("--minutes", type=float, default=float("inf"), help="no point begins later")
    reading.add_argument("--points", action="store_true", help="print a line for each mutation")
    reading.add_argument("--fresh", action="store_true", help="forget what was played before")
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Meet what is left, and tell of all."""
    options = parser().parse_args(arguments)
    HOME.mkdir(parents=True, exist_ok=True)
    file = HOME / f"outcomes-{version()}.jsonl"
    if options.fresh:
        file.unlink(missing_ok=True)
    done = kept(file)
    until = time.monotonic() + options.minutes * 60
    left = [
        (kind, mode)
        for kind in options.kind
        for mode in options.mode
        if not any((one.kind, one.mode, one.label) == (kind, mode, "") for one in done)
    ]
    if left:
        with servers() as running:
            for kind, mode in left:
                first = 1 + max((o.number for o in done if (o.kind, o.mode) == (kind, mode)), default=0)
                for outcome in played(running, HOME, kind, mode, count(first), HOME / "classes.jsa"):
                    done.append(outcome)
                    with file.open("a") as lines:
                        lines.write(json.dumps(asdict(outcome)) + "\n")
                    sys.stdout.write(f"{outcome}\n")
                    sys.stdout.flush()
                    if time.monotonic() > until:
                        break
    chosen = [one for one in done if one.kind in options.kind]
    if options.points:
        for one in filter(lambda one: one.label, chosen):
            sys.stdout.write(
                f"{one.kind} {one.mode} {one.number} {one.label}: {one.wrong or one.said or 'exact'}\n"
            )
    for kind in options.kind:
        sys.stdout.write(f"{figures(kind, done)}\n")
    return int(not all(one.held for one in chosen))


if __name__ == "__main__":
    raise SystemExit(main())
