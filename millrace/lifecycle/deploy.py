"""Deploy an environment around its running jobs: show, drain, deploy, start, watch."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from millrace.config.names import Names
from millrace.lifecycle.changes import (
    JobChange,
    StackChange,
    Template,
    differences,
    job_change,
    stack_change,
    stream_names,
)
from millrace.lifecycle.deployed import NotDeployedError, outputs, split_url
from millrace.lifecycle.health import PATIENCE_SECONDS, POLL_SECONDS, UnhealthyError, wait_until_healthy
from millrace.lifecycle.problems import AwsError, told
from millrace.lifecycle.verbs import Aws, execute

_STOPPED = ("STOPPED", "CREATED")
_APPLICATION_SECONDS = 600


class DeployError(RuntimeError):
    """A deployment that stopped half way; says where, and what to do."""


class UnwellError(DeployError):
    """What was deployed did not start, or does not get healthy."""


class UnwatchedError(DeployError):
    """What was deployed was started; whether it is well is not known, as AWS did not let it be looked at."""


@dataclass(frozen=True)
class Changes:
    """All that a deployment would change.

    Attributes
    ----------
    numbers
        By job: ``path: old → new`` of its launch document, which holds every planned number.
    """

    stacks: tuple[StackChange, ...]
    jobs: tuple[JobChange, ...]
    numbers: Mapping[str, tuple[str, ...]]

    def __bool__(self) -> bool:
        return any(self.stacks) or any(job.after != "leave" for job in self.jobs)


def unstarted(found: Changes) -> Changes:
    """The same changes, but that jobs that are new are deployed without being started."""
    jobs = (replace(job, after="stop") if job.after == "start" else job for job in found.jobs)
    return replace(found, jobs=tuple(jobs))


def changes(aws: Aws, assembly: Path) -> Changes:
    """Compare a cloud assembly with what is deployed.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.

    Raises
    ------
    AwsError
        AWS refused a question.
    """
    names = aws.names
    new = {
        file.name.removesuffix(".template.json"): json.loads(file.read_text())
        for file in sorted(assembly.glob(f"{names.prefix}-*.template.json"))
    }
    with told("reading the deployed templates"):
        old = {stack: deployed_template(aws.client("cloudformation"), stack) for stack in new}
    sources = (_sources(old), _sources(new))
    jobs, numbers = [], {}
    for job in names.environment.jobs:
        stack = names.stack(f"job-{job}")
        url, document = _new_document(new[stack], assembly)
        old_url, old_document = deployed_document(aws, stack) if old[stack] is not None else (None, None)
        jobs.append(
            job_change(
                job,
                stack=(old[stack], new[stack]),
                document=(old_document, document),
                document_url=(old_url, url),
                sources=sources,
            )
        )
        if old_document is not None:
            numbers[job] = tuple(
                f"{path}: {before} → {after}" for path, before, after in differences(old_document, document)
            )
    return Changes(
        stacks=tuple(stack_change(stack, old[stack], template) for stack, template in new.items()),
        jobs=tuple(jobs),
        numbers=numbers,
    )


def settings_of(names: Names, assembly: Path, job: str) -> dict[str, Any]:
    """A job's settings, as an assembly would deploy them.

    Parameters
    ----------
    names
        The deployed names.
    assembly
        The folder that ``cdk synth`` wrote.
    job
        A job of the environment.
    """
    return dict(document_of(names, assembly, job)["settings"])


def document_of(names: Names, assembly: Path, job: str) -> dict[str, Any]:
    """A job's launch document, as an assembly would deploy it; the parameters are those of :func:`settings_of`."""
    template = json.loads((assembly / f"{names.stack(f'job-{job}')}.template.json").read_text())
    return _new_document(template, assembly)[1]


def _new_document(template: Template, assembly: Path) -> tuple[str, dict[str, Any]]:
    url = template["Outputs"]["LaunchDocument"]["Value"]
    return url, json.loads((assembly / f"asset.{url.rsplit('/', 1)[1]}").read_text())


def apply(
    aws: Aws,
    found: Changes,
    *,
    cdk_deploy: Callable[[], None],
    progress: Callable[[str], None],
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
    undoable: bool = True,
) -> tuple[str, ...]:
    """Drain what must be, deploy, start, and watch until the jobs are healthy.

    A job that somebody had stopped stays stopped, and one that is to be deployed without being started
    (:func:`unstarted`) is noted as stopped, so that nothing but `millrace start` begins a run of it. Where
    a drain or CloudFormation fails or is interrupted, the jobs that were drained for it are started again.

    Parameters
    ----------
    cdk_deploy
        Deploys the assembly; raises :class:`DeployError`.
    progress
        Called with a line whenever something new happens.
    patience_seconds, poll_seconds
        How long a started job may take to become healthy, and how often it is looked at.
    undoable
        Whether `millrace rollback` brings back what ran before; not so where this itself goes back to it.

    Returns
    -------
    tuple of str
        The jobs that were started.

    Raises
    ------
    DeployError
        The deployment failed, or a job could not be drained or started or is not healthy; a line each.
    UnwatchedError
        All were started and nothing is known against any, but not all could be looked at.
    AwsError, NotDeployedError
        AWS refused the first questions.
    """
    stopped = {
        change.job
        for change in found.jobs
        if change.after == "restart" and _verb(aws, change.job, "status", progress)["wish"] != "running"
    }
    drained: list[str] = []
    try:
        for change in found.jobs:
            if change.before == "drain":
                if change.job not in stopped:
                    # Whatever comes of it: first of all a drain notes that the job is to stay stopped.
                    drained.append(change.job)
                    _verb(aws, change.job, "drain", progress)
                _stop_application(aws, change.job, progress)
        progress("deploying")
        cdk_deploy()
    except (AwsError, DeployError, NotDeployedError) as error:
        raise DeployError(f"{error}\n{_started_again(aws, drained, progress)}") from error
    except BaseException:
        if drained:
            progress(f"interrupted: starting again what was drained: {', '.join(drained)}")
        progress(_started_again(aws, drained, progress))
        raise
    # One job's trouble keeps no other from running: what went wrong is told at the end.
    started: dict[str, float] = {}
    trouble, unseen = [], []
    for change in found.jobs:
        try:
            if change.job in stopped or change.after == "stop":
                why = "as it was" if change.job in stopped else "as asked"
                progress(f"{change.job}: stays stopped, {why}")
                # New alarms act from their creation on.
                _verb(aws, change.job, "stop", progress)
            elif change.after != "leave":
                if change.after == "restart" and change.before == "leave":
                    _verb(aws, change.job, "drain", progress)
                began = time.time()
                _verb(aws, change.job, "start", progress)
                started[change.job] = began
        except (AwsError, DeployError, NotDeployedError) as error:
            trouble.append(str(error))
    for job, began in started.items():
        try:
            wait_until_healthy(
                aws,
                job,
                since=began,
                progress=progress,
                patience_seconds=patience_seconds,
                poll_seconds=poll_seconds,
            )
        except UnhealthyError as error:
            trouble.append(str(error))
        except AwsError as error:
            unseen.append(f"{job}: it was started, and whether it is well is not known: {error}")
    if trouble:
        raise UnwellError("\n".join(["deployed, but not well:", *trouble, *unseen]))
    if unseen:
        name = aws.names.environment.name
        ways = f"`millrace status --env {name} JOB` asks again"
        if undoable:
            ways += f", `millrace rollback --env {name} JOB` goes back"
        raise UnwatchedError("\n".join(["deployed:", *unseen, ways]))
    return tuple(started)


def _started_again(aws: Aws, drained: list[str], progress: Callable[[str], None]) -> str:
    """Start what was drained for a deployment that failed; say what became of it."""
    if not drained:
        return "nothing was stopped: mend this and deploy again"
    lines, again = [], []
    for job in drained:
        try:
            _verb(aws, job, "start", progress)
            again.append(job)
        except (AwsError, DeployError, NotDeployedError) as error:
            lines.append(
                f"{job} had been drained, and did not start again ({error}): "
                f"`millrace start --env {aws.names.environment.name} {job}`"
            )
    if again:
        lines.insert(
            0, f"{', '.join(again)} had been drained and started again as before: mend this and deploy again"
        )
    return "\n".join(lines)


def _verb(aws: Aws, job: str, verb: Any, progress: Callable[[str], None]) -> dict[str, Any]:
    done = execute(aws, job, verb, progress=lambda phrase: progress(f"{job}: {phrase}"), reason="deployment")
    if not done.ok:
        raise DeployError(
            f"{verb} of {job} failed: {done.outcome}: {done.message}; look at it with "
            f"`millrace status --env {aws.names.environment.name} {job}`, then deploy again"
        )
    return done.answer


def _stop_application(aws: Aws, job: str, progress: Callable[[str], None]) -> None:
    """Stop an EMR Serverless application, which takes changes only then."""
    with told(f"stopping the application of {job}"):
        application = outputs(aws.client("cloudformation"), aws.names.stack(f"job-{job}")).get(
            "ApplicationId"
        )
        if application is None:
            return
        emr = aws.client("emr-serverless")
        progress(f"{job}: stopping its application")
        if emr.get_application(applicationId=application)["application"]["state"] not in _STOPPED:
            emr.stop_application(applicationId=application)
        deadline = time.monotonic() + _APPLICATION_SECONDS
        while (
            state := emr.get_application(applicationId=application)["application"]["state"]
        ) not in _STOPPED:
            if time.monotonic() > deadline:
                raise DeployError(
                    f"application {application} of {job} is still {state}: stop it, deploy again"
                )
            time.sleep(2)


def deployed_template(cloudformation: Any, stack: str) -> Template | None:
    """Read a stack's template as it was deployed; None where there is no such stack."""
    try:
        body = cloudformation.get_template(StackName=stack, TemplateStage="Original")["TemplateBody"]
    except ClientError as error:
        if "does not exist" in error.response["Error"].get("Message", ""):
            return None
        raise
    return dict(json.loads(body) if isinstance(body, str) else body)


def _sources(templates: Mapping[str, Template | None]) -> frozenset[str]:
    return frozenset[str]().union(*(stream_names(template) for template in templates.values()))


def deployed_document(aws: Aws, stack: str) -> tuple[str | None, dict[str, Any] | None]:
    """Read a job's deployed launch document with its URL; None twice where its stack names none."""
    with told(f"reading the launch document of {stack}"):
        url = outputs(aws.client("cloudformation"), stack).get("LaunchDocument")
        if url is None:
            return None, None
        bucket, key = split_url(url)
        return url, json.loads(aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read())


__all__ = [
    "AwsError",
    "Changes",
    "DeployError",
    "UnwatchedError",
    "UnwellError",
    "apply",
    "changes",
    "deployed_document",
    "deployed_template",
    "unstarted",
]
