"""A deployed job moves to a later line of Spark and back, again and again: ``python -m tests.faults.moves --engine glue``.

The shop is deployed as in :mod:`tests.faults.upgrade`, and records are sent all the while. ``millrace upgrade`` takes the job to
the later version of its engine and back on the same checkpoint and tables; before every other move its driver is killed with
SIGKILL, so that a batch which one line had planned is finished by the other. Each move must end healthy, on the line that the
version runs. At last the tables are held against the ledger. It ends with 1 where a move failed or a row is lost or doubled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from millrace.config.engines import SPARK
from millrace.config.engines.versions import line_of
from millrace.lifecycle.deploy import document_of
from millrace.lifecycle.state_machine import execute
from millrace.lifecycle.upgrade import UpgradeError
from millrace.sandbox.process import SandboxError
from tests.faults.project import ENVIRONMENT
from tests.faults.upgrade import JOB, Scene, compared, opened, under_load

VERSIONS = {"emr": ("emr-7.13.0", "emr-spark-8.0.0"), "glue": ("5.1", "6.0")}
FILE = "environments/shop.yaml"


def environment(engine: str) -> str:
    """The shop, whose first job names the engine and its earlier version."""
    return ENVIRONMENT.replace(
        "    engine: emr\n", f"    engine: {engine}\n    version: {VERSIONS[engine][0]!r}\n", 1
    )


def moved(scene: Scene, engine: str, times: int) -> Iterator[tuple[str, bool]]:
    """Move the job so often; what each move came to, and whether it is healthy on the line that it moved to."""
    assert scene.shop.sandbox.environment.jobs[JOB].engine == engine
    earlier, later = VERSIONS[engine]
    assemblies: dict[str, Path] = {
        later: scene.version(FILE, f"version: {earlier!r}", f"version: {later!r}"),
        earlier: scene.version(FILE, f"version: {later!r}", f"version: {earlier!r}"),
    }
    done = execute(scene.aws, JOB, "start", progress=scene.say)
    if not done.ok:
        raise SandboxError(f"not started: {done.message}")
    for number in range(1, times + 1):
        scene.shop.wait(scene.live, lambda: bool(scene.live.committed()), "a batch")
        killed = number % 2 == 0
        if killed:
            scene.live.process.kill()
        version = later if number % 2 else earlier
        begun = time.monotonic()
        try:
            well = scene.upgrade(assemblies[version])
        except UpgradeError as error:
            yield f"move {number} to {version}: {error}", False
            return
        runs = document_of(scene.aws.names, assemblies[version], JOB)["engine_version"]
        line = line_of(SPARK[version]).spark
        how = ", after a SIGKILL" if killed else ""
        took = time.monotonic() - begun
        yield (
            f"move {number} to {version}, Spark {line}{how}: healthy after {took:.0f} s",
            well and runs == version,
        )


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--engine", choices=tuple(VERSIONS), default="emr")
    made.add_argument("--times", type=int, default=20)
    made.add_argument("--seed", type=int, default=1)
    return made


def main() -> int:
    """Move, compare, print."""
    given = parser().parse_args()
    good = 0
    with opened(given.seed, environment(given.engine)) as scene:
        with under_load(scene):
            for line, well in moved(scene, given.engine, given.times):
                sys.stdout.write(f"{'ok' if well else 'NOT OK'}: {line}\n")
                sys.stdout.flush()
                good += well
        tables = compared(scene)
        status = int(good < given.times or not all(table.exact for table in tables))
        held = "; ".join(f"{table.what}: {table.wanted} rows wanted, {table}" for table in tables)
        sys.stdout.write(
            f"{given.engine}: {good} of {given.times} moves healthy, {scene.runs} runs; {held}\n"
        )
        execute(scene.aws, JOB, "stop", progress=scene.say)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
