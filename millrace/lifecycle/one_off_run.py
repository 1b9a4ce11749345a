"""One run of a deployed job with arguments of its own: for a backfill or a replay of dead letters.

Glue lets a job have one run at a time, and the capacity of an EMR Serverless application is planned for one. So the job
is stopped first, and started again after the run, however it ended: its streams still hold the records that arrived in the
meantime.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.lifecycle.deployed import NotDeployedError, ignore_missing
from millrace.lifecycle.logs import events
from millrace.lifecycle.problems import AwsError, translate_aws_errors
from millrace.lifecycle.state_machine import Aws, Verb, execute, machine_arn

POLL_SECONDS = 10.0

PATIENCE_SECONDS = 60.0
"""Usual longest delay of a line from a run to CloudWatch Logs."""

_CLEARED_SECONDS = 120.0
"""Longest time for which Glue counts a run that has ended: it shows the state before it clears up (apache/airflow#43688)."""

_ENDED = (
    *("STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED"),
    *("SUCCESS", "FAILED", "CANCELLED"),
)
"""States of a run that has ended, on Glue and on EMR Serverless."""

_EMR_LONGEST_BATCH_MINUTES = 10_080
"""Longest time of a run of mode BATCH (API reference, StartJobRun); only streaming runs may have no limit."""

_EMR_STREAMING = ("ClientToken", "ExecutionTimeoutMinutes", "Mode", "RetryPolicy")
"""Keys of the call that only continuous runs have."""
_WELL = ("SUCCEEDED", "SUCCESS")


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
        return self.state in _WELL


def run_once(
    aws: Aws,
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
    start = _start_of(aws, job)
    was_to_run = _verb(aws, job, "status", progress)["wish"] == "running"
    try:
        if was_to_run:
            # Also if it fails: a stop first sets the desired state to stopped.
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


def await_outcome(
    aws: Aws,
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
            told_of = [each for each in events(aws, job, since, event) if each.get("query") == query]
        except AwsError:
            return None  # the run succeeded; a caller without access to its log gets no result
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


_Run = Callable[[Sequence[tuple[str, str]], Callable[[str], None], float], EndedRun]


def _start_of(aws: Aws, job: str) -> _Run:
    """Return a function that runs a job once, with the call by which its state machine starts it."""
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
    """Return resource and arguments of the first call of a definition whose resource has this ending."""
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
) -> EndedRun:
    glue, run = aws.client("glue"), ""
    until = time.monotonic() + _CLEARED_SECONDS
    while not run:
        counted = () if time.monotonic() > until else ("ConcurrentRunsExceededException",)
        with translate_aws_errors(f"starting job {name} once"), ignore_missing(*counted):
            run = glue.start_job_run(JobName=name, Arguments=dict(arguments))["JobRunId"]
        if not run:
            time.sleep(poll_seconds)
    return _watch(
        run,
        lambda: glue.get_job_run(JobName=name, RunId=run)["JobRun"],
        ("JobRunState", "ErrorMessage"),
        progress,
        poll_seconds,
    )


def _on_emr(
    aws: Aws,
    job: str,
    call: Mapping[str, Any],
    arguments: Sequence[tuple[str, str]],
    progress: Callable[[str], None],
    poll_seconds: float,
) -> EndedRun:
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
    return _watch(
        run,
        lambda: emr.get_job_run(applicationId=given["applicationId"], jobRunId=run)["jobRun"],
        ("state", "stateDetails"),
        progress,
        poll_seconds,
    )


def _watch(
    run: str,
    look: Callable[[], Mapping[str, Any]],
    keys: tuple[str, str],
    progress: Callable[[str], None],
    poll_seconds: float,
) -> EndedRun:
    """Wait for the end of a run; ``keys`` name its state and its message in the engine's answer."""
    state, detail = keys
    progress(f"run {run} has begun")
    while True:
        with translate_aws_errors(f"looking at run {run}"):
            seen = look()
        if seen[state] in _ENDED:
            return EndedRun(run, seen[state], str(seen.get(detail, "")))
        time.sleep(poll_seconds)


_OURS = ("Properties",)
"""Keys whose content has names that are not the service's."""


def _as_boto(node: Any) -> Any:
    """Return a call of Step Functions in boto3's form: names begin with a small letter."""
    if isinstance(node, list):
        return [_as_boto(each) for each in node]
    if isinstance(node, dict):
        return {
            key[0].lower() + key[1:]: value if key in _OURS else _as_boto(value)
            for key, value in node.items()
        }
    return node
