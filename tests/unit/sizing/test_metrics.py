"""Which query reports which metric: the bill counts them, the dashboards show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, environments, load
from millrace.etl.metrics import cloudwatch
from millrace.sizing import alarms, plan
from millrace.sizing.metrics import BY_NAME, METRICS, metric_count, reporters
from millrace.sizing.prices_and_limits import limits
from tests.unit.sizing.conftest import Loader, text

ROOT = Path(__file__).parents[3]


def test_what_a_query_reads_decides() -> None:
    environment = load("local", root=ROOT)
    kafka, kinesis = ("land-flights", "flights-weather"), ("land-departures", "enrich-departures")
    assert reporters(BY_NAME["RecordAge"], environment, "flights") == kafka
    assert reporters(BY_NAME["BacklogRecords"], environment, "flights") == kafka[:1]
    assert reporters(BY_NAME["BacklogRecords"], environment, "departures") == ()
    assert reporters(BY_NAME["LimitedBatches"], environment, "departures") == kinesis[:1]
    assert reporters(BY_NAME["StateRows"], environment, "flights") == ()
    assert reporters(BY_NAME["Starts"], environment, "flights") == ()


@pytest.mark.parametrize("name", environments(ROOT))
def test_the_bill_counts_what_is_sent(name: str) -> None:
    environment = load(name, root=ROOT)
    queries = sum(len(job.queries) for job in environment.jobs.values())
    of_jobs = [metric for metric in METRICS if not metric.per_query]
    always = [metric for metric in METRICS if metric.of == "query"]
    count = metric_count(environment)
    assert count >= queries * len(always) + len(environment.jobs) * len(of_jobs)
    assert count <= queries * (len(METRICS) - len(of_jobs)) + len(environment.jobs) * len(of_jobs)
    (line,) = [item for item in plan(environment).shared if item.name == "metrics"]
    assert line.why.startswith(f"{count} of ours")
    assert line.usd == pytest.approx(0.30 * count)


def test_the_bill_counts_a_call_for_each_interval_of_the_core(from_text: Loader) -> None:
    assert limits()["usage.metrics_seconds"] == cloudwatch.GATHER_SECONDS
    for sla, calls in (("20s", 30 * 86_400 / 30), ("2h", None)):
        (job,) = plan(from_text(text(sla=sla))).jobs.values()
        (line,) = [item for item in job.cost if item.name == "metric calls"]
        apart = max(query.trigger_seconds.value for query in job.queries.values())
        expected = calls or 30 * 86_400 / apart
        assert line.usd == pytest.approx(expected / 1000 * 0.01, rel=0.02)


def test_more_alarms_than_a_stack_holds_are_refused_with_the_way_out(
    from_text: Loader, monkeypatch: pytest.MonkeyPatch
) -> None:
    crowded = text(sla="60s")
    held = len(plan(from_text(crowded)).alarms)
    monkeypatch.setattr(alarms, "MOST_IN_A_STACK", held - 1)
    with pytest.raises(ConfigurationError) as refused:
        plan(from_text(crowded))
    (problem,) = refused.value.problems
    assert (problem.key, problem.value) == ("observability.alarms", f"{held} alarms in one stack")
    assert problem.allowed == f"by-job beyond {held - 1} alarms"
    apart = crowded + "\nobservability: {alarms: by-job}\n"
    assert len(plan(from_text(apart)).alarms) == held
    monkeypatch.setattr(alarms, "MOST_IN_A_STACK", 0)
    with pytest.raises(ConfigurationError, match="split the environment"):
        plan(from_text(apart))
