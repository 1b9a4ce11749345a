"""Fault test of upgrades under load, one of which fails: ``python -m tests.faults.upgrade_under_load``.

The shop is deployed on LocalStack by CDK; its state machines run there. The EMR Serverless that they call is the tests' own
(``tests/integration/lifecycle/simulated_engines.py``), whose runs here are real ones: local Spark, from the launch document that the
machine names, on checkpoints and tables in LocalStack's S3, reading a real broker, ended by SIGTERM. What the runs write as
metrics and lines goes to LocalStack's CloudWatch, where the watch looks for it. Records are sent all the while. Then:

1. an upgrade to another trigger, which stays;
2. one whose transform fails with every record, which is taken back;
3. one that reads another topic on the same checkpoint, which is refused before anything is stopped;
4. a rollback by hand, to the version that was there first;

and the table is held against the producer's ledger. It ends with 1 where a step came out otherwise or a row is lost or doubled.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace.cli.run.checkpoint_compatibility import checkpoint_lines_of_jobs, checkpoint_refusals
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.deploy import compare_with_deployed, launch_document_in_assembly
from millrace.lifecycle.jobs.state_machine import execute_verb
from millrace.lifecycle.upgrade_or_rollback_job import (
    UpgradeError,
    find_previous_version,
    read_deployed_version,
    roll_back_job_and_tell_if_started,
    upgrade_job_and_tell_if_started,
)
from millrace.sandbox.programs import cdk, kafka_broker
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from millrace.sandbox.records.producer import BackgroundThread
from tests import kinesalite
from tests.faults.batch_commits import commit_times
from tests.faults.engines_on_local_spark import RealRuns, beside_localstack
from tests.faults.kill_deployed_jobs import Shop
from tests.faults.row_difference import Difference
from tests.faults.shop_project import ENVIRONMENT, deployed, synthesise

JOB = "direct"
HOME = RUN / "faults-upgrade"
PATIENCE_SECONDS = 420.0
PER_TURN, TURN_SECONDS = 10, 2.0
"""What two cores with other work on them keep up with, so that what is late is a version's fault."""


@dataclass
class Watcher:
    """Brings the lines of failures of runs to where their watchers look: CloudWatch's logs."""

    engines: RealRuns
    stack: LocalStack
    job: str
    group: str
    _seen: dict[Path, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._logs = self.stack.client("logs")
        # The group is the stack's.
        self._logs.create_log_stream(logGroupName=self.group, logStreamName="driver")

    def look(self) -> None:
        """Bring what is new."""
        for job in list(self.engines.jobs.values()):
            for line in self._new(job.process.log):
                if line.startswith('{"event": "failed"'):
                    event = {"timestamp": round(time.time() * 1000), "message": line}
                    self._logs.put_log_events(
                        logGroupName=self.group, logStreamName="driver", logEvents=[event]
                    )

    def _new(self, file: Path) -> Iterator[str]:
        if not file.exists():
            return
        text = file.read_text(errors="replace")
        begin = self._seen.get(file, 0)
        end = text.rfind("\n") + 1
        self._seen[file] = end
        yield from text[begin:end].splitlines()


@dataclass
class Scene:
    """The deployed shop, its versions, and what is said on the way."""

    shop: Shop
    engines: RealRuns
    aws: DeployedEnvironment
    stack: LocalStack
    project: Path
    said: list[str] = field(default_factory=list)
    _number: int = 0

    def say(self, line: str) -> None:
        self.said.append(line)
        sys.stderr.write(f"  {line}\n")

    def version(self, file: str, old: str, new: str) -> Path:
        """Change a file of the project and synthesise it; the assembly."""
        path = self.project / file
        text = path.read_text()
        assert old in text, f"{file}: {old}"
        path.write_text(text.replace(old, new, 1))
        self._number += 1
        assembly = HOME / f"version-{self._number}"
        synthesise(self.project, assembly)
        return assembly

    def cdk_deploy(self, assembly: Path, stack: str) -> None:
        """As ``millrace upgrade``, for a LocalStack that is not the environment's."""
        cdk.deploy_stacks(assembly, stack, environment=self.stack.environment_variables())

    def upgrade(self, assembly: Path) -> bool:
        return upgrade_job_and_tell_if_started(
            self.aws,
            compare_with_deployed(self.aws, assembly),
            JOB,
            assembly=assembly,
            cdk_deploy=self.cdk_deploy,
            progress=self.say,
            patience_seconds=PATIENCE_SECONDS,
            poll_seconds=2.0,
        )

    @property
    def runs(self) -> int:
        return len(self.engines.jobs)

    @property
    def live(self) -> LocalJob:
        """The run that goes on."""
        (job,) = (job for job in self.engines.jobs.values() if job.process.is_alive)
        return job


@contextmanager
def opened(seed: int, environment: str = ENVIRONMENT) -> Iterator[Scene]:
    """Deploy the shop with its machines, and end all runs at last."""
    shutil.rmtree(HOME, ignore_errors=True)
    engines = RealRuns()
    with ExitStack() as ending:
        stack = ending.enter_context(beside_localstack(engines))
        broker = ending.enter_context(kafka_broker.running_broker())
        kinesis = ending.enter_context(kinesalite.running(seed=seed))
        sandbox = deployed(HOME, stack, broker, environment)
        engines.spark = sandbox.spark
        shop = Shop(sandbox, kinesis, random.Random(seed))
        ending.callback(shop.end)
        aws = DeployedEnvironment(sandbox.names, stack.client)
        engines.glue_document = lambda _: read_deployed_version(aws, JOB).document_url
        yield Scene(shop, engines, aws, stack, HOME / "project")


def under_load(scene: Scene) -> BackgroundThread:
    """Send records and bring metrics, all the while."""
    group = f"/{scene.aws.names.prefix}/jobs/{JOB}"
    watcher = Watcher(scene.engines, scene.stack, scene.aws.names.job(JOB), group)

    def work(stop: threading.Event) -> None:
        while not stop.wait(TURN_SECONDS):
            scene.shop.orders.send(scene.shop.choose, PER_TURN)
            watcher.look()

    return BackgroundThread(work, "load")


def story(scene: Scene) -> Iterator[tuple[str, bool]]:
    """Take the steps; what each came to, and whether it was what had to come."""
    done = execute_verb(scene.aws, JOB, "start", progress=scene.say)
    if not done.ok:
        raise SandboxError(f"not started: {done.message}")
    first = read_deployed_version(scene.aws, JOB).document_url
    scene.shop.wait(scene.live, lambda: bool(commit_times(scene.live)), "a batch")

    begun = time.monotonic()
    scene.upgrade(scene.version("environments/shop.yaml", "trigger: 1s", "trigger: 2s"))
    second = read_deployed_version(scene.aws, JOB).document_url
    yield f"upgraded in {time.monotonic() - begun:.0f} s: healthy", second != first

    begun = time.monotonic()
    transforms = "pipelines/shop/transforms.py"
    failing = "F.raise_error(F.lit('of the new version')).cast('double').alias('tax')"
    bad = scene.version(transforms, '(F.col("amount") / 5).alias("tax")', failing)
    try:
        scene.upgrade(bad)
        yield "a version that fails was taken for healthy", False
    except UpgradeError as error:
        back = read_deployed_version(scene.aws, JOB).document_url == second
        yield f"taken back in {time.monotonic() - begun:.0f} s: {str(error).splitlines()[1]}", back
    scene.version(transforms, failing, '(F.col("amount") / 5).alias("tax")')

    runs = scene.runs
    other = scene.version("environments/shop.yaml", "source: orders\n", "source: shipments\n")
    (refusal,) = checkpoint_lines_of_jobs(checkpoint_refusals, scene.aws, other, [JOB])
    untouched = scene.runs == runs and scene.live.process.is_alive
    sources = [
        query["routes"][0]["source"]["topic"]
        for query in launch_document_in_assembly(scene.aws.names, other, JOB)["settings"]["queries"]
    ]
    yield f"refused: {refusal[:150]}...", untouched and sources == ["shipments"]

    begun = time.monotonic()
    roll_back_job_and_tell_if_started(
        scene.aws,
        find_previous_version(scene.aws, JOB),
        assembly=other,
        cdk_deploy=scene.cdk_deploy,
        progress=scene.say,
        patience_seconds=PATIENCE_SECONDS,
        poll_seconds=2.0,
    )
    same = read_deployed_version(scene.aws, JOB).document_url == first
    yield f"rolled back by hand in {time.monotonic() - begun:.0f} s: healthy", same


def compared(scene: Scene) -> list[Difference]:
    """Wait for all that was sent, and hold the tables against it."""
    scene.shop.until_taxed(scene.live)
    time.sleep(3)  # for rows too many
    return scene.shop.taxed()


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> int:
    """Upgrade, fail, refuse, roll back, compare, print."""
    options = parser().parse_args()
    status = 0
    with opened(options.seed) as scene:
        with under_load(scene):
            for line, well in story(scene):
                sys.stdout.write(f"{'ok' if well else 'NOT OK'}: {line}\n")
                sys.stdout.flush()
                status |= not well
        for table in compared(scene):
            sys.stdout.write(f"{table.what}: {table.wanted} rows wanted, {table}; {scene.runs} runs\n")
            status |= not table.exact
        execute_verb(scene.aws, JOB, "stop", progress=scene.say)
    return status


if __name__ == "__main__":
    raise SystemExit(main())
