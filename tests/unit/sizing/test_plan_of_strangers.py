"""Plans that were wrong for environments of other people: service limits, pins, costs of runs, words of the verdict."""

import pytest

from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.config import ConfigurationError
from millrace.sizing import plan
from millrace.sizing.prices_and_limits import price_table_of_region
from millrace.sizing.simulation.plan_simulation_check import simulated_queries_of_plan
from tests.unit.sizing.conftest import Loader, text

SERVERLESS = """\
project: co
account: "111122223333"
kafka:
  kc: {{kind: msk, tier: serverless}}
streams:
  ev:
    kind: kafka
    cluster: kc
    existing: true
    partitions: {partitions}
    traffic: {{records_per_second: {rate}, peak_factor: 2, record_size: 800B, basis: measured}}
jobs:
  ev:
    engine: emr
    latency: 1m
    rate: {{records_per_second_per_core: 5000, batch_overhead: 2s, basis: measured}}
    queries:
      land: {{kind: land, source: ev, table: ev_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


@pytest.mark.parametrize(
    ("rate", "partitions", "allowed"),
    [
        (20_000, 4, {"streams.ev.partitions": "at least 7: 32.0 MB/s in at peak, 5 a partition"}),
        (20_000, 7, {}),
        (200_000, 100, {"kafka.kc.tier": "standard or express: 320.0 MB/s in at peak, 200"}),
    ],
)
def test_serverless_brokers_take_what_aws_allows(
    from_text: Loader, rate: int, partitions: int, allowed: dict[str, str]
) -> None:
    """Quotas of MSK Serverless: 200 MBps in for a cluster, 5 MBps in for a partition."""
    environment = from_text(SERVERLESS.format(rate=rate, partitions=partitions))
    if not allowed:
        assert plan(environment).clusters["kc"].brokers is None
        return
    with pytest.raises(ConfigurationError) as caught:
        plan(environment)
    found = {each.key: each.allowed for each in caught.value.problems}
    assert found.keys() == allowed.keys()
    assert all(found[key].startswith(words) for key, words in allowed.items()), found


@pytest.mark.parametrize(("rate", "factor", "shards"), [(100_000, 1.1, 110), (50_000, 2.2, 110)])
def test_a_product_of_floats_adds_no_shard(from_text: Loader, rate: int, factor: float, shards: int) -> None:
    """In floats 100,000 * 1.1 is more than 110,000, which 110 shards take."""
    yaml = text(rate=f"{rate}, peak_factor: {factor}", stream=f"shards: {shards}", sla="5m", per_core="4000")
    figure = plan(from_text(yaml)).streams["clicks"].expected_partitions
    assert f"the traffic needs {shards}:" in figure.why


def test_spare_shards_are_no_product_of_floats(from_text: Loader) -> None:
    yaml = text(rate="100000", top="partition_buffer: 0.1", sla="5m", per_core="100000", job="")
    assert plan(from_text(yaml)).streams["clicks"].expected_partitions.value == 110


def test_bounded_runs_renew_their_lease_only_while_they_live(from_text: Loader) -> None:
    """A lease is written every ten seconds of a run; a month has 262,800 times ten seconds."""
    yaml = text(rate="10", sla="6h", job="run_every: 2h", stream="mode: provisioned")
    found = plan(from_text(yaml)).jobs["clicks"]
    assert found.run is not None
    [line] = [each for each in found.cost if each.name == "S3 requests"]
    thousands = line.usd / price_table_of_region("us-east-1").usd("s3.thousand_puts")
    alive = found.run.seconds.value / found.run.every_seconds.value
    renewals, all_month = 262.8 * alive, 262.8
    assert alive < 0.2
    assert renewals < thousands < 0.5 * all_month


def test_memory_names_workers_that_a_plan_confirms(from_text: Loader) -> None:
    yaml = text(rate="4000", size="500B", sla="5m", per_core="400", job="memory: {state: 200GiB}")
    free = plan(from_text(yaml)).jobs["clicks"]
    job = f"memory: {{state: 200GiB}}\n    worker: {free.worker}\n    max_workers: "
    pinned = yaml.replace("memory: {state: 200GiB}", f"{job}3")
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(pinned))
    [problem] = caught.value.problems
    named = int(problem.allowed.removeprefix("at least ").partition(":")[0])
    assert plan(from_text(yaml.replace("memory: {state: 200GiB}", f"{job}{named}")))
    with pytest.raises(ConfigurationError):
        plan(from_text(yaml.replace("memory: {state: 200GiB}", f"{job}{named - 1}")))


def test_a_job_for_throughput_has_no_sla_to_keep(from_text: Loader) -> None:
    environment = from_text(text(sla="3s", job="goal: throughput"))
    found = plan(environment)
    verdict = plan_verdict(
        SimulatedPlan(environment, found, [*simulated_queries_of_plan(environment, found)])
    )
    assert verdict.sla.state == "unknown"
    assert "goal: throughput" in verdict.sla.words
