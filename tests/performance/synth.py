"""Duration of a synthesis of ``prod``, compared with an empty Python CDK app.

``python -m tests.performance.synth --pairs 5``. Both are run as people run them, with
the ``cdk`` command in a process of its own, turn about and in changing order, so that
what else the machine does falls on both. The figures to trust are those of pairs, and
CPU seconds where the machine is busy.

The goal: at most 1.5 times the empty app's time plus 5 seconds.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.sandbox.programs.toolchain import ROOT, program_variables
from tests.performance.median_intervals import interval

FACTOR, EXTRA_SECONDS = 1.5, 5.0
EMPTY = """\
from aws_cdk import App, Stack

app = App()
Stack(app, "Empty")
app.synth()
"""


@dataclass(frozen=True)
class Took:
    """One synthesis, in seconds.

    Attributes
    ----------
    wall
        By the clock.
    cpu
        User and system time of ``cdk`` and all that it started.
    """

    wall: float
    cpu: float


def synthesise(folder: Path, app: str, context: Sequence[str] = ()) -> Took:
    """Run ``cdk synth`` in a folder and measure it.

    Raises
    ------
    subprocess.CalledProcessError
        It failed; what it said has been printed.
    """
    output = Path(tempfile.mkdtemp(dir=folder.parent if folder != ROOT else None))
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        ["cdk", "synth", "--quiet", "-a", app, *context, "-o", output],
        cwd=folder,
        env=program_variables(),
        capture_output=True,
        text=True,
        check=False,
    )
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    written = list(output.glob("*.template.json"))
    shutil.rmtree(output)
    if done.returncode or not written:
        sys.stderr.write(done.stdout + done.stderr)
        raise subprocess.CalledProcessError(done.returncode or 1, done.args)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(pairs: int, *, progress: Callable[[str], None]) -> tuple[list[Took], list[Took]]:
    """Measure both, after one run of each that fills the machine's caches.

    Returns
    -------
    tuple
        ``prod`` and the empty app, pair by pair.
    """
    found: dict[str, list[Took]] = {"prod": [], "empty": []}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "app"
        folder.mkdir()
        (folder / "empty.py").write_text(EMPTY)
        # Same settings of CDK, different app.
        shutil.copy(ROOT / "cdk.json", folder)
        runs: dict[str, Callable[[], Took]] = {
            "prod": lambda: synthesise(ROOT, f"{sys.executable} app.py", ("-c", "env=prod")),
            "empty": lambda: synthesise(folder, f"{sys.executable} empty.py"),
        }
        for number in range(pairs + 1):
            order = ["prod", "empty"] if number % 2 else ["empty", "prod"]
            for name in order:
                took = runs[name]()
                if number:
                    found[name].append(took)
                    progress(f"pair {number}/{pairs}: {name} {took.wall:.1f} s, {took.cpu:.1f} s CPU")
    return found["prod"], found["empty"]


def report(prod: Sequence[Took], empty: Sequence[Took], console: Console) -> bool:
    """Print medians and tell whether the goal is met by the clock, in the median of pairs."""
    shown = Table(title=f"cdk synth, {len(prod)} pairs, medians with 95 % bootstrap intervals")
    for heading in ("", "seconds", "CPU seconds"):
        shown.add_column(heading, justify="right" if heading else "left")
    room = {
        kind: interval(
            [
                FACTOR * getattr(e, kind) + EXTRA_SECONDS - getattr(p, kind)
                for p, e in zip(prod, empty, strict=True)
            ]
        )
        for kind in ("wall", "cpu")
    }
    for name, took in (("prod", prod), ("empty app", empty)):
        shown.add_row(name, str(interval([t.wall for t in took])), str(interval([t.cpu for t in took])))
    for name, kinds in (
        (
            "prod / empty",
            [[getattr(p, k) / getattr(e, k) for p, e in zip(prod, empty, strict=True)] for k in room],
        ),
        (
            "prod - empty",
            [[getattr(p, k) - getattr(e, k) for p, e in zip(prod, empty, strict=True)] for k in room],
        ),
    ):
        shown.add_row(name, *(str(interval(values)) for values in kinds))
    shown.add_row("room to the goal", *(str(found) for found in room.values()))
    console.print(shown)
    met = room["wall"].median >= 0
    console.print(
        f"goal: at most {FACTOR} x empty + {EXTRA_SECONDS:.0f} s: "
        f"{'met' if met else 'MISSED'} by {abs(room['wall'].median):.1f} s in the median of pairs"
    )
    return met


def main(arguments: Sequence[str]) -> int:
    """Measure and report; status 1 when the goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance.synth", description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="how many pairs are measured (5)")
    pairs = parser.parse_args(arguments).pairs
    if pairs < 2:
        parser.error("--pairs: at least 2, or there is no interval")
    console = Console()
    prod, empty = measure(pairs, progress=console.print)
    return 0 if report(prod, empty, console) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
