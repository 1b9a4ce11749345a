"""One run of a deployed job with arguments of its own: to backfill, or to replay dead letters.

Glue lets a job have one run at a time, and the capacity of an EMR Serverless application is planned for one. So the job
is stopped first, and started again when the run has ended, however it ended: what its streams took in meanwhile they
still hold.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.lifecycle.deployed import NotDeployedError
from millrace.lifecycle.logs import events
from millrace.lifecycle.problems import AwsError, translate_aws_errors
from millrace.lifecycle.state_machine import Aws, Verb, execute, machine_arn

POLL_SECONDS = 10.0

PATIENCE_SECONDS = 60.0
"""A line is seldom longer on its way from a run to CloudWatch Logs."""

_GLUE_ENDED = ("STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED")
_EMR_ENDED = ("SUCCESS", "FAILED", "CANCELLED")
_EMR_LONGEST_BATCH_MINUTES = 10_080
"""What a run of mode BATCH may take at most (API reference, StartJobRun); no limit at all is for streaming runs."""

_EMR_STREAMING = ("ClientToken", "ExecutionTimeoutMinutes", "Mode", "RetryPolicy")
"""Keys of the call that are of a continuous run."""
_WELL = ("SUCCEEDED", "SUCCESS")


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes
    ----------
    detail
        What the engine says of a run that did not end well.
    """

    run: str
    state: str
    detail: str

    @property
    def succeeded(self) -> bool:
        """Whether the entry script ended with status 0."""
        return self.state in _WELL


def run_once(
    aws: Aws,
    job: str,
    arguments: Sequence[tuple[str, str]],
    *,
    progress: Callable[[str], None],
    poll_seconds: float = POLL_SECONDS,
) -> Ended:
    """Run a job once, in place of its continuous run.

    Parameters
    ----------
    aws
        Where it is deployed.
    job
        Its logical name.
    arguments
        Names and values for the entry script (``docs/launch-document.md``); a switch has an empty value.
    progress
        Called with a line whenever something new happens.
    poll_seconds
        How often the run is looked at.

    Raises
    ------
    NotDeployedError
        The job is not deployed, or by a version that cannot.
    AwsError
        AWS refused, or the job did not stop or start; says how it stands.
    """
    start = _start_of(aws, job)
    was_to_run = _verb(aws, job, "status", progress)["wish"] == "running"
    try:
        if was_to_run:
            # Whatever comes of it: first of all a stop notes that the job is to stay stopped.
            _verb(aws, job, "stop", progress)
        ended = start(arguments, progress, poll_seconds)
    finally:
        if was_to_run:
            _start_again(aws, job, progress)
    return ended


def _start_again(aws: Aws, job: str, progress: Callable[[str], None]) -> None:
    try:
        _verb(aws, job, "start", progress)
    except (AwsError, NotDeployedError) as error:
        raise AwsError(
            f"{job} is stopped, because it did not start again ({error}); start it with `millrace start --env "
            f"{aws.names.environment.name} {job}`"
        ) from error


def outcome(
    aws: Aws,
    job: str,
    since: datetime,
    event: str,
    query: str,
    *,
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> dict[str, Any] | None:
    """Return what a run said at its end, by the job's log.

    Parameters
    ----------
    since
        When the run was asked for, UTC.
    event
        ``replayed`` or ``backfilled`` (``docs/launch-document.md``).
    query
        What it was done to.
    patience_seconds
        How long the line is waited for.
    poll_seconds
        Between two looks.

    Returns
    -------
    dict or None
        That event; None where the log has not got it in time, or cannot be read.
    """
    until = time.monotonic() + patience_seconds
    while True:
        try:
            told_of = [each for each in events(aws, job, since, event) if each.get("query") == query]
        except AwsError:
            return None  # the run is done and well; who may not read its log is told less
        if told_of:
            return told_of[-1]
        if time.monotonic() > until:
            return None
        time.sleep(poll_seconds)


def _verb(aws: Aws, job: str, verb: Verb, progress: Callable[[str], None]) -> dict[str, Any]:
    done = execute(aws, job, verb, progress=lambda phrase: progress(f"{job}: {phrase}"), reason="a run once")
    if not done.ok:
        raise AwsError(
            f"{verb} of {job} failed: {done.outcome}: {done.message}; look at it with "
            f"`millrace status --env {aws.names.environment.name} {job}`"
        )
    return done.answer


_Run = Callable[[Sequence[tuple[str, str]], Callable[[str], None], float], Ended]


def _start_of(aws: Aws, job: str) -> _Run:
    """What runs a job once: with the very call that its state machine starts it by."""
    arn = machine_arn(aws, job)
    with translate_aws_errors(f"reading the state machine of {job}"):
        definition = json.loads(
            aws.client("stepfunctions").describe_state_machine(stateMachineArn=arn)["definition"]
        )
    found = _find(definition, ":startJobRun")
    if found is None:
        raise NotDeployedError(
            f"the state machine of {job} has no step that starts a run; deploy the job with this version"
        )
    resource, call = found
    if ":glue:" in resource:
        return lambda *given: _on_glue(aws, call["JobName"], *given)
    return lambda *given: _on_emr(aws, job, call, *given)


def _find(node: Any, ending: str) -> tuple[str, dict[str, Any]] | None:
    """Resource and arguments of the first call of a definition whose resource ends so."""
    if isinstance(node, dict):
        resource = node.get("Resource")
        if (
            isinstance(resource, str)
            and resource.endswith(ending)
            and isinstance(node.get("Arguments"), dict)
        ):
            return resource, node["Arguments"]
        node = list(node.values())
    if isinstance(node, list):
        return next((found for each in node if (found := _find(each, ending)) is not None), None)
    return None


def _on_glue(
    aws: Aws,
    name: str,
    arguments: Sequence[tuple[str, str]],
    progress: Callable[[str], None],
    poll_seconds: float,
) -> Ended:
    glue = aws.client("glue")
    with translate_aws_errors(f"starting job {name} once"):
        run = glue.start_job_run(JobName=name, Arguments=dict(arguments))["JobRunId"]
    progress(f"run {run} has begun")
    while True:
        with translate_aws_errors(f"looking at run {run}"):
            seen = glue.get_job_run(JobName=name, RunId=run)["JobRun"]
        if seen["JobRunState"] in _GLUE_ENDED:
            return Ended(run, seen["JobRunState"], str(seen.get("ErrorMessage", "")))
        time.sleep(poll_seconds)


def _on_emr(
    aws: Aws,
    job: str,
    call: Mapping[str, Any],
    arguments: Sequence[tuple[str, str]],
    progress: Callable[[str], None],
    poll_seconds: float,
) -> Ended:
    emr = aws.client("emr-serverless")
    given = _as_boto({key: value for key, value in call.items() if key not in _EMR_STREAMING})
    given["jobDriver"]["sparkSubmit"]["entryPointArguments"] += [
        part for pair in arguments for part in pair if part
    ]
    with translate_aws_errors(f"starting job {job} once"):
        run = emr.start_job_run(
            clientToken=uuid.uuid4().hex,
            mode="BATCH",
            executionTimeoutMinutes=_EMR_LONGEST_BATCH_MINUTES,
            **given,
        )["jobRunId"]
    progress(f"run {run} has begun")
    while True:
        with translate_aws_errors(f"looking at run {run}"):
            seen = emr.get_job_run(applicationId=given["applicationId"], jobRunId=run)["jobRun"]
        if seen["state"] in _EMR_ENDED:
            return Ended(run, seen["state"], str(seen.get("stateDetails", "")))
        time.sleep(poll_seconds)


_OURS = ("Properties",)
"""Keys below which names are not the service's."""


def _as_boto(node: Any) -> Any:
    """A call as Step Functions writes it, as boto3 takes it: names begin with a small letter."""
    if isinstance(node, list):
        return [_as_boto(each) for each in node]
    if isinstance(node, dict):
        return {
            key[0].lower() + key[1:]: value if key in _OURS else _as_boto(value)
            for key, value in node.items()
        }
    return node
