"""Audits of direct queries by their commits, and of shards by the records that they still hold."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from millrace.cli.repair import audit as command
from millrace.config import load
from millrace.config.queries import RouteQuery
from millrace.etl.launch.sources import (
    KafkaReadingOptions,
    KafkaSource,
    KinesisSource,
    group_sources_into_legs,
)
from millrace.lifecycle.audits.hourly_audit import HOUR, AuditResult, HourCounts, LaggingShard, NotAudited
from millrace.lifecycle.audits.kinesis import audit_stream_by_counts, lagging_shards
from millrace.lifecycle.audits.query_audit import line_number_in_offset_log
from millrace.lifecycle.audits.records_in_tables import (
    OFFSETS,
    QUERY,
    LandedRecords,
    SinkAndDeadLetters,
    gaps_between_commits,
)

NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
COLUMNS = pa.schema(
    [
        ("_id", pa.string()),
        ("_source", pa.string()),
        ("_position", pa.string()),
        ("_arrived_at", pa.timestamp("us", "UTC")),
        ("_landed_at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


def rows(*identities: str, arrived: datetime = NOW) -> pa.Table:
    result = [
        {"_id": i, "_source": "orders", "_position": i.split("/")[2].zfill(20), "_arrived_at": arrived}
        | {"_landed_at": NOW}
        for i in identities
    ]
    return pa.Table.from_pylist(result, COLUMNS)


def commit(table: Any, start: dict[str, int], end: dict[str, int], query: str = "tax") -> None:
    offsets = json.dumps({"start": start, "end": end})
    table.append(rows(), snapshot_properties={QUERY: query, OFFSETS: offsets})


def test_commits_claim_what_they_hold(catalog: SqlCatalog) -> None:
    table = catalog.create_table("db.taxed", schema=COLUMNS)
    table.append(rows("orders/0/1"))  # somebody else's, and a compaction's, say nothing
    places = {"0": ("orders", 0), "1": ("orders", 1)}
    commit(table, {}, {"0": 5, "1": 2})
    commit(table, {"0": 5, "1": 2}, {"0": 9, "1": 2})
    commit(table, {"0": 12, "1": 2}, {"0": 20, "1": 6})
    commit(table, {"0": 900}, {"0": 950}, "other")
    commit(table, {"0": 24, "1": 6}, {"0": 30, "1": 6})
    held = gaps_between_commits(table, "tax", places, earliest=True)
    assert held == {("orders", 0): [(9, 12), (20, 24)], ("orders", 1): []}
    # A checkpoint that was reset reads all of it again: then nothing is open.
    commit(table, {}, {"0": 15, "1": 1})
    assert gaps_between_commits(table, "tax", places, earliest=True)["orders", 0] == [(20, 24)]
    latest = gaps_between_commits(table, "tax", places, earliest=False)
    assert latest["orders", 0] == [(9, 12), (20, 24)]


def test_records_are_looked_for_in_both_tables(catalog: SqlCatalog) -> None:
    sink = catalog.create_table("db.taxed", schema=COLUMNS)
    letters = catalog.create_table("db.letters", schema=COLUMNS)
    # Offset 2 is two rows of an explode, 4 says a time of long ago, and one identity is of the transform's own.
    sink.append(rows("orders/0/1", "orders/0/2/0", "orders/0/2/1", "mine/x/y"))
    sink.append(rows("orders/0/4", arrived=NOW - timedelta(days=300)))
    letters.append(rows("orders/0/3", "orders/0/3#replay", "orders/1/7"))
    kept = SinkAndDeadLetters(LandedRecords(letters, "orders"), LandedRecords(sink, "orders"), NOW)
    assert kept.offsets_in_and_around_window(NOW - HOUR, NOW + HOUR) == {
        ("orders", 0): {1, 2, 3},
        ("orders", 1): {7},
    }
    assert kept.offsets_between("orders", 0, 2, 9) == {2, 3, 4}


ENVIRONMENT = """\
project: shop
account: "111122223333"
kafka:
  {first}: {{kind: external, bootstrap_servers: "a:1", authentication: none}}
  {second}: {{kind: external, bootstrap_servers: "b:1", authentication: none}}
streams:
  orders: &topic
    kind: kafka
    cluster: {second}
    existing: true
    partitions: 2
    traffic: {{records_per_second: 10, record_size: 1KiB}}
  refunds: {{<<: *topic, cluster: {first}}}
  gifts: *topic
  web: {{<<: *topic, pattern: 'web.*'}}
  clicks: &stream {{kind: kinesis, traffic: {{records_per_second: 10, record_size: 1KiB}}}}
  baskets: *stream
jobs:
  shop:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      all:
        kind: route
        table: landed
        routes:
          web: {{source: web, topic: web.a, schema: pipelines/shop/any.ddl}}
          clicks: &route {{source: clicks, schema: pipelines/shop/any.ddl}}
          orders: {{<<: *route, source: orders}}
          refunds: {{<<: *route, source: refunds}}
          baskets: {{<<: *route, source: baskets}}
          gifts: {{<<: *route, source: gifts}}
"""


def test_a_streams_line_in_the_offset_log_is_where_the_core_puts_it(tmp_path: Path) -> None:
    (tmp_path / "environments").mkdir()
    (tmp_path / "pipelines" / "shop").mkdir(parents=True)
    (tmp_path / "pipelines" / "shop" / "any.ddl").write_text("id STRING")
    (tmp_path / "environments" / "shop.yaml").write_text(ENVIRONMENT.format(first="aa", second="bb"))
    environment = load("shop", root=tmp_path)
    query = environment.jobs["shop"].queries["all"]
    assert isinstance(query, RouteQuery)
    sources: list[KafkaSource | KinesisSource] = []
    for name, stream in environment.streams.items():
        if stream.kind == "kinesis":
            sources.append(KinesisSource(name, name, "r", "earliest", 1, 1.0, 1))
            continue
        reading = KafkaReadingOptions(pattern=True) if stream.pattern else None
        topic = stream.pattern or name
        sources.append(KafkaSource(name, topic, stream.cluster, "earliest", 1, 1, reading))
    legs = group_sources_into_legs(sources)
    places = {each.name: place for place, leg in enumerate(legs) for each in leg}
    assert {
        name: line_number_in_offset_log(environment, query, name) for name in environment.streams
    } == places
    assert places == {"refunds": 0, "orders": 1, "gifts": 1, "web": 2, "baskets": 3, "clicks": 4}


def client(moto: str, service: str) -> Any:
    make: Any = boto3.client
    return make(
        service,
        endpoint_url=moto,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


@pytest.fixture
def clicks(moto: str) -> Iterator[Any]:
    """A stream of two shards with three records each, put one after the other."""
    kinesis = client(moto, "kinesis")
    kinesis.create_stream(StreamName="clicks", ShardCount=2)
    yield kinesis
    kinesis.delete_stream(StreamName="clicks")


def put(kinesis: Any, shard: int) -> tuple[str, str]:
    key = str(shard << 127)
    answer = kinesis.put_record(StreamName="clicks", Data=b"x", PartitionKey="k", ExplicitHashKey=key)
    time.sleep(0.01)
    return answer["ShardId"], answer["SequenceNumber"]


def after(sequence: str) -> dict[str, str]:
    return {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": sequence}


def test_shards_say_what_is_not_read_of_them(clicks: Any) -> None:
    begun = datetime.now(UTC)
    first = [put(clicks, 0) for _ in range(3)]
    second = [put(clicks, 1) for _ in range(3)]
    (left,), (right,) = ({shard for shard, _ in each} for each in (first, second))
    told = lagging_shards(
        clicks, "clicks", {"metadata": {}, left: after(first[-1][1]), right: after(second[0][1])}
    )
    assert told is not None
    assert [each.shard for each in told] == [right]
    assert begun - timedelta(seconds=2) < told[0].since < datetime.now(UTC) + timedelta(seconds=2)
    # A shard that the checkpoint does not know is not read at all; one that was read to its end is done.
    told = lagging_shards(clicks, "clicks", {left: {"iteratorType": "SHARD_END", "iteratorPosition": ""}})
    assert [each.shard for each in told or ()] == [right]
    assert lagging_shards(clicks, "clicks", {left: after(first[-1][1]), right: after(second[-1][1])}) == ()
    assert lagging_shards(clicks, "clicks", {left: "a position of another make"}) is None
    assert lagging_shards(clicks, "clicks", {}) is None


def test_a_shard_that_is_read_late_is_no_hole(catalog: SqlCatalog, moto: str) -> None:
    cloudwatch, begin = client(moto, "cloudwatch"), NOW - 3 * HOUR
    minute = timedelta(minutes=1)
    cloudwatch.put_metric_data(
        Namespace="AWS/Kinesis",
        MetricData=[
            {
                "MetricName": "IncomingRecords",
                "Dimensions": [{"Name": "StreamName", "Value": "late-clicks"}],
                "Timestamp": begin + n * minute,
                "Value": 2,
            }
            for n in range(180)
        ],
    )
    table = catalog.create_table("db.landed", schema=COLUMNS)
    # One of two shards is read to its end, the other up to an hour after the beginning; 7 minutes of both are lost.
    every = [
        (f"clicks/{n * 2 + s}", begin + n * minute)
        for n in range(180)
        for s in ((0, 1) if n < 60 else (0,))
        if not 20 <= n < 27
    ]
    table.append(
        pa.Table.from_pylist(
            [
                {"_id": i, "_source": "clicks", "_position": "0", "_arrived_at": at, "_landed_at": NOW}
                for i, at in every
            ],
            COLUMNS,
        )
    )
    landed = LandedRecords(table, "clicks")
    hours = [begin + n * HOUR for n in range(3)]

    def missing(told: tuple[LaggingShard, ...] | None) -> list[tuple[int, int]]:
        result = audit_stream_by_counts(
            cloudwatch, landed, hours, query="q", stream="late-clicks", table="db.landed", unread=told
        )
        assert result.behind == (told or ())
        return [(hour.missing, hour.waiting) for hour in result.hours]

    late = (LaggingShard("shard-1", begin + HOUR),)
    assert missing(late) == [(14, 0), (0, 60), (0, 60)]
    # Where nobody knows what the shards were read to, it looks like a hole; where all is read, it is one.
    assert missing(None) == [(14, 0), (60, 0), (0, 60)]
    assert missing(()) == [(14, 0), (60, 0), (60, 0)]


def test_the_command_tells_what_cannot_be_audited_and_what_is_behind(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hour = HourCounts(NOW, 10, 6, 0, 1, left_out=3)
    result = AuditResult(
        "tax", "orders", "db.taxed", "offsets", (hour,), behind=(LaggingShard("shard-1", NOW),)
    )
    other = NotAudited("boards/clicks", "web.clicks", "its sink is dynamodb")
    command._print_audits([result, other])
    text = capsys.readouterr().out
    assert "left out" in text
    assert f"shard-1: not read since {NOW:%Y-%m-%d %H:%M:%S} UTC; its records are late, not lost" in text
    assert "3 are in no table; the transform may filter them" in text
    assert "boards/clicks: web.clicks cannot be audited: its sink is dynamodb" in text
    documents = json.loads(command._audits_as_json([result, other]))
    assert [each.get("missing") for each in documents] == [0, None]
    assert documents[0]["behind"] == [{"shard": "shard-1", "since": f"{NOW:%Y-%m-%dT%H:%M:%S}Z"}]
