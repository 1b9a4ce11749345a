"""Cost lines of metrics and stored data agree with a calculation by hand."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from millrace.config.document.problems import ConfigurationError
from millrace.config.model import Environment
from millrace.infra.stacks import storage
from millrace.sizing import plan
from millrace.sizing.costs import shared_cost as shared_module
from millrace.sizing.costs.shared_cost import metric_cost_items
from millrace.sizing.plan_model import Figure, StreamPlan
from millrace.sizing.prices_and_limits import price_table_of_region, service_limits
from millrace.sizing.shards_and_partitions import partition_demands_at_peak
from tests.unit.cli.test_command_output import millrace
from tests.unit.sizing.conftest import DERIVE, Loader, text

ON = "shard_level_metrics: true"
OFF = "shard_level_metrics: false"


def lines(environment: Environment, job: str = "") -> dict[str, float]:
    found = plan(environment)
    return {line.name: line.usd for line in (found.jobs[job].cost if job else found.shared)}


def test_shard_metrics_are_paid_by_the_shard(from_text: Loader) -> None:
    """32 shards with 7 metrics each are 224, at 0.30 each: 67.20."""
    assert lines(from_text(text(stream=ON)))["shard metrics"] == pytest.approx(67.20)
    assert "shard metrics" not in lines(from_text(text(stream=OFF)))


def test_aggregates_are_what_kinesis_counts(from_text: Loader) -> None:
    """81 records of 300 B are 24,300 B: 100,000/s are 1,235 PUT units/s, of which a shard takes 1,000; it takes 1 MiB of the 28.61 MiB/s."""
    for aggregate, records in (("", 1), ("aggregate: 24KiB", 81)):
        stream = f"mode: provisioned\n    {aggregate}"
        asked = from_text(text(stream=stream, rate="100000", size="300B", sla="60s", job=""))
        puts, size = partition_demands_at_peak(asked.streams["clicks"], 0)
        assert (puts.partitions, size.fewest) == (pytest.approx(100 / records), 29)
        found = plan(asked).streams["clicks"]
        usd = {line.name: line.usd for line in found.cost}
        assert usd["shards"] == pytest.approx(found.expected_partitions.value * 730 * 0.015)
        assert usd["puts"] == pytest.approx(100_000 / records * 730 * 3600 / 1e6 * 0.014)


def test_aggregates_are_refused_where_the_connector_may_end_a_batch_inside_one(from_text: Loader) -> None:
    asked = text(stream="aggregate: 24KiB", job="").replace("engine: glue", "engine: emr")
    with pytest.raises(ConfigurationError, match=r"streams\.clicks\.aggregate.*job clicks reads it"):
        from_text(asked)


def streams(shards: int) -> MappingProxyType[str, StreamPlan]:
    figure = Figure(shards, "shards", "by hand")
    return MappingProxyType({"clicks": StreamPlan("clicks", "kinesis", "provisioned", figure, figure, ())})


@pytest.mark.parametrize(
    ("ours", "shards", "usd"),
    [
        (10_000, 0, 3_000),  # 10,000 at 0.30
        (10_001, 0, 3_000.10),  # and one at 0.10
        (9_000, 1_000, 300 + 2_700 + 600),  # 7,000 of shards: 1,000 at 0.30, 6,000 at 0.10
        (10_000, 100_000, 3_000 + 24_000 + 23_000),  # 700,000 of shards: 240,000 at 0.10, 460,000 at 0.05
        (10_000, 200_000, 3_000 + 24_000 + 37_500 + 8_200),  # 750,000 at 0.05, 410,000 at 0.02
        (0, 0, 0),
    ],
)
def test_metrics_get_cheaper_by_tiers(
    from_text: Loader, monkeypatch: pytest.MonkeyPatch, ours: int, shards: int, usd: float
) -> None:
    monkeypatch.setattr(shared_module, "metric_count", lambda _: ours)
    found = metric_cost_items(from_text(text(stream=ON)), streams(shards), price_table_of_region("us-east-1"))
    assert sum(line.usd for line in found) == pytest.approx(usd)


def test_tiers_are_named(from_text: Loader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_module, "metric_count", lambda _: 9_000)
    found = metric_cost_items(from_text(text(stream=ON)), streams(1_000), price_table_of_region("us-east-1"))
    assert [(line.name, line.usd) for line in found] == [
        ("metrics", pytest.approx(2_700)),
        ("shard metrics", pytest.approx(300)),
        ("shard metrics", pytest.approx(600)),
    ]
    assert found[-1].why.startswith("6,000 after the first 10,000: 7 a shard: 7,000 of clicks")


def test_every_table_is_stored(from_text: Loader) -> None:
    """1,000 records/s of 1,000 bytes are 2,628 GB a month, 788.4 as Parquet, in the landing table and in the derived one."""
    environment = from_text(text(rate="1000", size="1000B", more=DERIVE, sla="60s"))
    job = lines(environment, "clicks")
    assert job["S3 storage"] == pytest.approx(2 * 788.4 * 0.023)
    # 25.92 GB a day in each, replaced once, kept a day by snapshots and 7 as versions.
    assert job["S3 past states"] == pytest.approx(2 * 25.92 * 8 * 0.023)


def test_streams_of_one_query_are_stored_at_their_own_averages(from_text: Loader) -> None:
    """100 records/s of 100 B with a peak of 1,200, and 100 of 102,400 B: 10.25 MB/s, of which 8,081 GB a month are stored."""
    route = "{source: %s, schema: pipelines/clicks/schemas/click.ddl}"
    routes = f"routes: {{clicks: {route % 'clicks'}, large: {route % 'large'}}}"
    yaml = text(rate="100", size="100B, peak_factor: 12").replace(
        "kind: land", f"kind: route\n        {routes}"
    )
    yaml = yaml.replace("        source: clicks\n", "").replace(
        "        schema: pipelines/clicks/schemas/click.ddl\n", ""
    )
    large = "{kind: kinesis, traffic: {records_per_second: 100, record_size: 100KiB, basis: measured}}"
    found = lines(from_text(yaml.replace("jobs:\n", f"  large: {large}\njobs:\n")), "clicks")
    added = 100 * (100 + 102_400) * 0.3 / 1e9
    assert found["S3 storage"] == pytest.approx(added * 2_628_000 * 0.023)
    assert found["S3 past states"] == pytest.approx(added * 86_400 * 8 * 0.023)


def test_past_states_follow_upkeep_and_whose_bucket_it_is(from_text: Loader) -> None:
    yaml = {"rate": "1000", "size": "1000B"}
    longer = from_text(text(**yaml, top="storage: {upkeep: {snapshots: 3d}}"))
    assert lines(longer, "clicks")["S3 past states"] == pytest.approx(25.92 * 10 * 0.023)
    brought = from_text(text(**yaml, top="storage: {buckets: {lake: company-lake}}"))
    assert lines(brought, "clicks")["S3 past states"] == pytest.approx(25.92 * 1 * 0.023)
    assert "S3 past states" not in lines(from_text(text(**yaml, top="storage: {upkeep: null}")), "clicks")


def test_versions_are_kept_as_long_as_the_bucket_keeps_them() -> None:
    assert service_limits()["usage.replaced_days"] == storage._KEEP_REPLACED.to_days()


def test_parquet_is_stored_and_not_rewritten(from_text: Loader) -> None:
    more = DERIVE.replace("{kind: iceberg, table: clicks_derived}", "{kind: parquet, table: clicks_derived}")
    job = lines(from_text(text(rate="1000", size="1000B", more=more, sla="60s")), "clicks")
    assert job["S3 storage"] == pytest.approx(2 * 788.4 * 0.023)
    assert job["S3 past states"] == pytest.approx(25.92 * 8 * 0.023)


def test_what_follows_no_rate_is_named(from_text: Loader) -> None:
    keyed = DERIVE.replace("kind: derive\n", "kind: derive\n        latest_by: [page]\n")
    environment = from_text(text(rate="1000", size="1000B", more=keyed, sla="60s"))
    assert lines(environment, "clicks")["S3 storage"] == pytest.approx(788.4 * 0.023)
    assert "storage of the result of clicks/derive" in plan(environment).left_out
    topic = DERIVE.replace("{kind: iceberg, table: clicks_derived}", "{kind: dynamodb, table: clicks}")
    topic += "        dead_letters: refused\n"
    assert "the dynamodb sink of clicks/derive" in plan(from_text(text(more=topic, sla="60s"))).left_out


@pytest.mark.parametrize("verb", ["plan", "cost"])
def test_the_output_names_what_is_left_out(verb: str) -> None:
    shown = millrace(verb, "--env", "prod").stdout
    for each in ("reads from S3", "data transfer", "requests of the state store of bookings/"):
        assert each in shown
    assert '"left_out"' in millrace(verb, "--env", "prod", "--json").stdout


def test_short_triggers_write_more_often(from_text: Loader) -> None:
    """At a batch each 3 s, on 1 core: 876,000 batches of 12 and 1 writes, and 262,800 of the lease."""
    pinned = text(rate="100", per_core="5000", sla="60s").replace(
        "kind: land\n", "kind: land\n        trigger: 3s\n"
    )
    environment = from_text(pinned.replace("size: 100B", "size: 100B, peak_factor: 1"))
    cores = plan(environment).jobs["clicks"].queries["land"].cores.value
    writes = 876_000 * (12 + cores) + 262_800
    assert lines(environment, "clicks")["S3 requests"] == pytest.approx(writes / 1000 * 0.005)
