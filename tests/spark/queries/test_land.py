"""Landing: each record once after any replay, and accounts that agree with the table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark import TaskContext
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.duplicate_look_up_bounds import (
    DuplicateLookUp,
    RecordOutsideBoundError,
    older_than_condition,
)
from millrace.etl.queries import land, try_quick_decoding_first
from millrace.etl.record import batch_accounts, tables
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import AppendResult, IcebergSink
from millrace.etl.sources.batch_offsets import BatchOffsets, read_in_planned_tasks
from millrace.etl.sources.kinesis import missed_records_guard as kinesis_guard
from tests.spark.source_batches import (
    DDL,
    EPOCH,
    KINESIS,
    Events,
    added_records,
    first_time,
    frame,
    good,
    ids,
    kafka_rows,
    kinesis_rows,
    lander,
    log_offsets,
)

Names = Callable[[str], Table]


@dataclass(frozen=True)
class CountingSink(IcebergSink):
    """Notes the look-up of every attempt."""

    attempts: list[DuplicateLookUp] = field(default_factory=list)

    def append(
        self, batch: DataFrame, look_up: DuplicateLookUp, *figures: Column, **more: Any
    ) -> AppendResult:
        self.attempts.append(look_up)
        return super().append(batch, look_up, *figures, **more)


def planned_bytes(rows: DataFrame) -> int:
    """Size of what would be read, by Iceberg's plan of files."""
    return int(str(rows._jdf.queryExecution().optimizedPlan().stats().sizeInBytes()))


def test_a_batch_lands_with_envelope_hash_and_dead_letters(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    payloads = [good(7), b"{broken", b"", None, b'{"carrier":"AA","flight":"x"}']
    lander(spark, landing, events)(frame(spark, kafka_rows(0, 41, payloads)), 0)
    assert events.accounts() == (5, 0, 5, 1, 4)
    assert events.last()["seconds"] > 0
    assert added_records(spark, landing) == [5]

    rows = spark.table(str(landing)).orderBy("_position").collect()
    first = rows[0].asDict(recursive=True)
    assert first["_id"] == "flights-topic/0/41"
    assert (first["_source"], first["_shard"], first["_position"]) == ("flights", "0", "41".zfill(20))
    assert (bytes(first["_key"]), bytes(first["_headers"][0]["value"])) == (b"k", b"\x01")
    assert (first["carrier"], first["flight"], first["delay"]) == ("AA", 7, 3.5)
    assert [None if r["_bytes"] is None else bytes(r["_bytes"]) for r in rows] == [
        None,
        b"{broken",
        b"",
        None,
        b'{"carrier":"AA","flight":"x"}',
    ]
    assert [r["_stage"] for r in rows] == [None, "decode", "decode", "decode", "schema"]
    hashes = spark.createDataFrame([(bytearray(p),) for p in payloads if p is not None], "p BINARY")
    wanted = [r[0] for r in hashes.select(F.xxhash64("p")).collect()]
    assert [r["_hash"] for r in rows if r["_error"] != rows[3]["_error"]] == wanted


@pytest.mark.parametrize(
    ("each", "partitions", "planned", "tasks"),
    [
        (1, 4, None, 1),
        (30, 4, None, 2),
        (100, 4, None, 4),
        (5000, 4, None, 4),
        (1, 40, None, 5),
        (0, 2, None, 2),
        (0, 2, 3, 2),
        (1, 4, 3, 1),
        (1, 40, 2, 2),
        (5000, 8, 3, 3),
        (5000, 3, 4, 4),
        (5000, 4, 8, 4),  # Spark has split them
    ],
)
def test_tasks_of_few_records_take_several_partitions_and_others_are_those_of_the_plan(
    spark: SparkSession, each: int, partitions: int, planned: int | None, tasks: int
) -> None:
    offsets = BatchOffsets(*({f"flights/{p}": at for p in range(partitions)} for at in (7, 7 + each)))
    batch = spark.range(0, 1, 1, partitions).withColumnRenamed("id", "_id")
    assert read_in_planned_tasks(batch, offsets, planned).rdd.getNumPartitions() == tasks
    assert read_in_planned_tasks(batch, None, planned).rdd.getNumPartitions() == partitions


def test_a_batch_of_a_record_of_each_partition_is_one_file(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    for number in range(2):
        log_offsets(tmp_path, number, {"flights-topic": {str(p): number for p in range(4)}})
    rows = [row for p in range(4) for row in kafka_rows(p, 0, [good(p)])]
    lander(spark, landing, events, checkpoint=tmp_path)(frame(spark, rows).repartition(4, "_id"), 1)
    assert events.accounts() == (4, 0, 4, 4, 0)
    assert spark.table(f"{landing}.files").count() == 1


GOOD_AFTER_ALL = good(9).replace(b"}", b" } ")
"""Only the exact way knows it to be good."""


@pytest.mark.faults
def test_a_small_batch_is_read_again_for_a_record_that_needs_the_exact_way(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    sink = CountingSink(landing)
    write = lander(spark, landing, events, checkpoint=tmp_path, sink=sink)
    batches = [
        ([good(1), None, good(2)], 1, (3, 0, 3, 2, 1)),  # a null payload needs no look at its bytes
        ([good(3), GOOD_AFTER_ALL, b"{broken"], 2, (3, 0, 3, 2, 1)),
        ([b"x"], 1, (1, 0, 1, 0, 1)),
    ]
    at, payloads = 0, []
    log_offsets(tmp_path, 0, {"flights-topic": {"0": at}})
    for number, (values, attempts, accounts) in enumerate(batches, start=1):
        log_offsets(tmp_path, number, {"flights-topic": {"0": at + len(values)}})
        sink.attempts.clear()
        write(frame(spark, kafka_rows(0, at, values)), number)
        assert (len(sink.attempts), events.accounts()) == (attempts, accounts)
        at += len(values)
        payloads += values
    # The same records as one batch, without known offsets: decoded completely at once.
    whole = table("whole")
    lander(spark, whole, Events())(frame(spark, kafka_rows(0, 0, payloads)), 0)
    mine, theirs = (spark.table(str(one)).drop("_landed_at").orderBy("_position") for one in (landing, whole))
    assert mine.collect() == theirs.collect()
    assert len(added_records(spark, landing)) == len(batches)


@pytest.mark.slow
@pytest.mark.faults
def test_a_small_batch_of_a_stream_is_read_again_for_a_record_that_needs_the_exact_way(
    spark: SparkSession, table: Names
) -> None:
    landing, events, now = table("landing"), Events(), batch_accounts.utc_now()
    sink = CountingSink(landing)
    write = lander(spark, landing, events, source=KINESIS, sink=sink)
    sent = [good(0), b"x", good(2), good(3), good(4), GOOD_AFTER_ALL, b"{broken", b"y"]
    numbered = zip(kinesis_rows(range(len(sent)), now), sent, strict=True)
    rows = [(*row[:-1], bytearray(payload)) for row, payload in numbered]
    # Nothing is known of the first batch, and one that had to be read again is followed by complete ones.
    batches = [
        (rows[:2], 1, (2, 0, 2, 1, 1)),
        (rows[2:4], 1, (2, 0, 2, 2, 0)),
        (rows[4:7], 2, (3, 0, 3, 2, 1)),
        (rows[7:], 1, (1, 0, 1, 0, 1)),
    ]
    for number, (batch, attempts, accounts) in enumerate(batches):
        sink.attempts.clear()
        write(frame(spark, batch), number)
        assert (len(sink.attempts), events.accounts()) == (attempts, accounts)
    whole = table("whole")
    lander(spark, whole, Events(), source=KINESIS)(frame(spark, rows), 0)
    mine, theirs = (spark.table(str(one)).drop("_landed_at").orderBy("_position") for one in (landing, whole))
    assert mine.collect() == theirs.collect()
    assert added_records(spark, landing) == [2, 2, 3, 1]


@pytest.mark.slow
def test_after_a_time_batches_are_tried_without_the_exact_way_again(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_quick_decoding_first, "EXACT_BATCHES", 2)
    landing, events = table("landing"), Events()
    sink = CountingSink(landing)
    write = lander(spark, landing, events, checkpoint=tmp_path, sink=sink)
    log_offsets(tmp_path, 0, {"flights-topic": {"0": 0}})
    for number in range(1, 6):
        log_offsets(tmp_path, number, {"flights-topic": {"0": number}})
        write(frame(spark, kafka_rows(0, number - 1, [b"{broken"])), number)
    assert len(sink.attempts) == 5 + 3
    assert added_records(spark, landing) == [1] * 5


def test_a_batch_of_many_records_is_decoded_completely_at_once(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(try_quick_decoding_first, "MOST_RECORDS", 2)
    landing = table("landing")
    sink = CountingSink(landing)
    for number in range(2):
        log_offsets(tmp_path, number, {"flights-topic": {"0": 3 * number}})
    rows = frame(spark, kafka_rows(0, 0, [good(1), b"{broken", good(2)]))
    lander(spark, landing, Events(), checkpoint=tmp_path, sink=sink)(rows, 1)
    assert len(sink.attempts) == 1


@pytest.mark.faults
def test_an_empty_batch_a_bad_one_and_a_replay_balance_and_end(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events)
    write(frame(spark, []), 0)
    assert events.accounts() == (0, 0, 0, 0, 0)
    only_bad = frame(spark, kafka_rows(0, 0, [b"x", b"y"]))
    write(only_bad, 1)
    assert events.accounts() == (2, 0, 2, 0, 2)
    write(only_bad, 1)
    assert events.accounts() == (2, 2, 0, 0, 0)
    write(frame(spark, kafka_rows(0, 1, [b"y", good(1), good(2)])), 1)
    assert events.accounts() == (3, 1, 2, 2, 0)
    assert ids(spark, landing) == [f"flights-topic/0/{n}" for n in range(4)]
    assert sum(added_records(spark, landing)) == 4


@pytest.mark.slow
def test_a_new_checkpoint_looks_only_at_the_offsets_that_its_batch_can_hold(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    before = lander(spark, landing, Events(), checkpoint=tmp_path / "before")
    for number, (partition, count) in enumerate(((0, 10), (1, 5))):
        before(frame(spark, kafka_rows(partition, 0, [good(n) for n in range(count)])), number)
    before(frame(spark, kafka_rows(2, 0, [good(3)]) + kafka_rows(0, 10, [good(1)])), 2)

    sink = CountingSink(landing)
    write = lander(spark, landing, events, checkpoint=tmp_path / "now", sink=sink)
    log_offsets(tmp_path / "now", 0, {"flights-topic": {"0": 10, "1": 4}})
    log_offsets(tmp_path / "now", 1, {"flights-topic": {"0": 11, "1": 6, "2": 1}})
    batch = kafka_rows(0, 10, [good(1)]) + kafka_rows(1, 4, [good(4), good(2)]) + kafka_rows(2, 0, [good(3)])
    write(frame(spark, batch), 1)
    assert events.accounts() == (4, 3, 1, 1, 0)

    last = sink.attempts[-1]
    assert last.rows is not None
    seen = spark.table(str(landing)).where(last.rows)
    assert sorted(r["_id"] for r in seen.select("_id").collect()) == [
        "flights-topic/0/10",
        "flights-topic/1/4",
        "flights-topic/2/0",
    ]
    # The first ten records are left out by their file's metadata, not row by row.
    whole = spark.table(str(landing)).select("_id")
    assert planned_bytes(seen.select("_id")) < planned_bytes(whole)


@pytest.mark.slow
def test_a_batch_is_looked_up_only_where_somebody_else_has_landed_its_offsets(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    sink = CountingSink(landing)
    here = tmp_path / "here"
    write = lander(spark, landing, events, checkpoint=here, sink=sink)

    def batch(number: int, partition: int = 0) -> None:
        ends = {"0": 2 * number + 2} | ({"1": 2} if partition else {})
        log_offsets(here, number, {"flights-topic": ends})
        write(frame(spark, kafka_rows(0, 2 * number, [good(n) for n in range(2)])), number)

    def looked_up() -> bool:
        return sink.attempts[-1].rows is not None or bool(sink.attempts[-1].commits)

    batch(0)
    batch(1)
    # Somebody lands offsets that are still to come.
    ahead = lander(spark, landing, Events(), checkpoint=tmp_path / "elsewhere")
    ahead(frame(spark, kafka_rows(0, 4, [good(0), good(1), good(0)])), 0)
    assert not looked_up()
    batch(2)
    assert looked_up()
    assert events.accounts() == (2, 2, 0, 0, 0)
    # Another process knows it from the table.
    write = lander(spark, landing, events, checkpoint=here, sink=sink)
    batch(3)
    assert looked_up()
    assert events.accounts() == (2, 1, 1, 1, 0)
    batch(4)
    assert not looked_up()
    write = lander(spark, landing, events, checkpoint=here, sink=sink)
    batch(5)
    assert not looked_up()
    # The same batch again: only what it has added is looked at.
    batch(5)
    assert (sink.attempts[-1].rows, len(sink.attempts[-1].commits)) == (None, 1)
    assert events.accounts() == (2, 2, 0, 0, 0)
    # A partition that is new to the checkpoint is one that others may have landed.
    ahead(frame(spark, kafka_rows(1, 0, [good(0)])), 1)
    write = lander(spark, landing, events, checkpoint=here, sink=sink)
    batch(6)
    log_offsets(here, 7, {"flights-topic": {"0": 14, "1": 1}})
    write(frame(spark, kafka_rows(1, 0, [good(0)])), 7)
    assert events.accounts() == (1, 1, 0, 0, 0)
    # A checkpoint that was put back to an earlier batch.
    write = lander(spark, landing, events, checkpoint=here, sink=sink)
    batch(3)
    assert events.accounts() == (2, 2, 0, 0, 0)
    assert ids(spark, landing) == sorted([*(f"flights-topic/0/{n}" for n in range(14)), "flights-topic/1/0"])


def test_a_batch_that_no_file_can_hold_is_landed_in_one_job(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """A look-up reads the identities, in stages of its own. After a kill the same batch is looked up."""
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, checkpoint=tmp_path)

    def stages(group: str, rows: list[tuple[Any, ...]], batch: int) -> int:
        spark.sparkContext.setJobGroup(group, group)
        try:
            write(frame(spark, rows), batch)
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
        tracker = spark.sparkContext.statusTracker()
        ran = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
        return sum(len(job.stageIds) for job in ran if job is not None)

    log_offsets(tmp_path, 0, {"flights-topic": {"0": 10}})
    log_offsets(tmp_path, 1, {"flights-topic": {"0": 15}})
    assert stages("first", kafka_rows(0, 0, [good(n) for n in range(10)]), 0) == 1
    second = kafka_rows(0, 10, [good(n) for n in range(5)])
    assert stages("second", second, 1) == 1
    assert events.accounts() == (5, 0, 5, 5, 0)
    assert stages("again", second, 1) > 1
    assert events.accounts() == (5, 5, 0, 0, 0)


def test_a_kafka_batch_on_a_new_checkpoint_looks_at_everything(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    rows = frame(spark, kafka_rows(0, 0, [good(n) for n in range(6)]))
    lander(spark, landing, events, checkpoint=tmp_path / "old")(rows, 0)
    lander(spark, landing, events, checkpoint=tmp_path / "new")(rows, 0)
    assert events.accounts() == (6, 6, 0, 0, 0)


def test_two_streams_with_equal_positions_do_not_hide_each_other(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    rows = kafka_rows(0, 0, [good(1), good(2)])
    lander(spark, landing, events)(frame(spark, rows), 0)
    other = [(r[0], "other", *r[2:]) for r in rows]
    lander(spark, landing, events)(frame(spark, other), 0)
    assert events.accounts() == (2, 0, 2, 2, 0)


@pytest.mark.faults
def test_kinesis_replays_with_other_records_land_once(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    sink, now = CountingSink(landing), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, sink=sink)
    write(frame(spark, kinesis_rows(range(100), now)), 0)
    # The same batch id with half of the records and as many new ones.
    write(frame(spark, kinesis_rows(range(50, 150), now)), 0)
    assert events.accounts() == (100, 50, 50, 50, 0)
    # Bounds lie at full minutes, so that batches share their code.
    assert {first_time(each).second for each in sink.attempts} == {0}
    rounded = now - kinesis_guard.SLACK - timedelta(seconds=kinesis_guard.STEP_SECONDS / 2)
    # A run's first batch looks back as far as the stream keeps records, the next as far as the last batch.
    assert [first_time(each) for each in sink.attempts] == [
        pytest.approx(rounded - timedelta(seconds=3600), abs=timedelta(seconds=40)),
        pytest.approx(rounded, abs=timedelta(seconds=31)),
    ]
    assert sum(added_records(spark, landing)) == 150


@pytest.mark.slow
def test_a_record_older_than_the_bound_is_looked_up_wider(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    sink, now = CountingSink(landing), batch_accounts.utc_now()
    write = lander(spark, landing, events, source=KINESIS, sink=sink)
    old = kinesis_rows(range(10), now - timedelta(minutes=30))
    write(frame(spark, old), 0)
    write(frame(spark, kinesis_rows(range(100, 110), now)), 1)
    sink.attempts.clear()
    # A shard that lay idle, or was read again from its beginning: half of it is in the table.
    again = [*old[:5], *kinesis_rows(range(200, 205), now - timedelta(minutes=30))]
    write(frame(spark, [*again, *kinesis_rows([300], now)]), 2)
    assert events.accounts() == (11, 5, 6, 6, 0)
    assert len(sink.attempts) == 2
    # Older than the batch before: the whole table.
    sink.attempts.clear()
    ancient = kinesis_rows(range(400, 405), EPOCH)
    for number in (3, 4):
        (guard,) = write.guards.streams
        assert isinstance(guard, kinesis_guard.KinesisLossGuard)
        guard.oldest, guard.steps = now, ()
        write(frame(spark, ancient), number)
    assert [each.outside is None for each in sink.attempts] == [False, True] * 2
    assert events.accounts() == (5, 5, 0, 0, 0)
    found = ids(spark, landing)
    assert len(found) == len(set(found))
    assert sum(added_records(spark, landing)) == len(found)


@pytest.mark.faults
def test_a_bound_that_fails_commits_nothing(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, source=KINESIS)
    rows = write.decoder.decode(
        frame(spark, kinesis_rows(range(10), EPOCH)).withColumns(
            {"_hash": F.lit(0).cast("bigint"), "_landed_at": F.current_timestamp()}
        )
    )
    early = DuplicateLookUp(outside=older_than_condition("_arrived_at", EPOCH + timedelta(milliseconds=5)))
    with pytest.raises(RecordOutsideBoundError):
        IcebergSink(landing).append(rows, early)
    assert added_records(spark, landing) == []


@pytest.mark.slow
@pytest.mark.faults
def test_a_task_that_is_tried_again_is_counted_once(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    rows = [*kafka_rows(0, 0, [good(n) for n in range(50)]), *kafka_rows(0, 50, [b"bad"] * 50)]

    def fails_at_first(part: Iterator[Any]) -> Iterator[Any]:
        context = TaskContext.get()
        assert context is not None
        for i, row in enumerate(part):
            if i == 30 and context.attemptNumber() == 0:
                raise RuntimeError("the first attempt breaks off")
            yield row

    batch = frame(spark, rows)
    flaky = spark.createDataFrame(batch.rdd.mapPartitions(fails_at_first), batch.schema)
    for source in (None, KINESIS):
        events = Events()
        write = lander(
            spark, table(f"landing_{source is None}"), events, **({"source": source} if source else {})
        )
        write(flaky, 0)
        assert events.accounts() == (100, 0, 100, 50, 50)
    assert landing.exists(spark) is False


def test_a_table_of_another_shape_is_refused(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    lander(spark, landing, events)
    lander(spark, landing, events)  # the same again is welcome
    other = spark.createDataFrame(
        [], DDL.replace("delay DOUBLE", "gate STRING").replace("flight INT", "flight STRING")
    )
    with pytest.raises(StartError) as refused:
        tables.create_or_evolve_table(spark, landing, land.landing_table_schema(other.schema))
    message = str(refused.value)
    assert "has flight as int, not string" in message
    assert "has column delay, which the schema lacks" in message
    assert "gate" not in spark.table(str(landing)).columns, "it was altered anyway"


def test_tables_do_not_shuffle_and_do_not_pile_up_metadata(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    lander(spark, landing, events)
    properties = {r["key"]: r["value"] for r in spark.sql(f"SHOW TBLPROPERTIES {landing}").collect()}
    assert tables.PROPERTIES.items() <= properties.items()


@pytest.mark.parametrize("name", ["flights", "a.b.c", "a.b; DROP TABLE x", "a.`b`", ".b"])
def test_a_table_name_is_plain(name: str) -> None:
    with pytest.raises(StartError, match="write the name as database"):
        Table.from_name("lake", name)
