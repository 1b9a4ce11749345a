"""What one run on EMR Serverless is asked with: the call of the state machine, without what never ends."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber
from botocore.validate import ParamValidator

from millrace.infra.constructs.state_machine_engines import start_job_run
from millrace.lifecycle import one_off_run
from millrace.lifecycle.problems import AwsError
from millrace.lifecycle.state_machine import Aws

DOCUMENT = {
    "entry_script": "s3://assets/main.py",
    "archive": "s3://assets/archive.zip",
    "arguments": [],
    "jars": [],
    "spark": {"spark.executor.cores": "4"},
    "retries_per_hour": 5,
}
CALL = start_job_run(
    application_id="00f1",
    role_arn="arn:aws:iam::123456789012:role/clicks",
    name="shop-dev-clicks",
    document=DOCUMENT,
    document_url="s3://assets/launch.json",
)


class Emr:
    """A service that starts what its own model allows."""

    def __init__(self) -> None:
        client: Any = boto3.client("emr-serverless", region_name="us-east-1")
        self.shape = client.meta.service_model.operation_model("StartJobRun").input_shape
        self.asked: list[dict[str, Any]] = []

    def start_job_run(self, **given: Any) -> dict[str, Any]:
        errors = ParamValidator().validate(given, self.shape)
        assert not errors.has_errors(), errors.generate_report()
        self.asked.append(given)
        return {"jobRunId": "00r1"}

    def get_job_run(self, **_: Any) -> dict[str, Any]:
        return {"jobRun": {"state": "SUCCESS"}}


class StepFunctions:
    """A service that has the state machine of one job."""

    def __init__(self, service: str = "emrserverless", call: dict[str, Any] = CALL) -> None:
        self.start = {"Resource": f"arn:aws:states:::aws-sdk:{service}:startJobRun", "Arguments": call}

    def describe_state_machine(self, **_: Any) -> dict[str, Any]:
        return {"definition": json.dumps({"States": {"StartRun": self.start}})}


def test_a_run_that_is_to_end_has_the_longest_time_that_there_is(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    emr = Emr()
    services = {"emr-serverless": emr, "stepfunctions": StepFunctions()}
    monkeypatch.setattr(one_off_run, "machine_arn", lambda *_: "arn:aws:states:us-east-1:123456789012:x")
    monkeypatch.setattr(one_off_run, "_verb", lambda *_: {"wish": "stopped"})
    here = Aws(aws.names, lambda service: services[service])
    ended = one_off_run.run_once(
        here, "clicks", [("--backfill", "q")], progress=lambda _: None, poll_seconds=0
    )
    assert ended.succeeded
    (given,) = emr.asked
    # A run of mode BATCH that may take forever (0) is refused; seven days are the most.
    assert CALL["ExecutionTimeoutMinutes"] == 0
    assert (given["mode"], given["executionTimeoutMinutes"]) == ("BATCH", 7 * 24 * 60)
    assert "retryPolicy" not in given
    assert given["jobDriver"]["sparkSubmit"]["entryPointArguments"][-2:] == ["--backfill", "q"]


@pytest.mark.parametrize("patience", [60.0, -1.0])
def test_a_run_that_glue_still_counts_is_waited_for(
    aws: Aws, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    """Glue shows a stopped run as ended before it clears up, and a job here has one run at a time (apache/airflow#43688)."""
    make: Any = boto3.client
    glue = Stubber(make("glue", region_name="us-east-1"))
    refusal = ("start_job_run", "ConcurrentRunsExceededException", "Concurrent runs exceeded for clicks")
    glue.add_client_error(*refusal)
    glue.add_response("start_job_run", {"JobRunId": "jr_1"}, {"JobName": "clicks", "Arguments": {"--a": "b"}})
    glue.add_response("get_job_run", {"JobRun": {"JobRunState": "SUCCEEDED"}})
    glue.activate()
    services = {"glue": glue.client, "stepfunctions": StepFunctions("glue", {"JobName": "clicks"})}
    monkeypatch.setattr(one_off_run, "machine_arn", lambda *_: "arn:aws:states:us-east-1:123456789012:x")
    monkeypatch.setattr(one_off_run, "_verb", lambda *_: {"wish": "stopped"})
    monkeypatch.setattr(one_off_run, "_CLEARED_SECONDS", patience)
    here = Aws(aws.names, lambda service: services[service])
    start = partial(one_off_run.run_once, here, "clicks", [("--a", "b")], poll_seconds=0)
    if patience > 0:
        assert start(progress=lambda _: None).succeeded
        glue.assert_no_pending_responses()
    else:
        with pytest.raises(AwsError, match="Concurrent runs exceeded for clicks"):
            start(progress=lambda _: None)
