"""The calls that differ between Glue and EMR Serverless, for a job's state machine.

Sources: API references of AWS Glue (``GetJobRuns``, ``StartJobRun``, ``BatchStopJobRun``)
and of EMR Serverless (``ListJobRuns``, ``StartJobRun``, ``CancelJobRun``); Step Functions
writes their parameters with a capital first letter.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.config.engines import ended_run_states
from millrace.etl.launch.metric_names import BY_NAME
from millrace.sizing.alarms.reported_metrics import metric_namespace
from millrace.sizing.plan_model import JobPlan

from .state_machine_building_blocks import State, choice_state
from .state_machine_definition import (
    LONGEST_GRACE_SECONDS,
    SHORTEST_GRACE_SECONDS,
    EngineCalls,
)

_GLUE_PAGE = 20
"""Runs in one answer, newest first: more than may start in an hour, and far below a result's limit of 256 KiB."""

_EMR_PAGE = 50
_LIMIT_MS = 3_600_000

_GRACE_FACTOR, _GRACE_MARGIN_SECONDS = 1.5, 15
"""Allowance for a batch while its job is stopped: a factor of the slowest recent batch, plus a margin."""

_LONGEST_BATCH_MINUTES = 10_080
"""Longest time of a run of mode BATCH (API reference, StartJobRun)."""

_RECENT_HOURS = 6
_HOUR_SECONDS = 3600


def grace_seconds_from_plan(plan: JobPlan, latency_seconds: float) -> int:
    """Return the grace period for a job whose batches could not be measured.

    A batch is planned to take at most min(S - T, S/2) of the SLA S with the trigger T
    (sizing model, "What follows"), and a derive query may wait for a land query's batch.

    Parameters
    ----------
    latency_seconds
        The job's SLA, in seconds.

    Returns
    -------
    int
        Seconds, within the limits of EMR Serverless.
    """
    longest = max(
        max(trigger, min(latency_seconds - trigger, latency_seconds / 2))
        for trigger in (float(query.trigger_seconds.value) for query in plan.queries.values())
    )
    grace = math.ceil(2 * longest) + _GRACE_MARGIN_SECONDS
    return max(SHORTEST_GRACE_SECONDS, min(LONGEST_GRACE_SECONDS, grace))


def glue_engine_calls(job_name: str, starts_per_hour: int = 0) -> EngineCalls:
    """Return the calls for a Glue job; its definition allows one run at a time.

    Parameters
    ----------
    starts_per_hour
        Most starts in an hour, all of which are listed.
    """
    return EngineCalls(
        list_runs=_api_call_state(
            "glue:getJobRuns",
            {"JobName": job_name, "MaxResults": max(_GLUE_PAGE, starts_per_hour)},
            {
                "runs": "{% [$states.result.JobRuns.{'id': Id, 'state': JobRunState, 'at': StartedOn}] %}",
                "token": "",
            },
        ),
        start_run=_api_call_state(
            "glue:startJobRun",
            f"{{% $merge([{{'JobName': '{job_name}'}}, "
            "$count($once) = 0 ? {} : {'Arguments': $merge($once.{name: value})}]) %}",
            {"run": "{% $states.result.JobRunId %}"},
        ),
        look_at_run=_api_call_state(
            "glue:getJobRun",
            {"JobName": job_name, "RunId": "{% $run %}"},
            {
                "state": "{% $states.result.JobRun.JobRunState %}",
                "detail": (
                    "{% $exists($states.result.JobRun.ErrorMessage) ? "
                    "$states.result.JobRun.ErrorMessage : '' %}"
                ),
            },
        ),
        stop_run=_api_call_state(
            "glue:batchStopJobRun",
            {"JobName": job_name, "JobRunIds": "{% [$going.id] %}"},
            {"run": "{% $going[0].id %}"},
        ),
        succeeded="SUCCEEDED",
        ended=ended_run_states.GLUE,
        ending=("STOPPING",),
        busy=("Glue.ConcurrentRunsExceededException",),
        gone=("Glue.EntityNotFoundException",),
        permanent=(
            "Glue.AccessDeniedException",
            "Glue.ConcurrentRunsExceededException",
            "Glue.EntityNotFoundException",
            "Glue.InvalidInputException",
            "Glue.ResourceNumberLimitExceededException",
        ),
        measure={},
    )


def emr_engine_calls(
    *,
    application_id: str,
    role_arn: str,
    name: str,
    document: Mapping[str, Any],
    document_url: str,
    queries: Sequence[str],
) -> EngineCalls:
    """Return the calls for a job run on an EMR Serverless application.

    Parameters
    ----------
    application_id, role_arn
        The application, and the role of its runs.
    name
        Name of the runs.
    document, document_url
        The launch document and its URL: everything about the run comes from it.
    queries
        Names of the job's queries, whose batches are measured; ``name`` is the job in their metrics.
    """
    return EngineCalls(
        list_runs=_api_call_state(
            "emrserverless:listJobRuns",
            "{% $merge([{'ApplicationId': '" + application_id + f"', 'MaxResults': {_EMR_PAGE}}}, "
            "$token = '' ? {} : {'NextToken': $token}]) %}",
            {
                # Runs that ended long ago do not matter, and those of a year would not fit in a variable.
                "runs": (
                    "{% $append($runs, [$states.result.JobRuns[$not(State in ['SUCCESS', 'FAILED', 'CANCELLED'])"
                    f" or $toMillis(CreatedAt) > $millis() - {_LIMIT_MS}]"
                    ".{'id': Id, 'state': State, 'at': CreatedAt}]) %}"
                ),
                # However old it is: two simultaneous starts see the same newest run and make the same token of it.
                "newest": (
                    "{% [($append($newest, [$states.result.JobRuns.{'id': Id, 'at': CreatedAt}])^(>at))[0]] %}"
                ),
                "token": "{% $exists($states.result.NextToken) ? $states.result.NextToken : '' %}",
            },
        ),
        start_run=_api_call_state(
            "emrserverless:startJobRun",
            start_job_run_arguments(
                application_id=application_id,
                role_arn=role_arn,
                name=name,
                document=document,
                document_url=document_url,
            ),
            {"run": "{% $states.result.JobRunId %}"},
        ),
        look_at_run=_api_call_state(
            "emrserverless:getJobRun",
            {"ApplicationId": application_id, "JobRunId": "{% $run %}"},
            {
                "state": "{% $states.result.JobRun.State %}",
                "detail": (
                    "{% $exists($states.result.JobRun.StateDetails) ? "
                    "$states.result.JobRun.StateDetails : '' %}"
                ),
            },
        ),
        # One at a time: there is never more than one run, and if there were, the next look would find it.
        stop_run=_api_call_state(
            "emrserverless:cancelJobRun",
            {
                "ApplicationId": application_id,
                "JobRunId": "{% $going[0].id %}",
                "ShutdownGracePeriodInSeconds": "{% $grace = 0 ? $defaultGrace : $grace %}",
            },
            {"run": "{% $going[0].id %}"},
        ),
        succeeded="SUCCESS",
        ended=ended_run_states.EMR_SERVERLESS,
        ending=("CANCELLING",),
        busy=("EmrServerless.ConflictException",),
        gone=("EmrServerless.ConflictException", "EmrServerless.ValidationException"),
        permanent=(
            "EmrServerless.ConflictException",
            "EmrServerless.ResourceNotFoundException",
            "EmrServerless.ServiceQuotaExceededException",
            "EmrServerless.ValidationException",
        ),
        measure=_states_that_ask_slowest_batch(name, queries),
    )


def start_job_run_arguments(
    *,
    application_id: str,
    role_arn: str,
    name: str,
    document: Mapping[str, Any],
    document_url: str,
) -> dict[str, Any]:
    """Write the arguments of EMR Serverless' ``StartJobRun`` from a launch document.

    ``ClientToken`` consists of the application and the newest run that was seen. So simultaneous
    starts give one run, at any time and with any document, and a start after an end gives a new
    one. Logs and metrics are configured in the application: a monitoring configuration of the run
    would replace all of it, Prometheus included (user guide, "Default application configuration").
    """
    plain, quoted = _split_settings_by_command_line_fit(document)
    arguments = [*document["arguments"], "--launch-document", document_url]
    retries, batch = document["retries_per_hour"], document["settings"]["run_every_seconds"] is not None
    most, once_only = str(_LONGEST_BATCH_MINUTES), "{'MaxAttempts': 1}"
    call: dict[str, Any] = {
        "ApplicationId": application_id,
        "ClientToken": ("{% '" + application_id + "-' & ($count($newest) > 0 ? $newest[0].id : 'first') %}"),
        "ExecutionRoleArn": role_arn,
        "Name": name,
        "Mode": "BATCH" if batch else _conditional_value_for_own_arguments("'STREAMING'", "'BATCH'"),
        # By default a run is cancelled after 12 hours, without a grace period; 0 means no limit (EMR Serverless
        # user guide, "Other considerations"), which only streaming runs may have.
        "ExecutionTimeoutMinutes": _LONGEST_BATCH_MINUTES
        if batch
        else _conditional_value_for_own_arguments("0", most),
        "RetryPolicy": {"MaxAttempts": 1}
        if batch
        else _conditional_value_for_own_arguments(f"{{'MaxFailedAttemptsPerHour': {retries}}}", once_only),
        "JobDriver": {
            "SparkSubmit": {
                "EntryPoint": document["entry_script"],
                # A switch has an empty value.
                "EntryPointArguments": (
                    f"{{% $append({json.dumps(arguments)}, $once.(value = '' ? name : [name, value])) %}}"
                ),
                "SparkSubmitParameters": " ".join(f"--conf {key}={value}" for key, value in plain.items()),
            }
        },
    }
    if quoted:
        call["ConfigurationOverrides"] = {
            "ApplicationConfiguration": [{"Classification": "spark-defaults", "Properties": quoted}]
        }
    return call


def _conditional_value_for_own_arguments(value: str, once: str) -> str:
    """Write a field's value, and another one for a run with arguments of its own; both are JSONata expressions."""
    return f"{{% $verb = 'once' ? {once} : {value} %}}"


def _split_settings_by_command_line_fit(document: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the settings: those for the command line, and those with blanks or quotes, which would break it."""
    settings: dict[str, str] = {**document["spark"], "spark.submit.pyFiles": document["archive"]}
    if document["jars"]:
        shipped = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*([shipped] if shipped else []), *document["jars"]])
    quoted = {key: value for key, value in settings.items() if re.search(r"[\s'\"\\]", value)}
    return {key: settings[key] for key in sorted(settings.keys() - quoted.keys())}, quoted


def _states_that_ask_slowest_batch(job: str, queries: Sequence[str]) -> dict[str, State]:
    """Return the states that ask the job's own metric for the slowest recent batch (``docs/metrics.md``)."""
    metric = BY_NAME["BatchDuration"]
    ask = _api_call_state(
        "cloudwatch:getMetricData",
        {
            "StartTime": f"{{% $fromMillis($millis() - {_RECENT_HOURS * _HOUR_SECONDS * 1000}) %}}",
            "EndTime": "{% $now() %}",
            "MetricDataQueries": [
                {
                    "Id": f"q{number}",
                    "MetricStat": {
                        "Metric": {
                            "Namespace": metric_namespace(job),
                            "MetricName": metric.name,
                            "Dimensions": [
                                {"Name": "job", "Value": job},
                                {"Name": "query", "Value": query},
                            ],
                        },
                        "Period": _HOUR_SECONDS,
                        "Stat": "Maximum",
                    },
                }
                for number, query in enumerate(queries)
            ],
        },
        {
            "slowest": (
                "{% ($all := [$states.result.MetricDataResults.Values]; $count($all) > 0 ? $max($all) : 0) %}"
            )
        },
    )
    return {
        "Measure": {
            **ask,
            "Retry": [
                {
                    "ErrorEquals": ["States.TaskFailed"],
                    "IntervalSeconds": 1,
                    "BackoffRate": 2,
                    "MaxAttempts": 3,
                }
            ],
            # Stop also when the slowest batch is not known.
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "SetGrace"}],
            "Next": "Measured",
        },
        "Measured": choice_state(
            (f"$verb = 'drain' and $slowest > {LONGEST_GRACE_SECONDS}", "KeepDesiredState"),
            default="SetGrace",
        ),
        "SetGrace": {
            "Type": "Pass",
            "Assign": {
                "grace": (
                    f"{{% $verb = 'drain' ? {LONGEST_GRACE_SECONDS} : $min([{LONGEST_GRACE_SECONDS}, "
                    f"$max([$defaultGrace, $ceil($slowest * {_GRACE_FACTOR}) + {_GRACE_MARGIN_SECONDS}])]) %}}"
                )
            },
            "Next": "StopRun",
        },
    }


def _api_call_state(action: str, arguments: dict[str, Any] | str, assign: dict[str, Any]) -> State:
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::aws-sdk:{action}",
        "Arguments": arguments,
        "Assign": assign,
    }
