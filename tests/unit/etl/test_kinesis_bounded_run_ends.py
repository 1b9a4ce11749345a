"""A bounded run on a stream ends at the last record of each shard before a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.launch.sources import KinesisSource
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.sources.kinesis import bounded_run_ends, closed_shards
from millrace.etl.sources.kinesis.closed_shards import Shard, ShardPositions
from millrace.etl.sources.kinesis.missed_records_guard import KinesisLossGuard

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
SOURCE = KinesisSource("clicks", "clicks", "us-east-1", "earliest", 1000, 1.0, 86_400)


class GoneError(Exception):
    pass


class Stream:
    """Shards with records by their age in seconds, in answers of few records, of which some are empty."""

    class exceptions:  # noqa: N801 - as of a boto3 client
        ResourceNotFoundException = GoneError

    def __init__(self, shards: Mapping[str, Sequence[float]], gone: str = "") -> None:
        self.gone = gone
        self.held = {
            shard: [
                {"SequenceNumber": str(at), "ApproximateArrivalTimestamp": NOW - timedelta(seconds=age)}
                for at, age in enumerate(sorted(ages, reverse=True), 1)
            ]
            for shard, ages in shards.items()
        }

    def get_shard_iterator(
        self, *, ShardId: str, ShardIteratorType: str, Timestamp: datetime, **_: Any
    ) -> Any:
        if ShardId == self.gone:
            raise GoneError
        assert ShardIteratorType == "AT_TIMESTAMP"
        begin = sum(record["ApproximateArrivalTimestamp"] < Timestamp for record in self.held[ShardId])
        return {"ShardIterator": (ShardId, begin, True)}

    def get_records(self, *, ShardIterator: tuple[str, int, bool], **_: Any) -> Any:
        shard, begin, empty = ShardIterator
        some = [] if empty else self.held[shard][begin : begin + 3]
        end = begin + len(some)
        behind = 1000 * (end < len(self.held[shard]))
        return {"Records": some, "NextShardIterator": (shard, end, not empty), "MillisBehindLatest": behind}


@given(st.dictionaries(st.sampled_from(["s1", "s2", "s3"]), st.lists(st.floats(-30, 80_000), max_size=20)))
def test_the_last_record_of_each_shard_is_its_end(shards: dict[str, list[float]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(closed_shards, "PAUSE_SECONDS", 0)
        stream = Stream(shards)
        result = bounded_run_ends.last_record_positions_by_shard(
            stream, SOURCE, [Shard(shard, (), False) for shard in shards], NOW
        )
    wanted = {
        shard: before[-1]
        for shard, records in stream.held.items()
        if (before := [r for r in records if r["ApproximateArrivalTimestamp"] < NOW])
    }
    assert {shard: at for shard, (at, _) in result.items()} == {
        s: r["SequenceNumber"] for s, r in wanted.items()
    }


def test_what_came_before_the_start_of_the_query_is_no_end() -> None:
    started = replace(SOURCE, start="2026-11-27T11:00:00Z")
    shards = [Shard("idle", (), False), Shard("busy", (), False)]
    result = bounded_run_ends.last_record_positions_by_shard(
        Stream({"idle": [7200.0], "busy": [7200.0, 60.0]}), started, shards, NOW
    )
    assert result == {"busy": ("2", NOW - timedelta(seconds=60))}


def test_a_closed_shard_whose_records_have_expired_has_no_end() -> None:
    shards = [Shard("s1", (), True), Shard("s2", (), False)]
    result = bounded_run_ends.last_record_positions_by_shard(
        Stream({"s1": [], "s2": [3.0]}, gone="s1"), SOURCE, shards, NOW
    )
    assert result == {"s2": ("1", NOW - timedelta(seconds=3))}


def test_a_position_of_the_log_is_an_end_that_is_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    guard = KinesisLossGuard(SOURCE, Checkpoint("nowhere"), Table("lake", "db", "landed"))
    here = ShardPositions(frozenset({"s1", "s2", "s3"}), {"s1": "100", "s2": "9"}, frozenset({"s3"}))
    monkeypatch.setattr(KinesisLossGuard, "_start_positions", lambda *_: here)
    ends = {"s1": ("99", NOW), "s2": ("9", NOW), "s3": ("5", NOW)}
    assert guard.has_landed_up_to(None, 4, ends)  # type: ignore[arg-type]  # without a look into the table


def test_a_start_that_each_run_would_choose_anew_is_refused() -> None:
    latest = KinesisSource("clicks", "clicks", "us-east-1", "latest", 1000, 1.0, 86_400)
    guard = KinesisLossGuard(latest, Checkpoint("nowhere"), Table("lake", "db", "landed"))
    with pytest.raises(StartError, match="start at `earliest` or a time, not at `latest`"):
        bounded_run_ends.checker_of_bounded_run_end(None, latest, None, guard, closed=True)  # type: ignore[arg-type]
