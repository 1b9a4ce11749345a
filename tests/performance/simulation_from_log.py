"""Simulation of a job from its log, compared with real Spark runs under other conditions.

``python -m tests.performance.simulation_from_log``: a query on a rate that rises, on Spark itself. The first run is the log that the twin
has; each other run changes one thing. What was foretold from the first is printed beside what happened.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from millrace.advisor.forecasts.forecast_figures import FIGURES
from millrace.advisor.forecasts.forecast_scores import expected_interval_of_next_log, observed_figures
from millrace.advisor.forecasts.what_if import ApplicationTwin, parse_what_if_changes, twin_of_application
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.toolchain import java_home
from tests.unit.advisor.event_logs_with_known_costs import Truth, history

HOME = RUN / "twin"
QUERY = "hashed"
HASHES = 150
"""Of each record, one upon the other: work for a core and nothing else."""


@dataclass(frozen=True)
class Conditions:
    """Of one run."""

    cores: int = 1
    partitions: int = 4
    trigger: int = 3
    rate: int = 4000


TRAINING = Conditions()
OTHERS = {
    "as it ran": TRAINING,
    "cores=2": replace(TRAINING, cores=2),
    "trigger=6s": replace(TRAINING, trigger=6),
    "partitions=8": replace(TRAINING, partitions=8),
    "traffic=0.5": replace(TRAINING, rate=TRAINING.rate // 2),
    "cores=2,traffic=1.5": replace(TRAINING, cores=2, rate=TRAINING.rate * 3 // 2),
}


def parser() -> argparse.ArgumentParser:
    """Return the command line's."""
    made = argparse.ArgumentParser(
        prog="python -m tests.performance.simulation_from_log", description=__doc__
    )
    made.add_argument("--seconds", type=int, default=100, help="of each run")
    made.add_argument("--only", nargs="+", choices=OTHERS, default=list(OTHERS), help="these conditions")
    made.add_argument(
        "--made", type=int, metavar="N", help="no Spark: N made logs whose costs are known, and coverage"
    )
    made.add_argument("--job", help=argparse.SUPPRESS)
    return made


def job(text: str, seconds: int) -> None:
    """Run the query, in a process of its own."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    cores, partitions, trigger, rate = map(int, text.split(","))
    logs = HOME / text.replace(",", "-")
    session = (
        SparkSession.builder.master(f"local[{cores}]")
        .config("spark.eventLog.enabled", "true")
        .config("spark.eventLog.dir", logs.as_uri())
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    hashed = f"aggregate(sequence(1, {HASHES}), cast(value as string), (a, x) -> sha2(a, 256))"

    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("noop").mode("overwrite").save()

    query = (
        session.readStream.format("rate")
        .option("rowsPerSecond", rate)
        .option("rampUpTime", f"{seconds}s")  # batches of many sizes, so that κ and b can be told apart
        .option("numPartitions", partitions)
        .load()
        .select(F.expr(hashed).alias("hash"))
        .writeStream.queryName(QUERY)
        .option("checkpointLocation", (logs / "checkpoint").as_uri())
        .trigger(processingTime=f"{trigger} seconds")
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination(seconds)
    query.stop()
    session.stop()


def played(conditions: Conditions, seconds: int) -> ApplicationTwin:
    """Make one run and return what its log shows."""
    text = f"{conditions.cores},{conditions.partitions},{conditions.trigger},{conditions.rate}"
    logs = HOME / text.replace(",", "-")
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir(parents=True)
    subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.performance.simulation_from_log",
            "--seconds",
            str(seconds),
            "--job",
            text,
        ],
        env={**os.environ, "JAVA_HOME": str(java_home()), "PYSPARK_PYTHON": sys.executable},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=(logs / "output").open("wb"),
        check=True,
    )
    log = next(each for each in find_event_logs(str(logs)) if "local-" in each.name)
    found = twin_of_application(read_history(log))
    assert QUERY in found.queries, found.notes
    return found


def covered(number: int) -> None:
    """Print how many 95 % intervals hold what happens in a next run whose costs are the same and known."""
    sys.stdout.write("| what if | of | missed by, median | inside |\n|---|---|---|---|\n")
    for text, then in (
        ("", {}),
        ("cores=4", {"cores": 4}),
        ("trigger=20s", {"trigger": 20.0}),
        ("traffic=1.5", {"rate": 1500.0}),
        ("partitions=16", {"partitions": 16}),
    ):
        missed: dict[str, list[float]] = {key: [] for key in FIGURES}
        inside: dict[str, list[bool]] = {key: [] for key in FIGURES}
        for seed in range(number):
            truth = Truth(swing=0.4, seconds=600.0, seed=seed)
            twin = twin_of_application(history([truth]))
            changes = parse_what_if_changes(text, [truth.name]) if text else ()
            told = twin.forecast_what_if(changes).queries[truth.name].figures
            real = observed_figures(
                twin_of_application(history([replace(truth, **then, seed=seed + 10_000)])).queries[truth.name]
            )
            for key in FIGURES:
                missed[key].append(abs(told[key].value - real[key]) / real[key])
                wide = expected_interval_of_next_log(told[key])
                inside[key].append(wide.low <= real[key] <= wide.high)
        for key, words in FIGURES.items():
            sys.stdout.write(
                f"| {text or 'as it ran'} | {words} | {median(missed[key]):.1%} | {sum(inside[key])} of {number} |\n"
            )
        sys.stdout.flush()


def main() -> int:
    """Print the table."""
    asked = parser().parse_args()
    if asked.job:
        job(asked.job, asked.seconds)
        return 0
    if asked.made:
        covered(asked.made)
        return 0
    twin = played(TRAINING, asked.seconds)
    before = twin.forecast_what_if(())
    sys.stdout.write(
        f"the twin's replay misses the median duration by {twin.relative_duration_errors(before)[QUERY]:.1%}\n"
    )
    sys.stdout.write(
        "| what if | of | foretold, s | happened, s | missed by | inside |\n|---|---|---|---|---|---|\n"
    )
    for text in asked.only:
        conditions = OTHERS[text]
        foretold = (
            before if text == "as it ran" else twin.forecast_what_if(parse_what_if_changes(text, [QUERY]))
        )
        happened = observed_figures(played(conditions, asked.seconds).queries[QUERY])
        for key, words in FIGURES.items():
            told, then = expected_interval_of_next_log(foretold.queries[QUERY].figures[key]), happened[key]
            inside = "yes" if told.low <= then <= told.high else "no"
            sys.stdout.write(
                f"| {text} | {words} | {told.value:.2f} [{told.low:.2f}, {told.high:.2f}] | {then:.2f} | "
                f"{abs(told.value - then) / then:.0%} | {inside} |\n"
            )
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
