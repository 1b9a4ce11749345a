"""Derive queries with state give the results of one computation over the whole landing table."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.job import build_queries
from millrace.etl.job.supervise import Supervisor
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.maintenance import table_maintenance
from millrace.etl.metrics.arrival_times import ArrivalTimes
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import AppendResult, IcebergSink
from tests.faults import small_job_documents
from tests.spark.source_batches import (
    Events,
    drained,
    frame,
    good,
    kafka_rows,
    lander,
)

Names = Callable[[str], Table]
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MARK = {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600}


def by_minute(flights: DataFrame) -> DataFrame:
    """Count flights of each parity in each minute."""
    grouped = flights.groupBy(F.window("_arrived_at", "1 minute"), (F.col("flight") % 2).alias("parity"))
    return grouped.agg(F.count(F.lit(1)).alias("flights"), F.sum("delay").alias("delay")).select(
        F.col("window.start").alias("minute"), "parity", "flights", "delay"
    )


def by_minute_and_flight(flights: DataFrame) -> DataFrame:
    """Group by one thing more than :func:`by_minute`; the results are called the same."""
    grouped = flights.groupBy(
        F.window("_arrived_at", "1 minute"), (F.col("flight") % 2).alias("parity"), "flight"
    )
    return grouped.agg(F.count(F.lit(1)).alias("flights"), F.sum("delay").alias("delay")).select(
        F.col("window.start").alias("minute"), "parity", "flights", "delay"
    )


def by_minute_and_tenth(flights: DataFrame, kind: str = "float") -> DataFrame:
    """As :func:`by_minute`, with a key whose type changes behind the aggregate; the state stays as it is."""
    return by_minute(flights).withColumn("parity", ((F.col("parity") + 1) / 10).cast(kind))


def by_minute_and_wider_tenth(flights: DataFrame) -> DataFrame:
    """The same, in the type to which a table may widen its column."""
    return by_minute_and_tenth(flights, "double")


def by_two_minutes(flights: DataFrame) -> DataFrame:
    """As :func:`by_minute`, in longer windows."""
    grouped = flights.groupBy(F.window("_arrived_at", "2 minutes"), (F.col("flight") % 2).alias("parity"))
    return grouped.agg(F.count(F.lit(1)).alias("flights"), F.sum("delay").alias("delay")).select(
        F.col("window.start").alias("minute"), "parity", "flights", "delay"
    )


def lowest(flights: DataFrame) -> DataFrame:
    """The lowest number of each carrier in a minute, in the type of the landing table."""
    grouped = flights.groupBy(F.window("_arrived_at", "1 minute"), F.col("carrier").alias("parity"))
    return grouped.agg(F.min("flight").alias("first")).select(
        F.col("window.start").alias("minute"), "parity", "first"
    )


def lowest_as_before(flights: DataFrame) -> DataFrame:
    """The same, of numbers that have become wider in the table."""
    return lowest(flights.withColumn("flight", F.col("flight").cast("int")))


def lowest_of_flight(flights: DataFrame) -> DataFrame:
    """Grouped by the number itself."""
    grouped = flights.groupBy(F.window("_arrived_at", "1 minute"), "flight").agg(
        F.min("delay").alias("first")
    )
    return grouped.select(F.col("window.start").alias("minute"), F.col("flight").alias("parity"), "first")


def lowest_of_flight_as_before(flights: DataFrame) -> DataFrame:
    """The same, of numbers that have become wider in the table."""
    return lowest_of_flight(flights.withColumn("flight", F.col("flight").cast("int")))


def paired_or_alone(flights: DataFrame, others: DataFrame) -> DataFrame:
    """All flights of both streams; those of one delay that arrive within a second in one row. A null has no partner."""
    others = others.select(
        F.col("delay").alias("other"), "_joined_id", F.col("_arrived_at").alias("other_at")
    )
    near = F.expr("other_at BETWEEN _arrived_at - INTERVAL 1 SECOND AND _arrived_at + INTERVAL 1 SECOND")
    same = F.col("delay").isNotNull() & (F.col("delay") == F.col("other"))
    return flights.join(others, same & near, "full_outer").select(*CARRIED, "_joined_id")


def paired(flights: DataFrame, others: DataFrame) -> DataFrame:
    """Pair flights of the same number that arrive within ten seconds."""
    others = others.select(
        F.col("flight").alias("other"), F.col("delay").alias("other_delay"), "_joined_id", "_arrived_at"
    ).withColumnRenamed("_arrived_at", "at")
    near = (F.col("at") >= F.col("_arrived_at") - F.expr("INTERVAL 10 SECONDS")) & (
        F.col("at") <= F.col("_arrived_at") + F.expr("INTERVAL 10 SECONDS")
    )
    joined = flights.join(others, (F.col("flight") == F.col("other")) & near)
    return joined.select(*CARRIED, "_joined_id", "flight", "other_delay")


def without_identity(flights: DataFrame) -> DataFrame:
    """Lose what every row must carry."""
    return flights.select("flight")


def in_order(flights: DataFrame) -> DataFrame:
    """Sort a stream, which Spark refuses."""
    return flights.orderBy("flight")


def with_ours(flights: DataFrame) -> DataFrame:
    """Name a result's column like one of ours."""
    return flights.groupBy(F.window("_arrived_at", "1 minute").start.alias("minute")).agg(
        F.count(F.lit(1)).alias("_n")
    )


class Pipeline:
    """Landing tables and a derive query with state on them."""

    def __init__(
        self, spark: SparkSession, table: Names, folder: Path, state: Mapping[str, Any], function: str | None
    ):
        self.spark, self.folder, self.events = spark, folder, Events()
        self.landing, self.other, self.sink = table("landing"), table("other"), table("sink")
        self.land = lander(spark, self.landing, Events())
        self.land_other = lander(spark, self.other, Events())
        self.state = {
            "watermark": MARK,
            "distinct": [],
            "key": [],
            "join": None,
            "output_mode": "update",
            **state,
        }
        self.function = function

    def settings(self) -> JobSettings:
        query = {
            "kind": "derive",
            "name": "derive-flights",
            "source_table": f"tests.{self.landing.name}",
            "enrich": [],
            "transform": None if self.function is None else f"{__name__}:{self.function}",
            "sink": {"kind": "iceberg", "table": f"tests.{self.sink.name}"},
            "trigger_seconds": 0,
            "state": self.state,
            "route": None,
            "latest_by": [],
            "dead_letters": None,
        }
        return parse_job_settings(small_job_documents.settings("flights", [query], str(self.folder), None))

    def query(self) -> ReadyQuery:
        [query] = build_queries.build_queries(JobRun(self.spark, self.settings(), {}, self.events.reporter))
        return query

    def derive(self, handle: Callable[[DataFrame, int], None] | None = None) -> None:
        """Run the query over what is there, then end."""
        query = self.query()
        self.progress = drained(query.rows, handle or query.handle, query.checkpoint, query.output_mode)

    def rows(self) -> list[Row]:
        return sorted(self.spark.table(str(self.sink)).drop("_written_at").collect(), key=str)

    def at_once(self) -> list[Row]:
        """What the aggregate is when it is computed once over all that landed."""
        landed = self.spark.table(str(self.landing)).where("_error IS NULL")
        key = F.to_json(F.struct("minute", "parity"))
        return sorted(by_minute(landed).select(key.alias("_id"), "*").collect(), key=str)


@pytest.fixture
def aggregate(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, table, tmp_path, {"key": ["minute", "parity"]}, "by_minute")


def test_a_later_result_replaces_an_earlier_one(aggregate: Pipeline) -> None:
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 0, [*(good(n) for n in range(50)), b"bad"])), 0)
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 51, [good(n) for n in range(51, 130)])), 1)
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()
    arrivals = [
        ArrivalTimes.from_observed_metrics(p["observedMetrics"])
        for p in aggregate.progress
        if p["numInputRows"]
    ]
    assert [a.rows for a in arrivals if a] == [79], "the ages of a result's records are lost"
    assert sum(r["flights"] for r in aggregate.rows()) == 129
    written = [e["written"] for e in aggregate.events.all() if e["event"] == "batch" and e["written"]]
    assert written == [2, 6]  # of three minutes the first again, as 51 to 59 came to it


@pytest.mark.slow
def test_killed_after_the_write_the_batch_comes_again_and_changes_nothing(aggregate: Pipeline) -> None:
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 0, [good(n) for n in range(70)])), 0)

    def killed(batch: DataFrame, number: int) -> None:
        aggregate.query().handle(batch, number)
        raise RuntimeError("killed")

    with pytest.raises(StreamingQueryException, match="killed"):
        aggregate.derive(killed)
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 70, [good(n) for n in range(70, 80)])), 1)
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()


@pytest.mark.slow
def test_a_record_beyond_the_watermark_is_left_out(aggregate: Pipeline) -> None:
    for number, first in enumerate((0, 600, 601)):  # each batch moves the watermark for the next
        aggregate.land(frame(aggregate.spark, kafka_rows(0, first, [good(first)])), number)
        aggregate.derive()
    before = aggregate.rows()
    aggregate.land(frame(aggregate.spark, kafka_rows(1, 5, [good(5)])), 3)
    aggregate.derive()
    assert aggregate.rows() == before


@pytest.mark.slow
def test_a_first_batch_of_all_that_landed_is_not_crossed(
    aggregate: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table's first states are forgotten, and more lands before the first batch is planned."""
    monkeypatch.setattr(table_maintenance, "FEWEST_SNAPSHOTS", 1)
    for number in range(3):
        rows = kafka_rows(0, number * 50, [good(n) for n in range(number * 50, number * 50 + 50)])
        aggregate.land(frame(aggregate.spark, rows), number)
    table_maintenance.SnapshotExpiry(
        table=aggregate.landing, keep=timedelta(0), readers=(), report=Events().reporter
    )(aggregate.spark)
    query = aggregate.query()
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 150, [good(n) for n in range(150, 170)])), 3)
    supervisor = Supervisor(aggregate.spark, aggregate.events.reporter)

    def stopping(built: ReadyQuery) -> ReadyQuery:
        def once(batch: DataFrame, batch_id: int) -> None:
            built.handle(batch, batch_id)
            supervisor.request_stop()

        return replace(built, handle=once, rebuild=lambda: stopping(aggregate.query()))

    assert supervisor.run_to_exit_status([stopping(query)]) == 0
    told = [e["event"] for e in aggregate.events.all()]
    assert (told.count("started_from_full_table"), told.count("reopened")) == (1, 1)
    assert sum(r["flights"] for r in aggregate.rows()) == 150
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()
    assert sum(r["flights"] for r in aggregate.rows()) == 170


@contextmanager
def in_rocksdb(spark: SparkSession) -> Iterator[None]:
    """Keep state as a deployed job does."""
    prefix = "spark.sql.streaming.stateStore"
    settings = {
        f"{prefix}.providerClass": ROCKSDB,
        f"{prefix}.rocksdb.changelogCheckpointing.enabled": "true",
    }
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        yield
    finally:
        for key in settings:
            spark.conf.unset(key)


@pytest.mark.slow
def test_state_lies_in_rocksdb_and_its_changes_in_the_checkpoint(aggregate: Pipeline) -> None:
    with in_rocksdb(aggregate.spark):
        for number in range(2):
            aggregate.land(
                frame(aggregate.spark, kafka_rows(0, 40 * number, [good(n) for n in range(40)])), number
            )
            aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()
    assert list(aggregate.folder.glob("derive-flights/state/0/*/*.changelog"))


@pytest.mark.slow
def test_a_file_of_state_with_the_changes_of_another_ends_the_query(aggregate: Pipeline) -> None:
    """Spark 4.1 keeps a checksum beside each file of state; Spark 3.5 goes on with what a well-formed file says."""
    if tuple(map(int, aggregate.spark.version.split(".")[:2])) < (4, 1):
        pytest.skip("files of state have checksums from Spark 4.1 on")
    with in_rocksdb(aggregate.spark):
        for number in range(2):
            rows = kafka_rows(0, 40 * number, [good(n) for n in range(40 * number, 40 * number + 40)])
            aggregate.land(frame(aggregate.spark, rows), number)
            aggregate.derive()
        before = aggregate.rows()
        for first in aggregate.folder.glob("derive-flights/state/0/*/1.changelog"):
            # Hadoop's own checksum, which it keeps on a local disk only, is that of the other file, too.
            for name in ("{}.changelog", ".{}.changelog.crc"):
                shutil.copyfile(first.with_name(name.format(1)), first.with_name(name.format(3)))
        aggregate.land(frame(aggregate.spark, kafka_rows(0, 80, [good(n) for n in range(80, 120)])), 2)
        with pytest.raises(StreamingQueryException) as told:
            aggregate.derive()
    assert "CHECKPOINT_FILE_CHECKSUM" in str(told.value), str(told.value)
    assert aggregate.rows() == before


@pytest.mark.slow
def test_two_streams_are_joined_once(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes: list[DuplicateLookUp] = []
    append = IcebergSink.append

    def counted(
        sink: IcebergSink, batch: DataFrame, look_up: DuplicateLookUp, *rest: Any, **more: Any
    ) -> AppendResult:
        if sink.table.name.startswith("sink"):
            writes.append(look_up)
        return append(sink, batch, look_up, *rest, **more)

    monkeypatch.setattr(IcebergSink, "append", counted)
    state: dict[str, Any] = {}
    pipe = Pipeline(spark, table, tmp_path, state, "paired")
    pipe.state["join"] = {"source_table": f"tests.{pipe.other.name}", "watermark": MARK, "route": None}
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), good(2)])), 0)
    pipe.land_other(frame(spark, kafka_rows(1, 0, [good(2), good(7)])), 0)
    pipe.derive()
    pipe.land_other(frame(spark, kafka_rows(1, 5, [good(1)])), 1)
    pipe.derive()
    result = {r["_id"]: (r["flight"], r["other_delay"]) for r in pipe.rows()}
    assert result == {
        "flights-topic/0/1+flights-topic/1/0": (2, 1.0),
        "flights-topic/0/0+flights-topic/1/5": (1, 0.5),
    }
    # The second pair's first record was landed long before its batch: no attempt fails by that.
    assert len(writes) == sum(e["event"] == "batch" for e in pipe.events.all())


@pytest.mark.slow
def test_of_a_full_outer_join_rows_without_a_key_stay_alone(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """As docs/state.md has users write it: by the equality alone Spark pairs two nulls of streams."""
    state: dict[str, Any] = {}
    pipe = Pipeline(spark, table, tmp_path, state, "paired_or_alone")
    pipe.state["join"] = {"source_table": f"tests.{pipe.other.name}", "watermark": MARK, "route": None}
    unknown = b'{"carrier": "AA", "flight": 1}'
    for number, last in enumerate((10_000, 20_000)):
        first = [] if number else [unknown, good(2)]
        pipe.land(frame(spark, [*kafka_rows(0, 0, first), *kafka_rows(0, last, [good(last)])]), number)
        pipe.land_other(frame(spark, [*kafka_rows(1, 0, first), *kafka_rows(1, last, [good(last)])]), number)
        pipe.derive()
    result = {row["_id"] for row in pipe.rows()}
    assert result >= {
        "flights-topic/0/0",
        "flights-topic/1/0",
        "flights-topic/0/1+flights-topic/1/1",
    }
    assert "flights-topic/0/0+flights-topic/1/0" not in result


@pytest.mark.parametrize(
    ("state", "function", "message"),
    [
        (
            {"watermark": {"time": "delay", "delay_seconds": 1, "ahead_seconds": 3600}},
            "by_minute",
            "delay > .*incompatible types",
        ),
        (
            {"watermark": {"time": "when", "delay_seconds": 1, "ahead_seconds": 3600}},
            "by_minute",
            "transform .*`when` cannot be resolved",
        ),
        ({"distinct": ["order"]}, None, r"order\b"),
        ({"key": ["hour"]}, "by_minute", "its result lacks the columns hour, which state.key names"),
        ({"distinct": ["flight"]}, "in_order", "Sorting is not supported"),
        ({}, "in_order", "Sorting is not supported"),
        ({}, "without_identity", "name the columns that identify a result in state.key"),
        ({"key": ["minute"]}, "with_ours", "columns _n must not begin with _"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_read(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    state: dict[str, Any],
    function: str | None,
    message: str,
) -> None:
    with pytest.raises(StartError, match=message):
        Pipeline(spark, table, tmp_path, state, function).query()
