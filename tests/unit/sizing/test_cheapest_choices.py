"""The chosen design is the cheapest: no pinned shards, tier or mode cost less."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from millrace.config import Environment
from millrace.config.aws.deployed_sizes_to_keep import DeployedCluster, DeployedSizes
from millrace.config.document.problems import ConfigurationError
from millrace.sizing import Plan, plan, total_cost
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.cost import CENT
from tests.run import examples
from tests.unit.sizing.plan_relations import contradictions_of_plan, sized
from tests.unit.sizing.random_environments import Document, documents, milliseconds

pytestmark = pytest.mark.usefixtures("without_remedies")


@st.composite
def streams(draw: st.DrawFn) -> tuple[dict[str, object], dict[str, object]]:
    """A provisioned stream, and the job that lands it, and perhaps derives from its table."""
    traffic = {
        "records_per_second": draw(st.integers(100, 20_000)),
        "record_size": draw(st.sampled_from(["100B", "400B", "900B", "2KiB", "4KiB"])),
        "basis": "measured",
    }
    stream = {"kind": "kinesis", "retention": draw(st.sampled_from(["24h", "48h"])), "traffic": traffic}
    rate = {
        "records_per_second_per_core": draw(st.integers(400, 8_000)),
        "batch_overhead": draw(milliseconds(0.3, 4)),
        "basis": "measured",
    }
    land = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    queries: dict[str, object] = {"land": land}
    for number in range(draw(st.sampled_from([0, 0, 1, 2]))):
        sink = {"kind": "iceberg", "table": f"derived_{number}"}
        queries[f"derive-{number}"] = {"kind": "derive", "source": "landed", "sink": sink}
    engine, latency = draw(st.sampled_from(["glue", "emr"])), draw(milliseconds(10, 300))
    return stream, {"engine": engine, "latency": latency, "rate": rate, "queries": queries}


def usd(stream: dict[str, object], job: dict[str, object], made: PlansMade) -> tuple[float, int] | None:
    """Dollars a month and shards; None if it cannot be planned, or only for a catch-up of more than a day."""
    document = {"name": "built", "project": "built", "streams": {"clicks": stream}, "jobs": {"clicks": job}}
    try:
        found = plan(Environment.model_validate(document), made, simulated=False)
    except ConfigurationError:
        return None
    again = [query.catch_up_seconds for each in found.jobs.values() for query in each.queries.values()]
    if any(each is not None and each.value > 86_400 for each in again):
        return None
    return total_cost(found).value, found.streams["clicks"].expected_partitions.value


@settings(max_examples=examples(25), phases=(Phase.explicit, Phase.generate))
@given(streams())
def test_no_shards_that_are_pinned_are_cheaper(drawn: tuple[dict[str, object], dict[str, object]]) -> None:
    stream, job = drawn
    made = PlansMade()
    found = usd(stream, job, made)
    if found is None:
        return
    cheapest, shards = found
    for number in {*range(1, 25), *range(max(1, shards - 8), shards + 8), shards // 2, 2 * shards} - {0}:
        other = usd({**stream, "shards": number}, job, made)
        assert other is None or other[0] >= cheapest - 0.01, f"{number} shards are cheaper than {shards}"


def test_a_shard_more_saves_cores_where_full_shards_are_read_in_one_wave() -> None:
    """56 shards deliver for half of a batch and two seconds, so two waves do not end: 60 cores. With 57 they do: 33 cores."""
    traffic = {
        "records_per_second": 9498.6,
        "peak_factor": 1.5,
        "record_size": "4KiB",
        "basis": "measured",
    }
    land = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    queries: dict[str, object] = {"land": land}
    for number in range(2):
        sink = {"kind": "iceberg", "table": f"derived_{number}"}
        queries[f"derive-{number}"] = {"kind": "derive", "source": "landed", "sink": sink}
    job = {"engine": "emr", "latency": "2790946ms", "queries": queries}
    stream = {"kind": "kinesis", "mode": "provisioned", "traffic": traffic}
    made = PlansMade()
    found = usd(stream, job, made)
    assert found is not None
    for number in range(56, 90):
        other = usd({**stream, "shards": number}, job, made)
        assert other is not None
        assert other[0] >= found[0] - 0.01, f"{number} shards are cheaper than {found[1]}"


@pytest.mark.parametrize(
    ("rate", "size", "latency", "speed"),
    [(77.8, "30KiB", "960000ms", 901), (450.4, "900B", "727411ms", 5000)],
)
def test_shards_that_bring_tasks_to_a_smaller_worker_are_found(
    rate: float, size: str, latency: str, speed: int
) -> None:
    """What a task fetches beside the joined tables fits on a fourth of a worker with twice or five times the shards."""
    traffic = {"records_per_second": rate, "peak_factor": 2, "record_size": size, "basis": "measured"}
    land = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    own = {"records_per_second_per_core": speed, "batch_overhead": "471ms", "basis": "measured"}
    job = {"engine": "glue", "latency": latency, "rate": own, "queries": {"land": land}}
    job["memory"] = {"tables": "1GiB"}
    stream = {"kind": "kinesis", "mode": "provisioned", "traffic": traffic}
    made = PlansMade()
    found = usd(stream, job, made)
    assert found is not None
    for number in range(1, 30):
        other = usd({**stream, "shards": number}, job, made)
        assert other is None or other[0] >= found[0] - 0.01, f"{number} shards are cheaper than {found[1]}"


def with_cluster(rate: int, days: int, **keys: object) -> Environment:
    """A job that lands one topic of a cluster with these keys."""
    traffic = {"records_per_second": rate, "record_size": "1KiB", "basis": "measured"}
    topic = {"kind": "kafka", "cluster": "main", "retention": f"{days}d", "traffic": traffic}
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    job = {"engine": "emr", "latency": "5m", "queries": {"land": query}}
    document: dict[str, object] = {
        "region": keys.pop("region", "us-east-1"),
        "network": keys.pop("network", {}),
        "kafka": {"main": {"kind": "msk", **keys}},
        "streams": {"clicks": topic},
        "jobs": {"clicks": job},
    }
    return Environment.model_validate({"name": "built", "project": "built", **document})


def two_jobs_on_a_topic(tier: str, partitions: int | None, made: PlansMade) -> float:
    """Dollars a month of a job with large state that reads a topic, and a bounded one; the plan chooses the partitions, or they are pinned."""
    traffic = {"records_per_second": 14_813, "record_size": "1KiB", "basis": "measured"}
    topic = {"kind": "kafka", "cluster": "main", "traffic": traffic, "partitions": partitions}
    land = {"kind": "land", "source": "clicks", "schema": "pipelines/a.ddl"}
    own = {"land": {**land, "table": "landed"}}
    derive = {"kind": "derive", "source": "landed", "sink": {"kind": "iceberg", "table": "derived"}}
    jobs = {
        "often": {"engine": "emr", "latency": "15s", "queries": own, "memory": {"state": "100GiB"}},
        "seldom": {
            "engine": "emr",
            "latency": "30m",
            "run_every": "5m",
            "memory": {"state": "100GiB"},
            "queries": {"again": {**land, "table": "other"}, "derive": {**derive, "source": "other"}},
        },
    }
    document = {"name": "built", "project": "built", "jobs": jobs, "streams": {"clicks": topic}}
    document["kafka"] = {"main": {"kind": "msk", "tier": tier}}
    return total_cost(plan(Environment.model_validate(document), made, simulated=False)).value


@pytest.mark.parametrize("tier", ["standard", "express"])  # a topic on serverless brokers states its own
def test_no_partitions_that_are_pinned_are_cheaper(tier: str) -> None:
    """Brokers were left out of the search, so a topic got 27,000 partitions to spare a worker, and brokers for $25,000 a month."""
    made = PlansMade()
    least = two_jobs_on_a_topic(tier, None, made)
    for number in (1, 7, 30, 165, 1_000, 3_000):
        assert two_jobs_on_a_topic(tier, number, made) >= least - 0.01, f"{number} partitions are cheaper"


@pytest.mark.slow
@settings(max_examples=examples(12), phases=(Phase.explicit, Phase.generate))
@given(documents(), st.sampled_from([600.0, 3600.0, 14_400.0]))
def test_no_stated_period_of_runs_is_cheaper(document: Document, sla: float) -> None:
    """Periods that cannot be the cheapest are not planned."""
    (name, job), *_ = document["jobs"].items()
    job.pop("run_every", None)
    document = {**document, "jobs": {name: {**job, "latency": f"{sla}s", "run": "auto"}}}
    environment, found = sized(document)
    if found is None:
        return
    for minutes in (5, 10, 15, 20, 30, 45, 60, 90, 120):
        stated = {**job, "latency": f"{sla}s", "run_every": f"{minutes}m"}
        environment, other = (
            sized({**document, "jobs": {name: stated}}) if 60 * minutes < sla else (environment, None)
        )
        if other is not None and total_cost(other).value < total_cost(found).value - 2 * CENT:
            assert list(contradictions_of_plan(environment, other)), f"{minutes} minutes"


@pytest.mark.parametrize("rate", [10, 3_000, 30_000, 300_000])
@pytest.mark.parametrize("days", [1, 7, 30])
def test_a_tier_that_is_left_out_is_the_cheaper_one(rate: int, days: int) -> None:
    found = plan(with_cluster(rate, days), simulated=False)
    each = {
        tier: total_cost(plan(with_cluster(rate, days, tier=tier), simulated=False)).value
        for tier in ("standard", "express")
    }
    assert total_cost(found).value == pytest.approx(min(each.values()))
    assert found.clusters["main"].tier == min(each, key=lambda tier: each[tier])


def test_a_tier_stays_where_the_file_or_a_deployed_cluster_decides() -> None:
    def tier(environment: Environment) -> str:
        return plan(environment).clusters["main"].tier

    large = (300_000, 7)
    assert tier(with_cluster(*large)) == "express"
    for keys in (
        {"version": "4.0.x.kraft"},  # no document of AWS names it
        {"version": "3.9.x"},
        {"network": {"availability_zones": 2}},
        {"region": "eu-west-3"},  # whose prices nobody read
        {"storage": "16000GiB"},
        {"broker_type": "kafka.m7g.4xlarge"},
        {"tier": "standard"},
    ):
        assert tier(with_cluster(*large, **keys)) == "standard", keys
    for kind, named in (("kafka.m7g.4xlarge", "standard"), ("express.m7g.large", "express")):
        sizes = DeployedSizes(clusters={"main": DeployedCluster(3, kind)})
        for each in (large, (10, 1)):
            assert tier(with_cluster(*each).with_deployed_sizes(sizes)) == named


@pytest.mark.parametrize("advantage", [False, True])
@pytest.mark.parametrize("retention", ["24h", "7d"])
@pytest.mark.parametrize("peak_factor", [1, 60, 190, 300])
def test_a_mode_that_is_left_out_is_the_cheaper_one_that_takes_the_peak(
    peak_factor: float, retention: str, advantage: bool
) -> None:
    traffic = {
        "records_per_second": 20,
        "peak_factor": peak_factor,
        "record_size": "1KiB",
        "basis": "measured",
    }
    query = {"kind": "land", "source": "clicks", "table": "landed", "schema": "pipelines/a.ddl"}
    job = {"engine": "glue", "latency": "5m", "queries": {"land": query}}

    def planned(deployed: str | None = None, **keys: object) -> Plan:
        stream = {"kind": "kinesis", "retention": retention, "traffic": traffic, **keys}
        document = {
            "name": "built",
            "project": "built",
            "streams": {"clicks": stream},
            "jobs": {"clicks": job},
        }
        governance = {"on_demand_advantage": advantage}
        environment = Environment.model_validate({**document, "governance": governance})
        sizes = DeployedSizes(modes={} if deployed is None else {"clicks": deployed})
        return plan(environment.with_deployed_sizes(sizes))

    each = {mode: total_cost(planned(mode=mode)).value for mode in ("provisioned", "on-demand")}
    found = planned()
    # A new on-demand stream takes 4,000 records a second.
    mode = min(each, key=lambda mode: each[mode]) if 20 * peak_factor <= 4000 else "provisioned"
    assert (found.streams["clicks"].mode, total_cost(found).value) == (mode, pytest.approx(each[mode]))
    for deployed in each:
        assert planned(deployed).streams["clicks"].mode == deployed
