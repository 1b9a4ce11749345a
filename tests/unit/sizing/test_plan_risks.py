"""A plan warns of likely mistakes, of figures near a limit, and of contradictions by the simulator."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest

from millrace.config import environment_names, load
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.sizing import Plan, plan
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from tests.unit.sizing.conftest import DERIVE, Loader, text
from tests.unit.sizing.plan_relations import contradictions_of_plan
from tests.unit.sizing.test_brokers import KAFKA
from tests.unit.sizing.test_plan import ROOT


def warned(found: Plan, words: str) -> list[str]:
    return [each for each in found.warnings if words in each]


def test_a_peak_factor_that_nobody_gave(from_text: Loader) -> None:
    assert warned(plan(from_text(text())), "no peak_factor")
    given = text().replace("record_size: 100B,", "record_size: 100B, peak_factor: 1,")
    assert not warned(plan(from_text(given)), "no peak_factor")


@pytest.mark.parametrize(
    ("rate", "said"), [("5000000", "5,000,000 records/s at peak"), ("0.0000115741", "one in 24 hours")]
)
def test_a_rate_whose_unit_was_mistaken(from_text: Loader, rate: str, said: str) -> None:
    found = plan(from_text(text(rate=rate, per_core="1000000", sla="60s")))
    assert warned(found, said)
    assert not warned(plan(from_text(text(rate="1000"))), "is the rate one a second?")


def test_a_topic_that_is_made_on_somebody_elses_cluster_is_told(from_text: Loader) -> None:
    """Whoever forgot `existing: true` reads of a topic that the deployment would make."""
    cluster = "arn:aws:kafka:us-east-1:111122223333:cluster/shop/0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f-1"
    theirs = KAFKA.replace(
        "{{availability_zones: 3}}", "{{vpc: vpc-0a1b2c3d, subnets: [subnet-0a1b2c3d, subnet-1a1b2c3d]}}"
    )
    for retention, told in (("1d", 1), ("1d\n    existing: true\n    partitions: 4", 0)):
        yaml = theirs.format(cluster=f"existing: '{cluster}'", retention=retention, rate=100)
        assert len(warned(plan(from_text(yaml)), "the topic is made on the existing cluster main")) == told


@pytest.mark.parametrize(("rate", "told"), [("4000", 0), ("5000", 1)])
def test_a_new_on_demand_stream_does_not_take_any_peak(from_text: Loader, rate: str, told: int) -> None:
    """Four shards are open at first; a stream that is deployed, or somebody else's, has more."""
    asked = {"rate": rate, "size": "1KiB", "per_core": "1000000", "sla": "60s"}
    environment = from_text(text(**asked, stream="mode: on-demand"))
    lines = warned(plan(environment), "a new on-demand stream takes the writes of 4 shards")
    assert len(lines) == told
    assert all("--warm-throughput-mi-bps 5`" in each for each in lines)
    for mode, again in (("on-demand", 0), ("provisioned", told)):
        deployed = environment.with_deployed_sizes(DeployedSizes(modes={"clicks": mode}))
        assert len(warned(plan(deployed), "a new on-demand stream")) == again
    theirs = from_text(text(**asked, stream="mode: on-demand\n    existing: clicks"))
    assert not warned(plan(theirs), "a new on-demand stream")


@pytest.mark.parametrize(("partitions", "told"), [(2400, 0), (2401, 1)])
def test_more_partitions_than_a_serverless_cluster_has(from_text: Loader, partitions: int, told: int) -> None:
    retention = f"1d\n    existing: true\n    partitions: {partitions}"
    yaml = KAFKA.format(cluster="tier: serverless", retention=retention, rate=100)
    assert len(warned(plan(from_text(yaml)), "a serverless cluster has 2,400 at most")) == told


def test_full_shards_and_the_spare_ones_that_a_buffer_adds(from_text: Loader) -> None:
    """8 MiB/s need eight shards to the last byte, and one core: a buffer is of the shards, not of the core alone."""
    asked = {"rate": "8192", "size": "1KiB", "per_core": "1000000"}
    full = plan(from_text(text(**asked)))
    assert full.streams["clicks"].expected_partitions.value == 9, "8,192 records/s"
    assert warned(full, "9 shards 91% full")
    spare = plan(from_text(text(**asked, top="partition_buffer: 0.25")))
    assert spare.streams["clicks"].expected_partitions.value == 11, "a quarter more than 8.19"
    assert "25% to spare" in spare.streams["clicks"].expected_partitions.why
    assert not warned(spare, "full at peak")


def test_an_outage_that_takes_long_to_make_good(from_text: Loader) -> None:
    """One shard with 1.9 MB/s of ways out for two readers."""
    yaml = text(
        rate="900",
        size="1KiB",
        per_core="100000",
        more="      second: {kind: land, source: clicks, table: second, schema: pipelines/clicks/schemas/click.ddl}\n",
    )
    (line, _) = warned(plan(from_text(yaml)), "10m of outage is caught up")
    assert "caught up 73 minutes later" in line
    assert "catch_up: {outage: 10m" in line


BATCHES_LONGER_THAN_TRIGGERS = """\
project: advice
account: "111122223333"
kafka: {{main: {{kind: msk}}}}
streams:
  orders: {{kind: kafka, cluster: main, traffic: {{records_per_second: {rate}, record_size: 2000B}}}}
jobs:
  orders:
    engine: glue
    latency: {sla}
    rate: {{records_per_second_per_core: {per_core}, batch_overhead: 5s}}
    queries:
      land: {{kind: land, source: orders, table: landed, schema: pipelines/clicks/schemas/click.ddl, trigger: {trigger}}}
"""


@pytest.mark.parametrize(
    ("rate", "per_core", "sla", "trigger"),
    [
        pytest.param("1070", "500", "3m", "5s", id="settles in more than twenty triggers"),
        pytest.param("82.5", "10000", "90s", "1s", id="catches up in one batch"),
        pytest.param(
            "40", "10000", "90s", "1s", id="catches up in one batch that is longer than the catch-up"
        ),
    ],
)
def test_a_backlog_that_is_the_steady_state_is_caught_up(
    from_text: Loader, rate: str, per_core: str, sla: str, trigger: str
) -> None:
    """As much waits at the settled peak, and after an outage no more than one batch takes."""
    yaml = BATCHES_LONGER_THAN_TRIGGERS.format(rate=rate, per_core=per_core, sla=sla, trigger=trigger)
    environment = from_text(yaml)
    found = plan(environment)
    assert contradictions_of_plan(environment, found) == []
    job = found.jobs["orders"]
    catch_up = job.queries["land"].catch_up_seconds
    assert catch_up is not None
    if rate == "1070":
        soon = replace(job.queries["land"], catch_up_seconds=replace(catch_up, value=catch_up.value / 3))
        early = replace(found, jobs=MappingProxyType({"orders": replace(job, queries={"land": soon})}))
        [line] = contradictions_of_plan(environment, early)
        assert "records still wait then" in line


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_the_plans_of_this_repository_are_not_contradicted(name: str) -> None:
    environment = load(name, root=ROOT)
    assert contradictions_of_plan(environment, plan(environment)) == []


def test_records_of_a_job_that_has_only_started_are_no_steady_peak(from_text: Loader) -> None:
    """The second batch of the derive query is late, and none after it: `simulate` says that the SLA is kept."""
    environment = from_text(text(rate="27000", sla="120s", overhead="1s", more=DERIVE))
    found = {each.query: each for each in simulated_queries_of_plan(environment, plan(environment))}
    assert found["derive"].sla == 120
    assert found["derive"].within == 1.0
    assert found["derive"].oldest < 120


def otherwise(found: Plan, **figures: float) -> Plan:
    """A plan with other figures for its only query."""
    job = found.jobs["clicks"]
    query = job.queries["land"]
    changed = {name: replace(getattr(query, name), value=value) for name, value in figures.items()}
    other = replace(job, queries=MappingProxyType({"land": replace(query, **changed)}))
    return replace(found, jobs=MappingProxyType({"clicks": other}))


def test_a_plan_that_its_own_simulator_contradicts(from_text: Loader) -> None:
    environment = from_text(text(rate="990", size="1KiB", sla="60s", per_core="100000"))
    sized = plan(environment)
    again = sized.jobs["clicks"].queries["land"].catch_up_seconds
    assert again is not None
    assert contradictions_of_plan(environment, sized) == []
    late = contradictions_of_plan(environment, otherwise(sized, trigger_seconds=90.0))
    assert any("of the records are within 60 s" in line for line in late)
    (slow,) = contradictions_of_plan(environment, otherwise(sized, catch_up_seconds=again.value / 3))
    assert "records still wait then" in slow


def test_a_backlog_that_grows_is_no_kept_sla_before_any_record_is_late(from_text: Loader) -> None:
    """A limit of a thousandth too little: for hours no record is late, and the backlog grows for ever."""
    environment = from_text(text(rate="990", size="1KiB", sla="2h", per_core="100000"))
    sized = plan(environment)
    trigger = sized.jobs["clicks"].queries["land"].trigger_seconds.value
    short = otherwise(sized, records_per_partition=int(990 * trigger * 0.99))
    (found,) = simulated_queries_of_plan(environment, short)
    assert found.within == 1.0
    assert found.growth == pytest.approx(9.9, rel=0.1)
    assert not found.meets_sla
    assert "its backlog grows by" in next(found.contradictions())


SINK_STREAM = """\
project: advice
account: "111122223333"
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 5000, record_size: 1KiB, peak_factor: 1.5, basis: measured}}}}
  out: {{kind: kinesis, traffic: {{records_per_second: {rate}, record_size: 1KiB, peak_factor: 1.5, basis: measured}}}}
jobs:
  job:
    engine: glue
    latency: 2m
    rate: {{records_per_second_per_core: 5000, batch_overhead: 500ms, basis: measured}}
    queries:
      land: {{kind: route, table: landed, routes: {{clicks: {{source: clicks, share: 0.4, schema: pipelines/clicks/schemas/click.ddl}}}}}}
      derive: {{kind: derive, source: landed{derive}, sink: {{kind: kinesis, stream: out}}, dead_letters: dead}}
"""


@pytest.mark.parametrize(
    ("derive", "rate", "told"),
    [
        ("", 1, "streams.out.traffic: 1.5 records/s at peak, but jobs.job.queries.derive writes 7,500"),
        ("", 5000, None),
        (", route: clicks", 1900, None),
        (", route: clicks", 1000, "jobs.job.queries.derive writes 3,000"),
        (", transform: 'pipelines.clicks.few:few'", 1, None),
    ],
)
def test_a_sink_stream_that_is_too_small_for_what_a_query_writes(
    from_text: Loader, tmp_path: Path, derive: str, rate: float, told: str | None
) -> None:
    (tmp_path / "pipelines" / "clicks" / "few.py").write_text("def few(rows):\n    return rows\n")
    lines = warned(plan(from_text(SINK_STREAM.format(derive=derive, rate=rate))), "streams.out.traffic")
    assert len(lines) == (told is not None)
    assert all((told or "") in each for each in lines)
