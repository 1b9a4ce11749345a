"""Plans with known answers: worked examples, binding limits, cheaper choices."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.config import ConfigurationError
from millrace.config.engines.emr import EMR_DISK_GIB, EMR_MEMORY_GIB
from millrace.config.engines.glue import glue_workers
from millrace.config.model import Environment
from millrace.sizing import plan, total_cost
from millrace.sizing.alternatives.other_engines_and_services import alternatives
from millrace.sizing.prices_and_limits import price_table_of_region, service_limits
from tests.unit.sizing.conftest import DERIVE, Loader, text
from tests.unit.sizing.test_brokers import KAFKA
from tests.unit.sizing.test_plan import built

MIB = 1024**2


def shards(environment: Environment) -> tuple[int, str]:
    figure = plan(environment).streams["clicks"].expected_partitions
    return figure.value, figure.why


@pytest.mark.parametrize(
    ("rate", "size", "expected", "bound"),
    [
        ("1000", "100B", 1, "records/s in"),
        ("1001", "100B", 2, "records/s in"),
        ("100", "10485B", 1, "MiB/s in"),
        ("100", "10486B", 2, "MiB/s in"),
        # 50 cores: 48.1 shards must be read at a time to catch up, and 1,000 in waves of 49 are 47.6.
        ("1000000", "100B", 1000, "records/s in"),
        (
            "64",
            "1MiB",
            65,
            "MiB/s in",
        ),  # 33 cores in two waves read more than half of them at a time; of 64, 64 would
    ],
)
def test_from_one_shard_to_a_thousand(
    from_text: Loader, rate: str, size: str, expected: int, bound: str
) -> None:
    found, why = shards(from_text(text(rate=rate, size=size, per_core="10000000")))
    assert found == expected
    assert bound in why


def test_consumers_bind_where_they_are_many(from_text: Loader) -> None:
    more = "".join(
        f"      again-{n}: {{kind: land, source: clicks, table: t{n}, schema: pipelines/clicks/schemas/click.ddl}}\n"
        for n in range(3)
    )
    alone, _ = shards(from_text(text(rate="800", size="10KiB", per_core="10000000")))
    found, why = shards(from_text(text(rate="800", size="10KiB", per_core="10000000", more=more)))
    assert alone == 8
    assert found == math.ceil(4 * 800 * 10 / 1024 / 2) == 16
    assert "4 readers" in why
    fanned = more.replace("schema:", "fan_out: true, schema:")
    # Eight would do, and 32 cores; in two waves 24 cores read eleven, for less.
    assert shards(from_text(text(rate="800", size="10KiB", per_core="10000000", more=fanned)))[0] == 11


def test_a_record_of_ten_mebibytes(from_text: Loader) -> None:
    yaml = text(
        rate="2", size="10MiB", per_core="5", stream="max_record_size: 10MiB", sla="60s", job="worker: G.2X"
    )
    sized = plan(from_text(yaml))
    assert sized.streams["clicks"].expected_partitions.value == 27, (
        "20 MiB/s, and 60 records a batch that may be 80: full waves of 14 cores"
    )
    query = sized.jobs["clicks"].queries["land"]
    assert query.records_per_partition is not None
    assert query.records_per_partition.value >= 1
    with pytest.raises(ConfigurationError, match="at most 1MiB"):
        from_text(text(size="10MiB"))


def cost(environment: Environment) -> float:
    return sum(line.usd for line in plan(environment).streams["clicks"].cost)


def test_where_on_demand_and_provisioned_break_even(from_text: Loader) -> None:
    """A shard used to the full costs less than what it carries on demand; one that idles costs more than nothing."""
    table = price_table_of_region("us-east-1")
    full = {"rate": "1000", "size": "1000B", "per_core": "10000000"}
    assert cost(from_text(text(**full))) < cost(from_text(text(**full, stream="mode: on-demand")))
    # What a month of one shard costs buys so many GB on demand, in and out, above the stream's own price.
    quiet = {"rate": "1", "size": "100B", "per_core": "10000000"}
    many = text(**quiet, stream="shards: 40")
    assert cost(from_text(many)) > cost(from_text(text(**quiet, stream="mode: on-demand")))
    per_byte = 1024 * table.usd("kinesis.on_demand.gb_in") + 1000 * table.usd("kinesis.on_demand.gb_out")
    found = cost(from_text(text(**full, stream="mode: on-demand")))
    moved = 1000 * 730 * 3600 / 1e9 * per_byte
    assert found == pytest.approx(730 * table.usd("kinesis.on_demand.stream_hour") + moved)


def cluster(from_text: Loader, tier: str, rate: int, retention: str) -> float:
    made = plan(from_text(KAFKA.format(cluster=f"tier: {tier}", retention=retention, rate=rate)))
    return sum(line.usd for line in made.clusters["main"].cost)


def test_standard_for_little_and_express_for_much(from_text: Loader) -> None:
    """An Express broker of a size costs twice as much and takes three times as much (unconfirmed for Standard)."""
    assert cluster(from_text, "standard", 1024, "1d") < cluster(from_text, "express", 1024, "1d")
    assert cluster(from_text, "express", 1024 * 45, "7d") < cluster(from_text, "standard", 1024 * 45, "7d")


@pytest.mark.parametrize(
    ("rate", "worker", "workers"),
    [("500", "G.025X", 2), ("2900", "G.025X", 3), ("3500", "G.025X", 4), ("9000", "G.025X", 8)],
)
def test_small_workers_where_their_memory_suffices(
    from_text: Loader, rate: str, worker: str, workers: int
) -> None:
    job = plan(from_text(text(rate=rate, job="restarts_per_hour: 5"))).jobs["clicks"]
    assert (job.worker, job.max_workers.value) == (worker, workers)
    pinned = plan(from_text(text(rate=rate, job="worker: G.1X"))).jobs["clicks"]
    assert pinned.worker == "G.1X"
    assert job.cost[0].usd <= pinned.cost[0].usd


def test_what_is_pinned_stays_and_the_other_is_shown(from_text: Loader) -> None:
    job = plan(from_text(text(rate="500", job="worker: G.2X"))).jobs["clicks"]
    assert job.worker == "G.2X"
    other = next(each for each in job.choices()[1:] if each.refused is None)
    assert other.usd < job.choices()[0].usd
    assert {each.engine for each in job.choices()} == {"glue", "emr"}
    assert {each.architecture for each in job.choices() if each.engine == "emr"} == {"x86_64", "arm64"}


def test_memory_takes_a_larger_worker(from_text: Loader) -> None:
    """Tables of 12 GiB on each executor are too much for G.1X: many cores share them on G.2X, few have memory DPUs."""
    small = plan(from_text(text())).jobs["clicks"]
    assert small.worker == "G.1X"
    large = plan(from_text(text(job="memory: {tables: 12GiB}"))).jobs["clicks"]
    assert large.memory_gib >= large.memory.value > 16
    assert large.worker == "G.2X"
    few = plan(from_text(text(rate="2900", job="memory: {tables: 12GiB}"))).jobs["clicks"]
    assert (few.worker, few.max_workers.value) == ("R.1X", 2)
    refused = next(each for each in large.choices() if each.worker == "G.1X")
    assert refused.refused is not None
    assert refused.usd < large.choices()[0].usd
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(job="worker: G.1X\n    memory: {tables: 12GiB}")))
    (problem,) = caught.value.problems
    assert problem.key == "jobs.clicks.worker"
    assert "an executor needs" in problem.allowed
    assert "leave worker to the plan: remove it" in str(problem.hint)


def test_state_is_shared_out(from_text: Loader) -> None:
    with_state = plan(from_text(text(job="worker: G.1X\n    memory: {state: 16GiB}"))).jobs["clicks"]
    without = plan(from_text(text())).jobs["clicks"]
    more = with_state.memory.value - without.memory.value
    assert more == pytest.approx(16 / 8 / 0.625, abs=0.02), (
        "eight executors, and five eighths of each are heap"
    )


def test_catching_up_takes_cores(from_text: Loader) -> None:
    calm = plan(from_text(text(rate="8000", sla="60s"))).jobs["clicks"]
    asked = "catch_up: {outage: 15m, within: 30m}"
    quick = plan(from_text(text(rate="8000", sla="60s", job=asked))).jobs["clicks"]
    assert quick.cores.value == math.floor(1.5 * 8 * 30 / (30 - 2)) + 1
    assert calm.cores.value < quick.cores.value
    again = quick.queries["land"].catch_up_seconds
    assert again is not None
    assert again.value <= 30 * 60, "the model's own promise"
    slow = calm.queries["land"].catch_up_seconds
    assert slow is not None
    assert slow.value * 15 / 10 > 30 * 60


def test_a_limit_that_cannot_catch_up_is_refused(from_text: Loader) -> None:
    asked = "cores: 16\n    catch_up: {outage: 15m, within: 30m}"
    yaml = text(rate="8000", sla="60s", job=asked)
    free = plan(from_text(yaml)).jobs["clicks"].queries["land"]
    assert free.records_per_batch is not None
    least = 8000 * 1.5 * max(free.trigger_seconds.value, 2 / (1 - 8000 * 1.5 / 16_000))
    own = f"        trigger: {free.trigger_seconds.value}s\n        records_per_batch: {int(least) - 1}\n"
    pinned = yaml.replace("kind: land\n", f"kind: land\n{own}")
    with pytest.raises(ConfigurationError, match=r"must take 1\.50 times the peak"):
        plan(from_text(pinned))
    assert plan(from_text(pinned.replace(str(int(least) - 1), str(int(least) + 1))))


def test_a_refused_limit_names_one_that_is_allowed(from_text: Loader) -> None:
    """Where memory holds no more than what keeps up, "allowed: 36001 to 36000" named none."""

    def with_limit(limit: int) -> Environment:
        own = f"        trigger: 20m\n        records_per_batch: {limit}\n"
        yaml = text(rate="30", size="1MiB", per_core="5000", sla="1h")
        return from_text(yaml.replace("kind: land\n", f"kind: land\n{own}"))

    with pytest.raises(
        ConfigurationError, match=r"records_per_batch is 1000000000; allowed: (\d+) to \1:"
    ) as refused:
        plan(with_limit(10**9))
    [limit] = re.findall(r"allowed: (\d+) to", str(refused.value))
    assert plan(with_limit(int(limit)))


def test_shards_can_give_what_catching_up_reads(from_text: Loader) -> None:
    """A shard gives twice what it takes in: to read four times the peak takes twice the shards, and one for fixed costs."""
    yaml = {"rate": "1000", "size": "10KiB", "per_core": "10000000", "sla": "60s"}
    assert shards(from_text(text(**yaml)))[0] == 10
    quick = text(**yaml, job="worker: G.2X\n    catch_up: {outage: 30m, within: 10m}")
    found, why = shards(from_text(quick))
    assert found == 21  # 19.5 of 2 MiB/s, which hand over in 28 of a batch's 30 s
    assert "while catching up" in why


def test_the_simulator_keeps_the_promise_of_catching_up(from_text: Loader) -> None:
    from millrace.sizing.simulation import Arrivals, Outage, simulate
    from millrace.sizing.simulation.plan_scenario import scenario_of_job

    environment = from_text(
        text(rate="8000", sla="60s", job="worker: G.1X\n    catch_up: {outage: 15m, within: 30m}")
    )
    made = scenario_of_job(
        environment,
        plan(environment),
        "clicks",
        {"clicks": Arrivals.constant(8000, 3 * 3600)},
        fixed=True,
        outages=[Outage(3600, 900)],
    )
    found = simulate(made).queries["land"]
    away = 900 + made.driver_start
    late = found.ends[found.oldest_age_by_batch > 60]
    assert late[-1] <= 3600 + away + 2 * away + 60, "lambda R / (mu - lambda) = 2 R, and a batch"


def test_throughput_in_place_of_latency(from_text: Loader) -> None:
    """Batches of which a twentieth is fixed cost, and a fifth more cores than the peak takes."""
    found = plan(from_text(text(rate="10000", sla="10s", job="goal: throughput")))
    job = found.jobs["clicks"]
    query = job.queries["land"]
    needed = 10 / (1 - 0.05) * 1.2
    # Ten shards that are spread over the cores cost less than a shard for each core.
    assert found.streams["clicks"].expected_partitions.value == 10
    assert job.cores.value == math.floor(needed * 1.1) + 1
    assert query.latency_seconds.value == pytest.approx(2 * 2 / 0.05)
    assert query.records_per_batch is not None
    assert query.records_per_batch.value == pytest.approx((40 - 2) * job.cores.value / 1.1 * 1000, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "term", "mends"),
    [
        ({"sla": "4s"}, "(term a)", ["latency: ", "rate.batch_overhead: "]),
        ({"sla": "8s", "more": DERIVE}, "(term a)", ["latency: ", "rate.batch_overhead: "]),
        (
            {"job": "cores: 2"},
            "records/s at peak",
            ["leave cores to the plan", "rate.records_per_second_per_core: ", "split: "],
        ),
    ],
)
def test_infeasible_says_what_would_mend_it(
    from_text: Loader, changes: dict[str, str], term: str, mends: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(**changes)))
    for problem in caught.value.problems:
        assert term in problem.allowed
        for mend in mends:
            assert mend in str(problem.hint)


def test_a_record_that_takes_longer_than_a_batch_may(from_text: Loader) -> None:
    slow = {"rate": "1", "per_core": "0.02", "overhead": "2s"}
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(**slow, sla="60s")))
    (problem,) = caught.value.problems
    assert problem.key == "jobs.clicks.latency"
    assert problem.allowed.startswith(
        "more than 104s for land: one record takes 50 s on its core and a batch 2 s"
    )
    assert problem.allowed.endswith("(term b)")
    found = plan(from_text(text(**slow, sla="110s"))).jobs["clicks"].queries["land"].records_per_batch
    assert found is not None
    assert found.value >= 1


def test_a_limit_that_memory_does_not_hold_is_refused_for_that(from_text: Loader) -> None:
    limit = "        records_per_batch: 92522\n"
    yaml = text(rate="60", size="10KiB", per_core="312", sla="2h", stream="shards: 1", job="", more=limit)
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(yaml), simulated=False)
    (problem,) = caught.value.problems
    assert problem.allowed.endswith("more and a task's memory or the stream's retention does not hold them")


def test_a_mend_that_shows_the_next_problem_is_none(from_text: Loader) -> None:
    """Without the trigger the stream's one shard is too few."""
    pinned = {"stream": "shards: 1", "more": "        trigger: 138s\n"}
    with pytest.raises(ConfigurationError) as caught:
        plan(
            from_text(text(rate="20000", size="1KiB", per_core="500", sla="100s", job="", **pinned)),
            simulated=False,
        )
    (problem,) = caught.value.problems
    assert problem.allowed.startswith("less than ")
    assert problem.hint is None


def test_each_mend_does_mend(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(sla="4s")))
    hint = str(caught.value.problems[0].hint).removeprefix("any of these would do: ")
    found = dict(each.split(", if")[0].split(": ") for each in hint.split("; "))
    assert plan(from_text(text(sla=found["latency"])))
    assert plan(from_text(text(sla="4s", overhead=found["rate.batch_overhead"])))


def test_a_large_job_is_told_to_be_shared_out(from_text: Loader) -> None:
    job = plan(from_text(text(rate="700000", sla="60s", job="worker: G.8X"))).jobs["clicks"]
    assert job.cores.value > 700
    assert any("send the records to 2 streams" in line for line in job.advice)


def test_firehose_is_named_where_it_does_all_for_less(from_text: Loader) -> None:
    plain = plan(from_text(text(rate="100", sla="2h")))
    assert "nothing beyond Amazon Data Firehose" in plain.advice[0]
    # Without it: a transform, an SLA below its buffering, and where a job costs less.
    for changes in (
        {"more": DERIVE},
        {"sla": "59s"},
        {"rate": "23900", "per_core": "50000", "size": "1000B"},
    ):
        found = plan(from_text(text(**{"rate": "100", "sla": "2h", **changes})))
        assert not any("Firehose" in line for line in found.advice)


def test_dollars_that_nobody_knows_take_no_part_in_the_ranking(from_text: Loader) -> None:
    environment = from_text(text(rate="100", sla="2h"))
    now = plan(environment)
    first, *others = alternatives(environment, now, {"Glue 6.0": 1.0, "Glue 7.0": "no plan"})
    known = [each.usd for each in others if each.usd is not None]
    assert (first.usd, known) == (total_cost(now).value, sorted(known))
    assert [each.usd for each in others[len(known) :]] == [None] * (len(others) - len(known))
    assert {each.usd for each in others if each.name in ("Glue 7.0", "Kinesis streaming tables")} == {None}
    (firehose,) = [each for each in others if "Firehose" in each.name]
    # By hand: the stream, what the table stores, and 100 records of 100 bytes a second for 730 hours.
    kept = [*now.streams["clicks"].cost, *(c for c in now.jobs["clicks"].cost if c.name == "S3 storage")]
    assert firehose.usd == pytest.approx(sum(c.usd for c in kept) + 0.075 * 100 * 100 * 730 * 3600 / 1e9)


def test_a_service_that_cannot_read_a_stream_has_no_dollars(from_text: Loader) -> None:
    environment = from_text(KAFKA.format(cluster="tier: standard", retention="1d", rate=100))
    (firehose,) = [
        each for each in alternatives(environment, plan(environment), {}) if "Firehose" in each.name
    ]
    assert (firehose.usd, firehose.price) == (None, "no plan: it cannot read clicks")
    assert "it cannot read clicks" in firehose.beyond


def test_what_does_less_than_the_file_asks_for_is_ranked_last(from_text: Loader) -> None:
    environment = from_text(text(rate="100", sla="10s"))
    names = [each.name for each in alternatives(environment, plan(environment), {"Glue 6.0": 1e6})]
    assert names[:3] == ["this plan", "Glue 6.0", "Amazon Data Firehose to Iceberg"]


RATES = st.floats(1, 50_000)


@settings(max_examples=25)
@given(rate=RATES, size=st.integers(1, 500_000), per_core=st.floats(50, 50_000), sla=st.floats(6, 900))
def test_every_plan_keeps_within_every_limit(rate: float, size: int, per_core: float, sla: float) -> None:
    environment = built(rate=rate, size=size, per_core=per_core, sla=sla)
    sized = plan(environment)
    known = service_limits()
    count = sized.streams["clicks"].expected_partitions.value
    assert rate <= count * known["kinesis.shard.records_in_per_second"] * (1 + 1e-9)
    assert rate * size <= count * known["kinesis.shard.bytes_in_per_second"] * (1 + 1e-9)
    assert rate * size <= count * known["kinesis.shard.bytes_out_per_second"]
    job = sized.jobs["clicks"]
    for choice in job.choices():
        if choice.refused is None:
            assert choice.memory_needed_gib <= choice.memory_gib
            assert choice.executors * choice.vcpu >= job.cores.value
            assert choice.memory_gib >= known["memory.driver_gib"]
        if choice.engine == "emr":
            assert choice.memory_gib in EMR_MEMORY_GIB[choice.vcpu]
        else:
            assert choice.worker in glue_workers("5.1")
    assert job.disk_gib >= EMR_DISK_GIB[0]
    assert 1 <= job.scaling.min_executors.value <= job.scaling.initial_executors.value <= job.executors.value
    assert [each.refused is not None for each in job.choices()[1:]] == sorted(
        each.refused is not None for each in job.choices()[1:]
    )
    able = [each.usd for each in job.choices()[1:] if each.refused is None]
    assert able == sorted(able)
    assert total_cost(sized).value > 0


@settings(max_examples=25)
@given(rate=RATES, factor=st.floats(1, 10), sla=st.floats(6, 300))
def test_more_load_never_gives_less_capacity(rate: float, factor: float, sla: float) -> None:
    less, more = (
        plan(built(rate=each, sla=sla), simulated=False).jobs["clicks"] for each in (rate, rate * factor)
    )
    assert more.cores.value >= less.cores.value
    assert more.executors.value * more.vcpu >= less.cores.value
    first, second = (each.queries["land"].records_per_batch for each in (less, more))
    assert first is not None
    assert second is not None
    seconds = [each.queries["land"].trigger_seconds.value for each in (less, more)]
    assert second.value / max(seconds[1], sla / 2) >= first.value / max(seconds[0], sla / 2) * (1 - 0.05)


@pytest.mark.parametrize(("cores", "workers"), [(32, 9), (64, 17), (8, 3)])
def test_workers_of_cores_are_those_of_the_published_advice(
    from_text: Loader, cores: int, workers: int
) -> None:
    """Executors of four cores, and one driver."""
    found = plan(from_text(text(rate="2000", job=f"worker: G.1X\n    cores: {cores}")))
    assert found.jobs["clicks"].max_workers.value == workers
