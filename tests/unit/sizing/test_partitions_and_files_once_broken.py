"""Relations that plans broke which read several unlike streams, or many given partitions: their waves, triggers and files."""

from __future__ import annotations

import copy

import pytest

from millrace.sizing import total_cost
from millrace.sizing.alternatives.job_planner import PlansMade
from tests.unit.sizing.plan_relations import (
    KEPT,
    a_pin_changes_nothing,
    quieter,
    several,
    sized,
    verdict,
)
from tests.unit.sizing.random_environments import EXISTING, Document

pytestmark = pytest.mark.usefixtures("without_remedies")


def routed(job: Document, **streams: Document) -> Document:
    """Streams that one query reads together."""
    document = several(job, **streams)
    routes = {name: {"source": name, "schema": "pipelines/a.ddl"} for name in streams}
    document["jobs"]["job"]["queries"] = {"land": {"kind": "route", "routes": routes, "table": "landed"}}
    return document


def test_one_full_partition_is_not_read_as_a_share_of_thirteen() -> None:
    """Of 4,000 records/s in one partition and 10 in twelve, one task had to do nearly all: the backlog grew, and KEPT stood there."""
    job = {"engine": "glue", "latency": "60000ms", "rate": {"records_per_second_per_core": 1000}}
    job["rate"]["batch_overhead"] = "1000ms"
    traffic = {"records_per_second": 4000, "record_size": "1KiB"}
    made = []
    for streams in ({"busy": 1}, {"busy": 1, "quiet": 12}):
        document = routed(
            job,
            busy=traffic,
            **({"quiet": {**traffic, "records_per_second": 10}} if len(streams) > 1 else {}),
        )
        document["kafka"] = {"main": {"kind": "msk", "existing": EXISTING}}
        for name, number in streams.items():
            document["streams"][name] |= {
                "kind": "kafka",
                "cluster": "main",
                "existing": True,
                "partitions": number,
            }
            del document["streams"][name]["mode"]
        state, found = verdict(document)
        assert state == KEPT
        assert found is not None
        made.append(found.jobs["job"])
    alone, together = (job.queries["land"].repartition for job in made)
    assert alone is not None
    assert together is not None
    assert made[1].cores.value >= made[0].cores.value


def test_a_stream_that_delivers_slowly_and_one_with_the_work_both_take_their_cores() -> None:
    """The larger of the two sums was taken: 180 core-seconds where tasks hold cores for 266."""
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "1000ms"}
    traffic = {"small": (20_000, 100), "large": (100, 102_400)}
    streams = {
        name: {"records_per_second": number, "record_size": f"{size}B"}
        for name, (number, size) in traffic.items()
    }
    document = routed({"engine": "glue", "latency": "60000ms", "rate": rate}, **streams)
    state, found = verdict(document)
    assert state == KEPT
    assert found is not None
    held = sum(number * max(1 / 5000, size / (2 * 1024**2)) for number, size in traffic.values())
    assert found.jobs["job"].cores.value > held


@pytest.mark.parametrize("factor", [1, 1.01])
def test_one_shard_more_of_several_streams_fills_the_waves_of_half_of_the_cores(factor: float) -> None:
    """33 shards of two streams took 31 cores, 34 take 17: $551 less, or 29 %."""
    job: Document = {"engine": "glue", "latency": "900000ms"}
    job["rate"] = {"records_per_second_per_core": 10000, "batch_overhead": "500ms", "basis": "measured"}
    large = {"records_per_second": 6.3, "record_size": "1MiB", "peak_factor": 5}
    document = routed(job, one=large, two={"records_per_second": 6.7, "record_size": "30KiB"})
    document = quieter(document, factor)
    _, free = sized(document)
    assert free is not None
    made = PlansMade()
    for shards in range(31, 36):
        document["streams"]["one"]["shards"] = shards
        _, pinned = sized(document, made)
        assert pinned is None or total_cost(free).value <= total_cost(pinned).value * (1 + 1e-9)


def test_two_streams_of_one_kind_take_what_one_of_both_takes() -> None:
    rate = {"records_per_second_per_core": 5000, "batch_overhead": "1000ms"}
    job = {"engine": "glue", "latency": "60000ms", "rate": rate}
    one = routed(job, both={"records_per_second": 16_000, "record_size": "1KiB"})
    half = {"records_per_second": 8000, "record_size": "1KiB"}
    (_, together), (_, apart) = sized(one), sized(routed(job, first=half, second=half))
    assert together is not None
    assert apart is not None
    assert together.jobs["job"].cores.value == apart.jobs["job"].cores.value


def with_given_partitions(stream: Document, latency: str, rate: int, *, derives: bool) -> Document:
    """One job that lands a stream whose partitions are given, and derives from it."""
    queries: Document = {
        "land": {"kind": "land", "source": "stream", "schema": "pipelines/a.ddl", "table": "landed"}
    }
    if derives:
        queries["derive"] = {
            "kind": "derive",
            "source": "landed",
            "sink": {"kind": "iceberg", "table": "derived"},
        }
    speed = {"records_per_second_per_core": rate, "batch_overhead": "1s", "basis": "measured"}
    job = {"engine": "glue", "latency": latency, "rate": speed, "queries": queries}
    return {"name": "drawn", "project": "drawn", "streams": {"stream": stream}, "jobs": {"job": job}}


def usd(document: Document) -> float:
    _, found = sized(document)
    assert found is not None
    return total_cost(found).value


def test_given_shards_write_a_file_for_each_core() -> None:
    """1,000 shards were $577 a month with 6.9 s, and $4,187 with 13.8 s, as a file of each was counted."""
    traffic = {"records_per_second": 534.1, "record_size": "4KiB", "basis": "measured"}
    stream = {
        "kind": "kinesis",
        "mode": "provisioned",
        "existing": "theirs",
        "shards": 1000,
        "traffic": traffic,
    }
    strict, loose = (
        with_given_partitions(stream, each, 10000, derives=True) for each in ("6900ms", "13800ms")
    )
    assert usd(loose) <= usd(strict)


def on_given_topic(partitions: int, latency: str, rate: int, *, derives: bool, **traffic: object) -> Document:
    """One job that reads a topic of given partitions."""
    stream = {
        "kind": "kafka",
        "cluster": "main",
        "existing": True,
        "partitions": partitions,
        "traffic": {**traffic, "basis": "measured"},
    }
    cluster = "arn:aws:kafka:us-east-1:111122223333:cluster/main/12345678-1234-1234-1234-123456789012-1"
    return with_given_partitions(stream, latency, rate, derives=derives) | {
        "account": "111122223333",
        "kafka": {"main": {"kind": "msk", "existing": cluster}},
    }


@pytest.mark.parametrize("partitions", [1, 100, 1000])
def test_a_topic_of_many_given_partitions_is_shuffled_where_files_cost_more(partitions: int) -> None:
    """1,000 partitions that were landed alone took a file for each: $692 a month, and $366 behind a shuffle."""
    alone, both = (
        on_given_topic(partitions, "10s", 2000, derives=each, records_per_second=1000, record_size="1KiB")
        for each in (False, True)
    )
    assert usd(alone) <= usd(both)
    assert usd(alone) == pytest.approx(366, abs=2), "few partitions cost as much"


@pytest.mark.parametrize("rate", [7000, 9000])
def test_a_limit_that_only_a_shuffled_batch_keeps_can_be_pinned(rate: int) -> None:
    """The plan's own limit was refused, as waves over the partitions would take longer."""
    a_pin_changes_nothing(
        on_given_topic(116, "15s", rate, derives=False, records_per_second=22643.1, record_size="400B")
    )


def test_the_trigger_is_one_that_the_shard_with_the_most_bytes_fits_into() -> None:
    """The bytes of one shard counted as those of all six that a query reads: eight times the SLA took three shards more, $32."""
    streams = {
        "large": {"records_per_second": 26.6, "record_size": "30KiB"},
        "small": {"records_per_second": 5.8, "record_size": "100B"},
    }
    job: Document = {"engine": "glue", "latency": "300000ms"}
    job["rate"] = {"records_per_second_per_core": 2000, "batch_overhead": "500ms", "basis": "measured"}
    document = routed(job, **streams)
    document["streams"]["small"]["mode"] = "on-demand"
    loose = copy.deepcopy(document)
    loose["jobs"]["job"]["latency"] = "2400000ms"
    assert usd(loose) <= usd(document)
