"""The deployed rule and state machine copy event logs of both engines to one flat prefix."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from millrace.infra.constructs.event_log_copier import copy_machine_definition, event_log_pattern
from millrace.sandbox.programs.localstack import ACCOUNT

BUCKET = "flattened-event-logs"
EMR = "emr/flights/applications/00app/jobs/00run"


@pytest.fixture
def keys(aws) -> Callable[[], set[str]]:
    s3, states, events = aws.client("s3"), aws.client("stepfunctions"), aws.client("events")
    role = f"arn:aws:iam::{ACCOUNT}:role/anybody"  # LocalStack asks for one and checks none
    s3.create_bucket(Bucket=BUCKET)
    s3.put_bucket_notification_configuration(
        Bucket=BUCKET, NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    machine = states.create_state_machine(
        name="flatten",
        definition=json.dumps(copy_machine_definition(BUCKET, ACCOUNT)),
        roleArn=role,
        type="EXPRESS",
    )["stateMachineArn"]
    events.put_rule(Name="flatten", EventPattern=json.dumps(event_log_pattern(BUCKET)))
    events.put_targets(Rule="flatten", Targets=[{"Id": "Flatten", "Arn": machine, "RoleArn": role}])

    def listed() -> set[str]:
        return {each["Key"] for each in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())}

    return listed


def eventually(keys: Callable[[], set[str]], wanted: set[str]) -> set[str]:
    deadline = time.monotonic() + 30
    while {key for key in keys() if key.startswith("spark/")} != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return {key for key in keys() if key.startswith("spark/")}


def test_logs_of_both_engines_come_and_go_under_one_prefix(aws, keys: Callable[[], set[str]]) -> None:
    s3 = aws.client("s3")
    for key in (
        f"{EMR}/sparklogs/eventlog_v2_00run/events_1_00run.zstd",
        f"{EMR}/sparklogs/eventlog_v2_00run/appstatus_00run.inprogress",
        f"{EMR}/SPARK_DRIVER/stdout.gz",
        "glue/departures/jr_0a1b",
        "glue/departures/eventlog_v2_jr_2c/events_1_jr_2c",
    ):
        s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode())
    flat = {
        "spark/eventlog_v2_00run/events_1_00run.zstd",
        "spark/eventlog_v2_00run/appstatus_00run.inprogress",
        "spark/jr_0a1b",
        "spark/eventlog_v2_jr_2c/events_1_jr_2c",
    }
    assert eventually(keys, flat) == flat
    body = s3.get_object(Bucket=BUCKET, Key="spark/jr_0a1b")["Body"].read()
    assert body == b"glue/departures/jr_0a1b"
    s3.delete_object(Bucket=BUCKET, Key=f"{EMR}/sparklogs/eventlog_v2_00run/appstatus_00run.inprogress")
    gone = flat - {"spark/eventlog_v2_00run/appstatus_00run.inprogress"}
    assert eventually(keys, gone) == gone
