"""Landing guards against Kinesis connectors that lose records or repeat an identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.formats.base import Decoder
from millrace.etl.job.supervise import Supervisor
from millrace.etl.record import batch_accounts
from millrace.etl.record.errors import LossError, RestartQueryError
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import AppendResult, IcebergSink
from millrace.etl.sources.kinesis.missed_records_guard import FURTHER, KinesisLossGuard
from tests.faults.record_sender import aggregate as packed
from tests.spark.queries.test_exactly_once import LosesShuffles
from tests.spark.source_batches import (
    ENVELOPE,
    KINESIS,
    Events,
    frame,
    good,
    ids,
    kinesis_rows,
    lander,
    log_offsets,
)

Names = Callable[[str], Table]


def log_positions(checkpoint: Path, batch: int, positions: Mapping[str, int | None]) -> None:
    """An entry as the connectors write it: where each shard begins the batch."""
    entry: dict[str, Any] = {"metadata": {"streamName": KINESIS.stream, "batchId": str(batch)}}
    for shard, number in positions.items():
        after = number is not None
        kind = "AFTER_SEQUENCE_NUMBER" if after else "TRIM_HORIZON"
        entry[shard] = {"iteratorType": kind, "iteratorPosition": str(number) if after else ""}
    log_offsets(checkpoint, batch, entry)


# ---- aggregates ----


def aggregate(number: int, payloads: list[tuple[bytes, bytes]]) -> list[tuple[Any, ...]]:
    (row,) = kinesis_rows([number], batch_accounts.utc_now())
    return [(*row[:4], bytearray(key), *row[5:7], bytearray(payload)) for key, payload in payloads]


@pytest.mark.slow
def test_each_record_of_an_aggregate_has_an_identity_of_its_own(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, source=KINESIS)
    several = [(b"a", good(2)), (b"b", good(1)), (b"a", good(1)), (b"a", good(1))]
    write(frame(spark, [*aggregate(7, several), *aggregate(8, several[:1])]), 0)
    assert events.accounts() == (5, 0, 5, 5, 0)
    assert ids(spark, landing) == [*(f"flights-stream/7/{n}" for n in range(1, 5)), "flights-stream/8"]
    # A replay hands them over in another order, and with more.
    write(frame(spark, [*aggregate(9, several[:1]), *aggregate(7, several[::-1])]), 0)
    assert events.accounts() == (5, 4, 1, 1, 0)
    rows = spark.table(str(landing)).where("_position = '7'").orderBy("_id").collect()
    assert [(bytes(r["_key"]), r["flight"]) for r in rows] == [(b"a", 1), (b"a", 1), (b"a", 2), (b"b", 1)]


@pytest.mark.slow
def test_aggregates_are_refused_where_a_batch_may_end_inside_one(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, source=KINESIS)
    (guard,) = write.guards.streams
    assert isinstance(guard, KinesisLossGuard)
    guard.splits_aggregates = True
    write(frame(spark, kinesis_rows(range(5), batch_accounts.utc_now())), 0)
    with pytest.raises(
        Exception,
        match=r"turn off aggregation in the producer.*: record flights-stream/7, arrived \d{4}-\d\d-\d\dT",
    ):
        write(frame(spark, aggregate(7, [(b"a", good(1)), (b"a", good(2))])), 1)
    assert len(ids(spark, landing)) == 5


@pytest.mark.slow
def test_what_only_looks_like_an_aggregate_lands_as_what_it_is(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    (guard,) = write.guards.streams
    assert isinstance(guard, KinesisLossGuard)
    guard.splits_aggregates = True
    log_positions(tmp_path, 0, {"shardId-0": None})
    write(frame(spark, kinesis_rows([1], now)), 0)
    log_positions(tmp_path, 1, {"shardId-1": None})
    one, two = packed([("a", good(3))]), packed([("a", good(4)), ("b", good(5))])
    forged = two[:-1] + bytes([two[-1] ^ 1])

    def tail(*payloads: bytes) -> Callable[[Any, Any], Iterator[Any]]:
        records = [
            {"Data": p, "PartitionKey": "k", "SequenceNumber": str(n), "ApproximateArrivalTimestamp": now}
            for n, p in enumerate(payloads, 2)
        ]
        return lambda *_: iter([records])

    guard.tails = tail(good(2), one, two[:4], forged)
    write(frame(spark, []), 1)
    landed = spark.table(str(landing)).orderBy("_position").collect()
    result = [(r["_id"], bytes(r["_key"]), r["flight"], r["_stage"]) for r in landed]
    assert result == [
        ("flights-stream/1", b"k", 1, None),
        ("flights-stream/2", b"k", 2, None),
        ("flights-stream/3", b"a", 3, None),
        ("flights-stream/4", b"k", None, "decode"),
        ("flights-stream/5", b"k", None, "decode"),
    ]
    assert bytes(landed[-1]["_bytes"]) == forged
    guard.tails = tail(good(2), two)
    with pytest.raises(LossError, match=r"Past an aggregate\): record flights-stream/3, arrived \d{4}-.*Z"):
        write(frame(spark, []), 1)


# ---- where records are decoded ----


@dataclass(frozen=True)
class NotesTasks(Decoder):
    """Decodes, and leaves a file for each task that does."""

    decoder: Decoder
    folder: Path

    @property
    def schema(self) -> StructType:
        return self.decoder.schema

    def decode(self, rows: DataFrame) -> DataFrame:
        folder = self.folder

        @F.udf("binary", useArrow=False)
        def noted(key: bytearray) -> bytearray:
            context = TaskContext.get()
            assert context is not None
            (folder / f"{context.stageId()}-{context.partitionId()}").touch()
            return key

        return self.decoder.decode(rows).withColumn("_key", noted("_key"))


@pytest.mark.slow
def test_records_are_decoded_by_the_tasks_that_read_them(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing = table("landing")
    write = lander(spark, landing, Events(), source=KINESIS)
    write.settings = replace(write.settings, repartition=4)
    write.decoder = NotesTasks(write.decoder, tmp_path)
    write(frame(spark, kinesis_rows(range(40), batch_accounts.utc_now())).coalesce(1), 0)
    assert len(ids(spark, landing)) == 40
    assert len(list(tmp_path.iterdir())) == 1  # one shard, though four tasks write


# ---- an executor lost between reading and writing ----


@pytest.mark.slow
@pytest.mark.faults
def test_a_batch_of_which_a_part_was_read_twice_is_read_once_more(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Each read of the shard finds five records more, and the connector continues after the last of them."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS)
    write.settings = replace(write.settings, repartition=4)
    write.sink = LosesShuffles(landing, tmp_path / "lost")
    reads = tmp_path / "reads"
    reads.mkdir()

    def shard(_: Iterator[int]) -> Iterator[tuple[Any, ...]]:
        number = len(list(reads.iterdir())) + 1
        (reads / str(number)).touch()
        yield from kinesis_rows(range(35 + 5 * number), now)

    schema = spark.createDataFrame([], ENVELOPE).schema
    write(spark.createDataFrame(spark.sparkContext.parallelize([0], 1).mapPartitions(shard), schema), 0)
    last = max(int(p.name) for p in reads.iterdir())
    assert last >= 3  # lost, read again within the action, and again by the core
    told = [e["event"] for e in events.all()]
    assert told == ["batch", "read_twice", "batch"]
    first, second = (e for e in events.all() if e["event"] == "batch")
    wanted = 35 + 5 * last
    # The first action wrote a mixture: not all that its second read brought, though it continued after it.
    assert first["landed"] < 35 + 5 * (last - 1)
    assert second["read"] == wanted
    assert len(ids(spark, landing)) == len(set(ids(spark, landing))) == wanted


# ---- the position at which a batch begins ----


def test_a_batch_begins_where_the_one_before_was_landed(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-1": None})
    write(frame(spark, kinesis_rows([10, 11, 20, 21], now)), 0)
    log_positions(tmp_path, 1, {"shardId-0": 11, "shardId-1": 21})
    write(frame(spark, kinesis_rows([12, 13], now)), 1)
    # One shard moved on, one did not, one is new; the record at which the first stands was landed.
    log_positions(tmp_path, 2, {"shardId-0": 13, "shardId-1": 21, "shardId-2": None})
    write(frame(spark, kinesis_rows([14, 30], now)), 2)
    assert events.accounts() == (2, 0, 2, 2, 0)

    # The connector continues after 16, though nobody landed 15 and 16.
    log_positions(tmp_path, 3, {"shardId-0": 16, "shardId-1": 21, "shardId-2": 30})
    with pytest.raises(LossError, match="shardId-0 after 16"):
        write(frame(spark, kinesis_rows([17], now)), 3)
    # Again at the next start, before anything is landed.
    again = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    held = len(ids(spark, landing))
    with pytest.raises(
        LossError, match=r"continues at flights/shardId-0 after 16.*Give the query a new checkpoint"
    ):
        again(frame(spark, kinesis_rows([18], now)), 3)
    assert len(ids(spark, landing)) == held


@pytest.mark.slow
def test_an_entry_may_say_where_its_batch_ends(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    """As the sandbox's own reader writes them, where connectors write where it begins."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    (guard,) = write.guards.streams
    guard.ends_planned = True
    log_positions(tmp_path, 0, {"shardId-0": 11})
    assert guard.checked_positions_before_batch(spark, 0) == {}
    write(frame(spark, kinesis_rows([10, 11], now)), 0)
    log_positions(tmp_path, 1, {"shardId-0": 13})
    assert guard.checked_positions_before_batch(spark, 1) == {"shardId-0": "11"}
    write(frame(spark, kinesis_rows([12], now)), 1)  # and not 13
    log_positions(tmp_path, 2, {"shardId-0": 14})
    with pytest.raises(LossError, match="shardId-0 after 13"):
        write(frame(spark, kinesis_rows([14], now)), 2)
    again = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    again.guards.streams[0].ends_planned = True
    with pytest.raises(LossError, match="shardId-0 after 13"):
        again(frame(spark, kinesis_rows([14], now)), 2)


@pytest.mark.slow
def test_a_batch_goes_on_behind_a_record_that_came_again(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """One shard's last record was landed by a run that was killed, and is older than all that is new."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    early = now - timedelta(minutes=10)
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-1": None})
    lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)(
        frame(spark, kinesis_rows([10], early)), 0
    )
    write = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    write(frame(spark, [*kinesis_rows([10], early), *kinesis_rows([50], now)]), 0)
    assert events.accounts() == (2, 1, 1, 1, 0)
    log_positions(tmp_path, 1, {"shardId-0": 50, "shardId-1": 10})
    write(frame(spark, kinesis_rows([51], now)), 1)
    assert ids(spark, landing) == [f"flights-stream/{n}" for n in (10, 50, 51)]


@pytest.mark.slow
def test_a_run_goes_on_after_an_aggregate(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)
    log_positions(tmp_path, 0, {"shardId-0": None})
    write(frame(spark, aggregate(5, [(b"a", good(1)), (b"a", good(1))])), 0)
    log_positions(tmp_path, 1, {"shardId-0": 5})
    write(frame(spark, kinesis_rows([6], now)), 1)
    log_positions(tmp_path, 2, {"shardId-0": 6})
    lander(spark, landing, events, source=KINESIS, checkpoint=tmp_path)(
        frame(spark, kinesis_rows([7], now)), 2
    )
    assert ids(spark, landing) == [f"flights-stream/{n}" for n in ("5/1", "5/2", "6", "7")]


# ---- a stream with more shards ----


@pytest.mark.faults
def test_limits_are_worked_out_again_when_the_shards_change(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    write = lander(spark, table("landing"), Events(), source=KINESIS, checkpoint=tmp_path)
    (guard,), asked = write.guards.streams, []
    assert isinstance(guard, KinesisLossGuard)
    guard.shards, guard.count_shards = 1, lambda: asked.append(1) or 2
    log_positions(tmp_path, 0, {"shardId-0": None})
    log_positions(tmp_path, 1, {"shardId-0": None})
    for batch in (0, 1):
        assert guard.checked_positions_before_batch(spark, batch) == {}
    assert asked == []  # the offset log tells of a reshard, the stream need not be asked
    log_positions(tmp_path, 2, {"shardId-0": None, "shardId-1": None, "shardId-2": None})
    with pytest.raises(RestartQueryError, match=r"stream flights-stream now has 2 shards \(before: 1\)"):
        guard.checked_positions_before_batch(spark, 2)
    guard.shards = 2
    assert guard.checked_positions_before_batch(spark, 2) == {}


def test_a_query_is_built_again_on_its_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    events, batches, opened = Events(), [], []

    def ticks(per_second: int) -> DataFrame:
        opened.append(per_second)
        return spark.readStream.format("rate").option("rowsPerSecond", per_second).load()

    supervisor = Supervisor(spark, events.reporter)

    def handle(_batch: DataFrame, number: int) -> None:
        batches.append(number)
        if len(batches) == 2:
            raise RestartQueryError("more shards")
        if len(batches) == 4:
            supervisor.request_stop()

    def built(per_second: int) -> ReadyQuery:
        return ReadyQuery(
            "ticks", ticks(per_second), handle, str(tmp_path / "checkpoint"), 0.1, lambda: built(10)
        )

    query = built(5)
    assert supervisor.run_to_exit_status([query]) == 0
    assert opened == [5, 10]
    assert batches[:4] == [0, 1, 1, 2]  # the current batch comes again
    assert [e["event"] for e in events.all()] == ["started", "reopened"]


# ---- what the look-up reads ----


@dataclass(frozen=True)
class Looks(IcebergSink):
    """Counts the rows of the table within each bound that it is asked to write with."""

    rows: list[int] = field(default_factory=list)

    def append(
        self, batch: DataFrame, look_up: DuplicateLookUp, *figures: Column, **more: Any
    ) -> AppendResult:
        assert look_up.rows is not None
        self.rows.append(batch.sparkSession.table(str(self.table)).where(look_up.rows).count())
        return super().append(batch, look_up, *figures, **more)


@pytest.mark.parametrize("hours", [1, 12])
@pytest.mark.slow
def test_a_shard_that_lags_adds_its_own_minutes_to_the_look_up(
    spark: SparkSession, table: Names, tmp_path: Path, hours: int
) -> None:
    """Whatever its lag: a shard that is read now, and one that continues at a minute of long ago."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    source = replace(KINESIS, retention_seconds=86_400)
    lag = now - timedelta(hours=hours)
    before = lander(spark, landing, events, source=source)
    each_minute = [row for n in range(60 * hours) for row in kinesis_rows([n], lag + timedelta(minutes=n))]
    before(frame(spark, each_minute), 0)
    looks = Looks(landing)
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, sink=looks)
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-1": None})
    write(frame(spark, [*kinesis_rows([2000], lag), *kinesis_rows([3000], now)]), 0)
    for batch in range(1, 6):
        # The lagging shard advances by two minutes a batch.
        log_positions(tmp_path, batch, {"shardId-0": 1999 + batch, "shardId-1": 2999 + batch})
        at = lag + timedelta(minutes=2 * batch)
        write(frame(spark, [*kinesis_rows([2000 + batch], at), *kinesis_rows([3000 + batch], now)]), batch)
    assert events.accounts() == (2, 0, 2, 2, 0)
    # The first batch knows nothing; the others read a minute of now, and a few around the lagging shard's.
    assert (looks.rows[0], len(looks.rows)) == (60 * hours, 6)
    assert max(looks.rows[1:]) < 30


@pytest.mark.slow
def test_a_run_that_goes_on_looks_around_its_positions_from_its_first_batch(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Files of the checkpoint say when the batch before the last was committed: later arrivals are not landed yet."""
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    source = replace(KINESIS, retention_seconds=86_400)
    lag = now - timedelta(hours=6)
    before = lander(spark, landing, events, source=source)
    before(frame(spark, [r for n in range(300) for r in kinesis_rows([n], lag + timedelta(minutes=n))]), 0)
    positions: dict[str, int | None] = {"shardId-0": 2000, "shardId-1": 3000}
    before(frame(spark, [*kinesis_rows([2000], lag), *kinesis_rows([3000], now)]), 1)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    log_positions(tmp_path, 1, dict.fromkeys(positions))
    log_positions(tmp_path, 2, positions)
    looks = Looks(landing)
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, sink=looks)
    write(frame(spark, [*kinesis_rows([2001], lag + timedelta(minutes=1)), *kinesis_rows([3001], now)]), 2)
    assert events.accounts() == (2, 0, 2, 2, 0)
    assert len(looks.rows) == 1
    assert looks.rows[0] < 30


@pytest.mark.slow
def test_a_record_that_no_range_expects_is_landed_by_a_wider_look_up(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    source = replace(KINESIS, retention_seconds=86_400)
    looks, lag = Looks(landing), now - timedelta(hours=6)
    write = lander(spark, landing, events, source=source, checkpoint=tmp_path, sink=looks)
    log_positions(tmp_path, 0, {"shardId-0": None, "shardId-1": None})
    write(frame(spark, [*kinesis_rows([10], lag), *kinesis_rows([50], now)]), 0)
    # Nothing was sent to the shard for an hour; and what is there already is found in it.
    log_positions(tmp_path, 1, {"shardId-0": 10, "shardId-1": 50})
    later = kinesis_rows([11], lag + timedelta(hours=1))
    lander(spark, landing, events, source=source)(frame(spark, later), 0)
    tries = len(looks.rows)
    write(frame(spark, [*later, *kinesis_rows([12], lag + timedelta(minutes=90))]), 1)
    assert events.accounts() == (2, 1, 1, 1, 0)
    assert len(looks.rows) - tries == 2
    assert ids(spark, landing) == [f"flights-stream/{n}" for n in (10, 11, 12, 50)]
    (guard,) = write.guards.streams
    # The next time it is expected to advance further.
    assert guard.further == 2 * FURTHER


def test_the_look_up_for_many_positions_is_the_same_code_in_each_batch(
    spark: SparkSession, table: Names
) -> None:
    """By the set that it looks into: an array would be gone through for each row."""
    landing = table("landing")
    (guard,) = lander(spark, landing, Events(), source=KINESIS).guards.streams
    assert isinstance(guard, KinesisLossGuard)
    for count in (1, 1000):
        positions = {f"shardId-{n}": str(n) for n in range(count)}
        held = guard.held_position_count_aggregate(positions)
        assert held is not None
        rows = spark.range(5000).selectExpr("concat('flights-stream/', id) AS _id").agg(held.alias("held"))
        assert rows.collect()[0]["held"] == count
        plan: Any = rows
        text = plan._jdf.queryExecution().optimizedPlan().toString()
        assert "INSET" in text
