"""Metrics that the jobs of a drill write to CloudWatch make a deployed alarm go off.

They send it themselves, to LocalStack's CloudWatch, which evaluates the alarms that the stack deployed.
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millrace.etl.launch.metric_names import BY_NAME
from millrace.infra.constructs.alarms import alarm_name
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.run_launch_document_locally import METRICS_FILE
from millrace.sizing import plan
from millrace.sizing.alarms.reported_metrics import metric_namespace
from tests.integration.conftest import JobOutcome

pytestmark = pytest.mark.slow

JOBS = ("departures", "flights")


@pytest.fixture(scope="module")
def cloudwatch(sandbox, aws, outcomes: dict[str, JobOutcome]):
    """LocalStack's CloudWatch after the drill."""
    return aws.client("cloudwatch")


def sums(client: Any, job: str) -> dict[str | None, dict[str, float]]:
    """What a job told of itself (None) and of each query: metrics by name, added up."""
    result: dict[str | None, dict[str, float]] = {}
    now = datetime.now(UTC)
    for metric in client.list_metrics(Namespace=metric_namespace(job))["Metrics"]:
        dimensions = {d["Name"]: d["Value"] for d in metric["Dimensions"]}
        assert dimensions.pop("job") == job
        (told,) = client.get_metric_statistics(
            **metric, StartTime=now - timedelta(hours=6), EndTime=now, Period=6 * 3600, Statistics=["Sum"]
        )["Datapoints"]
        result.setdefault(dimensions.get("query"), {})[metric["MetricName"]] = told["Sum"]
    return result


def state_of(client: Any, name: str, wanted: str) -> str:
    """Make LocalStack look at an alarm now, not after its periods; the alarm stays as it was deployed."""
    (alarm,) = client.describe_alarms(AlarmNames=[name])["MetricAlarms"]
    given = ("AlarmActions", "OKActions", "MetricName", "Namespace", "Statistic", "Dimensions", "Period")
    given += ("EvaluationPeriods", "DatapointsToAlarm", "Threshold", "ComparisonOperator", "TreatMissingData")
    client.put_metric_alarm(AlarmName=name, **{key: alarm[key] for key in given})
    deadline, state = time.monotonic() + 10, ""
    while state != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
        state = client.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["StateValue"]
    return state


@pytest.mark.parametrize(("job", "query"), [("departures", "land-departures"), ("flights", "land-flights")])
def test_dead_letters_set_their_alarm_off_and_a_query_that_did_not_fail_does_not(
    sandbox, cloudwatch, job, query
):
    names = {alarm.name: alarm_name(sandbox.names, alarm) for alarm in plan(sandbox.environment).alarms}
    assert state_of(cloudwatch, names[f"job/{job}/{query}/dead-letters"], "ALARM") == "ALARM"
    assert state_of(cloudwatch, names[f"job/{job}/{query}/failures"], "OK") == "OK"


@pytest.mark.parametrize("job", JOBS)
def test_every_query_of_a_job_told_what_it_is_to_tell(sandbox, cloudwatch, outcomes, job):
    told = sums(cloudwatch, sandbox.names.job(job))
    assert told[None]["Starts"] == 2, "one for each run, also the one that was killed"
    settings = sandbox.environment.jobs[job].queries
    assert told.keys() == {None, *settings}
    outcome = outcomes[job]
    for name, query in settings.items():
        metrics = told[name]
        assert metrics.keys() >= {"RecordAge", "BatchDuration", "InputRows", "BacklogSeconds", "Triggers"}
        assert metrics.keys() <= BY_NAME.keys()
        # A killed run may have written more than it told.
        assert 0 < metrics["WrittenRecords"] <= outcome.account.produced
        if query.kind == "land":
            assert 0 < metrics["BadRecords"] <= outcome.account.dead_letters
            assert "LimitedBatches" in metrics
    if job == "flights":
        assert "BacklogRecords" in told["land-flights"]


@pytest.mark.parametrize("job", JOBS)
def test_the_figures_of_the_second_run_are_in_its_file(sandbox, outcomes, job):
    lines = map(json.loads, (RUN / "jobs" / f"{job}-2" / METRICS_FILE).read_text().splitlines())
    batches = {line["query"]: line for line in lines if line.get("InputRows")}
    assert batches.keys() == set(sandbox.environment.jobs[job].queries)
    assert all(line["ProcessedRowsPerSecond"] > 0 and line["RecordAge"]["max"] for line in batches.values())
