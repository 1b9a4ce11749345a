"""Metrics by query kind: the bill counts and the dashboards show the same ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.config import environment_names, load
from millrace.config.network_storage_governance_observability import Observability
from millrace.etl.launch.metric_names import BY_NAME, METRICS
from millrace.etl.metrics import cloudwatch
from millrace.sizing import plan
from millrace.sizing.alarms.alarm_stacks import MOST_IN_A_STACK, alarms_divided_into_stacks
from millrace.sizing.alarms.reported_metrics import metric_count, reporting_queries
from millrace.sizing.prices_and_limits import service_limits
from tests.unit.sizing.conftest import Loader, text

ROOT = Path(__file__).parents[3]


def test_what_a_query_reads_decides() -> None:
    environment = load("local", root=ROOT)
    kafka, kinesis = ("land-flights", "flights-weather"), ("land-departures", "enrich-departures")
    assert reporting_queries(BY_NAME["RecordAge"], environment, "flights") == kafka
    assert reporting_queries(BY_NAME["BacklogRecords"], environment, "flights") == kafka[:1]
    assert reporting_queries(BY_NAME["BacklogRecords"], environment, "departures") == ()
    assert reporting_queries(BY_NAME["LimitedBatches"], environment, "departures") == kinesis[:1]
    assert reporting_queries(BY_NAME["StateRows"], environment, "flights") == ()
    assert reporting_queries(BY_NAME["Starts"], environment, "flights") == ()


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_the_bill_counts_what_is_sent(name: str) -> None:
    environment = load(name, root=ROOT)
    queries = sum(len(job.queries) for job in environment.jobs.values())
    of_jobs = [metric for metric in METRICS if not metric.is_per_query]
    always = [metric for metric in METRICS if metric.of == "query"]
    count = metric_count(environment)
    assert count >= queries * len(always) + len(environment.jobs) * len(of_jobs)
    assert count <= queries * (len(METRICS) - len(of_jobs)) + len(environment.jobs) * len(of_jobs)
    (line,) = [item for item in plan(environment).shared if item.name == "metrics"]
    assert line.why.startswith(f"{count} of ours")
    assert line.usd == pytest.approx(0.30 * count)


def test_the_bill_counts_a_call_for_each_interval_of_the_core(from_text: Loader) -> None:
    assert service_limits()["usage.metrics_seconds"] == cloudwatch.GATHER_SECONDS
    for sla, calls in (("20s", 30 * 86_400 / 30), ("2h", None)):
        (job,) = plan(from_text(text(sla=sla))).jobs.values()
        (line,) = [item for item in job.cost if item.name == "metric calls"]
        apart = max(query.trigger_seconds.value for query in job.queries.values())
        expected = calls or 30 * 86_400 / apart
        assert line.usd == pytest.approx(expected / 1000 * 0.01, rel=0.02)


@pytest.mark.parametrize("apart", [False, True])
def test_more_alarms_than_a_stack_holds_are_in_numbered_ones(from_text: Loader, apart: bool) -> None:
    environment = from_text(text(sla="60s") + "\nobservability: {alarms: by-job}\n" * apart)
    (kind, *_) = plan(environment).alarms
    many = [
        replace(kind, name=f"{subject}/{number}", subject=subject)
        for subject in (*(f"job/j{n}" for n in range(300)), *(f"stream/s{n}" for n in range(200)))
        for number in range(10)
    ]
    shared = [each for each in many if not (apart and each.watches_job)]
    before: dict[str, int] = {}
    for count in (100, 450, 460, 1500, len(shared)):
        stacks = alarms_divided_into_stacks(environment, shared[:count])
        assert max(map(len, stacks)) <= MOST_IN_A_STACK
        assert sorted(a.name for each in stacks for a in each) == sorted(a.name for a in shared[:count])
        # A stack that is deployed after the others may take alarms from them: no other alarm moves.
        places = {alarm.name: number for number, each in enumerate(stacks) for alarm in each}
        assert all(places[name] >= place for name, place in before.items())
        before = places
    one = [replace(kind, name=f"job/j/{number}", subject="job/j") for number in range(700)]
    assert (
        max(
            map(
                len,
                alarms_divided_into_stacks(
                    environment.model_copy(update={"observability": Observability()}), one
                ),
            )
        )
        <= 450
    )
