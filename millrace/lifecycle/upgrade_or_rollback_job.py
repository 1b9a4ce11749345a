"""Upgrade of one job to another version: checked, drained, deployed, started, watched, and rolled back on failure.

The steps are those of a deployment (:mod:`millrace.lifecycle.deploy`), for one job's own stack. The deployed version
is kept before it is replaced, so that a rollback needs neither the old code nor the machine that deployed it
(``docs/design/deploy.md#upgrade-and-rollback``).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.changes.assembly_with_other_templates import write_assembly_with_templates
from millrace.lifecycle.changes.deployment_changes import (
    JobChange,
    build_job_change,
    compare_templates,
    document_differences,
    source_names_in_templates,
)
from millrace.lifecycle.deploy import (
    DeployError,
    DeploymentChanges,
    UnhealthyDeploymentError,
    UnknownHealthError,
    deploy_around_jobs_and_return_started,
)
from millrace.lifecycle.jobs.health import PATIENCE_SECONDS, POLL_SECONDS
from millrace.lifecycle.versions_for_rollback import (
    JobVersion,
    UpgradeError,
    read_deployed_version,
    save_deployed_version,
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
    AwsError, millrace.lifecycle.account.outputs_and_launch_documents.NotDeployedError
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
    AwsError, millrace.lifecycle.account.outputs_and_launch_documents.NotDeployedError
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
