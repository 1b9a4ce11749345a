"""Fault test of moves: a job to another Spark line and back, a query to a job on another engine.

.. code-block:: console

   python -m tests.faults.moves_between_engines --engine glue
   python -m tests.faults.moves_between_engines --engine any

The shop is deployed as in :mod:`tests.faults.upgrade_under_load`, and records are sent all the while. ``millrace upgrade`` takes the job to
the later version of its engine and back on the same checkpoint and tables; before every other move its driver is killed with
SIGKILL, so that a batch which one line had planned is finished by the other. Each move must end healthy, on the line that the
version runs. At last the tables are held against the ledger. It ends with 1 where a move failed or a row is lost or doubled.

With ``--engine any`` the query is in one of three jobs, each in a file of its own, as no two queries write one table: on Glue 6.0,
on EMR Serverless with Spark 3.5 and with Spark 4.0, each with its engine's Spark settings. The job that has it is stopped,
``millrace checkpoint move`` carries the checkpoint, and another of the three, chosen at random, starts and must commit a batch.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import yaml

from millrace.config import Names, load
from millrace.config.engines.versions import version_row
from millrace.etl.launch.lease_record import LIVE_SECONDS
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.deploy import launch_document_in_assembly
from millrace.lifecycle.jobs.state_machine import Verb, execute_verb
from millrace.lifecycle.upgrade_or_rollback_job import UpgradeError, read_deployed_version
from millrace.sandbox.operate_running_sandbox import save_endpoints
from millrace.sandbox.programs.child_processes import SandboxError
from tests.faults.batch_commits import commit_times
from tests.faults.shop_project import ENVIRONMENT, millrace, synthesise
from tests.faults.upgrade_under_load import HOME, JOB, Scene, compared, opened, under_load

VERSIONS = {"emr": ("emr-7.13.0", "emr-spark-8.0.0"), "glue": ("5.1", "6.0")}
ANY = "any"
QUERY = "tax"
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
    done = execute_verb(scene.aws, JOB, "start", progress=scene.say)
    if not done.ok:
        raise SandboxError(f"not started: {done.message}")
    for number in range(1, times + 1):
        scene.shop.wait(scene.live, lambda: bool(commit_times(scene.live)), "a batch")
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
        runs = launch_document_in_assembly(scene.aws.names, assemblies[version], JOB)["engine_version"]
        line = version_row(version).spark_line.spark
        how = ", after a SIGKILL" if killed else ""
        took = time.monotonic() - begun
        yield (
            f"move {number} to {version}, Spark {line}{how}: healthy after {took:.0f} s",
            well and runs == version,
        )


PLACES = {
    "on-glue": ("glue", "6.0"),
    "on-emr": ("emr", "emr-7.13.0"),
    "on-emr-spark": ("emr", "emr-spark-8.0.0"),
}
"""Engine and version of the jobs among which a query moves."""


def one_job(job: str) -> str:
    """The shop's environment with one job, which has the query."""
    engine, version = PLACES[job]
    shop = yaml.safe_load(ENVIRONMENT)
    shop["jobs"] = {job: {**shop["jobs"][JOB], "engine": engine, "version": version}}
    return yaml.safe_dump(shop, sort_keys=False)


def carried(scene: Scene, times: int) -> Iterator[tuple[str, bool]]:
    """Move the query so often by its checkpoint; what each move came to, and whether it goes on from where it was."""
    here, choose = next(iter(PLACES)), scene.shop.choose
    file = scene.project / FILE
    places: dict[str, DeployedEnvironment] = {}
    for job in (*list(PLACES)[1:], here):
        file.write_text(one_job(job))
        environment = load("shop", root=scene.project)
        places[job] = DeployedEnvironment(Names(environment, scene.aws.names.account), scene.stack.client)
        assembly = HOME / f"of-{job}"
        synthesise(scene.project, assembly)
        scene.cdk_deploy(assembly, places[job].names.stack(f"job-{job}"))
    scene.engines.glue_document = lambda _: read_deployed_version(places["on-glue"], "on-glue").document_url
    save_endpoints(scene.shop.sandbox)
    ran(places, here, "start", scene)
    for number in range(1, times + 1):
        scene.shop.wait(scene.live, lambda: bool(commit_times(scene.live)), "a batch")
        there = choose.choice([job for job in PLACES if job != here])
        last = max(event["batch"] for event in scene.live.events() if event["event"] == "batch")
        killed = number % 2 == 0
        begun = time.monotonic()
        if killed:
            scene.live.process.kill()
        ran(places, here, "stop", scene)
        file.write_text(one_job(there))
        taken(scene.project, here, there)
        ran(places, there, "start", scene)
        scene.shop.wait(scene.live, lambda: bool(commit_times(scene.live)), "a batch")
        first = min(event["batch"] for event in scene.live.events() if event["event"] == "batch")
        how = ", after a SIGKILL" if killed else ""
        took = time.monotonic() - begun
        yield (
            f"move {number} from {here} to {there}{how}: a batch after {took:.0f} s, {first} after {last}",
            first >= last,
        )
        here = there


def taken(project: Path, here: str, there: str) -> None:
    """Move the checkpoint as a person does, who waits until the lease of a run that was killed has ended."""
    until = time.monotonic() + LIVE_SECONDS + 15
    while True:
        try:
            millrace(project, "checkpoint", "move", here, QUERY, f"{there}/{QUERY}", "--env", "shop")
            return
        except SandboxError as error:
            if "is writing the checkpoints of" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(2)


def ran(places: Mapping[str, DeployedEnvironment], job: str, verb: Verb, scene: Scene) -> None:
    """Start or stop a job by its machine."""
    done = execute_verb(places[job], job, verb, progress=scene.say)
    if not done.ok:
        raise SandboxError(f"{verb} {job}: {done.message}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--engine", choices=(*VERSIONS, ANY), default="emr")
    made.add_argument("--times", type=int, default=20)
    made.add_argument("--seed", type=int, default=1)
    return made


def main() -> int:
    """Move, compare, print."""
    options = parser().parse_args()
    good = 0
    text = ENVIRONMENT if options.engine == ANY else environment(options.engine)
    with opened(options.seed, text) as scene:
        moves = (
            carried(scene, options.times)
            if options.engine == ANY
            else moved(scene, options.engine, options.times)
        )
        with under_load(scene):
            for line, well in moves:
                sys.stdout.write(f"{'ok' if well else 'NOT OK'}: {line}\n")
                sys.stdout.flush()
                good += well
        tables = compared(scene)
        status = int(good < options.times or not all(table.exact for table in tables))
        held = "; ".join(f"{table.what}: {table.wanted} rows wanted, {table}" for table in tables)
        sys.stdout.write(
            f"{options.engine}: {good} of {options.times} moves healthy, {scene.runs} runs; {held}\n"
        )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
