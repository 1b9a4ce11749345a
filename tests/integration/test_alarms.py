"""What the jobs of a drill printed for CloudWatch makes a deployed alarm go off.

LocalStack has no extraction of metrics from logs: the test does what CloudWatch's specification says,
and hands the values to LocalStack's CloudWatch, which evaluates the alarms that the stack deployed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from etl.metrics.catalogue import BY_NAME
from infra.constructs.alarms import alarm_name
from millrace.sandbox.drill import Outcome
from millrace.sandbox.live import METRICS_FILE, states
from millrace.sandbox.process import RUN

JOBS = ("departures", "flights")


def printed(job: str) -> Iterator[dict[str, Any]]:
    """Lines in the embedded metric format, of both runs; each must be whole."""
    for run in (f"{job}-1", f"{job}-2"):
        for line in (RUN / "jobs" / run / "driver.log").read_text().splitlines():
            if "CloudWatchMetrics" in line:
                yield json.loads(line)


def data(line: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What CloudWatch makes of a line: namespace and datum."""
    for directive in line["_aws"]["CloudWatchMetrics"]:
        (names,) = directive["Dimensions"]
        for metric in directive["Metrics"]:
            values = line[metric["Name"]]
            yield (
                directive["Namespace"],
                {
                    "MetricName": metric["Name"],
                    "Unit": metric["Unit"],
                    "Dimensions": [{"Name": name, "Value": line[name]} for name in names],
                    "Values": values if isinstance(values, list) else [values],
                    "Timestamp": datetime.fromtimestamp(line["_aws"]["Timestamp"] / 1000, UTC),
                },
            )


@pytest.fixture(scope="module")
def cloudwatch(sandbox, aws, outcomes: dict[str, Outcome]):
    """LocalStack's CloudWatch with the metrics of the drill in it."""
    client = aws.client("cloudwatch")
    found = [each for job in JOBS for line in printed(job) for each in data(line)]
    assert {namespace for namespace, _ in found} == {"Millrace"}
    for start in range(0, len(found), 100):
        client.put_metric_data(
            Namespace="Millrace", MetricData=[datum for _, datum in found[start : start + 100]]
        )
    return client


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
    names = {alarm.name: alarm_name(sandbox.names, alarm) for alarm in sandbox.plan.alarms}
    assert state_of(cloudwatch, names[f"job/{job}/{query}/dead-letters"], "ALARM") == "ALARM"
    assert state_of(cloudwatch, names[f"job/{job}/{query}/failures"], "OK") == "OK"


@pytest.mark.parametrize("job", JOBS)
def test_every_query_of_a_job_told_what_it_is_to_tell(sandbox, outcomes, job):
    told: dict[str | None, dict[str, list[float]]] = {}
    for line in printed(job):
        assert line["job"] == sandbox.names.job(job)
        for _, datum in data(line):
            told.setdefault(line.get("query"), {}).setdefault(datum["MetricName"], []).extend(datum["Values"])
    assert told[None]["Starts"] == [1, 1], "one for each run, also the one that was killed"
    settings = sandbox.environment.jobs[job].queries
    assert told.keys() == {None, *settings}
    outcome = outcomes[job]
    for name, query in settings.items():
        metrics = told[name]
        assert metrics.keys() >= {"RecordAge", "BatchDuration", "InputRows", "BacklogSeconds", "Triggers"}
        assert metrics.keys() <= BY_NAME.keys()
        # A killed run may have written more than it told.
        assert 0 < sum(metrics["WrittenRecords"]) <= outcome.account.produced
        if query.kind == "land":
            assert 0 < sum(metrics["BadRecords"]) <= outcome.account.dead_letters
            assert "LimitedBatches" in metrics
    if job == "flights":
        assert told["land-flights"]["BacklogRecords"][-1] == 0, "all of it was read in the end"


@pytest.mark.parametrize("job", JOBS)
def test_the_live_state_of_the_second_run_is_in_its_file(sandbox, outcomes, job):
    found = states(RUN / "jobs" / f"{job}-2" / METRICS_FILE)
    assert found.keys() == set(sandbox.environment.jobs[job].queries)
    assert all(state.rows_per_second > 0 and state.age_max is not None for state in found.values())
