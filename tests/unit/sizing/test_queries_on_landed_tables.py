"""Queries on landed tables: joins get the records of both, and landing the rest of the strictest SLA."""

from pathlib import Path

import pytest

from millrace.config import ConfigurationError
from millrace.config.queries import DeriveQuery
from millrace.sizing import Plan, plan
from millrace.sizing.jobs.batches_at_peak import batch_bytes_at_peak, rows_per_batch_of_derive_query
from millrace.sizing.queries.environment_demands import query_demands_and_findings
from millrace.sizing.simulation import Arrivals, plan_scenario
from tests.unit.sizing.conftest import Loader, text

JOINED = """\
project: hello
account: "111122223333"
streams:
  small: {{kind: kinesis, traffic: {{records_per_second: 10, peak_factor: 1, record_size: 500B}}}}
  large: {{kind: kinesis, traffic: {{records_per_second: 20000, peak_factor: 1, record_size: 500B}}}}
jobs:
  land:
    engine: glue
    latency: 3m
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-small: {{kind: land, source: small, table: small_landed, schema: pipelines/clicks/schemas/click.ddl}}
      land-large: {{kind: land, source: large, table: large_landed, schema: pipelines/clicks/schemas/click.ddl}}
  match:
    engine: glue
    latency: 60s
    rate: {{records_per_second_per_core: 5000}}
    queries:
      match:
        kind: derive
        source: {first}_landed
        transform: pipelines.clicks.transforms:matched
        state:
          watermark: {{time: _arrived_at, delay: 1h}}
          join: {{source: {second}_landed, watermark: {{time: _arrived_at, delay: 1h}}}}
        sink: {{kind: iceberg, table: matched}}
"""


@pytest.fixture(autouse=True)
def transform(from_text: Loader, tmp_path: Path) -> None:
    written = "def matched(records, joined):\n    return records\n"
    (tmp_path / "pipelines" / "clicks" / "transforms.py").write_text(written)


def sized(from_text: Loader, first: str, second: str) -> Plan:
    return plan(from_text(JOINED.format(first=first, second=second)))


def test_the_order_of_a_join_changes_no_number(from_text: Loader) -> None:
    one, other = sized(from_text, "small", "large"), sized(from_text, "large", "small")
    assert one.jobs["match"].cores.value == other.jobs["match"].cores.value > 20_000 / 5000
    assert one.jobs["match"].memory.value == other.jobs["match"].memory.value
    assert one.jobs["match"].queries["match"].trigger_seconds == (
        other.jobs["match"].queries["match"].trigger_seconds
    )
    assert "20,010 records/s at peak" in one.jobs["match"].cores.why


@pytest.mark.parametrize(("first", "second"), [("small", "large"), ("large", "small")])
def test_both_tables_are_landed_within_half_of_the_sla(from_text: Loader, first: str, second: str) -> None:
    landing = sized(from_text, first, second).jobs["land"].queries
    for query in landing.values():
        assert query.trigger_seconds.value <= 15
        assert "half of the 60 s SLA" in query.latency_seconds.why


def test_a_batch_brings_what_both_tables_do(from_text: Loader) -> None:
    counts = []
    for first, second in (("small", "large"), ("large", "small")):
        environment = from_text(JOINED.format(first=first, second=second))
        query = environment.jobs["match"].queries["match"]
        assert isinstance(query, DeriveQuery)
        numbers = plan(environment).jobs["match"].queries["match"]
        counts.append(batch_bytes_at_peak(environment, query, numbers))
        assert counts[-1] == 20_010 * 500 * numbers.trigger_seconds.value
    assert counts[0] == counts[1]


def test_a_stream_that_both_tables_hold_is_read_twice(from_text: Loader) -> None:
    again = JOINED.replace("source: small, table", "source: large, table")
    demand = next(
        demand
        for demand in query_demands_and_findings(from_text(again.format(first="small", second="large")))[0]
        if not demand.lands
    )
    assert demand.work.rate == 40_000
    assert demand.streams == {"large": 1.0}
    assert demand.average == 1.0


def test_a_simulated_join_takes_the_records_of_both_tables(from_text: Loader) -> None:
    one_job = JOINED.replace("  match:\n    engine: glue\n    latency: 60s\n", "").replace(
        "    rate: {{records_per_second_per_core: 5000}}\n    queries:\n      match:", "      match:"
    )
    environment = from_text(one_job.format(first="small", second="large"))
    arrivals = {"small": Arrivals.constant(10, 600), "large": Arrivals.constant(20_000, 600)}
    scenario = plan_scenario.scenario_of_job(environment, plan(environment), "land", arrivals)
    load = next(load for load in scenario.queries if load.name == "match")
    assert isinstance(load.source, Arrivals)
    assert load.source.arrived_before(100) == pytest.approx(20_010 * 100)


OTHER = """\
  other:
    engine: glue
    latency: {sla}
    rate: {{records_per_second_per_core: 5000, batch_overhead: {overhead}}}
    queries:
      derive: {{kind: derive, source: clicks_landed, sink: {{kind: iceberg, table: derived}}}}
"""


@pytest.mark.parametrize("own", ["61s", "2m", "1h"])
def test_a_landing_that_another_job_waits_for_names_that_jobs_sla(from_text: Loader, own: str) -> None:
    yaml = text(sla=own, rate="100") + OTHER.format(sla="8s", overhead="500ms")
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(yaml))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("jobs.other.latency", "8s")
    assert problem.allowed.startswith("more than 8s for land: ")
    assert "latency: 9s" in (problem.hint or "")
    assert plan(from_text(yaml.replace("latency: 8s", "latency: 9s"))).jobs["other"].cores.value == 1


def test_a_derive_query_names_what_landing_leaves_it(from_text: Loader) -> None:
    yaml = text(sla="10s", rate="100") + OTHER.format(sla="20s", overhead="6s")
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(yaml))
    (problem,) = caught.value.problems
    assert problem.key == "jobs.other.latency"
    assert problem.allowed.startswith("more than 22s for derive: "), "10 s of landing and twice 6 s"
    assert plan(from_text(yaml.replace("latency: 20s", "latency: 23s"))).jobs["other"].cores.value >= 1


def test_where_no_latency_is_asked_for_the_goal_is_named(from_text: Loader) -> None:
    yaml = text(sla="10m", rate="100", overhead="30s") + OTHER.format(sla="20s", overhead="1ms")
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(yaml.replace("latency: 20s", "goal: throughput")))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("jobs.other.goal", "throughput")
    assert problem.allowed.startswith("latency, of more than 120s for land: ")


def test_a_batch_of_a_derive_query_takes_all_that_lands_at_the_peak(from_text: Loader) -> None:
    """Iceberg counts the rows of both tables' files; a limit of less than a trigger brings would let the rest wait for ever."""
    environment = from_text(JOINED.format(first="small", second="large"))
    match = environment.jobs["match"].queries["match"]
    assert isinstance(match, DeriveQuery)
    for seconds in (5.0, 75.0, 900.0):
        limit = rows_per_batch_of_derive_query(environment, match, seconds)
        assert limit >= (10 + 20_000) * seconds
        assert limit >= 1_000_000
    assert rows_per_batch_of_derive_query(environment, match, 900.0) == 4 * 20_010 * 900
