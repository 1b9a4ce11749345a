"""Plans of whole environments: worked examples, limits, demands, pins, costs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from millrace.config import ConfigurationError, environment_names, load
from millrace.config.units import parse_duration
from millrace.sizing import Plan, plan, total_cost
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.prices_and_limits import price_regions, price_table_of_region, service_limits
from millrace.sizing.queries.environment_demands import query_demands_and_findings
from tests.unit.sizing.conftest import DERIVE, Loader, text
from tests.unit.sizing.test_brokers import KAFKA
from tests.unit.sizing.test_plan_properties import built

ROOT = Path(__file__).parents[3]
MIB = 1024**2


def sizes(found: Plan) -> tuple[int, int, int]:
    job = found.jobs["clicks"]
    return job.cores.value, job.max_workers.value, found.streams["clicks"].expected_partitions.value


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (32, 9, 32)),
        ({"rate": "47000"}, (64, 17, 64)),
        ({"rate": "5000", "job": "cores: 32"}, (32, 17, 32)),
        ({"rate": "5000", "job": "cores: 64"}, (64, 33, 64)),
        ({"rate": "5000", "job": "cores: 32", "top": "partition_buffer: 0.5"}, (32, 17, 32)),
    ],
)
def test_the_advice_comes_out(from_text: Loader, changes: dict[str, str], expected: tuple[int, ...]) -> None:
    assert sizes(plan(from_text(text(**changes)))) == expected


@pytest.mark.parametrize("job", ["worker: G.1X", "worker: G.1X\n    cores: 8"])
def test_one_foreign_shard_and_eight_cores(from_text: Loader, job: str) -> None:
    yaml = text(stream="existing: theirs\n    shards: 1", rate="900", per_core="170", job=job)
    found = plan(from_text(yaml))
    assert sizes(found) == (8, 3, 1)
    repartition = found.jobs["clicks"].queries["land"].repartition
    assert repartition is not None
    assert repartition.value == 8
    assert "1 partition" in repartition.why
    assert found.streams["clicks"].cost == (), "somebody else pays for it"


def test_spare_partitions_come_with_cores(from_text: Loader) -> None:
    assert sizes(plan(from_text(text(top="partition_buffer: 0.25")))) == (40, 11, 40)


@pytest.mark.parametrize(
    ("changes", "shards", "reason"),
    [
        ({"rate": "9500", "per_core": "100000"}, 10, "9,500 records/s in at peak"),
        ({"rate": "950", "size": "10KiB", "per_core": "100000"}, 10, "9.3 MiB/s in at peak"),
    ],
)
def test_shards_follow_what_binds(
    from_text: Loader, changes: dict[str, str], shards: int, reason: str
) -> None:
    figure = plan(from_text(text(**changes))).streams["clicks"].expected_partitions
    assert figure.value == shards
    assert reason in figure.why


def test_readers_share_what_a_shard_gives(from_text: Loader) -> None:
    second = "".join(
        f"      land-{i}: {{kind: land, source: clicks, table: again_{i}, schema: pipelines/clicks/schemas/click.ddl}}\n"
        for i in range(4)
    )
    figure = plan(from_text(text(rate="900", size="10KiB", per_core="100000", more=second))).streams["clicks"]
    assert (
        figure.expected_partitions.value == 23
    )  # 5 readers of 8.8 MiB/s through 2 MiB/s a shard; 22 would take ten days to catch up
    assert "5 readers" in figure.expected_partitions.why


def test_a_derived_record_shares_its_sla(from_text: Loader) -> None:
    found = plan(from_text(text(sla="60s", more=DERIVE))).jobs["clicks"].queries
    assert found["land"].trigger_seconds.value <= 15
    assert "half of the 60 s SLA" in found["land"].trigger_seconds.why
    assert found["derive"].trigger_seconds.value <= 15
    assert "what landing leaves of the 60 s SLA" in found["derive"].trigger_seconds.why
    alone = plan(from_text(text(sla="60s"))).jobs["clicks"].queries["land"].trigger_seconds
    assert 15 < alone.value <= 30


def test_on_demand_expects_shards_and_pins_none(from_text: Loader) -> None:
    stream = plan(from_text(text(stream="mode: on-demand", rate="900"))).streams["clicks"]
    assert stream.partitions is None
    assert stream.expected_partitions.value == 4
    assert stream.expected_partitions.assumed
    names = {item.name for item in stream.cost}
    assert names == {"stream", "data in", "data out"}


def test_pinned_numbers_say_so(from_text: Loader) -> None:
    yaml = text(rate="900", stream="shards: 3", job="cores: 6\n    max_workers: 5")
    found = plan(from_text(yaml))
    assert found.streams["clicks"].expected_partitions.origin == "pinned"
    job = found.jobs["clicks"]
    assert (job.cores.origin, job.max_workers.origin, job.executors.value) == ("pinned", "pinned", 4)


@pytest.mark.parametrize(
    ("basis", "measured", "assumed"),
    [("measured", "measured", False), ("assumed", "measured", True), ("measured", "assumed", True)],
)
def test_a_guess_marks_every_number_that_rests_on_it(
    from_text: Loader, basis: str, measured: str, assumed: bool
) -> None:
    found = plan(from_text(text(basis=basis, measured=measured, more=DERIVE)))
    job = found.jobs["clicks"]
    figures = [job.cores, job.executors, job.max_workers, found.streams["clicks"].expected_partitions]
    for query in job.queries.values():
        figures.append(query.trigger_seconds)
        figures += [
            each for each in (query.records_per_batch, query.records_per_partition) if each is not None
        ]
    assert {figure.assumed for figure in figures} == {assumed}
    assert {item.assumed for item in job.cost} == {assumed}
    assert total_cost(found).assumed is assumed


def test_a_plan_built_by_a_program_needs_no_file() -> None:
    environment = built(rate=1000)
    assert plan(environment).jobs["clicks"].max_workers.value == 2
    with pytest.raises(ConfigurationError, match=r"\(no file\): jobs\.clicks\.latency is 1s; allowed: "):
        plan(built(rate=1000, sla=1))


def test_the_price_table_is_dated_and_says_what_is_unconfirmed() -> None:
    assert price_regions() == ("us-east-1",)
    table = price_table_of_region("us-east-1")
    assert table.read.year == 2026
    assert table.usd("glue.dpu_hour") == 0.44
    assert not table.prices["glue.6.0.dpu_hour"].confirmed
    assert all(
        each.source for each in [*service_limits().limits.values(), *service_limits().brokers.values()]
    )


def test_an_unconfirmed_price_is_named(from_text: Loader) -> None:
    line = plan(from_text(text(job="version: '6.0'"))).jobs["clicks"].cost[0]
    assert "glue.6.0.dpu_hour is unconfirmed" in line.why


def test_what_a_month_costs(from_text: Loader) -> None:
    found = plan(from_text(text(top="network: {egress: endpoints}")))
    shards, puts = found.streams["clicks"].cost
    assert shards.usd == pytest.approx(32 * 730 * 0.015)
    assert puts.usd == pytest.approx(23_500 * 730 * 3600 / 1e6 * 0.014)
    job = {line.name: line.usd for line in found.jobs["clicks"].cost}
    assert job["workers"] == pytest.approx(9 * 730 * 0.44)
    trigger = found.jobs["clicks"].queries["land"].trigger_seconds.value
    assert trigger > 2 / (1 - 23_500 / 1000 / 32), "each batch ends within its trigger"
    batches = 730 * 3600 / trigger
    assert job["S3 requests"] == pytest.approx((batches * (12 + 32) + 730 * 3600 / 10) / 1000 * 0.005)
    assert job["logs"] == pytest.approx(batches * 300 / 1e9 * 0.50)
    assert job["S3 storage"] == pytest.approx(23_500 * 100 * 730 * 3600 * 0.3 / 1e9 * 0.023)
    shared = {line.name: line.usd for line in found.shared}
    assert shared.keys() == {"keys", "endpoints", "endpoint data", "metrics", "alarms", "dashboard"}
    assert shared["keys"] == 4
    assert shared["endpoints"] == pytest.approx(6 * 3 * 7.30)
    assert shared["alarms"] == pytest.approx(len(found.alarms) * 0.10)
    listed = shards.usd + puts.usd + sum(job.values()) + sum(shared.values())
    assert total_cost(found).value == pytest.approx(listed)


def test_on_demand_advantage_is_the_account_s(from_text: Loader) -> None:
    consumers = ", ".join(f"c-{number}" for number in range(21))
    stream = f"mode: on-demand\n    retention: 3d\n    fan_out_consumers: [{consumers}]"
    with pytest.raises(ConfigurationError, match="at most 20"):
        plan(from_text(text(stream=stream)))
    on = "governance: {on_demand_advantage: true}"
    with pytest.raises(ConfigurationError, match="at most 20"):
        plan(from_text(text(stream=stream.replace("mode: on-demand", "mode: provisioned"), top=on)))
    cost = {
        line.name: line.usd for line in plan(from_text(text(stream=stream, top=on))).streams["clicks"].cost
    }
    few = stream.replace(consumers, "c-1")
    standard = {line.name: line.usd for line in plan(from_text(text(stream=few))).streams["clicks"].cost}
    cheap = {line.name: line.usd for line in plan(from_text(text(stream=few, top=on))).streams["clicks"].cost}
    assert standard.keys() - cheap.keys() == {"stream"}
    assert all(cheap[name] == pytest.approx(0.4 * standard[name]) for name in cheap)
    assert cost["data in"] == cheap["data in"]


def test_retention_and_fan_out_cost(from_text: Loader) -> None:
    stream = "retention: 10d\n    fan_out_consumers: [one, two]"
    found = plan(from_text(text(stream=stream))).streams["clicks"]
    cost = {item.name: item.usd for item in found.cost}
    shards = found.expected_partitions.value
    assert 24 <= shards < 32, "each costs more than a part of a core"
    gb = 23_500 * 100 * 730 * 3600 / 1e9
    assert cost["retention"] == pytest.approx(shards * 730 * 0.02)
    assert cost["long retention"] == pytest.approx(gb * 3 * 24 / 730 * 0.023)
    assert cost["fan-out"] == pytest.approx(2 * shards * 730 * 0.015)
    assert cost["fan-out data"] == pytest.approx(2 * gb * 0.013)


@pytest.mark.parametrize("trigger", ["1ms", "1s", "10s"])
def test_batches_are_counted_as_often_as_they_run(from_text: Loader, trigger: str) -> None:
    """Back to back they follow each other as fast as they end, whatever the trigger."""
    pinned = text(rate="800", per_core="5000", sla="60s").replace(
        "kind: land\n", f"kind: land\n        trigger: {trigger}\n"
    )
    environment = from_text(pinned.replace("size: 100B", "size: 100B, peak_factor: 1"))
    job = plan(environment).jobs["clicks"]
    cores = job.queries["land"].cores.value
    apart = max(parse_duration(trigger).total_seconds(), 2 / (1 - 800 / 5000 / cores))
    cost = {line.name: line.usd for line in job.cost}
    batches = 730 * 3600 / apart
    assert cost["logs"] == pytest.approx(batches * 300 / 1e9 * 0.50)
    assert cost["S3 requests"] == pytest.approx((batches * (12 + cores) + 730 * 3600 / 10) / 1000 * 0.005)


@pytest.mark.parametrize("shards", [12, 2])
def test_each_task_of_a_batch_writes_a_file(from_text: Loader, shards: int) -> None:
    """Four cores read twelve shards in waves, and two beside a shuffle: records of shards are always shuffled, to four tasks."""
    job = "worker: G.1X\n    cores: 4"
    found = plan(
        from_text(text(stream=f"existing: theirs\n    shards: {shards}", rate="900", per_core="400", job=job))
    )
    query = found.jobs["clicks"].queries["land"]
    assert (query.repartition is None) == (shards > 4)
    batches = 730 * 3600 / query.trigger_seconds.value
    [usd] = [line.usd for line in found.jobs["clicks"].cost if line.name == "S3 requests"]
    assert usd == pytest.approx((batches * (12 + 4) + 730 * 3600 / 10) / 1000 * 0.005)


@pytest.mark.parametrize(("size", "billed"), [(1, 1024), (350, 1024), (1024, 1024), (1025, 2048)])
def test_on_demand_bills_each_record_by_the_kib(from_text: Loader, size: int, billed: int) -> None:
    changes = {"stream": "mode: on-demand", "rate": "900", "size": f"{size}B"}
    stream = plan(from_text(text(**changes))).streams["clicks"]
    cost = {line.name: line for line in stream.cost}
    assert cost["data in"].usd == pytest.approx(900 * billed * 730 * 3600 / 1e9 * 0.08)
    read = 900 * size * 730 * 3600 / 1e9
    assert cost["data out"].usd == pytest.approx(read * 0.04), "what is read is not rounded"


@pytest.mark.parametrize(
    ("retention", "extended", "long"), [("24h", 0, 0), ("3d", 2, 0), ("7d", 6, 0), ("30d", 6, 23)]
)
def test_on_demand_has_two_prices_for_what_is_kept(
    from_text: Loader, retention: str, extended: int, long: int
) -> None:
    changes = {"stream": f"mode: on-demand\n    retention: {retention}", "rate": "400", "size": "1000B"}
    found = plan(from_text(text(**changes))).streams["clicks"].cost
    cost = {line.name: line for line in found}
    for name, days, usd in (("retention", extended, 0.10), ("long retention", long, 0.023)):
        if not days:
            assert name not in cost
            continue
        gb_month = 400_000 * 730 * 3600 / 1e9 * days * 24 / 730
        assert cost[name].usd == pytest.approx(gb_month * usd)
        assert "is unconfirmed" in cost[name].why


def test_a_job_that_reads_some_partitions_has_its_part_of_peak_and_average(from_text: Loader) -> None:
    """The average is told in shares of the peak: a job of three has the third of both."""
    topic = KAFKA.format(cluster="tier: standard", retention="1d\n    partitions: 9", rate=1000)
    topic = topic.replace("record_size", "peak_factor: 4, record_size")
    whole = query_demands_and_findings(from_text(topic))[0][0]
    head, _, job = topic.partition("  clicks:\n    engine")
    job = "  clicks:\n    engine" + job
    parts = (
        job.replace("clicks:\n", f"clicks-{n}:\n", 1)
        .replace("land: {", f"land-{n}: {{")
        .replace(".ddl}", f".ddl, kafka: {{partitions: {list(range(n, 9, 3))}}}}}")
        for n in range(3)
    )
    shared = query_demands_and_findings(from_text(head + "".join(parts)))[0]
    assert (whole.work.rate, whole.average) == (4000, 0.25)
    assert [(demand.work.rate, demand.average) for demand in shared] == [(pytest.approx(4000 / 3), 0.25)] * 3


def test_the_streams_of_a_query_ask_for_all_that_it_asks_for(from_text: Loader) -> None:
    second = """\
      both:
        kind: route
        table: both
        routes:
          seen: {source: views, schema: pipelines/clicks/schemas/click.ddl}
          made: {source: clicks, schema: pipelines/clicks/schemas/click.ddl}
"""
    views = (
        "streams:\n  views:\n    kind: kinesis\n    mode: provisioned\n"
        "    traffic: {records_per_second: 100, record_size: 1KiB, basis: measured}\n"
    )
    environment = from_text(text(more=second).replace("streams:\n", views, 1))
    (demand,) = (demand for demand in query_demands_and_findings(environment)[0] if demand.query == "both")
    of_each = [demand.part_of_stream(stream) for stream in ("clicks", "views")]
    assert demand.read_at_once > 0
    assert sum(each.needed for each in of_each) == pytest.approx(demand.needed)
    assert sum(each.read_at_once for each in of_each) == pytest.approx(demand.read_at_once)
    assert of_each[0].read_at_once / of_each[1].read_at_once == pytest.approx(235)


def test_storage_holds_the_retention_in_every_copy(from_text: Loader) -> None:
    found = plan(from_text(KAFKA.format(cluster="tier: standard", retention="10d", rate=1024))).clusters[
        "main"
    ]
    assert found.storage_gib_per_broker is not None
    needed = 10 * 86400 / 1024 * 3 * 1.25 / 3
    # In coarse steps, as each change of a volume costs an update of the cluster.
    assert needed <= found.storage_gib_per_broker.value < needed * 1.2


def test_emr_workers_and_their_disk(from_text: Loader) -> None:
    job = plan(from_text(KAFKA.format(cluster="tier: standard", retention="1d", rate=50_000))).jobs["clicks"]
    assert (job.cores.value, job.executors.value, job.max_workers.value) == (11, 2, 3)
    cost = {item.name: item.usd for item in job.cost}
    assert cost["vCPU"] == pytest.approx(3 * 8 * 730 * 0.052624)
    assert cost["memory"] == pytest.approx(3 * 32 * 730 * 0.0057785)
    assert cost["disk"] == pytest.approx(3 * 30 * 730 * 0.000111)


def test_a_stream_without_readers_is_noted(from_text: Loader) -> None:
    extra = "streams:\n  idle:\n    kind: kinesis\n    traffic: {records_per_second: 1500, record_size: 1B}\n"
    found = plan(from_text(text().replace("streams:\n", extra, 1)))
    assert found.streams["idle"].expected_partitions.value == 2
    assert "streams.idle: no job reads it" in found.warnings


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_json_holds_every_figure_of_every_environment(name: str) -> None:
    found = plan(load(name, root=ROOT))
    document = json.loads(json.dumps(plan_as_plain_data(found)))
    assert document["version"] == 1
    assert document["total"]["value"] == pytest.approx(total_cost(found).value)
    for job_name, job in found.jobs.items():
        assert document["jobs"][job_name]["cores"]["why"] == job.cores.why
        assert set(document["jobs"][job_name]["queries"]) == set(job.queries)
    parts = [*document["streams"].values(), *document["clusters"].values(), *document["jobs"].values()]
    listed = sum(part["cost"]["usd_month"] for part in parts) + document["shared"]["usd_month"]
    assert listed == pytest.approx(total_cost(found).value)


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_plans_are_the_same_every_time(name: str) -> None:
    environment = load(name, root=ROOT)
    assert plan(environment) == plan(environment)


def test_figures_are_values(from_text: Loader) -> None:
    figure = plan(from_text(text())).jobs["clicks"].cores
    assert replace(figure, value=1) != figure
