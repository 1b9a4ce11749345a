"""Growth of a batch's time beyond that of a plain Spark append of the same rows, as one thing grows and all else stays.

``python -m tests.performance.batch_time_growth``. The core's handlers are built from job settings as on any engine, and called with
batches as ``foreachBatch`` hands them over; what Spark's offset log says of them is written beforehand. Tables of many rows or
files are files that only Iceberg's metadata know, where no batch should open them, and real rows otherwise. Sizes take turns in
one session; the figures to trust are ratios of a round.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession
from rich.console import Console

from millrace.sandbox.programs.child_processes import RUN
from tests.performance import kafka_landing_speed
from tests.performance.batch_time_parts import NAMES, Parts, timed
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.growth_all_cases import CASES
from tests.performance.growth_cases_of_sources import Case
from tests.performance.growth_session import Bench
from tests.performance.median_intervals import interval

HOME = RUN / "bench-growth"
WANTED = 1.2
"""Most that the largest size may take, in times of the smallest."""

WARM_UP = 2


@dataclass(frozen=True)
class Outcome:
    """A batch, by the core and by hand."""

    ours: Parts
    plain: Parts


def measured(spark: SparkSession, case: Case, number: int) -> Outcome:
    """Write the next batch both ways, in another order in each round."""
    step = case.batch()
    plain = timed(spark, step.plain) if number % 2 else None
    ours = timed(spark, step.ours)
    if bool(step.added()) is case.replayed:
        raise RuntimeError(f"{step.added():,} rows were added")  # then something else was measured
    return Outcome(ours, plain or timed(spark, step.plain))


def first_line(error: Exception) -> str:
    """What went wrong, shortly: of an error of the JVM its innermost cause."""
    text = str(error)
    lines = [line.removeprefix("Caused by: ") for line in text.splitlines() if line.startswith("Caused by: ")]
    meaning = [
        line for line in text.splitlines() if line.strip() and not line.startswith("An error occurred")
    ]
    return f"{type(error).__name__}: {(lines[-1:] or meaning[:1] or [''])[0][:110]}"


def run(bench: Bench, kind: type[Case], rounds: int) -> tuple[dict[int, list[Outcome]], dict[int, str]]:
    """Measure a case in all its sizes; a size that fails is left out from there on.

    Returns
    -------
    tuple
        Outcomes of the rounds, and the error of each size that failed.
    """
    sizes = kind.measured(bench.largest)
    found: dict[int, list[Outcome]] = {}
    failed: dict[int, str] = {}
    ready: dict[int, Case] = {}

    def attempt(size: int, what: Callable[[], None]) -> None:
        try:
            what()
        except Exception as error:
            failed[size] = first_line(error)
            found.pop(size, None)

    for size in sizes:
        case = kind(bench, size)  # type: ignore[call-arg]
        ready[size] = case
        attempt(size, case.prepare)
    for number in range(rounds + WARM_UP):
        for size in in_turn(sizes, number):
            if size in failed:
                continue

            def once(size: int = size, number: int = number) -> None:
                outcome = measured(bench.spark, ready[size], number)
                if number >= WARM_UP:
                    found.setdefault(size, []).append(outcome)

            attempt(size, once)
    return found, failed


def report(
    console: Console,
    kind: type[Case],
    found: dict[int, list[Outcome]],
    failed: dict[int, str],
    tasks: float | None,
) -> None:
    """Print seconds by size, and how they grow."""
    console.print(f"\n{kind.name}: {kind.unit}; beside {kind.beside}")
    parts_named = " ".join(f"{n:>9}" for n in NAMES)
    console.print(f"  {'size':>11}  {'batch, s':20} {'ratio':20} {'beyond':>7} {parts_named}")
    for size, outcomes in sorted(found.items()):
        seconds = interval([o.ours.whole for o in outcomes])
        ratio = interval([o.ours.whole / o.plain.whole for o in outcomes])
        beyond = interval([o.ours.whole - o.plain.whole for o in outcomes]).median
        parts = [interval([getattr(o.ours, n) - getattr(o.plain, n) for o in outcomes]).median for n in NAMES]
        told = " ".join(f"{part:9.2f}" for part in parts)
        both = " ".join(f"{'{:.2f} [{:.2f}, {:.2f}]'.format(*each):20}" for each in (seconds, ratio))
        console.print(f"  {size:11,}  {both} {beyond:7.2f} {told}")
    for size, error in sorted(failed.items()):
        console.print(f"  {size:11,}  failed: {error}")
    console.print(f"  {growth_of(found, failed, tasks)}")


def tasks_of_nothing(spark: SparkSession, count: int) -> float:
    """Median seconds of so many tasks that do nothing, none of them in Python."""
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        spark.range(0, count, 1, count).where("id < 0").write.format("noop").mode("overwrite").save()
        seconds.append(time.monotonic() - begun)
    return interval(seconds).median


def growth_of(found: dict[int, list[Outcome]], failed: dict[int, str], tasks: float | None) -> str:
    """Say how many times as long as the smallest size the largest takes that ran.

    Parameters
    ----------
    found, failed
        As of :func:`run`.
    tasks
        Seconds that the largest size may take more, where its source has as many tasks; None where it has none.
    """
    if len(found) < 2:
        return "no growth without two sizes"
    least, most = min(found), max(found)
    pairs = list(zip(found[least], found[most], strict=True))
    median, low, high = interval([big.ours.whole / small.ours.whole for small, big in pairs])
    verdict = "MISSED, a size failed:" if failed else "within" if median <= WANTED else "MISSED:"
    said = (
        f"{most:,} against {least:,}: {median:.2f} [{low:.2f}, {high:.2f}] times, {verdict} {WANTED} wanted"
    )
    if tasks is None:
        return said
    more = interval([big.ours.whole - small.ours.whole for small, big in pairs]).median
    less = "within" if more <= tasks else "MISSED:"
    return f"{said}; {more:.2f} s more, {less} the {tasks:.2f} s of as many tasks that do nothing"


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    reading = argparse.ArgumentParser(
        prog="tests.performance.batch_time_growth", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--only", nargs="+", choices=[kind.name for kind in CASES], metavar="CASE")
    reading.add_argument("--rounds", type=kafka_landing_speed.pairs, default=5, help="measured rounds")
    reading.add_argument("--largest", type=int, help="leave larger sizes out, but for the smallest of a case")
    reading.add_argument("--rows", type=int, default=10_000, help="of a batch")
    reading.add_argument("--list", action="store_true", help="name the cases")
    return reading


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    console = Console(width=140, highlight=False)
    if given.list:
        for kind in CASES:
            console.print(f"{kind.name}: {', '.join(f'{s:,}' for s in kind.sizes)} {kind.unit}")
        return 0
    # The connector of a stream that is not started wants keys for a server that is not there.
    os.environ |= {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none"}
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    begun = time.monotonic()
    with spark_session(2, home=HOME) as spark:
        spark.sparkContext.setLogLevel("OFF")
        # Spark does so in every micro-batch before 4.1.
        spark.conf.set("spark.sql.adaptive.enabled", "false")
        console.print(
            f"batches of {given.rows:,} rows, {given.rounds} rounds: medians [95 % interval]; ratio to the same by hand;"
        )
        console.print("beyond, and its parts: seconds more than by hand")
        for kind in CASES:
            if given.only and kind.name not in given.only:
                continue
            home = HOME / kind.name.replace(" ", "-").replace(",", "")
            home.mkdir()
            found, failed = run(Bench(spark, home, given.rows, given.largest), kind, given.rounds)
            tasks = tasks_of_nothing(spark, max(found)) if kind.a_task_each and found else None
            report(console, kind, found, failed, tasks)
            shutil.rmtree(HOME / "lake", ignore_errors=True)
    console.print(f"\n{(time.monotonic() - begun) / 60:.0f} minutes")
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
