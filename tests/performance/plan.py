"""Duration of ``millrace plan`` and of a simulated day.

``python -m tests.performance.plan --rounds 5``. The goals, in seconds of CPU: the start under 1, ``plan`` of ``prod`` under 2, of 5 jobs under
1.5 (half a second beyond the start), of 10 and 100 under 2 and 3, of 1,000 streams in 300 jobs under 3, as a page or in 1,000 jobs under 10, a
simulated day of one job, each batch of it, under 5. Medians with 95 % bootstrap intervals.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.config import load
from millrace.sandbox.programs.toolchain import ROOT
from millrace.sizing import plan
from millrace.sizing.simulation import Arrivals, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, streams_of_job
from tests.performance.median_intervals import interval
from tests.performance.synth import Took

GOALS = {
    "start": 1.0,
    "plan prod": 2.0,
    "plan 15 streams, 5 jobs": 1.5,
    "plan 30 streams, 10 jobs": 2.0,
    "plan 300 streams, 100 jobs": 3.0,
    "plan 1,000 streams, 300 jobs": 3.0,
    "its page": 10.0,
    "plan 1,000 streams, 1,000 jobs": 10.0,
    "a day of departures": 5.0,
    "a day at 1 s": 5.0,
}


KINESIS = 100
"""Streams of an environment that are Kinesis's: their alarms are in one stack, which holds no more; topics have none of their own."""


def large(streams: int, jobs: int) -> str:
    """Write an environment of so many streams and jobs, several queries each."""
    lines = ["project: large", 'account: "111122223333"', "partition_buffer: 0.25"]
    lines += ["observability: {alarms: by-job}", "kafka: {main: {kind: msk, tier: express}}", "streams:"]  # noqa: RUF027 - YAML
    for number in range(streams):
        rate = 200 + 37 * (number % 50)
        kind = "kinesis" if number < KINESIS else "kafka, cluster: main"
        lines.append(
            f"  s{number}x: {{kind: {kind}, traffic: {{records_per_second: {rate}, peak_factor: 2, "
            "record_size: 400B, basis: measured}}"
        )
    lines.append("jobs:")
    for number in range(jobs):
        engine = "glue" if number % 2 else "emr"
        lines += [
            f"  j{number}x:",
            f"    engine: {engine}",
            "    rate: {records_per_second_per_core: 5000, basis: measured}",
            "    queries:",
        ]
        for stream in range(number, streams, jobs):
            lines.append(
                f"      land-{stream}: {{kind: land, source: s{stream}x, table: t{stream}, "
                "schema: pipelines/clicks/schemas/click.ddl}"
            )
        lines.append(
            f"      derive-{number}: {{kind: derive, source: t{number}, sink: {{kind: iceberg, table: d{number}}}}}"
        )
    return "\n".join(lines) + "\n"


def command(*arguments: str) -> Took:
    """Run the command line in a process of its own."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "millrace", *arguments], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    wall, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Took(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def here(run: Callable[[], object]) -> Took:
    """Measure something in this process."""
    started, cpu = time.monotonic(), time.process_time()
    run()
    return Took(time.monotonic() - started, time.process_time() - cpu)


def day(job: str, trigger: float | None = None) -> Callable[[], object]:
    """Return a day of a job of ``prod``, arriving by chance, its triggers shortened where asked."""
    environment = load("prod", root=ROOT)
    sized = plan(environment)
    arrivals = {}
    for name in streams_of_job(environment, job):
        traffic = environment.streams[name].traffic
        arrivals[name] = Arrivals.constant(traffic.records_per_second, 86_400.0).poisson(1)
    made = scenario_of_job(environment, sized, job, arrivals)
    if trigger is not None:
        made = replace(made, queries=tuple(replace(q, trigger=trigger, overhead=0.2) for q in made.queries))
    seeds = count()  # the simulator remembers what it has simulated
    return lambda: simulate(replace(made, seed=next(seeds)), each_batch=True)


def measure(rounds: int, progress: Callable[[str], None]) -> dict[str, list[Took]]:
    """Measure each so many times, in turn, after one round that fills caches."""
    found: dict[str, list[Took]] = {name: [] for name in GOALS}
    with tempfile.TemporaryDirectory() as folder:
        files = {jobs: Path(folder) / f"large-{jobs}.yaml" for jobs in (5, 10, 100, 300, 1000)}
        for jobs, file in files.items():
            file.write_text(large(1000 if jobs >= 300 else 3 * jobs, jobs), encoding="utf-8")
        sizes = {jobs: str(file) for jobs, file in files.items()}
        page = str(Path(folder) / "plan.html")
        runs: dict[str, Callable[[], Took]] = {
            "start": lambda: command("--version"),
            "plan prod": lambda: command("plan", "--env", "prod"),
            "plan 15 streams, 5 jobs": lambda: command("plan", "--env", sizes[5]),
            "plan 30 streams, 10 jobs": lambda: command("plan", "--env", sizes[10]),
            "plan 300 streams, 100 jobs": lambda: command("plan", "--env", sizes[100]),
            "plan 1,000 streams, 300 jobs": lambda: command("plan", "--env", sizes[300]),
            "its page": lambda: command("plan", "--env", sizes[300], "--html", page),
            "plan 1,000 streams, 1,000 jobs": lambda: command("plan", "--env", sizes[1000]),
            "a day of departures": partial(here, day("departures")),
            "a day at 1 s": partial(here, day("departures", 1.0)),
        }
        for number in range(rounds + 1):
            for what, run in runs.items():
                took = run()
                if number:
                    found[what].append(took)
                    progress(f"{number}/{rounds}: {what} {took.wall:.2f} s, {took.cpu:.2f} s CPU")
    return found


def main(arguments: Sequence[str]) -> int:
    """Measure and report; status 1 when a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance.plan", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    rounds = parser.parse_args(arguments).rounds
    if rounds < 2:
        parser.error("--rounds: at least 2, or there is no interval")
    console = Console()
    found = measure(rounds, console.print)
    table = Table(title=f"{rounds} rounds, medians with 95 % bootstrap intervals")
    for heading in ("", "seconds", "CPU seconds", "goal"):
        table.add_column(heading, justify="right" if heading else "left")
    met = True
    for name, took in found.items():
        cpu = interval([each.cpu for each in took])
        met &= cpu.median <= GOALS[name]
        verdict = f"{GOALS[name]:g} s, {'met' if cpu.median <= GOALS[name] else 'MISSED'}"
        table.add_row(name, str(interval([each.wall for each in took])), str(cpu), verdict)
    console.print(table)
    return 0 if met else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
