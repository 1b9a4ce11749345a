"""Upgrade of one job to another version: checked, drained, deployed, started, watched, and rolled back on failure.

The steps are those of a deployment (:mod:`millrace.lifecycle.deploy`), for one job's own stack. The deployed version
is kept before it is replaced, so that a rollback needs neither the old code nor the machine that deployed it
(``docs/design/deploy.md#upgrade-and-rollback``). Neither a job nor an operator can write it: it is an object that is named by
its SHA-256 and holds the template and the URL of the launch document, and an SSM parameter holds the digests in their order,
one per version of the parameter. The object is held against its digest before anything of it is used: CloudFormation deploys
its template with the rights of the bootstrap.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import (
    MISSING_OBJECT,
    DeployedEnvironment,
    ignoring_not_found_errors,
    read_s3_object,
    split_s3_url,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.changes.assembly_with_other_templates import write_assembly_with_templates
from millrace.lifecycle.changes.deployment_changes import (
    JobChange,
    build_job_change,
    compare_templates,
    document_differences,
    source_names_in_templates,
)
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.deploy import (
    DeployError,
    DeploymentChanges,
    UnhealthyDeploymentError,
    UnknownHealthError,
    deploy_around_jobs_and_return_started,
    deployed_template,
    read_deployed_url_and_document,
)
from millrace.lifecycle.jobs.health import PATIENCE_SECONDS, POLL_SECONDS


class UpgradeError(RuntimeError):
    """An upgrade that was not started, or was rolled back; the message says what runs now."""


@dataclass(frozen=True)
class JobVersion:
    """A deployed version of a job.

    Attributes
    ----------
    at
        Time of its replacement.
    document_url
        URL of its launch document, whose name depends on its content.
    """

    job: str
    at: str
    document_url: str
    template: Template

    def read_launch_document(self, s3: Any) -> dict[str, Any]:
        """Read its launch document.

        Raises
        ------
        UpgradeError
            It no longer exists, so this version cannot be started.
        AwsError
            AWS refused the call.
        """
        reading = translating_aws_errors(f"cannot read the launch document {self.document_url}")
        with reading, ignoring_not_found_errors(*MISSING_OBJECT):
            return dict(json.loads(read_s3_object(s3, self.document_url)))
        raise UpgradeError(
            f"the launch document {self.document_url} of {self.job} no longer exists (a lifecycle rule of CDK's "
            "bucket of assets deletes old versions); check out the version in git, and deploy it with `millrace "
            "upgrade`"
        )


def save_deployed_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Keep the deployed version of a job, before it is replaced.

    Raises
    ------
    UpgradeError
        Nothing is deployed.
    AwsError
        AWS refused a call.
    """
    version = read_deployed_version(aws, job)
    body = json.dumps({"version": 1, **asdict(version)}).encode()
    digest = hashlib.sha256(body).hexdigest()
    bucket, folder = split_s3_url(aws.names.versions_url(job))
    with translating_aws_errors(f"cannot save the deployed version of {job}"):
        aws.client("s3").put_object(Bucket=bucket, Key=f"{folder}/{digest}.json", Body=body)
        aws.client("ssm").put_parameter(
            Name=aws.names.versions_parameter(job),
            Type="String",
            Overwrite=True,
            Value=json.dumps({"sha256": digest, "document_url": version.document_url}),
        )
    return version


def read_deployed_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Read the deployed version of a job.

    Raises
    ------
    UpgradeError
        Nothing is deployed.
    AwsError
        AWS refused a call.
    """
    stack = aws.names.stack(f"job-{job}")
    with translating_aws_errors(f"cannot read stack {stack}"):
        template = deployed_template(aws.client("cloudformation"), stack)
    url = None if template is None else read_deployed_url_and_document(aws, stack)[0]
    if template is None or url is None:
        env = aws.names.environment.name
        raise UpgradeError(f"{job} is not deployed yet; deploy it with `millrace deploy --env {env}`")
    return JobVersion(job, f"{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}", url, template)


def find_previous_version(aws: DeployedEnvironment, job: str) -> JobVersion:
    """Find the version that was deployed before the current one.

    Raises
    ------
    UpgradeError
        No earlier version was kept, or what was kept is not what was deployed.
    AwsError
        AWS refused a call.
    """
    now, parameter = read_deployed_version(aws, job), aws.names.versions_parameter(job)
    versions: list[dict[str, str]] = []
    with (
        translating_aws_errors(f"cannot read the list of deployed versions of {job}"),
        ignoring_not_found_errors("ParameterNotFound"),
    ):
        history = list_all(aws.client("ssm"), "get_parameter_history", "Parameters", Name=parameter)
        versions = [json.loads(each["Value"]) for each in history]
    for each in reversed(versions):
        if each["document_url"] != now.document_url:
            return _read_version(aws, job, each["sha256"])
    raise UpgradeError(f"{job} cannot be rolled back: SSM parameter {parameter} lists no earlier version")


def _read_version(aws: DeployedEnvironment, job: str, digest: str) -> JobVersion:
    place = f"{aws.names.versions_url(job)}/{digest}.json"
    with (
        translating_aws_errors(f"cannot read the saved versions of {job}"),
        ignoring_not_found_errors(*MISSING_OBJECT),
    ):
        body = read_s3_object(aws.client("s3"), place)
        record = json.loads(body) if hashlib.sha256(body).hexdigest() == digest else None
        if record is not None and record["job"] == job:
            return JobVersion(job, record["at"], record["document_url"], record["template"])
        problem = "another digest than when it was kept" if record is None else f"job {record['job']!r}"
        raise UpgradeError(
            f"{place} is not the deployed version of {job}: it has {problem}, so somebody has changed the "
            "object; nothing was stopped or deployed. Find out who (the bucket's access logs), then check "
            "out the version in git and deploy it with `millrace upgrade`"
        )
    raise UpgradeError(
        f"the earlier version of {job} no longer exists: {place}; check out the version in git, and deploy it with "
        "`millrace upgrade`"
    )


_SHARED = ("network", "storage", "streams", "kafka", "lifecycle")
"""Stacks that other jobs depend on as well."""

Progress = Callable[[str], None]
CdkDeploy = Callable[[Path, str], None]
"""Function that deploys one stack of an assembly; it raises :class:`DeployError`."""


def change_of_job(changes: DeploymentChanges, job: str) -> JobChange:
    """Return the effect of a deployment on one job."""
    return next(change for change in changes.jobs if change.job == job)


def changed_shared_stacks(changes: DeploymentChanges, prefix: str) -> tuple[str, ...]:
    """Return the stacks beside the job's own that an upgrade would change, and that other jobs depend on.

    Parameters
    ----------
    prefix
        Of the environment's names.
    """
    names = {f"{prefix}-{part}" for part in _SHARED}
    return tuple(change.stack for change in changes.stacks if change and change.stack in names)


def upgrade_job_and_tell_if_started(
    aws: DeployedEnvironment,
    changes: DeploymentChanges,
    job: str,
    *,
    assembly: Path,
    cdk_deploy: CdkDeploy,
    progress: Progress,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> bool:
    """Upgrade one job to the version of an assembly, and roll back if it does not become healthy.

    Parameters
    ----------
    changes
        Changes by the assembly.
    assembly
        The folder that ``cdk synth`` wrote.
    cdk_deploy
        Deploys one stack.
    progress
        Called with a line whenever something new happens.
    patience_seconds, poll_seconds
        Longest time until the new version is healthy, and time between two looks.

    Returns
    -------
    bool
        Whether it was started; a job that somebody stopped stays stopped, in its new version.

    Raises
    ------
    UpgradeError
        The new version did not become healthy; the message says what runs now.
    DeployError
        CloudFormation refused, so nothing has changed.
    UnknownHealthError
        The new version runs, but AWS did not show its health: that is no reason for a rollback.
    AwsError, millrace.lifecycle.account.deployed_environment.NotDeployedError
        AWS refused a call.
    """
    change = change_of_job(changes, job)
    before = save_deployed_version(aws, job)
    stack = aws.names.stack(f"job-{job}")
    try:
        started = deploy_around_jobs_and_return_started(
            aws,
            DeploymentChanges((), (change,), {}),
            cdk_deploy=lambda: cdk_deploy(assembly, stack),
            progress=progress,
            patience_seconds=patience_seconds,
            poll_seconds=poll_seconds,
        )
    except UnhealthyDeploymentError as error:
        progress(f"{job}: rolling back to the previous version: {error}")
        try:
            roll_back_job_and_tell_if_started(
                aws,
                before,
                assembly=assembly,
                cdk_deploy=cdk_deploy,
                progress=progress,
                patience_seconds=patience_seconds,
                poll_seconds=poll_seconds,
                keeps=False,
            )
        except UnknownHealthError as unseen:
            raise UpgradeError(
                f"{error}\n{job} is rolled back, but it is unknown whether the previous version is healthy: "
                f"{unseen}"
            ) from error
        except (AwsError, DeployError, UpgradeError) as worse:
            raise UpgradeError(f"{error}\nthe rollback failed too: {worse}") from error
        raise UpgradeError(
            f"{error}\n{job} is rolled back: the previous version runs and is healthy"
        ) from error
    return bool(started)


def roll_back_job_and_tell_if_started(
    aws: DeployedEnvironment,
    version: JobVersion,
    *,
    assembly: Path,
    cdk_deploy: CdkDeploy,
    progress: Progress,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
    keeps: bool = True,
    changes: DeploymentChanges | None = None,
) -> bool:
    """Deploy an earlier version of a job again, on the same checkpoints; the parameters are those of :func:`upgrade_job_and_tell_if_started`.

    Parameters
    ----------
    keeps
        Whether the replaced version is kept for a later rollback; false for one that never became healthy.
    changes
        The changes of :func:`rollback_changes`, where they were shown before.

    Returns
    -------
    bool
        Whether it was started; a job that somebody stopped stays stopped.

    Raises
    ------
    DeployError
        It was not deployed, or is not healthy either.
    UpgradeError
        Its launch document no longer exists.
    AwsError, millrace.lifecycle.account.deployed_environment.NotDeployedError
        AWS refused a call.
    """
    job = version.job
    changes = changes or rollback_changes(aws, version)
    if keeps:
        save_deployed_version(aws, job)
    stack = aws.names.stack(f"job-{job}")
    earlier = write_assembly_with_templates(
        assembly, {stack: version.template}, assembly.with_name(f"{assembly.name}-{job}-earlier")
    )
    return bool(
        deploy_around_jobs_and_return_started(
            aws,
            changes,
            cdk_deploy=lambda: cdk_deploy(earlier, stack),
            progress=progress,
            patience_seconds=patience_seconds,
            poll_seconds=poll_seconds,
            undoable=keeps,
        )
    )


def rollback_changes(aws: DeployedEnvironment, version: JobVersion) -> DeploymentChanges:
    """Return what changes when an earlier version takes the place of the deployed one.

    Raises
    ------
    UpgradeError
        A launch document no longer exists.
    AwsError
        AWS refused a call.
    """
    now, s3 = read_deployed_version(aws, version.job), aws.client("s3")
    old, new = now.read_launch_document(s3), version.read_launch_document(s3)
    owned = source_names_in_templates((now.template, version.template))
    change = build_job_change(
        version.job,
        stack=(now.template, version.template),
        document=(old, new),
        document_url=(now.document_url, version.document_url),
        sources=(owned, owned),
    )
    numbers = tuple(f"{path}: {before} → {after}" for path, before, after in document_differences(old, new))
    stack = aws.names.stack(f"job-{version.job}")
    return DeploymentChanges(
        (compare_templates(stack, now.template, version.template),), (change,), {version.job: numbers}
    )
