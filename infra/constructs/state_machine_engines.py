"""The calls that differ between Glue and EMR Serverless, for a job's state machine.

Sources: API references of AWS Glue (``GetJobRuns``, ``StartJobRun``, ``BatchStopJobRun``)
and of EMR Serverless (``ListJobRuns``, ``StartJobRun``, ``CancelJobRun``); Step Functions
writes their parameters with a capital first letter.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from infra.constructs.state_machine_definition import (
    LONGEST_GRACE_SECONDS,
    SHORTEST_GRACE_SECONDS,
    Engine,
    State,
)
from millrace.sizing.model import JobPlan

_GLUE_PAGE = 20
"""Runs in one answer, newest first: more than may begin in an hour, and far below the 256 KiB of a result."""

_EMR_PAGE = 50
_LIMIT_MS = 3_600_000

_GRACE_FACTOR, _GRACE_MARGIN_SECONDS = 1.5, 15
"""How much longer than the slowest batch of the last hour a batch may take while its job is stopped."""

_MEASURE_SECONDS = 3600


def planned_grace_seconds(plan: JobPlan, latency_seconds: float) -> int:
    """Return the grace period for a job whose batches nobody could measure.

    A batch is planned to take at most min(S - T, S/2) of the SLA S with the trigger T
    (sizing model, "What follows"), and a derive query may wait for one to land.

    Parameters
    ----------
    plan
        The job's triggers.
    latency_seconds
        Its SLA, in seconds.

    Returns
    -------
    int
        Seconds, as many as EMR Serverless takes.
    """
    longest = max(
        max(trigger, min(latency_seconds - trigger, latency_seconds / 2))
        for trigger in (float(query.trigger_seconds.value) for query in plan.queries.values())
    )
    wanted = math.ceil(2 * longest) + _GRACE_MARGIN_SECONDS
    return max(SHORTEST_GRACE_SECONDS, min(LONGEST_GRACE_SECONDS, wanted))


def glue_engine(job_name: str) -> Engine:
    """Return the calls for a Glue job; its definition allows one run at a time."""
    return Engine(
        list_runs=_call(
            "glue:getJobRuns",
            {"JobName": job_name, "MaxResults": _GLUE_PAGE},
            {
                "runs": "{% [$states.result.JobRuns.{'id': Id, 'state': JobRunState, 'at': StartedOn}] %}",
                "token": "",
            },
        ),
        start_run=_call("glue:startJobRun", {"JobName": job_name}, {"run": "{% $states.result.JobRunId %}"}),
        look_at_run=_call(
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
        stop_run=_call(
            "glue:batchStopJobRun",
            {"JobName": job_name, "JobRunIds": "{% [$going.id] %}"},
            {"run": "{% $going[0].id %}"},
        ),
        ended=("STOPPED", "SUCCEEDED", "FAILED", "TIMEOUT", "ERROR", "EXPIRED"),
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


def emr_engine(
    *,
    application_id: str,
    role_arn: str,
    name: str,
    document: Mapping[str, Any],
    document_url: str,
    logs_key_arn: str,
    log_group: str,
) -> Engine:
    """Return the calls for a streaming job run on an EMR Serverless application.

    Parameters
    ----------
    application_id, role_arn
        Where it runs and as whom.
    name
        What the runs are called.
    document, document_url
        The launch document and where it lies: everything about the run comes from it.
    logs_key_arn, log_group
        Encrypts the logs; where they go.
    """
    return Engine(
        list_runs=_call(
            "emrserverless:listJobRuns",
            "{% $merge([{'ApplicationId': '" + application_id + f"', 'MaxResults': {_EMR_PAGE}}}, "
            "$token = '' ? {} : {'NextToken': $token}]) %}",
            {
                # What ended long ago is of no interest, and a year of it would not fit a variable.
                "runs": (
                    "{% $append($runs, [$states.result.JobRuns[$not(State in ['SUCCESS', 'FAILED', 'CANCELLED'])"
                    f" or $toMillis(CreatedAt) > $millis() - {_LIMIT_MS}]"
                    ".{'id': Id, 'state': State, 'at': CreatedAt}]) %}"
                ),
                "token": "{% $exists($states.result.NextToken) ? $states.result.NextToken : '' %}",
            },
        ),
        start_run=_call(
            "emrserverless:startJobRun",
            start_job_run(
                application_id=application_id,
                role_arn=role_arn,
                name=name,
                document=document,
                document_url=document_url,
                logs_key_arn=logs_key_arn,
                log_group=log_group,
            ),
            {"run": "{% $states.result.JobRunId %}"},
        ),
        look_at_run=_call(
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
        # One at a time: there is never more than one, and if there were, the next look finds it.
        stop_run=_call(
            "emrserverless:cancelJobRun",
            {
                "ApplicationId": application_id,
                "JobRunId": "{% $going[0].id %}",
                "ShutdownGracePeriodInSeconds": "{% $grace = 0 ? $defaultGrace : $grace %}",
            },
            {"run": "{% $going[0].id %}"},
        ),
        ended=("SUCCESS", "FAILED", "CANCELLED"),
        ending=("CANCELLING",),
        busy=("EmrServerless.ConflictException",),
        gone=("EmrServerless.ConflictException", "EmrServerless.ValidationException"),
        permanent=(
            "EmrServerless.AccessDeniedException",
            "EmrServerless.ConflictException",
            "EmrServerless.ResourceNotFoundException",
            "EmrServerless.ServiceQuotaExceededException",
            "EmrServerless.ValidationException",
        ),
        measure=_measure(log_group),
    )


def start_job_run(
    *,
    application_id: str,
    role_arn: str,
    name: str,
    document: Mapping[str, Any],
    document_url: str,
    logs_key_arn: str,
    log_group: str,
) -> dict[str, Any]:
    """Write the arguments of EMR Serverless' ``StartJobRun`` out of a launch document.

    ``ClientToken`` is of the document and of the newest run that was seen, so that two
    starts at once give one run, and a start after an end gives a new one.
    """
    plain, quoted = _spark_settings(document)
    overrides: dict[str, Any] = {
        "MonitoringConfiguration": {
            "S3MonitoringConfiguration": {
                "LogUri": document["event_logs"],
                "EncryptionKeyArn": logs_key_arn,
            },
            "CloudWatchLoggingConfiguration": {
                "Enabled": True,
                "LogGroupName": log_group,
                "EncryptionKeyArn": logs_key_arn,
            },
            "ManagedPersistenceMonitoringConfiguration": {"Enabled": False},
        }
    }
    if quoted:
        overrides["ApplicationConfiguration"] = [{"Classification": "spark-defaults", "Properties": quoted}]
    fingerprint = re.sub(r"[^A-Za-z0-9]", "", document_url.rpartition("/")[2])[:24]
    return {
        "ApplicationId": application_id,
        "ClientToken": "{% '" + fingerprint + "-' & $newest %}",
        "ExecutionRoleArn": role_arn,
        "Name": name,
        "Mode": "STREAMING",
        "RetryPolicy": {"MaxFailedAttemptsPerHour": document["retries_per_hour"]},
        "JobDriver": {
            "SparkSubmit": {
                "EntryPoint": document["entry_script"],
                "EntryPointArguments": [*document["arguments"], "--launch-document", document_url],
                "SparkSubmitParameters": " ".join(f"--conf {key}={value}" for key, value in plain.items()),
            }
        },
        "ConfigurationOverrides": overrides,
    }


def _spark_settings(document: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the settings: those for the command line, and those whose blanks or quotes it would break."""
    settings: dict[str, str] = dict(document["spark"])
    settings["spark.submit.pyFiles"] = document["archive"]
    if document["jars"]:
        shipped = settings.get("spark.jars")
        settings["spark.jars"] = ",".join([*([shipped] if shipped else []), *document["jars"]])
    quoted = {key: value for key, value in settings.items() if re.search(r"[\s'\"\\]", value)}
    return {key: settings[key] for key in sorted(settings.keys() - quoted.keys())}, quoted


def _measure(log_group: str) -> dict[str, State]:
    """States that ask the job's own batch lines for the slowest one (``docs/launch-document.md``)."""
    return {
        "Measure": {
            **_call(
                "cloudwatchlogs:startQuery",
                {
                    "LogGroupName": log_group,
                    "StartTime": f"{{% $floor($millis() / 1000) - {_MEASURE_SECONDS} %}}",
                    "EndTime": "{% $floor($millis() / 1000) %}",
                    "QueryString": "filter event = 'batch' | stats max(seconds) as slowest",
                },
                {"query": "{% $states.result.QueryId %}", "looks": 0},
            ),
            "Next": "WaitForMeasure",
        },
        "WaitForMeasure": {"Type": "Wait", "Seconds": 2, "Next": "ReadMeasure"},
        "ReadMeasure": {
            **_call(
                "cloudwatchlogs:getQueryResults",
                {"QueryId": "{% $query %}"},
                {
                    "looks": "{% $looks + 1 %}",
                    "queryStatus": "{% $states.result.Status %}",
                    # One row of one column, and a value only where a batch was seen.
                    "slowest": (
                        "{% $exists($states.result.Results.Value) ? "
                        "$number($states.result.Results.Value[0]) : 0 %}"
                    ),
                },
            ),
            "Next": "Measured",
        },
        "Measured": {
            "Type": "Choice",
            "Choices": [
                {
                    "Condition": "{% $queryStatus in ['Scheduled', 'Running'] and $looks < 15 %}",
                    "Next": "WaitForMeasure",
                },
                {"Condition": "{% $queryStatus = 'Complete' %}", "Next": "SetGrace"},
            ],
            "Default": "NoMeasure",
        },
        "NoMeasure": {"Type": "Pass", "Assign": {"grace": "{% $defaultGrace %}"}, "Next": "StopRun"},
        "SetGrace": {
            "Type": "Pass",
            "Assign": {
                "grace": (
                    f"{{% $min([{LONGEST_GRACE_SECONDS}, $max([$defaultGrace, "
                    f"$ceil($slowest * {_GRACE_FACTOR}) + {_GRACE_MARGIN_SECONDS}])]) %}}"
                )
            },
            "Next": "StopRun",
        },
    }


def _call(action: str, arguments: dict[str, Any] | str, assign: dict[str, Any]) -> State:
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::aws-sdk:{action}",
        "Arguments": arguments,
        "Assign": assign,
    }
