"""An audit reports only records that are missing, not clock differences or a backlog."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import boto3
import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.audits import kinesis as audit_kinesis
from millrace.lifecycle.audits.hourly_audit import (
    HOUR,
    MINUTE,
    AuditResult,
    NotAudited,
    ShardRecord,
    compare_counts_by_hour,
    compare_shards_by_record,
    hour_starts_covering_window,
    missing_offset_ranges,
)
from millrace.lifecycle.audits.kinesis import audit_stream_by_counts, last_sequence_number_by_shard
from millrace.lifecycle.audits.query_audit import AuditedDeployment, audit_query
from millrace.lifecycle.audits.records_in_tables import LandedRecords
from millrace.lifecycle.aws_error_messages import AwsError

ROOT = Path(__file__).parents[3]
NOW = datetime.now(UTC).replace(minute=0, second=0, microsecond=0)
BEGIN = NOW - 4 * HOUR
HOURS = hour_starts_covering_window(BEGIN, NOW)

COLUMNS = pa.schema(
    [
        ("_id", pa.string()),
        ("_source", pa.string()),
        ("_position", pa.string()),
        ("_arrived_at", pa.timestamp("us", "UTC")),
    ]
)
Row = tuple[str, str, datetime]
"""Identity, position, arrival."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("db")
    yield catalog
    catalog.close()


def landed(catalog: SqlCatalog, rows: Sequence[Row], source: str = "clicks") -> LandedRecords:
    table = catalog.create_table("db.landed", schema=COLUMNS)
    table.append(
        pa.Table.from_pylist(
            [{"_id": i, "_source": source, "_position": p, "_arrived_at": at} for i, p, at in rows], COLUMNS
        )
    )
    return LandedRecords.open(catalog, "db.landed", "clicks")


@given(st.sets(st.integers(0, 60)), st.integers(0, 60), st.integers(0, 60))
def test_gaps_and_what_is_there_make_up_the_range(there: set[int], first: int, end: int) -> None:
    result = missing_offset_ranges(there, first, end)
    lacking = {o for a, b in result for o in range(a, b + 1)}
    assert lacking == set(range(first, end)) - there
    assert all(b + 1 < c for (_, b), (c, _) in itertools.pairwise(result)), "not in one piece"


@given(
    st.lists(st.tuples(st.integers(0, 239), st.integers(-1, 1)), max_size=200),
    st.lists(st.integers(0, 239), max_size=50),
)
def test_what_is_lost_is_found_and_two_clocks_are_no_loss(
    records: list[tuple[int, int]], lost: list[int]
) -> None:
    came = Counter(BEGIN + minute * MINUTE for minute, _ in records)
    there = Counter(BEGIN + (minute + off) * MINUTE for minute, off in records)
    came.update(BEGIN + minute * MINUTE for minute in lost)
    result = compare_counts_by_hour(HOURS, came, there)
    assert sum(hour.missing for hour in result) == len(lost)
    assert min(hour.missing for hour in result) >= 0


def test_a_loss_is_told_in_its_hour() -> None:
    every = Counter({BEGIN + n * MINUTE: 10 for n in range(240)})
    there = every.copy()
    there[BEGIN + 90 * MINUTE] = 3
    assert [(h.arrived, h.landed, h.missing) for h in compare_counts_by_hour(HOURS, every, there)] == [
        (600, 600, 0),
        (600, 593, 7),
        (600, 600, 0),
        (600, 600, 0),
    ]


def test_records_that_are_younger_than_all_that_landed_wait() -> None:
    shard = [ShardRecord(str(n), BEGIN + n * MINUTE) for n in range(100)]
    other = [ShardRecord(f"9{n}", BEGIN + n * MINUTE) for n in range(3)]
    there = frozenset(a.sequence for a in shard[:80] if a.sequence not in {"10", "11", "70"})
    hours, holes = compare_shards_by_record(HOURS, {"shard-0": shard, "shard-1": other}, there)
    assert [(h.arrived, h.landed, h.missing, h.waiting) for h in hours[:2]] == [
        (63, 58, 2, 3),
        (40, 19, 1, 20),
    ]
    assert [(h.shard, h.first, h.last, h.records, h.verdict) for h in holes] == [
        ("shard-0", "10", "11", 2, "lost"),
        ("shard-0", "70", "70", 1, "lost"),
    ]
    assert holes[0].since == BEGIN + 10 * MINUTE


def numbered(minutes: Sequence[int], first: int = 0) -> list[ShardRecord]:
    return [ShardRecord(str(first + n), BEGIN + minute * MINUTE) for n, minute in enumerate(minutes)]


def test_what_was_read_and_did_not_land_is_missing_though_nothing_younger_landed() -> None:
    shards = {
        "parent": numbered(range(10)),
        "left-out": numbered(range(5), 100),
        "child": numbered(range(10, 15), 200),
        "unknown": numbered(range(3), 300),
    }
    listed = {"parent": (), "left-out": (), "child": ("parent", "left-out"), "unknown": ()}
    positions = {
        "metadata": {},
        "parent": {"iteratorType": "SHARD_END", "iteratorPosition": ""},
        "child": {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": "202"},
    }
    read = last_sequence_number_by_shard(positions, listed)
    assert read == {"parent": math.inf, "left-out": math.inf, "child": 202}
    assert last_sequence_number_by_shard({"parent": "a position of another make"}, listed) == {}
    there = frozenset(str(n) for n in (*range(6), 200))
    (hour,), holes = compare_shards_by_record(HOURS[:1], shards, there, read=read)
    assert (hour.arrived, hour.landed, hour.missing, hour.waiting) == (23, 7, 4 + 5 + 2, 2 + 3)
    assert [(h.shard, h.first, h.last) for h in holes] == [
        ("parent", "6", "9"),
        ("left-out", "100", "104"),
        ("child", "201", "202"),
    ]


def test_what_came_before_a_query_began_with_the_newest_is_not_lost() -> None:
    every = Counter({BEGIN + n * MINUTE: 10 for n in range(240)})
    # The minute of the beginning is landed in part; a loss later on is one.
    there = Counter({BEGIN + n * MINUTE: 10 for n in range(90, 240)})
    there[BEGIN + 90 * MINUTE], there[BEGIN + 150 * MINUTE] = 4, 3
    missing = [h.missing for h in compare_counts_by_hour(HOURS, every, there, began=BEGIN + 90 * MINUTE)]
    assert missing == [0, 0, 7, 0]
    assert sum(h.missing for h in compare_counts_by_hour(HOURS, every, there)) > 900
    shards = {"a": numbered(range(100)), "b": numbered(range(100), 1000)}
    landed = frozenset(str(n) for n in range(30, 100) if n != 40)
    hours, holes = compare_shards_by_record(
        HOURS[:2], shards, landed, read={"a": 99, "b": 1031}, began=BEGIN + 30 * MINUTE
    )
    assert [(h.missing, h.waiting) for h in hours] == [(1 + 2, 28), (0, 40)]
    assert [(h.first, h.last) for h in holes] == [("40", "40"), ("1030", "1031")]


def test_reading_a_shard_ends_though_it_is_written_to_without_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Live:
        calls = 0

        def get_shard_iterator(self, **_: object) -> dict[str, str]:
            return {"ShardIterator": "i"}

        def get_records(self, **_: object) -> dict[str, object]:
            self.calls += 1
            assert self.calls < 100, "no end"
            at = BEGIN + self.calls * MINUTE
            record = {"SequenceNumber": str(self.calls), "ApproximateArrivalTimestamp": at}
            return {"Records": [record], "MillisBehindLatest": 0, "NextShardIterator": "i"}

    monkeypatch.setattr(audit_kinesis, "_BETWEEN_CALLS", 0)
    result = audit_kinesis.records_by_shard(
        Live(), "s", ["shard"], BEGIN, BEGIN + 30 * MINUTE, progress=lambda _: None
    )
    assert [a.sequence for a in result["shard"]] == [str(n) for n in range(1, 31)]


def test_a_stream_that_cloudwatch_does_not_count_is_not_audited(catalog: SqlCatalog, moto: str) -> None:
    table = landed(catalog, kinesis_rows([1, 2, 3]))
    result = audit_stream_by_counts(
        cloudwatch(moto), table, HOURS[:1], query="q", stream="elsewhere", table="db.landed"
    )
    assert isinstance(result, NotAudited)
    assert "counted no incoming record, but 3 records of the stream landed" in result.why


def test_a_stream_of_another_account_is_not_looked_for_in_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "environments").mkdir()
    ours = (ROOT / "environments/minimal.yaml").read_text()
    meant = '\ngovernance: {other_accounts: ["999988887777"]}\n'
    theirs = (
        "existing: arn:aws:kinesis:us-east-1:999988887777:stream/clicks\n    shards: 2\n"
        "    read_role: arn:aws:iam::999988887777:role/reader\n    traffic:"
    )
    (tmp_path / "environments/shop.yaml").write_text(ours.replace("traffic:", theirs) + meant)
    (tmp_path / "pipelines").symlink_to(ROOT / "pipelines")
    names = Names(load("shop", root=tmp_path), "111122223333")
    monkeypatch.setattr(LandedRecords, "open", lambda *_: None)
    place = AuditedDeployment(names, client=pytest.fail, catalog=lambda: None, kafka=pytest.fail)  # type: ignore[arg-type, return-value]
    (result,) = audit_query(place, "clicks", "land-clicks", BEGIN, NOW)
    assert isinstance(result, NotAudited)
    assert result.why.startswith("it belongs to account 999988887777")


def kinesis_rows(minutes: Sequence[int]) -> list[Row]:
    return [
        (f"clicks/{n}", str(n), BEGIN + minute * MINUTE + timedelta(seconds=5))
        for n, minute in enumerate(minutes)
    ]


def cloudwatch(moto: str) -> Any:
    make: Any = boto3.client
    return make(
        "cloudwatch",
        endpoint_url=moto,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def test_cloudwatchs_counts_against_a_table(catalog: SqlCatalog, moto: str) -> None:
    client = cloudwatch(moto)
    client.put_metric_data(
        Namespace="AWS/Kinesis",
        MetricData=[
            {
                "MetricName": "IncomingRecords",
                "Dimensions": [{"Name": "StreamName", "Value": "shop-clicks"}],
                "Timestamp": BEGIN + minute * MINUTE,
                "Value": 2,
            }
            for minute in range(200)
        ],
    )
    # Minute 70 lost both; an aggregate's two records are one to Kinesis; a replayed letter is no record
    # of the source's; what came after minute 150 was not read yet.
    minutes = [m for m in range(150) if m != 70 for _ in range(2)]
    rows = kinesis_rows(minutes)
    rows[0:1] = [("clicks/0/1", "0", BEGIN), ("clicks/0/2", "0", BEGIN)]
    rows.append(("clicks/5#replay", "5", BEGIN + 2 * MINUTE))
    # A row that is there twice does not make up for one that is not.
    rows.append(rows[10])
    table = landed(catalog, rows)
    result = audit_stream_by_counts(
        client, table, HOURS[:3], query="q", stream="shop-clicks", table="db.landed"
    )
    assert isinstance(result, AuditResult)
    assert [(h.arrived, h.landed, h.missing, h.waiting) for h in result.hours] == [
        (120, 120, 0, 0),
        (120, 118, 2, 0),
        (120, 60, 0, 60),
    ]
    assert result.missing_records == 2


def test_rows_of_another_stream_do_not_count(catalog: SqlCatalog) -> None:
    table = landed(catalog, kinesis_rows([1, 2]), source="elsewhere")
    assert table.sequence_numbers_since(BEGIN) == frozenset()
    assert not table.counts_by_minute(BEGIN, NOW)


def test_a_kafka_record_is_found_whatever_time_it_says(catalog: SqlCatalog) -> None:
    rows: list[Row] = [(f"t/0/{n}", str(n).zfill(20), BEGIN) for n in range(3)]
    rows += [("t/0/3", "3".zfill(20), BEGIN - timedelta(days=400)), ("t/1/4", "4".zfill(20), BEGIN)]
    rows.append(("t/0/4#replay", "4".zfill(20), BEGIN))
    table = landed(catalog, rows)
    assert table.offsets_in_and_around_window(BEGIN, NOW) == {("t", 0): {0, 1, 2}, ("t", 1): {4}}
    assert table.offsets_between("t", 0, 3, 4) == {3}


def test_a_table_that_is_not_there_is_told(catalog: SqlCatalog) -> None:
    with pytest.raises(NotDeployedError, match=r"table db\.nowhere does not exist"):
        LandedRecords.open(catalog, "db.nowhere", "clicks")


def test_a_catalog_and_a_store_that_refuse_are_told(
    catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = landed(catalog, kinesis_rows([1]))
    for data in Path(urlparse(table.table.location()).path).glob("data/**/*.parquet"):
        data.unlink()
    with pytest.raises(AwsError, match=r"cannot read table db\.landed: .*parquet"):
        table.counts_by_minute(BEGIN, NOW)

    def refuse(_: str) -> None:
        raise ClientError({"Error": {"Code": "AccessDeniedException", "Message": "no"}}, "GetTable")

    monkeypatch.setattr(catalog, "load_table", refuse)
    with pytest.raises(AwsError, match=r"cannot read table db\.landed: access denied to GetTable"):
        LandedRecords.open(catalog, "db.landed", "clicks")
