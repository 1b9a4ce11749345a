"""Run of a verification, from its first resource to its last."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.deploy import DeployError
from millrace.sandbox.kill_and_restart_jobs import DrillError, Say
from millrace.sandbox.programs import cdk
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sizing.plan_model import Plan
from millrace.verify.account.check_claims import ClaimAnswer
from millrace.verify.environment_copy import SHARDS, TAG, VerificationCopy, VerificationSettings
from millrace.verify.expected_and_actual_cost import (
    BilledRun,
    VerificationUsage,
    billed_quantities,
    cost_items,
)
from millrace.verify.removals.removal import remove_verification
from millrace.verify.removals.removal_scope import UNKNOWN, VerificationScope
from millrace.verify.scenario import VerificationScenario, order_disturbances
from millrace.verify.target_base import ExpectedStepSeconds, VerificationTarget
from millrace.verify.verification_outcome import TableComparison, TimedStep, VerificationOutcome

TROUBLE = (
    AwsError,
    BotoCoreError,
    ClientError,
    DeployError,
    NotDeployedError,
    OSError,
    SandboxError,
    DrillError,
)
"""Errors that end a verification with a message; after each, its resources are removed and its cost is reported."""


def scope_of_copy(copy: VerificationCopy) -> VerificationScope:
    """Return the scope of a copy."""
    tags = copy.environment.tags
    return VerificationScope(tags[TAG], copy.environment.name, copy.names.prefix)


def estimate_time_and_usage(
    step_seconds: ExpectedStepSeconds, copy: VerificationCopy, plan: Plan, settings: VerificationSettings
) -> tuple[float, VerificationUsage]:
    """Return the expected time and usage of a verification.

    Parameters
    ----------
    step_seconds
        Expected seconds of the parts.
    copy, plan
        The copy and its plan.
    settings
        Settings of the verification.

    Returns
    -------
    seconds
        Seconds in total.
    usage
        Without the jobs' requests to S3, which are not known before.
    """
    disturbed = sum(
        step_seconds.recover if turn == "kill" else step_seconds.reshard
        for turn in order_disturbances(settings.kills, settings.reshards)
    )
    running = step_seconds.start + max(disturbed, settings.records / settings.per_second)
    runs = []
    for name, job in copy.environment.jobs.items():
        workers, each = plan.jobs[name].max_workers.value, running / (settings.kills + 1)
        runs += [
            BilledRun(name, str(number), each, billed_quantities(job, workers, each))
            for number in range(settings.kills + 1)
        ]
    kinesis = "kinesis" in copy.sources
    records = max(settings.records, round(disturbed * settings.per_second)) * kinesis
    deployed = step_seconds.deploy + running + step_seconds.remove
    most = 2 * SHARDS if settings.reshards else SHARDS
    return deployed, VerificationUsage(tuple(runs), most * deployed * kinesis, records, 0, deployed)


@dataclass
class StepTimer:
    """The finished steps, with the time of each."""

    say: Say
    steps: list[TimedStep] = field(default_factory=list)

    @contextmanager
    def time_step(self, name: str) -> Iterator[Callable[[str], None]]:
        """Time a step, also one that fails; yield a function for remarks."""
        self.say(name)
        began, remarks = time.monotonic(), list[str]()
        try:
            yield remarks.append
        finally:
            self.steps.append(TimedStep(name, round(time.monotonic() - began, 1), "; ".join(remarks)))


@dataclass
class Verification:
    """One verification.

    Attributes
    ----------
    place, copy, plan, settings
        Target, environment, plan and settings.
    folder
        Folder of the cloud assembly.
    say
        Called with each step.
    keep
        Do not remove anything.
    left_out
        Parts of the environment that are not verified.
    observe
        Checks claims that only an account can prove, while the copy exists; None in the sandbox.
    """

    place: VerificationTarget
    copy: VerificationCopy
    plan: Plan
    settings: VerificationSettings
    folder: Path
    say: Say
    keep: bool = False
    left_out: tuple[str, ...] = ()
    observe: Callable[[VerificationCopy], tuple[ClaimAnswer, ...]] | None = None
    _claims: tuple[ClaimAnswer, ...] = ()
    _compared: tuple[TableComparison, ...] = ()
    _runs: tuple[BilledRun, ...] = ()
    _objects: int = 0
    _story: VerificationScenario | None = None
    _made: float | None = None
    _removed: float | None = None

    def run(self) -> VerificationOutcome:
        """Deploy the copy, run it, compare, and remove it, whatever happens; return the outcome.

        An interruption is reported like any other trouble; a second one also ends the removal.
        """
        clock, trouble, remains = StepTimer(self.say), list[str](), list[str]()
        try:
            self._deploy_and_run(clock, trouble)
        except TROUBLE as error:
            trouble.append(str(error))
        except KeyboardInterrupt:
            trouble.append("interrupted")
        finally:
            # Also after an unexpected error: existing resources cost money.
            self._stop_and_remove(clock, trouble, remains)
        outcome = self._verification_outcome(clock, trouble, remains)
        # Producers close while the broker still runs: they would report a missing broker again and again.
        self._story = None
        return outcome

    def _stop_and_remove(self, clock: StepTimer, trouble: list[str], remains: list[str]) -> None:
        if self._story is not None:
            self._story.stop_traffic()
        if self._made is None:
            return
        if self.keep:
            self._runs = self._job_runs_with_usage(trouble)
            return
        try:
            self._remove_copy(clock, remains)
        except TROUBLE as error:
            # The search stopped at this error: more may be left.
            trouble.append(str(error))
            remains.append(f"{UNKNOWN}{scope_of_copy(self.copy).prefix}- and was not deleted yet")

    def _deploy_and_run(self, clock: StepTimer, trouble: list[str]) -> None:
        assembly = self.folder / f"{self.copy.environment.name}.out"
        try:
            with clock.time_step("synthesise"):
                cdk.synthesise_assembly(str(self.copy.file), assembly)
            self._made = time.monotonic()
            with clock.time_step("deploy"):
                self.place.deploy(self.copy, assembly)
        finally:
            # In any case: the next verification has another name, and would leave its own assembly beside this one.
            shutil.rmtree(assembly, ignore_errors=True)
        self._story = story = VerificationScenario(self.place, self.copy, self.settings, say=self.say)
        story.shards.append((self._made, SHARDS))
        with clock.time_step("start, first records"):
            story.start_all()
        with clock.time_step("kill and reshard under load") as remark:
            story.kill_and_reshard()
            remark(f"{self.settings.kills} kills of each job, {len(story.reshards)} reshards")
        with clock.time_step("land and derive all") as remark:
            lacking = story.send_rest_stop_jobs_and_describe_missing()
            remark(f"{sum(len(each.ledger) for each in story.producers.values()):,} records")
        if lacking:
            trouble.append(lacking)
        with clock.time_step("compare"):
            self._compared = story.compare_tables()
        if self.observe is not None:
            with clock.time_step("check the claims that need an account"):
                self._claims = self.observe(self.copy)

    def _job_runs_with_usage(self, trouble: list[str]) -> tuple[BilledRun, ...]:
        try:
            return tuple(
                run
                for job in self.copy.environment.jobs
                for run in self.place.billed_runs(self.copy.names, job)
            )
        except TROUBLE as error:
            trouble.append(f"the usage of the runs is not known: {error}")
            return ()

    def _remove_copy(self, clock: StepTimer, remains: list[str]) -> None:
        unknown: list[str] = []
        with clock.time_step("tear down") as remark:
            own = scope_of_copy(self.copy)
            if self._story is not None:
                # Nothing may run on while runs are counted.
                self._stop_jobs_or_say_why_not(self._story)
                self._runs = self._job_runs_with_usage(unknown)
            removed = remove_verification(self.place, own, say=self.say)
            self._objects, self._removed = removed.objects, time.monotonic()
            remains += removed.remains
            left = f"{len(remains)} things are left" if remains else "nothing is left"
            remark(f"{removed.objects:,} objects; {left}")
            for each in unknown:
                remark(each)

    def _stop_jobs_or_say_why_not(self, story: VerificationScenario) -> None:
        try:
            story.stop()
        except TROUBLE as error:
            self.say(f"not stopped with grace: {error}")

    def _verification_outcome(
        self, clock: StepTimer, trouble: list[str], remains: list[str]
    ) -> VerificationOutcome:
        own, story = scope_of_copy(self.copy), self._story
        now = self._removed or time.monotonic()
        usage = VerificationUsage(
            runs=self._runs,
            shard_seconds=0.0 if story is None else _shard_seconds(story, now),
            put_units=0 if story is None else story.units["kinesis"],
            objects=self._objects,
            deployed_seconds=0.0 if self._made is None else now - self._made,
        )
        return VerificationOutcome(
            environment=own.verified_environment_name,
            name=own.name,
            where=self.place.where,
            steps=tuple(clock.steps),
            kills=() if story is None else tuple(story.kills),
            reshards=() if story is None else tuple(story.reshards),
            compared=self._compared,
            cost=cost_items(self.copy.environment, self.plan, usage),
            prices=self.plan.prices.isoformat(),
            billed=bool(self._runs) and all(run.counted for run in self._runs),
            paid=self.place.paid,
            remains=tuple(remains),
            kept=self.keep,
            trouble=tuple(trouble),
            left_out=self.left_out,
            claims=self._claims,
        )


def _shard_seconds(story: VerificationScenario, end: float) -> float:
    if "kinesis" not in story.producers:
        return 0.0
    begins = [at for at, _ in story.shards]
    spans = zip(story.shards, [*begins[1:], end], strict=True)
    return sum(count * (until - since) for (since, count), until in spans)
