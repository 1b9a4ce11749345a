"""Times in a file that exclude each other: retention, triggers, outages, waits for records, and time limits of runs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millrace.config import ConfigurationError, Environment
from millrace.sizing import plan
from millrace.sizing.cost_saving_moves import find_moves
from millrace.sizing.plan_model import Plan, QueryPlan
from millrace.sizing.queries.query_plan import outage_to_plan_for
from tests.unit.sizing.conftest import DERIVE, Loader, text

LOW = {"rate": "50", "size": "500B", "per_core": "5000", "job": ""}


def topic(retention: str, sla: str, job: str = "", query: str = "", rate: str = "100") -> str:
    """A topic with a retention that one query lands."""
    return f"""\
project: advice
account: "111122223333"
kafka: {{main: {{kind: external, bootstrap_servers: "k.example.com:9092"}}}}
streams:
  clicks:
    kind: kafka
    cluster: main
    existing: true
    partitions: 6
    retention: {retention}
    traffic: {{records_per_second: {rate}, peak_factor: 1.5, record_size: 500B, basis: measured}}
jobs:
  clicks:
    engine: emr
    latency: {sla}
    rate: {{records_per_second_per_core: 5000, batch_overhead: 2s, basis: measured}}
    {job}
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl{query}}}
"""


def landing_plan(from_text: Loader, yaml: str) -> QueryPlan:
    return plan(from_text(yaml)).jobs["clicks"].queries["land"]


def refused(from_text: Loader, yaml: str) -> tuple[str, str, str]:
    """Key, value and allowed values of the only problem."""
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(yaml))
    (problem,) = caught.value.problems
    assert problem.line, "it names a line of the file"
    return problem.key, problem.value, problem.allowed


@pytest.mark.parametrize(("retention", "sla"), [("1h", "6h"), ("7d", "30d"), ("30m", "1d")])
@pytest.mark.parametrize("outage", [timedelta(minutes=10), timedelta(minutes=25)])
def test_no_record_of_a_chosen_trigger_expires_unread(
    from_text: Loader, retention: str, sla: str, outage: timedelta
) -> None:
    """The oldest waits for the trigger, the outage, and then the longest batch."""
    asked = f"catch_up: {{outage: {outage.total_seconds():g}s, within: 20h}}" * (outage.seconds != 600)
    environment = from_text(topic(retention, sla, asked))
    found = plan(environment).jobs["clicks"].queries["land"]
    oldest = outage + timedelta(seconds=2 * found.trigger_seconds.value)
    kept = environment.streams["clicks"].retention
    assert kept - timedelta(seconds=1) <= oldest <= kept
    assert "retention" in found.trigger_seconds.why
    assert "the whole SLA" in landing_plan(from_text, topic(retention, "2m")).trigger_seconds.why


def test_a_stream_of_kinesis_keeps_records_for_a_chosen_trigger_too(from_text: Loader) -> None:
    """One record in four minutes, so that memory holds a week of them."""
    rare = {**LOW, "rate": "0.004", "sla": "20d", "size": "100B"}
    assert landing_plan(from_text, text(**rare)).trigger_seconds.value == (24 * 3600 - 600) / 2
    more = landing_plan(from_text, text(**rare, stream="retention: 7d"))
    assert more.trigger_seconds.value == (7 * 24 * 3600 - 600) / 2


TIMES = [
    (topic("1h", "8h", "run_every: 3h"), "jobs.clicks.run_every", "3h", "at most 1500s"),
    (topic("1h", "8h", query=", trigger: 26m"), "jobs.clicks.queries.land.trigger", "26m", "at most 1500s"),
    (
        topic("1h", "6h", "catch_up: {outage: 6h, within: 6h}"),
        "jobs.clicks.catch_up.outage",
        "6h",
        "at most 3588s",
    ),
    (
        topic("1h", "6h", "run_every: 5m\n    catch_up: {outage: 51m, within: 6h}"),
        "jobs.clicks.catch_up.outage",
        "51m",
        "at most 3000s",
    ),
    (
        text(**{**LOW, "sla": "3d", "job": "catch_up: {outage: 25h, within: 20h}"}),
        "jobs.clicks.catch_up.outage",
        "25h",
        "at most 86388s",
    ),
    (topic("10m", "60s"), "streams.clicks.retention", "10m", "at least 612s"),
]


@pytest.mark.parametrize(("yaml", "key", "value", "allowed"), TIMES)
def test_a_time_that_outlasts_the_retention_is_refused(
    from_text: Loader, yaml: str, key: str, value: str, allowed: str
) -> None:
    told = refused(from_text, yaml)
    assert told[:2] == (key, value)
    assert told[2].startswith(f"{allowed}: streams.clicks keeps a record for ")
    most = allowed.split()[-1]
    plan(from_text(yaml.replace(f": {value}", f": {most}")))


def test_bounded_runs_of_a_chosen_period_stay_within_the_retention(from_text: Loader) -> None:
    run = plan(from_text(topic("1h", "8h", "run: bounded"))).jobs["clicks"].run
    assert run is not None
    assert run.every_seconds.value <= 1500


@pytest.mark.parametrize(
    ("asked", "offered"),
    [
        ("", True),
        ("catch_up: {outage: 23h, within: 20h}", True),
        ("catch_up: {outage: 25h, within: 20h}", False),
    ],
)
def test_a_retention_of_a_day_is_offered_only_where_a_plan_reads_all_in_it(
    from_text: Loader, asked: str, offered: bool
) -> None:
    """With an SLA of four days the plan alone would leave two days between two triggers."""
    owned = topic("7d", "4d", asked, rate="300").replace("500B", "20KiB").replace("    existing: true\n", "")
    environment = from_text(
        owned.replace('kind: external, bootstrap_servers: "k.example.com:9092"', "kind: msk")
    )
    tried: list[float] = []

    def keeps(changed: Environment, after: Plan) -> bool:
        if changed.streams["clicks"].retention == timedelta(days=1):
            tried.append(after.jobs["clicks"].queries["land"].trigger_seconds.value)
            assert (
                timedelta(days=1) - outage_to_plan_for(changed.jobs["clicks"])
            ).total_seconds() >= 2 * tried[0]
        return True

    moves = find_moves(environment, plan(environment), keeps)
    assert any(each.key == "streams.clicks.retention" for each in moves) == offered == bool(tried)


DELAYS = [
    # Spark asks at each trigger: after one of 30 s, no wait of 59 s ends before the next at 60 s.
    ("", "59s", "below 30s"),
    ("", "30s", "below 30s"),
    (", trigger: 5s", "30s", "below 30s"),
    (", trigger: 7s", "28s", "below 28s"),
    (", trigger: 50s", "50s", "below 50s"),
]


@pytest.mark.parametrize(("query", "delay", "allowed"), DELAYS)
def test_a_wait_for_records_leaves_the_time_of_the_batch_after_it(
    from_text: Loader, query: str, delay: str, allowed: str
) -> None:
    waits = ", kafka: {{min_records_per_batch: 20000, max_delay: {}}}".format
    told = refused(from_text, topic("7d", "60s", query=query + waits(delay)))
    assert told[:2] == ("jobs.clicks.queries.land.kafka.max_delay", delay)
    assert told[2].startswith(allowed)
    most = int(allowed.removeprefix("below ").removesuffix("s")) - 1
    found = landing_plan(from_text, topic("7d", "60s", query=query + waits(f"{most}s")))
    trigger = found.trigger_seconds.value
    waited = trigger * (most // trigger + 1)
    # What arrives in such a wait takes no longer than this on the planned cores.
    batch = 2 + 150 * waited / 5000 / found.cores.value
    assert waited + batch <= 60


def test_a_bounded_run_may_take_its_longest_time(from_text: Loader) -> None:
    hourly = {"rate": "3000", "size": "500B", "per_core": "5000", "sla": "2h"}
    free = plan(from_text(text(**hourly, job="run_every: 60m"))).jobs["clicks"].run
    assert free is not None
    least = int(-(-free.longest_seconds.value // 60))
    key, value, allowed = refused(from_text, text(**hourly, job="run_every: 60m\n    timeout: 1m"))
    assert (key, value) == ("jobs.clicks.timeout", "1m")
    assert allowed.startswith(f"at least {least}m, as a run at the peak takes ")
    plan(from_text(text(**hourly, job=f"run_every: 60m\n    timeout: {least}m")))


@pytest.mark.parametrize(
    ("sla", "restarts", "more", "timeout", "least"),
    [
        ("2m", "", "", "3m", "12m"),
        ("2m", "", DERIVE, "3m", "12m"),
        ("2m", "restarts_per_hour: 20\n    ", "", "2m", "3m"),
        # A batch of ten minutes at most, after as long a wait; of each query, where there are two.
        ("20m", "restarts_per_hour: 20\n    ", "", "19m", "20m"),
        ("20m", "restarts_per_hour: 20\n    ", DERIVE, "9m", "10m"),
    ],
)
def test_a_job_that_runs_all_the_time_ends_no_more_often_than_it_may_start(
    from_text: Loader, sla: str, restarts: str, more: str, timeout: str, least: str
) -> None:
    def job(limit: str) -> str:
        few = {**LOW, "size": "50B", "rate": "5"}
        return text(**{**few, "sla": sla, "job": f"{restarts}timeout: {limit}", "more": more})

    key, value, allowed = refused(from_text, job(timeout))
    assert (key, value) == ("jobs.clicks.timeout", timeout)
    assert allowed.startswith(f"at least {least}, for a trigger and a batch of each query, and for at most ")
    plan(from_text(job(least)))
