"""A Kinesis query that falls behind the retention stops before it skips records."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.record import batch_accounts
from millrace.etl.record.errors import LossError
from millrace.etl.record.tables import Table
from tests.spark.source_batches import KINESIS, Events, frame, kinesis_rows, lander
from tests.spark.sources.test_kinesis_connector_guards import log_positions

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]


def commit(checkpoint: Path, batch: int, *, age: timedelta) -> None:
    folder = checkpoint / "commits"
    folder.mkdir(exist_ok=True)
    (folder / str(batch)).write_text("v1\n{}")
    at = (batch_accounts.utc_now() - age).timestamp()
    os.utime(folder / str(batch), (at, at))


TRIMMED: list[tuple[Mapping[str, str | None], timedelta, bool]] = [
    ({"shardId-0": "3", "shardId-1": "4"}, timedelta(days=9), False),  # all is still there
    ({"shardId-0": "13", "shardId-1": "4"}, timedelta(minutes=1), True),  # shard 0 lagged, and was trimmed
    ({"shardId-0": "3", "shardId-1": "25"}, timedelta(minutes=1), False),  # shard 1 was read to its end
    ({"shardId-0": "3", "shardId-1": "25"}, timedelta(hours=2), True),  # but too long ago
    ({"shardId-0": "3", "shardId-1": None}, timedelta(hours=2), True),
]


@pytest.mark.faults
def test_what_may_have_been_trimmed_unread_stops_the_job(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    assert KINESIS.retention_seconds == 3600
    lander(spark, landing, events, source=KINESIS)(
        frame(spark, kinesis_rows([11, 21], batch_accounts.utc_now())), 0
    )
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-1": 21})
    log_positions(tmp_path, 1, {"shardId-0": 11, "shardId-1": 21})
    for oldest, stopped, lost in TRIMMED:
        commit(tmp_path, 0, age=stopped)
        write = lander(
            spark,
            landing,
            events,
            source=KINESIS,
            checkpoint=tmp_path,
            horizon=lambda shards, oldest=oldest: {shard: oldest[shard] for shard in shards},
        )
        if lost:
            with pytest.raises(
                LossError, match=r"records are older than its retention.*its oldest record is"
            ):
                write.guards.streams[0].checked_positions_before_batch(spark, 1)
        else:
            assert write.guards.streams[0].checked_positions_before_batch(spark, 1) == {}


def test_a_run_that_falls_behind_asks_before_each_batch(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing, events, asked, begun = table("landing"), Events(), list[str](), batch_accounts.utc_now()

    def horizon(shards: Collection[str]) -> dict[str, str | None]:
        asked.extend(shards)
        return dict.fromkeys(shards, "3" if len(asked) == 1 else "13")

    source = replace(KINESIS, retention_seconds=7200)
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, horizon=horizon)
    log_positions(tmp_path, 0, {"shardId-0": None})
    write(frame(spark, kinesis_rows([10], begun)), 0)
    log_positions(tmp_path, 1, {"shardId-0": 10})
    write(frame(spark, kinesis_rows([11], begun)), 1)
    assert asked == []
    monkeypatch.setattr(batch_accounts, "utc_now", lambda: begun + timedelta(minutes=115))
    log_positions(tmp_path, 2, {"shardId-0": 11})
    write(frame(spark, kinesis_rows([12], begun)), 2)
    assert asked == ["shardId-0"]
    log_positions(tmp_path, 3, {"shardId-0": 12})
    with pytest.raises(LossError, match="shardId-0 continues after 12, its oldest record is 13") as refused:
        write(frame(spark, []), 3)
    assert "7200 s" in str(refused.value)


def test_only_shards_that_are_as_far_behind_are_asked_in_one_question(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events, asked, now = table("landing"), Events(), list[list[str]](), batch_accounts.utc_now()

    def horizon(shards: Collection[str]) -> dict[str, str | None]:
        asked.append(sorted(shards))
        return dict.fromkeys(shards, "1")

    source = replace(KINESIS, retention_seconds=7200)
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, horizon=horizon)
    shards = 40
    # One has not moved for long, and its last record is in no table any more.
    still = {"shardId-still": 7}
    for batch in range(2):
        log_positions(tmp_path, batch, {f"shardId-{n}": None for n in range(shards)} | still)
    # The first three lag.
    arrivals = [now - timedelta(minutes=115) if n < 3 else now for n in range(shards)]
    write(frame(spark, [row for n, at in enumerate(arrivals) for row in kinesis_rows([1000 + n], at)]), 1)
    assert asked == [["shardId-still"]]
    log_positions(tmp_path, 2, {f"shardId-{n}": 1000 + n for n in range(shards)} | still)
    write(frame(spark, kinesis_rows([2000], arrivals[0])), 2)
    assert asked[1:] == [["shardId-0", "shardId-1", "shardId-2", "shardId-still"]]
