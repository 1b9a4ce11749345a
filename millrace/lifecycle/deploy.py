"""Deployment of an environment around its running jobs: show, drain, deploy, start, watch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    NotDeployedError,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.changes.compare_with_deployed import (
    DeploymentChanges,
    changes_without_start_of_new_jobs,
    compare_with_deployed,
    launch_document_in_assembly,
    read_deployed_url_and_document,
)
from millrace.lifecycle.changes.deployment_changes import JobChange
from millrace.lifecycle.changes.undeclared_stacks import StackRemoval, deployed_template, in_removal_order
from millrace.lifecycle.jobs.health import (
    PATIENCE_SECONDS,
    POLL_SECONDS,
    UnhealthyJobError,
    wait_until_healthy,
)
from millrace.lifecycle.jobs.state_machine import execute_verb_for_answer

_STOPPED = ("STOPPED", "CREATED", "TERMINATED")
_STOPPABLE = ("STARTING", "STARTED")
"""States of an application in which EMR Serverless takes StopApplication (gchq/sleeper#1212)."""

_APPLICATION_SECONDS = 600

_run_verb = partial(execute_verb_for_answer, reason="deployment")


class DeployError(RuntimeError):
    """A deployment that stopped half way; the message says where, and what to do."""


class UnhealthyDeploymentError(DeployError):
    """A deployed job that did not start, or does not become healthy."""


class UnknownHealthError(DeployError):
    """A deployed job that was started; its health is unknown, as AWS refused to show it."""


def deploy_around_jobs_and_return_started(
    aws: DeployedEnvironment,
    changes: DeploymentChanges,
    *,
    cdk_deploy: Callable[[], None],
    progress: Callable[[str], None],
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
    undoable: bool = True,
    look_again: Callable[[], DeploymentChanges] | None = None,
    cdk_remove: Callable[[str], None] | None = None,
) -> tuple[str, ...]:
    """Drain jobs where necessary, deploy, start, and watch until the jobs are healthy.

    A job that somebody had stopped stays stopped. A job that is deployed without a start (:func:`millrace.lifecycle.changes.compare_with_deployed.changes_without_start_of_new_jobs`) gets the
    desired state stopped, so that only `millrace start` starts a run of it. Where a drain or CloudFormation fails or is
    interrupted, the drained jobs are started again. Jobs whose own stacks were deployed before another one failed start
    with the new version, as no later deployment finds a change there.

    Parameters
    ----------
    cdk_deploy
        Deploys the assembly; raises :class:`DeployError`.
    progress
        Called with a line whenever something new happens.
    patience_seconds, poll_seconds
        Longest time until a started job is healthy, and time between two looks.
    undoable
        Whether `millrace rollback` brings back the version before; false for a rollback itself.
    look_again
        Returns what would still change (:func:`changes`); left out where only one stack is deployed.
    cdk_remove
        Removes a stack that the file no longer has; raises :class:`DeployError`. Needed if there is one.

    Returns
    -------
    tuple of str
        The jobs that were started.

    Raises
    ------
    DeployError
        The deployment failed, or a job could not be drained or started or is not healthy; a line each.
    UnknownHealthError
        All were started and none is known to be unhealthy, but AWS did not show the health of all.
    AwsError, NotDeployedError
        AWS refused the first requests.
    """
    idle = {
        change.job
        for change in changes.jobs
        if (change.before == "drain" or change.after in ("restart", "remove"))
        and _run_verb(aws, change.job, "status", progress=progress)["desired_state"] != "running"
    }
    # A renamed job stays stopped as the one that it was, whatever the job did whose name it takes.
    stopped = {change.job for change in changes.jobs if change.predecessors and change.predecessors <= idle}
    removals = tuple(in_removal_order(changes.removals))
    drained: list[str] = []
    deploying = False
    try:
        for change in changes.jobs:
            if change.before == "drain":
                if change.job not in idle:
                    # Also if it fails: a drain first sets the desired state to stopped.
                    drained.append(change.job)
                    _run_verb(aws, change.job, "drain", progress=progress)
                _stop_application(aws, change.job, progress)
        for removal in removals:
            if removal.first:
                # From here on it cannot be started again.
                drained = [job for job in drained if job != removal.job]
                _remove_stack(removal, cdk_remove, progress)
        progress("deploying")
        deploying = True
        cdk_deploy()
    except (AwsError, DeployError, NotDeployedError) as error:
        lines = [str(error), _restart_drained_jobs_and_report(aws, drained, progress)]
        if deploying and look_again is not None:
            rest = [
                change for change in changes.jobs if change.job not in drained and change.after != "remove"
            ]
            lines += _start_deployed_jobs_and_report(aws, rest, look_again, stopped, progress)
        raise DeployError("\n".join(lines)) from error
    except BaseException:
        if drained:
            way = f"`millrace start --env {aws.names.environment.name} JOB` does so, too"
            progress(f"interrupted: restarting the drained jobs: {', '.join(drained)}; {way}")
        progress(_restart_drained_jobs_and_report(aws, drained, progress))
        raise
    # A problem of one job does not keep the others from running: it is reported at the end.
    started: dict[str, float] = {}
    trouble, unseen = [], []
    for removal in removals:
        if not removal.first:
            try:
                _remove_stack(removal, cdk_remove, progress)
            except DeployError as error:
                trouble.append(f"{removal.stack} is still there: {error}; deploy again")
    for number, change in enumerate(changes.jobs):
        try:
            if (began := _start_and_return_time(aws, change, stopped, progress)) is not None:
                started[change.job] = began
        except (AwsError, DeployError, NotDeployedError) as error:
            trouble.append(str(error))
        except BaseException:
            if left := [rest.job for rest in changes.jobs[number:] if rest.after in ("start", "restart")]:
                progress(
                    f"interrupted: deployed, but these jobs do not run the new version yet: {', '.join(left)}: "
                    f"{_manual_start_text(aws, 'JOB')}"
                )
            raise
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
        except UnhealthyJobError as error:
            trouble.append(str(error))
        except AwsError as error:
            unseen.append(f"{job}: it is started, but its health is unknown: {error}")
    if trouble:
        raise UnhealthyDeploymentError("\n".join(["deployed, but not healthy:", *trouble, *unseen]))
    if unseen:
        name = aws.names.environment.name
        ways = f"`millrace status --env {name} JOB` shows it"
        if undoable:
            ways += f", `millrace rollback --env {name} JOB` rolls back"
        raise UnknownHealthError("\n".join(["deployed:", *unseen, ways]))
    return tuple(started)


def _remove_stack(
    removal: StackRemoval, cdk_remove: Callable[[str], None] | None, progress: Callable[[str], None]
) -> None:
    assert cdk_remove is not None, f"nothing removes {removal.stack}"
    progress(f"removing {removal.stack}")
    cdk_remove(removal.stack)


def _start_and_return_time(
    aws: DeployedEnvironment, change: JobChange, stopped: Collection[str], progress: Callable[[str], None]
) -> float | None:
    """Start a job with the deployed version; return the time of the start, None without one."""
    job = change.job
    if change.after == "remove":
        return None
    if job in stopped or change.after == "stop":
        progress(f"{job}: stays stopped, {'as it was' if job in stopped else 'as asked'}")
        # New alarms have actions from their creation on.
        _run_verb(aws, job, "stop", progress=progress)
        return None
    if change.after == "leave":
        return None
    if change.after == "restart" and change.before == "leave":
        try:
            _run_verb(aws, job, "drain", progress=progress)
        except BaseException as error:
            # It may have set the desired state to stopped.
            outcome = _restart_drained_jobs_and_report(
                aws, [job], progress, then=_manual_start_text(aws, job)
            )
            if isinstance(error, AwsError | DeployError | NotDeployedError):
                raise DeployError(f"{error}\n{outcome}") from error
            progress(outcome)
            raise
    began = time.time()
    try:
        _run_verb(aws, job, "start", progress=progress)
    except (AwsError, DeployError, NotDeployedError) as error:
        name = aws.names.environment.name
        raise DeployError(
            f"{error}\n{job} is stopped; start it with `millrace start --env {name} {job}`"
        ) from error
    return began


def _manual_start_text(aws: DeployedEnvironment, job: str) -> str:
    name = aws.names.environment.name
    return (
        f"`millrace stop --env {name} {job}`, then `millrace start --env {name} {job}`; another deployment finds "
        "nothing to change"
    )


def _start_deployed_jobs_and_report(
    aws: DeployedEnvironment,
    jobs: Sequence[JobChange],
    look_again: Callable[[], DeploymentChanges],
    stopped: Collection[str],
    progress: Callable[[str], None],
) -> list[str]:
    """Start what was deployed before the failure; return a line for each job that starts or cannot."""
    try:
        done = {job.job for job in look_again().jobs if job.after == "leave"}
    except (AwsError, NotDeployedError) as error:
        return [f"it is unknown which jobs were deployed anyway ({error}): {_manual_start_text(aws, 'JOB')}"]
    lines = []
    for change in jobs:
        if change.job not in done:
            continue
        try:
            if _start_and_return_time(aws, change, stopped, progress) is not None:
                lines.append(
                    f"{change.job} was deployed anyway, and started: "
                    f"`millrace status --env {aws.names.environment.name} {change.job}`"
                )
        except (AwsError, DeployError, NotDeployedError) as error:
            lines.append(str(error))
    return lines


def _restart_drained_jobs_and_report(
    aws: DeployedEnvironment,
    drained: Sequence[str],
    progress: Callable[[str], None],
    then: str = "fix this and deploy again",
) -> str:
    """Start the jobs that were drained for a failed deployment; return what became of them."""
    if not drained:
        return f"nothing was stopped: {then}"
    lines, again = [], []
    for job in drained:
        try:
            _run_verb(aws, job, "start", progress=progress)
            again.append(job)
        except (AwsError, DeployError, NotDeployedError) as error:
            lines.append(
                f"{job} was drained, and did not start again ({error}); start it with `millrace start --env "
                f"{aws.names.environment.name} {job}`"
            )
    if again:
        lines.insert(0, f"{', '.join(again)} had been drained and started again as before: {then}")
    return "\n".join(lines)


def _stop_application(aws: DeployedEnvironment, job: str, progress: Callable[[str], None]) -> None:
    """Stop an EMR Serverless application, which accepts changes only when it is stopped."""
    with translating_aws_errors(f"cannot stop the application of {job}"):
        application = aws.job_outputs(job).get("ApplicationId")
        if application is None:
            return
        progress(f"{job}: stopping its application")
        stop_emr_application(aws.client("emr-serverless"), application)


def stop_emr_application(emr: Any, application: str, poll_seconds: float = 2.0) -> None:
    """Stop an application and wait until nothing of it runs.

    Raises
    ------
    AwsError
        It still runs after ten minutes.
    """
    if emr.get_application(applicationId=application)["application"]["state"] in _STOPPABLE:
        emr.stop_application(applicationId=application)
    deadline = time.monotonic() + _APPLICATION_SECONDS
    while (state := emr.get_application(applicationId=application)["application"]["state"]) not in _STOPPED:
        if time.monotonic() > deadline:
            raise AwsError(f"application {application} is still {state}: stop it and repeat the command")
        time.sleep(poll_seconds)


__all__ = [
    "AwsError",
    "DeployError",
    "DeploymentChanges",
    "UnhealthyDeploymentError",
    "UnknownHealthError",
    "changes_without_start_of_new_jobs",
    "compare_with_deployed",
    "deploy_around_jobs_and_return_started",
    "deployed_template",
    "launch_document_in_assembly",
    "read_deployed_url_and_document",
]
