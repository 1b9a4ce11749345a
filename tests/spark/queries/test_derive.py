"""Derive queries: enrichment and transform into a second table, each record once."""

from __future__ import annotations

import json
import re
import sys
import types
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.commits.commit_batch_once import BatchId, TableCommits
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.settings import DeriveSettings
from millrace.etl.launch.sinks import IcebergSinkSettings
from millrace.etl.queries import derive
from millrace.etl.queries.derive import DeriveBatchWriter, earliest_landing_time
from millrace.etl.queries.transform import EnrichThenTransform, load_transform
from millrace.etl.record import tables
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.iceberg import IcebergSink
from tests.spark.source_batches import EPOCH, Events, drained, first_time, frame, good, kafka_rows, lander

Names = Callable[[str], Table]


def by_two(rows: DataFrame) -> DataFrame:
    """Leaves out every third flight."""
    return rows.where("flight % 3 <> 0").select(*CARRIED, "flight", (F.col("flight") * 2).alias("twice"))


class Pipeline:
    """A landing table, a derive query on it, and what it printed."""

    def __init__(self, spark: SparkSession, table: Names, checkpoint: Path, **parts: Any) -> None:
        self.spark, self.events = spark, Events()
        self.landing, self.sink = table("landing"), table("sink")
        self.land = lander(spark, self.landing, Events())
        self.compose = EnrichThenTransform(
            parts.get("references", ()), parts.get("transform", by_two), "by_two"
        )
        tables.create_or_evolve_table(spark, self.sink, self.compose.checked_sink_schema(spark, self.landing))
        self.checkpoint = checkpoint
        self.deriver = self.deriver_of()

    def deriver_of(self) -> DeriveBatchWriter:
        """What a process that begins now would write batches with."""
        settings = DeriveSettings(
            "derive-flights",
            str(self.landing),
            (),
            None,
            IcebergSinkSettings("t"),
            0.1,
            None,
        )
        return DeriveBatchWriter(
            settings,
            self.landing,
            self.compose,
            IcebergSink(self.sink),
            None,
            Checkpoint(str(self.checkpoint)),
            self.events.reporter,
        )

    def derive(
        self, handle: Callable[[DataFrame, int], None] | None = None, location: Path | None = None
    ) -> None:
        """Run the query over what is there, then end."""
        rows = derive.stream_landing_table(self.spark, self.landing)
        drained(rows, handle or self.deriver, location or self.checkpoint)

    def accounts(self) -> list[tuple[int, ...]]:
        return [
            tuple(e[k] for k in ("read", "duplicates", "filtered", "written"))
            for e in self.events.all()
            if e["event"] == "batch"
        ]

    def written(self) -> DataFrame:
        return self.spark.table(str(self.sink))


def test_good_records_are_derived_once(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [*(good(n) for n in range(9)), b"broken", None])), 0)
    pipe.derive()
    assert pipe.accounts() == [(9, 0, 3, 6)]
    wanted = spark.createDataFrame([(n, 2 * n) for n in range(9) if n % 3], "flight INT, twice INT")
    assert_df_equality(
        pipe.written().select("flight", "twice"), wanted, ignore_row_order=True, ignore_nullable=True
    )
    row = pipe.written().where("flight = 1").first()
    assert row is not None
    assert (row["_id"], row["_source"]) == ("flights-topic/0/1", "flights")
    assert row["_landed_at"] <= row["_written_at"]
    assert {"_bytes", "_error", "_stage"}.isdisjoint(pipe.written().columns)

    # More of it, on the same checkpoint.
    pipe.land(frame(spark, kafka_rows(0, 11, [good(n) for n in range(10, 13)])), 1)
    pipe.derive()
    assert pipe.accounts()[1:] == [(3, 0, 1, 2)]


@pytest.mark.slow
def test_a_transform_that_the_optimizer_empties_is_counted(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Spark reports no figures of what it removes from a plan."""
    pipe = Pipeline(
        spark, table, tmp_path, transform=lambda rows: by_two(rows).where(F.col("flight").isin([]))
    )
    for number in range(2):
        pipe.land(frame(spark, kafka_rows(0, 9 * number, [good(n) for n in range(9)])), number)
        pipe.derive()
    assert pipe.accounts() == [(9, 0, 9, 0)] * 2


def test_killed_after_the_commit_the_batch_comes_again(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path)

    def kill_after_commit(batch: DataFrame, batch_id: int) -> None:
        pipe.deriver(batch, batch_id)
        if batch_id == 1:
            raise RuntimeError("killed")

    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(10)])), 0)
    pipe.derive(kill_after_commit)
    pipe.land(frame(spark, kafka_rows(0, 10, [good(n) for n in range(10, 20)])), 1)
    with pytest.raises(Exception, match="killed"):
        pipe.derive(kill_after_commit)

    pipe.derive()
    assert pipe.accounts() == [(10, 0, 4, 6), (10, 0, 3, 7), (10, 7, 3, 0)]
    assert pipe.written().count() == pipe.written().select("_id").distinct().count() == 13
    # On a new checkpoint nobody knows what is there. Of a later batch the sink is read from the moment on at which
    # the batch's first snapshot can have begun.
    committed = [
        r["committed_at"] for r in spark.table(f"{pipe.landing}.snapshots").orderBy("committed_at").collect()
    ]
    history = TableCommits(pipe.sink).read_history(spark, BatchId("another", 0))
    *bounded, everything = pipe.deriver_of()._look_ups(1, history)
    begins = [first_time(look_up).timestamp() - committed[0].timestamp() for look_up in bounded]
    assert begins == pytest.approx([-1, -3600], abs=0.002)
    assert everything.outside is None


@pytest.mark.slow
def test_a_replayed_dead_letter_is_derived_once(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path / "checkpoint")
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), b"broken"])), 0)
    pipe.derive()
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(json.dumps({"id": "flights-topic/0/1", "payload": good(2).decode()}))
    replayer = DeadLetterReplayer("land", pipe.landing, Events().reporter, "flights", pipe.land.decoder)
    for _ in range(2):
        assert replayer(spark, ReplayRequest("land", corrected=str(fixed))) == 0
        pipe.derive()
    assert pipe.accounts() == [(1, 0, 0, 1), (1, 0, 0, 1)]
    rows = {r["_id"]: r["twice"] for r in pipe.written().collect()}
    assert rows == {"flights-topic/0/0": 2, "flights-topic/0/1#replay": 4}


@pytest.mark.slow
def test_a_new_checkpoint_does_not_double(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(6)])), 0)
    pipe.derive()
    pipe.derive(location=tmp_path / "other")
    assert pipe.accounts() == [(6, 0, 2, 4), (6, 4, 2, 0)]


@pytest.mark.slow
def test_compaction_of_the_landing_table_makes_no_records(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    for n in range(3):
        pipe.land(frame(spark, kafka_rows(0, n * 5, [good(k) for k in range(5)])), 0)
    pipe.derive()
    actions = spark._jvm.org.apache.iceberg.spark.actions.SparkActions.get(spark._jsparkSession)  # type: ignore[union-attr]
    rewrite = (
        actions.rewriteDataFiles(pipe.landing.load_java_table(spark)).option("rewrite-all", "true").execute()
    )
    assert rewrite.rewrittenDataFilesCount() >= 3
    pipe.land(frame(spark, kafka_rows(0, 15, [good(k) for k in range(5)])), 0)
    pipe.derive()
    assert pipe.written().count() == pipe.written().select("_id").distinct().count() == 12
    assert sum(a[0] for a in pipe.accounts()) == 20


@pytest.mark.slow
def test_records_landed_before_the_bound_are_looked_up_wider(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if another driver with a late clock had landed: nothing lost, nothing twice."""
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(6)])), 0)
    pipe.derive()
    future = earliest_landing_time.__module__ + ".earliest_landing_time"
    monkeypatch.setattr(future, lambda *_: datetime.now(UTC) + timedelta(days=1))
    pipe.land(frame(spark, kafka_rows(0, 6, [good(n) for n in range(6, 12)])), 0)
    pipe.derive()
    pipe.derive(location=tmp_path / "other")
    assert pipe.accounts()[1:] == [(6, 0, 2, 4), (12, 8, 4, 0)]


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (
            lambda rows: rows.select("flight"),
            "its result lacks the columns _id, _source, _arrived_at, _landed_at",
        ),
        (lambda rows: rows.drop("_id"), "its result lacks the columns _id;"),
        (lambda rows: rows.count(), "must return a DataFrame, but returned int"),
        (
            lambda rows: rows.withColumn("_written_at", F.lit(1)),
            "column _written_at is reserved for the sink",
        ),
    ],
)
def test_a_transform_that_breaks_the_contract_is_refused_at_start(
    spark: SparkSession, table: Names, tmp_path: Path, transform: Any, message: str
) -> None:
    with pytest.raises(StartError, match=message):
        Pipeline(spark, table, tmp_path, transform=transform)


@pytest.mark.parametrize(
    ("body", "line", "message"),
    [
        ("rows.select('flight', rows['quantity'])", 2, r"`quantity` cannot be resolved"),
        ("rows.quantity", 2, "quantity"),
        ("1 / 0", 2, "division by zero"),
    ],
)
def test_a_transform_that_fails_on_the_columns_that_there_are_names_its_line_and_them(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    line: int,
    message: str,
) -> None:
    """As that of a new project whose schema was replaced."""
    (tmp_path / "failing_pipeline.py").write_text(f"def with_total(rows):\n    return {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing_pipeline", raising=False)
    name = "failing_pipeline:with_total"
    pipe = Pipeline(spark, table, tmp_path)
    compose = EnrichThenTransform((), load_transform(name), name)
    with pytest.raises(StartError, match=message) as told:
        compose.checked_sink_schema(spark, pipe.landing)
    assert str(told.value).startswith(f"transform {name}, failing_pipeline.py:{line}: ")
    assert re.search(r"; the columns of its input are _id, .*flight", str(told.value))
    assert "\n" not in str(told.value)


def test_a_transform_is_found_by_name() -> None:
    module = types.ModuleType("some_pipeline")
    module.transform = by_two  # type: ignore[attr-defined]
    sys.modules["some_pipeline"] = module
    try:
        assert load_transform("some_pipeline:transform") is by_two
        for name in ("some_pipeline:missing", "no_such_package.x:f"):
            with pytest.raises(StartError, match=f"transform {name}"):
                load_transform(name)
    finally:
        del sys.modules["some_pipeline"]


def test_arrival_is_carried(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 1, [good(1)])), 0)
    pipe.derive()
    row = pipe.written().select(F.unix_micros("_arrived_at").alias("us")).first()
    assert row is not None
    assert row["us"] == round((EPOCH + timedelta(seconds=1)).timestamp() * 1e6)


SHAPES: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "twice": (lambda r: r.select(*CARRIED, "flight", F.lit(1).alias("Flight")), "names that clash: Flight, flight"),
    "inside": (
        lambda r: r.select(*CARRIED, F.struct(F.lit(1).alias("a"), F.lit(2).alias("A")).alias("s")),
        "names that clash: A, a",
    ),
    "empty": (lambda r: r.select(*CARRIED, F.lit(1).alias("")), "names that are empty or hold a backtick: ''"),
    "tick": (lambda r: r.select(*CARRIED, F.lit(1).alias("a`b")), "names that are empty or hold a backtick: 'a`b'"),
    "number": (lambda r: r.withColumn("_id", F.col("flight")), "its result must have the columns _id string"),
    "text": (lambda r: r.withColumn("_arrived_at", F.col("delay")), "its result must have the columns _arrived_at timestamp"),
    "deleted": (lambda r: r.withColumn("_deleted", F.lit(True)), "column _deleted is reserved for the sink"),
    "refused": (lambda r: r.withColumn("_refused", F.lit(1)), "column _refused is reserved for the sink"),
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_result_that_no_sink_can_hold_is_refused_at_the_start(
    spark: SparkSession, table: Names, shape: str
) -> None:
    lander(spark, table("landing"), Events())
    transform, why = SHAPES[shape]
    compose = EnrichThenTransform((), transform, "pipelines.shop:rows")
    with pytest.raises(StartError, match=f"transform pipelines.shop:rows: .*{re.escape(why)}"):
        compose.checked_sink_schema(spark, table("landing"))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        ("INTERVAL '1' DAY", "wait INTERVAL DAY: .*Not a supported type: interval day"),
        ("NULL", "wait VOID: (?s:.*)(Not a supported type: void|unknown is not supported until v3)"),
    ],
)
def test_a_column_that_a_table_cannot_have_is_refused_at_the_start(
    spark: SparkSession, table: Names, column: str, why: str
) -> None:
    rows = frame(spark, []).select("_arrived_at", F.expr(column).alias("wait"))
    with pytest.raises(StartError, match=why):
        tables.create_or_evolve_table(spark, table("sink"), rows.schema)
