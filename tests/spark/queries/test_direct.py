"""Direct queries write good records to the sink and bad ones to the dead letters, each once, also after replays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.commits import commit_batch_once
from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.maintenance.table_maintenance import call_iceberg_procedure
from millrace.etl.queries import land
from millrace.etl.queries.direct import DirectBatchWriter, DirectRoute, write_replayed_to_sinks
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import row_count_aggregate
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.delivery.python_task_writes import RowsCountedInPlan, rows_through_rdd
from millrace.etl.sinks.iceberg import AppendResult, IcebergSink
from millrace.etl.sources.base import ReplayedLeg
from tests.spark.source_batches import DDL, KAFKA, Events, frame, good, kafka_rows, log_offsets

Names = Callable[[str], Table]
BAD = b"{broken"


def by_two(rows: DataFrame) -> DataFrame:
    """Leaves out every third flight."""
    return rows.where("flight % 3 <> 0").select(*CARRIED, "flight", (F.col("flight") * 2).alias("twice"))


class Pipeline:
    """A direct query on one partition, and what it printed."""

    def __init__(
        self,
        spark: SparkSession,
        table: Names,
        checkpoint: Path,
        transform: Callable[[DataFrame], DataFrame] = by_two,
    ) -> None:
        self.spark, self.checkpoint, self.events = spark, checkpoint, Events()
        self.sink, self.letters = table("sink"), table("letters")
        self.decoder = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
        tables.create_or_evolve_table(spark, self.letters, land.landing_table_schema(self.decoder.schema))
        self.compose = EnrichThenTransform((), transform, "by_two")
        tables.create_or_evolve_table(spark, self.sink, self.compose.checked_sink_schema(spark, self.letters))
        self.director = self.restarted()

    def restarted(self, **parts: Any) -> DirectBatchWriter:
        checkpoint = Checkpoint(str(self.checkpoint))
        return DirectBatchWriter(
            "direct-flights",
            self.decoder,
            (DirectRoute(None, "flights", self.compose, parts.get("sink", IcebergSink(self.sink))),),
            parts.get("letters", IcebergSink(self.letters)),
            (ReplayedLeg((KAFKA,), checkpoint),),
            checkpoint,
            self.events.reporter,
        )

    def batch(
        self, number: int, first: int, payloads: list[bytes | None], director: DirectBatchWriter | None = None
    ) -> None:
        """Run a batch of offsets from ``first`` on, as Spark's log then has them."""
        log_offsets(self.checkpoint, number, {KAFKA.topic: {"0": first + len(payloads)}})
        (director or self.director)(frame(self.spark, kafka_rows(0, first, payloads)), number)

    def accounts(self) -> tuple[int, ...]:
        """read, bad, good, duplicates, filtered, written of the last batch."""
        return tuple(
            self.events.last()[k] for k in ("read", "bad", "good", "duplicates", "filtered", "written")
        )

    def flights(self) -> list[int]:
        return sorted(r["flight"] for r in self.spark.table(str(self.sink)).collect())

    def bad(self) -> list[tuple[str, bytes | None]]:
        rows = self.spark.table(str(self.letters)).where("_error IS NOT NULL").collect()
        return sorted((r["_id"], None if r["_bytes"] is None else bytes(r["_bytes"])) for r in rows)

    def plans(self) -> list[bool]:
        """Whether each commit to the sink says which offsets it holds, oldest first."""
        snapshots = self.spark.table(f"{self.sink}.snapshots").orderBy("committed_at").collect()
        return ["millrace.offsets" in s["summary"] for s in snapshots]


def forget(pipe: Pipeline) -> None:
    """All states of the table but the present one."""
    call_iceberg_procedure(
        pipe.spark,
        pipe.sink,
        "expire_snapshots",
        older_than="TIMESTAMP '2099-01-01 00:00:00'",
        retain_last="1",
    )


class NoLookUp(IcebergSink):
    def append(
        self, batch: DataFrame, look_up: DuplicateLookUp, *figures: Column, **more: Any
    ) -> AppendResult:
        assert look_up.rows is None
        assert not look_up.commits
        return super().append(batch, look_up, *figures, **more)


@pytest.fixture
def pipe(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, table, tmp_path)


def test_good_and_bad_part_ways(pipe: Pipeline) -> None:
    pipe.batch(0, 0, [*(good(n) for n in range(9)), BAD, None])
    assert pipe.accounts() == (11, 2, 9, 0, 3, 6)
    assert pipe.flights() == [1, 2, 4, 5, 7, 8]
    assert pipe.bad() == [("flights-topic/0/10", None), ("flights-topic/0/9", BAD)]
    pipe.batch(1, 11, [good(10)])
    assert pipe.accounts() == (1, 0, 1, 0, 0, 1)
    assert pipe.plans() == [True, True]


@pytest.mark.slow
def test_a_small_batch_is_read_again_for_a_record_that_needs_the_exact_way(pipe: Pipeline) -> None:
    attempts = []

    class Counting(IcebergSink):
        def append(
            self, batch: DataFrame, look_up: DuplicateLookUp, *figures: Column, **more: Any
        ) -> AppendResult:
            attempts.append(look_up)
            return super().append(batch, look_up, *figures, **more)

    director = pipe.restarted(sink=Counting(pipe.sink))
    pipe.batch(0, 0, [good(1), None], director)
    assert (len(attempts), pipe.accounts()) == (1, (2, 1, 1, 0, 0, 1))
    pipe.batch(1, 2, [good(2), BAD], director)
    assert (len(attempts), pipe.accounts()) == (3, (2, 1, 1, 0, 0, 1))
    pipe.batch(2, 4, [good(4), BAD], director)
    assert (len(attempts), pipe.accounts()) == (4, (2, 1, 1, 0, 0, 1))
    assert pipe.flights() == [1, 2, 4]
    assert [identity for identity, _ in pipe.bad()] == [f"flights-topic/0/{at}" for at in (1, 3, 5)]


@pytest.mark.slow
@pytest.mark.parametrize(
    "empty", ["false", "flight IN (SELECT 1 WHERE false)", "current_date() < '2020-01-01'"]
)
def test_a_transform_that_the_optimizer_empties_loses_no_bad_record(
    spark: SparkSession, table: Names, tmp_path: Path, empty: str
) -> None:
    """Spark removes what is below it from the plan, with the observed figures."""
    pipe = Pipeline(spark, table, tmp_path, lambda rows: by_two(rows).where(empty))
    pipe.batch(0, 0, [good(1), BAD, None])
    assert pipe.accounts() == (3, 2, 1, 0, 1, 0)
    assert pipe.bad() == [("flights-topic/0/1", BAD), ("flights-topic/0/2", None)]


def test_rows_below_an_emptied_part_are_counted_for_a_sink_that_sends(spark: SparkSession) -> None:
    counted = RowsCountedInPlan((row_count_aggregate("read"),))
    rows = counted.observe(frame(spark, kafka_rows(0, 0, [good(1), BAD]))).where("false")
    assert rows_through_rdd(rows).count() == 0
    assert counted.values_after_action(rows) == {"read": 2}


def test_a_clean_batch_does_not_touch_the_letters(pipe: Pipeline) -> None:
    pipe.director = pipe.restarted(letters=NoLookUp(pipe.letters))
    pipe.batch(0, 0, [good(1)])
    assert pipe.accounts() == (1, 0, 1, 0, 0, 1)


def test_a_batch_that_follows_the_last_commit_is_not_looked_up(pipe: Pipeline) -> None:
    pipe.batch(0, 0, [good(1)])
    pipe.director = pipe.restarted(sink=NoLookUp(pipe.sink))  # which finds the last commit in the table
    pipe.batch(1, 1, [good(2)])
    assert pipe.flights() == [1, 2]


@pytest.mark.slow
def test_killed_between_the_commits_the_batch_comes_again(pipe: Pipeline) -> None:
    """Good records are in, dead letters are not: the replay adds what is missing and doubles nothing."""

    class Killed(IcebergSink):
        def append(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    killed = pipe.restarted(letters=Killed(pipe.letters))
    with pytest.raises(KeyboardInterrupt):
        pipe.batch(0, 0, [good(1), BAD], killed)
    assert (pipe.flights(), pipe.bad()) == ([1], [])
    pipe.batch(0, 0, [good(1), BAD], pipe.restarted())
    assert pipe.accounts() == (2, 1, 1, 1, 0, 0)
    assert (pipe.flights(), len(pipe.bad())) == ([1], 1)


def test_killed_before_the_checkpoint_committed_nothing_comes_twice(pipe: Pipeline) -> None:
    pipe.batch(0, 0, [good(1), BAD])
    pipe.batch(0, 0, [good(1), BAD], pipe.restarted())
    assert (pipe.flights(), len(pipe.bad())) == ([1], 1)


@pytest.mark.slow
def test_a_checkpoint_that_was_reset_neither_skips_nor_doubles(pipe: Pipeline, tmp_path: Path) -> None:
    """Batch ids begin again, and a batch reaches over the last commit: old records are known, new ones not."""
    pipe.batch(0, 0, [good(1), good(2)])
    pipe.batch(1, 2, [good(4)])
    pipe.checkpoint = tmp_path / "reset"
    pipe.director = pipe.restarted()
    pipe.batch(0, 0, [good(1), good(2), good(4), good(5)])
    assert pipe.accounts() == (4, 0, 4, 3, 0, 1)
    pipe.batch(1, 4, [good(7)])
    assert pipe.flights() == [1, 2, 4, 5, 7]


@pytest.mark.slow
@pytest.mark.parametrize("version", ["this", "earlier"])
def test_a_past_that_is_read_again_in_many_batches_is_doubled_nowhere(
    pipe: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Each follows the one before, also after a restart in the middle, and the table has them all from before.

    The commits of an earlier version name no batch.
    """

    def two(number: int) -> list[bytes | None]:
        return [good(3 * n + 1) for n in (2 * number, 2 * number + 1)]

    with monkeypatch.context() as earlier:
        if version == "earlier":
            earlier.setattr(commit_batch_once, "RUN", "nobody.knows")
        for number in range(2):
            pipe.batch(number, 2 * number, two(number))
        pipe.checkpoint = tmp_path / "reset"
        pipe.director = pipe.restarted()
        pipe.batch(0, 0, two(0))
        assert pipe.accounts() == (2, 0, 2, 2, 0, 0)
    forget(pipe)
    pipe.director = pipe.restarted()
    pipe.batch(1, 2, two(1))
    assert pipe.accounts() == (2, 0, 2, 2, 0, 0)
    # All of the past is read; from here on nothing is looked up, after a restart either.
    pipe.director = pipe.restarted(sink=NoLookUp(pipe.sink))
    pipe.batch(2, 4, two(2))
    assert pipe.flights() == [3 * n + 1 for n in range(6)]


@pytest.mark.slow
def test_a_table_that_does_not_tell_how_far_it_reaches_is_looked_up(pipe: Pipeline) -> None:
    """A transform may give identities of its own, and a table may have forgotten its commits."""

    def own(rows: DataFrame) -> DataFrame:
        return by_two(rows).withColumn("_id", F.concat(F.lit("flight-"), "flight"))

    pipe.compose = EnrichThenTransform((), own, "own")
    pipe.director = pipe.restarted()
    pipe.batch(0, 0, [good(1)])
    pipe.batch(1, 1, [good(2)])
    compacted = pipe.spark.table(str(pipe.sink))
    compacted.writeTo(str(pipe.sink)).overwrite(F.lit(True))
    forget(pipe)
    pipe.director = pipe.restarted()
    pipe.batch(1, 1, [good(2)])
    pipe.batch(2, 2, [good(2), good(4)])
    assert pipe.accounts() == (2, 0, 2, 1, 0, 1)
    assert pipe.flights() == [1, 2, 4]


def test_another_writer_s_commits_in_between_do_not_hide_ours(pipe: Pipeline) -> None:
    pipe.batch(0, 0, [good(1)])
    rows = pipe.spark.table(str(pipe.sink))
    rows.select(
        *(F.lit("x" if c == "_id" else None).cast(rows.schema[c].dataType).alias(c) for c in rows.columns)
    ).limit(1).writeTo(str(pipe.sink)).append()
    pipe.batch(1, 1, [good(2)], pipe.restarted(sink=NoLookUp(pipe.sink)))
    assert pipe.accounts() == (1, 0, 1, 0, 0, 1)


def test_an_empty_batch_is_one(pipe: Pipeline) -> None:
    pipe.batch(0, 0, [])
    assert pipe.accounts() == (0, 0, 0, 0, 0, 0)


@pytest.mark.slow
def test_a_corrected_letter_goes_on_to_the_sink_once(pipe: Pipeline, tmp_path: Path) -> None:
    pipe.batch(0, 0, [good(1), BAD])
    corrected = tmp_path / "corrected.jsonl"
    corrected.write_text('{"id":"flights-topic/0/1","payload":"{\\"carrier\\":\\"AA\\",\\"flight\\":2}"}\n')
    onward = partial(write_replayed_to_sinks, pipe.director.routes)
    replayer = DeadLetterReplayer(
        "direct-flights", pipe.letters, pipe.events.reporter, "flights", pipe.decoder, onward
    )
    for _ in range(2):
        assert replayer(pipe.spark, ReplayRequest("direct-flights", (), str(corrected))) == 0
    assert pipe.flights() == [1, 2]


def test_the_end_of_a_batch_is_read_once(spark: SparkSession, tmp_path: Path) -> None:
    """The next batch begins there; what Spark has written in its log does not change."""
    log = tmp_path / "offsets"
    log.mkdir()
    for batch in range(3):
        (log / str(batch)).write_text(f'v1\n{{}}\n{{"t": {{"0": {batch}}}}}')
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.batch_start_offset(spark, 0) is None
    assert checkpoint.batch_end_offset(spark, 1) == {"t": {"0": 1}}
    (log / "1").unlink()
    assert checkpoint.batch_start_offset(spark, 2) == {"t": {"0": 1}}
    assert checkpoint.batch_end_offset(spark, 2) == {"t": {"0": 2}}
    assert checkpoint.batch_start_offset(spark, 1) == {"t": {"0": 0}}
    assert checkpoint.batch_start_offset(spark, 2) is None
    assert checkpoint == Checkpoint(str(tmp_path))
