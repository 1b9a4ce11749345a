"""One run of a deployed job with arguments of its own: for a backfill or a replay of dead letters.

Glue lets a job have one run at a time, and the capacity of an EMR Serverless application is planned for one. So the job
is stopped first, and started again after the run, however it ended: its streams still hold the records that arrived in the
meantime.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from millrace.config.engines import ended_run_states
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.account.outputs_and_launch_documents import NotDeployedError, read_stack_outputs
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.jobs.logs import logged_events
from millrace.lifecycle.jobs.state_machine import execute_verb_for_answer

POLL_SECONDS = 10.0

PATIENCE_SECONDS = 60.0
"""Usual longest delay of a line from a run to CloudWatch Logs."""

_run_verb = partial(execute_verb_for_answer, reason="a run once")


@dataclass(frozen=True)
class EndedRun:
    """End of a run.

    Attributes
    ----------
    detail
        The engine's message about a failed run.
    """

    run: str
    state: str
    detail: str

    @property
    def succeeded(self) -> bool:
        """True if the entry script ended with status 0."""
        return self.state in ended_run_states.SUCCEEDED


def run_job_once(
    aws: DeployedEnvironment,
    job: str,
    arguments: Sequence[tuple[str, str]],
    *,
    progress: Callable[[str], None],
    poll_seconds: float = POLL_SECONDS,
) -> EndedRun:
    """Run a job once, instead of its continuous run.

    Parameters
    ----------
    job
        Its logical name.
    arguments
        Names and values for the entry script (``docs/launch-document.md``); a switch has an empty value.
    progress
        Called with a line whenever something new happens.
    poll_seconds
        Seconds between two looks at the run.

    Raises
    ------
    NotDeployedError
        The job is not deployed, or by a version that cannot do this.
    AwsError
        AWS refused, or the job did not stop or start; the message has its state.
    """
    was_to_run = _run_verb(aws, job, "status", progress=progress)["desired_state"] == "running"
    try:
        if was_to_run:
            # Also if it fails: a stop first sets the desired state to stopped.
            _run_verb(aws, job, "stop", progress=progress)
        run = _run_verb(aws, job, "once", progress=progress, arguments=arguments)["run"]
        ended = _wait_for_run(aws, job, run, progress, poll_seconds)
    finally:
        if was_to_run:
            _restart_continuous_run(aws, job, progress)
    return ended


def _restart_continuous_run(aws: DeployedEnvironment, job: str, progress: Callable[[str], None]) -> None:
    try:
        _run_verb(aws, job, "start", progress=progress)
    except (AwsError, NotDeployedError) as error:
        raise AwsError(
            f"{job} is stopped, because it could not be started again ({error}); start it with `millrace "
            f"start --env {aws.names.environment.name} {job}`"
        ) from error


def wait_for_logged_result(
    aws: DeployedEnvironment,
    job: str,
    since: datetime,
    event: str,
    query: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> dict[str, Any] | None:
    """Return the result that a run logged at its end.

    Parameters
    ----------
    since
        Time of the request for the run, UTC.
    event
        ``replayed`` or ``backfilled`` (``docs/launch-document.md``).
    query
        The query of the run.
    patience_seconds
        Longest wait for the line.
    poll_seconds
        Seconds between two looks.

    Returns
    -------
    dict or None
        That event; None where the log does not have it in time, or cannot be read.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            told_of = [each for each in logged_events(aws, job, since, event) if each.get("query") == query]
        except AwsError:
            return None  # the run succeeded; a caller without access to its log gets no result
        if told_of:
            return told_of[-1]
        if time.monotonic() > until:
            return None
        time.sleep(poll_seconds)


def _wait_for_run(
    aws: DeployedEnvironment, job: str, run: str, progress: Callable[[str], None], poll_seconds: float
) -> EndedRun:
    """Wait for the end of a run."""
    stack = aws.names.stack(f"job-{job}")
    with translating_aws_errors(f"cannot read stack {stack}"):
        application = read_stack_outputs(aws.client("cloudformation"), stack).get("ApplicationId")
    progress(f"run {run} has begun")
    while True:
        with translating_aws_errors(f"cannot read run {run}"):
            if application is None:
                seen = aws.client("glue").get_job_run(JobName=aws.names.job(job), RunId=run)["JobRun"]
                state, detail = seen["JobRunState"], seen.get("ErrorMessage", "")
            else:
                emr = aws.client("emr-serverless")
                seen = emr.get_job_run(applicationId=application, jobRunId=run)["jobRun"]
                state, detail = seen["state"], seen.get("stateDetails", "")
        if state in ended_run_states.ALL:
            return EndedRun(run, state, str(detail))
        time.sleep(poll_seconds)
