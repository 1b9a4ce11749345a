"""The network, keys, shard changes, fan-out and alarms of a plan."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config import ConfigurationError, environment_names, load
from millrace.config.sources.kinesis import shard_steps
from millrace.etl.launch.metric_names import BY_NAME
from millrace.sizing import plan, total_cost
from millrace.sizing.alarms.alarm_windows import window_period_and_count
from millrace.sizing.alarms.alarms import alarm_names_silenced_by_stop
from millrace.sizing.alarms.reported_metrics import metric_namespace
from millrace.sizing.costs.endpoints_or_nat_gateways import created_kms_keys_with_contents
from tests.unit.sizing.conftest import DERIVE, Loader, text

ROOT = Path(__file__).resolve().parents[3]
KEY = "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
INSIDE = "network: {egress: endpoints}"
BASE = ("logs", "monitoring", "kms", "sts", "glue", "kinesis-streams")


def names(found: object) -> set[str]:
    return {alarm.name for alarm in found.alarms}  # type: ignore[attr-defined]


def test_services_are_those_that_are_called(from_text: Loader) -> None:
    assert plan(from_text(text(top=INSIDE))).network.services == BASE
    with_history = plan(from_text(text(top=f"{INSIDE}\nhistory: {{clients: [10.20.0.0/24]}}")))
    assert with_history.network.services == (*BASE, "ecr.api", "ecr.dkr")
    alone = plan(from_text(text(top="history: {clients: [10.20.0.0/24]}")))
    assert alone.network.services == ("logs", "ecr.api", "ecr.dkr")
    assert plan(load("prod", root=ROOT)).network.services[:7] == (*BASE, "kafka")


@pytest.mark.parametrize(
    ("policy", "rate", "egress", "lines"),
    [
        ("endpoints", "10", "endpoints", ["endpoints", "endpoint data"]),
        ("nat", "100000", "nat", ["NAT gateways", "NAT data"]),
        ("cheapest", "10", "nat", ["NAT gateways", "NAT data"]),  # six endpoints cost more than a gateway
        ("cheapest", "23900", "endpoints", ["endpoints", "endpoint data"]),  # a gateway's data does
    ],
)
def test_the_way_out_is_what_policy_allows_and_costs_least(
    from_text: Loader, policy: str, rate: str, egress: str, lines: list[str]
) -> None:
    found = plan(from_text(text(top=f"network: {{egress: {policy}}}", rate=rate)))
    assert found.network.egress.value == egress
    assert [line.name for line in found.shared if line.name in (*lines, "endpoints", "NAT gateways")] == lines
    assert found.network.egress.origin == ("computed" if policy == "cheapest" else "pinned")
    other = plan(
        from_text(
            text(top=f"network: {{egress: {'nat' if egress == 'endpoints' else 'endpoints'}}}", rate=rate)
        )
    )
    if policy == "cheapest":
        assert total_cost(found).value < total_cost(other).value


BROKERS = """\
project: outside
network: {{egress: {egress}, availability_zones: 2}}
kafka: {{cc: {{kind: external, bootstrap_servers: "{host}:9092"}}}}
streams:
  ee:
    kind: kafka
    cluster: cc
    existing: true
    partitions: 24
    traffic: {{records_per_second: 12000, record_size: 800B, basis: measured}}
  alerts: {{kind: kinesis, traffic: {{records_per_second: 10, record_size: 800B, basis: measured}}}}
jobs:
  ee:
    engine: glue
    latency: 3m
    rate: {{records_per_second_per_core: 4000, batch_overhead: 3s, basis: measured}}
    queries:
      land-e: {{kind: land, source: ee, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
      send:
        kind: direct
        source: ee
        schema: pipelines/clicks/schemas/click.ddl
        sink: {{kind: kinesis, stream: alerts}}
        dead_letters: letters
"""
PUBLIC = "pkc-1.us-east-1.aws.confluent.cloud"


@pytest.mark.parametrize(
    ("host", "gigabytes"),
    [
        (PUBLIC, 50_457.6),  # two queries of 12,000 x 800 B x 2,628,000 s
        ("b-1-public.main.abc.c2.kafka.us-east-1.amazonaws.com", 50_457.6),
        ("b-1.main.abc.c2.kafka.us-east-1.amazonaws.com", 0),
        ("lkc-1.eu-west-1.aws.private.confluent.cloud", 0),
        ("broker-1.kafka.internal", 0),
        ("10.1.2.3", 0),
    ],
)
def test_gateways_carry_what_is_read_from_brokers_on_the_internet(
    from_text: Loader, host: str, gigabytes: float
) -> None:
    found = plan(from_text(BROKERS.format(egress="nat", host=host)))
    lines = {line.name: line for line in found.shared}
    assert lines["NAT data"].usd == pytest.approx(gigabytes * 0.045)
    assert (
        ("from cc on the internet" in lines["NAT data"].why) == lines["NAT data"].assumed == bool(gigabytes)
    )
    assert (f"endpoints would make it $88, without a route to {host}" in lines["NAT gateways"].why) == bool(
        gigabytes
    )
    assert "peering or PrivateLink to cc" in found.left_out
    assert found.network.services[-1] == "kinesis-streams", "the sink's"


@pytest.mark.parametrize(("host", "egress"), [(PUBLIC, "nat"), ("10.1.2.3", "nat"), ("b.internal", "nat")])
def test_endpoints_are_not_cheapest_where_they_reach_no_broker(
    from_text: Loader, host: str, egress: str
) -> None:
    found = plan(from_text(BROKERS.format(egress="cheapest", host=host)))
    assert found.network.egress.value == egress
    asked = plan(from_text(BROKERS.format(egress="endpoints", host=host)))
    assert asked.network.egress.value == "endpoints"
    (line,) = (each for each in asked.shared if each.name == "endpoints")
    assert (f"{host} only by peering or PrivateLink" in line.why) == (host == PUBLIC)


def test_a_vpc_brought_along_costs_nothing_and_is_told_what_it_must_reach(from_text: Loader) -> None:
    network = (
        "network: {vpc: vpc-0123456789abcdef0, subnets: [subnet-0123456789abcdef0, subnet-0123456789abcdef1]}"
    )
    found = plan(from_text(text(top=network)))
    assert found.network.egress.value == "existing"
    assert "kinesis-streams and S3" in found.network.egress.why
    assert not {"endpoints", "NAT gateways"} & {line.name for line in found.shared}


def test_keys_of_ones_own_are_neither_made_nor_paid(from_text: Loader) -> None:
    environment = from_text(
        text(top=f"storage: {{keys: {{data: {KEY}, logs: {KEY}, streams: {KEY}, alerts: {KEY}}}}}")
    )
    assert created_kms_keys_with_contents(environment) == {}
    assert "keys" not in {line.name for line in plan(environment).shared}
    assert list(created_kms_keys_with_contents(load("prod", root=ROOT))) == [
        "data",
        "logs",
        "alerts",
        "streams",
        "kafka",
    ]


@given(now=st.integers(1, 5000), wanted=st.integers(1, 5000))
def test_every_step_is_one_that_kinesis_takes(now: int, wanted: int) -> None:
    steps = shard_steps(now, wanted)
    assert (steps[-1] if steps else now) == wanted
    for before, after in zip((now, *steps), steps, strict=False):
        assert before / 2 <= after <= before * 2
        assert after != before


def test_a_change_that_kinesis_refuses_is_told_with_its_steps(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(stream="shards_now: 5")))
    (problem,) = caught.value.problems
    assert problem.key == "streams.clicks.shards_now"
    assert problem.value == "5 shards now, 32 planned"
    assert problem.allowed == "3 to 10 shards in one change"
    assert problem.hint == (
        "deploy one after the other: shards: 10 with shards_now: 5; shards: 20 with shards_now: 10; "
        "shards: 32 with shards_now: 20"
    )
    assert plan(from_text(text(stream="shards_now: 16"))).streams["clicks"].expected_partitions.value == 32


def test_a_pinned_change_names_the_pin(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(stream="shards_now: 100\n    shards: 40")))
    assert [problem.key for problem in caught.value.problems] == ["streams.clicks.shards"]


def test_fan_out_takes_a_reader_off_the_shards_and_onto_the_bill(from_text: Loader) -> None:
    second = (
        DERIVE.replace("kind: derive", "kind: land")
        .replace("clicks_landed", "clicks")
        .replace(
            "sink: {kind: iceberg, table: clicks_derived}",
            "table: clicks_again\n        schema: pipelines/clicks/schemas/click.ddl\n        fan_out: true",
        )
        .replace("derive:", "again:")
    )
    found = plan(from_text(text(rate="2000", size="900B", more=second)))
    cost = {line.name: line for line in found.streams["clicks"].cost}
    assert "fan-out" in cost
    assert "MiB/s out" not in found.streams["clicks"].expected_partitions.why
    alarms = {alarm.name: alarm for alarm in found.alarms}
    fanned = alarms["stream/clicks/iterator-age/clicks/again"]
    assert fanned.metric == "SubscribeToShardEvent.MillisBehindLatest"
    assert fanned.dimensions["ConsumerName"] == "advice-advice-clicks-again"


def test_two_jobs_may_read_a_stream_through_queries_of_one_name(from_text: Loader) -> None:
    fanned = text().replace("kind: land", "kind: land\n        fan_out: true")
    second = fanned[fanned.index("  clicks:\n    engine") :].replace("  clicks:", "  more:", 1)
    found = plan(from_text(fanned + second.replace("clicks_landed", "landed_again")))
    ages = [alarm for alarm in found.alarms if alarm.runbook_heading == "iterator-age"]
    assert len({alarm.name for alarm in found.alarms}) == len(found.alarms)
    assert [alarm.dimensions["ConsumerName"] for alarm in ages] == [
        "advice-advice-clicks-land",
        "advice-advice-more-land",
    ]


def test_thresholds_come_from_the_plan(from_text: Loader) -> None:
    found = plan(from_text(text(sla="60s", more=DERIVE)))
    alarms = {alarm.name: alarm for alarm in found.alarms}
    land, derive = found.jobs["clicks"].queries["land"], found.jobs["clicks"].queries["derive"]
    assert land.latency_seconds.value == 30  # half of the SLA, deriving takes the rest
    assert derive.latency_seconds.value == 60
    assert alarms["job/clicks/land/record-age"].threshold == 30
    assert alarms["job/clicks/derive/record-age"].threshold == 60
    assert alarms["stream/clicks/iterator-age"].threshold == 30_000
    batch = alarms["job/clicks/land/batch-duration"]
    assert batch.threshold == pytest.approx(1.2 * land.trigger_seconds.value)
    assert batch.period * batch.of >= 600
    silent = alarms["job/clicks/land/no-batch"]
    assert (silent.missing, silent.goes_off_in_silence) == ("missing", True)
    assert silent.period * silent.of >= 3 * land.trigger_seconds.value
    assert "job/clicks/derive/dead-letters" not in alarms


def test_long_triggers_get_long_periods(from_text: Loader) -> None:
    found = plan(from_text(text(sla="4h", rate="100")))
    alarms = {alarm.name: alarm for alarm in found.alarms}
    trigger = found.jobs["clicks"].queries["land"].trigger_seconds.value
    assert trigger > 3600
    for alarm in alarms.values():
        assert alarm.period % 60 == 0
        assert alarm.period * alarm.of <= (7 * 86_400 if alarm.period >= 3600 else 86_400), alarm.name
    assert alarms["job/clicks/land/batch-duration"].period >= trigger
    silent = alarms["job/clicks/land/no-batch"]
    assert silent.period * silent.of >= 3 * trigger


@given(seconds=st.floats(0.1, 86_400))
def test_a_window_spans_what_it_must(seconds: float) -> None:
    period, count = window_period_and_count(seconds)
    assert period % 60 == 0
    assert seconds <= period * count <= 86_400
    assert count == 1 or period * (count - 1) < seconds + 3600


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_every_query_and_stream_is_watched(name: str) -> None:
    environment = load(name, root=ROOT)
    found = plan(environment)
    alarms = {alarm.name: alarm for alarm in found.alarms}
    assert len(alarms) == len(found.alarms), "names are unique"
    for job_name, job in environment.jobs.items():
        assert f"job/{job_name}/restarts" in alarms
        for query in job.queries:
            for what in ("record-age", "batch-duration", "no-batch", "failures", "retried-tasks"):
                assert f"job/{job_name}/{query}/{what}" in alarms
        silenced = alarm_names_silenced_by_stop(found.alarms, job_name)
        assert set(silenced) == {f"job/{job_name}/{query}/no-batch" for query in job.queries}
    for alarm in found.alarms:
        if "job" in alarm.dimensions:
            assert alarm.namespace == metric_namespace(alarm.dimensions["job"])
            assert BY_NAME[alarm.metric].is_per_query is ("query" in alarm.dimensions)
    for stream, settings in environment.streams.items():
        if settings.kind == "kinesis":
            assert f"stream/{stream}/iterator-age" in alarms


MEANT = '\ngovernance: {other_accounts: ["999988887777"]}\n'


def test_a_stream_in_another_account_has_its_metrics_there(from_text: Loader) -> None:
    stream = (
        "existing: arn:aws:kinesis:us-east-1:999988887777:stream/clicks\n    shards: 32\n"
        "    read_role: arn:aws:iam::999988887777:role/readers"
    )
    assert not [
        name for name in names(plan(from_text(text(stream=stream) + MEANT))) if name.startswith("stream/")
    ]


def test_executors_beyond_the_plan_are_refused(from_text: Loader) -> None:
    job = "worker: {vcpu: 4, memory: 16GiB}\n    min_executors: 40"
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(job=job).replace("engine: glue", "engine: emr")))
    (problem,) = caught.value.problems
    assert (problem.key, problem.value) == ("jobs.clicks.min_executors", "40")
    assert "at most " in problem.allowed
