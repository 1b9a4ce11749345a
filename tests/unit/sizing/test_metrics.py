"""Which query reports which metric: the bill counts them, the dashboards show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import environments, load
from millrace.sizing import plan
from millrace.sizing.metrics import BY_NAME, METRICS, reported, reporters

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
    count = reported(environment)
    assert count >= queries * len(always) + len(environment.jobs) * len(of_jobs)
    assert count <= queries * (len(METRICS) - len(of_jobs)) + len(environment.jobs) * len(of_jobs)
    (line,) = [item for item in plan(environment).shared if item.name == "metrics"]
    assert line.why.startswith(f"{count} of ours")
    assert line.usd == pytest.approx(0.30 * count)
