"""A query continues from a checkpoint only if its manifest allows it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.checkpoints import manifest
from millrace.etl.checkpoints.manifest import Manifest
from millrace.etl.checkpoints.stateful_operators_in_plan import describe_stateful_operators
from millrace.etl.job.checkpoint_check import CheckpointCheck
from millrace.etl.launch.settings import LandSettings
from millrace.etl.launch.settings import parse_job_settings as parsed
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from tests.faults import small_job_documents
from tests.spark.queries.test_stateful_derive import Pipeline
from tests.spark.source_batches import DDL, Events, frame, good, kafka_rows, lander

Names = Callable[[str], Table]
Plan = Callable[[DataFrame, DataFrame], DataFrame]


@pytest.fixture
def aggregate(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    pipeline = Pipeline(spark, table, tmp_path, {"key": ["minute", "parity"]}, "by_minute")
    pipeline.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(20)])), 0)
    return pipeline


def held(pipeline: Pipeline) -> Manifest:
    return manifest.parse_manifest(
        (pipeline.folder / "_millrace" / "derive-flights.manifest.json").read_text()
    )


def told(pipeline: Pipeline, event: str) -> list[dict[str, Any]]:
    return [each for each in pipeline.events.all() if each["event"] == event]


@pytest.mark.slow
def test_a_query_that_groups_by_something_else_is_refused(aggregate: Pipeline) -> None:
    """By what Spark plans: the settings say the same."""
    aggregate.derive()
    before = held(aggregate)
    (operator,) = before.operators or ()
    assert operator.startswith(
        "Aggregate of count(1 int), sum(delay double) by window struct<start:timestamp,end:timestamp> #"
    )
    assert operator.endswith(".flight % 2) int")
    assert before.state is not None
    aggregate.derive()
    aggregate.function = "by_minute_and_flight"
    with pytest.raises(StartError, match=r"what keeps state was Aggregate of .* by window") as refused:
        aggregate.query()
    message = str(refused.value)
    assert message.count("\n") == 0
    assert ".flight % 2) int, flight int" in message
    assert "`millrace checkpoint reset flights derive-flights --env faults`" in message
    aggregate.function = "by_two_minutes"
    with pytest.raises(StartError, match=r"what keeps state was Aggregate of .* by window"):
        aggregate.query()
    # What was refused leaves no trace, and the version of before continues.
    assert held(aggregate) == before
    aggregate.function = "by_minute"
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 20, [good(n) for n in range(20, 90)])), 1)
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "was"), [("lowest", r"of min\(flight int\) "), ("lowest_of_flight", r".*flight int")]
)
def test_a_wider_column_in_an_aggregate_is_refused_before_a_table_is_altered(
    aggregate: Pipeline, function: str, was: str
) -> None:
    """The state has its values in the type of before; in the transform a cast to it lets the query go on."""
    aggregate.function = function
    aggregate.derive()
    before = aggregate.rows()
    spark, wider = aggregate.spark, DDL.replace("flight INT", "flight BIGINT")
    land = lander(spark, aggregate.landing, Events(), ddl=wider)
    land(frame(spark, kafka_rows(0, 20, [good(20)])), 1)
    message = f"what keeps state was Aggregate {was}.* and is .*{was.replace('int', 'bigint')}"
    with pytest.raises(StartError, match=message) as refused:
        aggregate.query()
    assert "an aggregate goes on if the transform casts a wider column to its earlier type" in str(
        refused.value
    )
    assert "bigint" not in spark.table(str(aggregate.sink)).schema.simpleString()
    assert aggregate.rows() == before
    aggregate.function = f"{function}_as_before"
    aggregate.derive()
    assert len(aggregate.rows()) >= len(before)


@pytest.mark.slow
def test_a_key_of_another_type_is_refused_before_a_table_is_altered(aggregate: Pipeline) -> None:
    """A table may widen it, but the identity of 0.1 is then another one: each row would be stored a second time."""
    aggregate.function = "by_minute_and_tenth"
    aggregate.derive()
    aggregate.function = "by_minute_and_wider_tenth"
    with pytest.raises(
        StartError, match="the type of parity was float and is double: the sink's rows have the other key"
    ):
        aggregate.query()
    assert "double" not in aggregate.spark.table(str(aggregate.sink)).select("parity").schema.simpleString()
    aggregate.function = "by_minute_and_tenth"
    aggregate.land(frame(aggregate.spark, kafka_rows(0, 20, [good(n) for n in range(20, 90)])), 1)
    aggregate.derive()
    identities = [row["_id"] for row in aggregate.rows()]
    assert len(identities) == len(set(identities)) == len(aggregate.at_once())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sink", pytest.param("landing", marks=pytest.mark.slow)])
def test_a_table_that_was_set_back_is_behind_its_checkpoint(aggregate: Pipeline, name: str) -> None:
    for number in range(2):
        rows = kafka_rows(0, 20 + 10 * number, [good(n) for n in range(10)])
        aggregate.land(frame(aggregate.spark, rows), 1 + number)
        aggregate.derive()
    table: Table = getattr(aggregate, name)
    java = table.load_java_table(aggregate.spark)
    newest = java.currentSnapshot()
    java.manageSnapshots().rollbackTo(newest.parentId()).commit()
    message = f"table tests.{table.name} was set back to an earlier snapshot, without the query's rows of 20.*checkpoint reset"
    with pytest.raises(StartError, match=message):
        aggregate.query()
    java.manageSnapshots().setCurrentSnapshot(newest.snapshotId()).commit()
    aggregate.derive()
    assert aggregate.rows() == aggregate.at_once()
    if name == "sink":
        aggregate.spark.sql(f"DROP TABLE {table}")
        with pytest.raises(
            StartError,
            match=f"table tests.{table.name} was dropped; restore the table, or `millrace checkpoint reset",
        ):
            aggregate.query()


HOUR_AFTER = "t2 BETWEEN timestamp AND timestamp + INTERVAL 1 HOUR"


def counted(rows: DataFrame, *grouped: str, of: str = "count(1)") -> DataFrame:
    return rows.groupBy(*(F.expr(each) for each in grouped)).agg(F.expr(of).alias("result"))


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        pytest.param(
            lambda rows, _: counted(rows, "window(timestamp, '30 minutes', '10 minutes')"),
            lambda rows, _: counted(rows, "window(timestamp, '20 minutes', '10 minutes')"),
            False,
            id="windows that overlap",
        ),
        pytest.param(
            lambda rows, _: counted(rows.withColumn("k", F.expr("explode(array(a, b))")), "k"),
            lambda rows, _: counted(rows.withColumn("k", F.expr("explode(array(a, b + 1))")), "k"),
            False,
            id="elements of an array",
        ),
        pytest.param(
            lambda rows, _: counted(rows.union(rows.withColumn("a", F.expr("b"))), "a"),
            lambda rows, _: counted(rows.union(rows.withColumn("a", F.expr("b + 1"))), "a"),
            False,
            id="a union",
        ),
        pytest.param(
            lambda rows, _: counted(rows, "timestamp"),
            lambda rows, _: counted(rows.drop("timestamp").withColumnRenamed("value", "timestamp"), "timestamp"),
            False,
            id="another column under the name",
        ),
        pytest.param(
            lambda rows, _: counted(rows, "a", of="sum(b)"),
            lambda rows, _: counted(rows, "a", of="sum(value)"),
            False,
            id="sum of another column",
        ),
        pytest.param(
            lambda rows, _: counted(rows, "a", of="sum(b) FILTER (WHERE b > 1)"),
            lambda rows, _: counted(rows, "a", of="sum(b) FILTER (WHERE b > 2)"),
            False,
            id="sum of other rows",
        ),
        pytest.param(
            lambda rows, _: counted(rows, "a", of="sum(b)"),
            lambda rows, _: counted(rows.withColumn("b", F.expr("b * 2")), "a", of="sum(b)"),
            False,
            id="sum of a column that is computed otherwise",
        ),
        pytest.param(
            lambda rows, _: counted(rows, "a", of="sum(b) + max(value)"),
            lambda rows, _: counted(rows, "a", of="2 * sum(b) - max(value)").where("result > 1"),
            True,
            id="what becomes of the same sums",
        ),
        pytest.param(
            lambda rows, others: rows.join(others, F.expr(f"a = c AND {HOUR_AFTER}")),
            lambda rows, others: rows.join(others, F.expr(f"b = d AND {HOUR_AFTER}")),
            False,
            id="other columns of a join",
        ),
        pytest.param(
            lambda rows, others: rows.join(others, F.expr(f"a = c AND b = d AND {HOUR_AFTER}")),
            lambda rows, others: rows.join(others, F.expr(f"a = c AND {HOUR_AFTER}")),
            False,
            id="fewer columns of a join",
        ),
        pytest.param(
            lambda rows, others: rows.join(others, F.expr(f"a = c AND {HOUR_AFTER}")),
            lambda rows, others: rows.join(
                others, F.expr(f"{HOUR_AFTER.replace('1 HOUR', '2 HOURS')} AND c = a AND b != d")
            ),
            True,
            id="other conditions of a join",
        ),
    ],
)  # fmt: skip
def test_a_plan_whose_state_means_something_else_is_another(
    spark: SparkSession, before: Plan, after: Plan, same: bool
) -> None:
    stream = spark.readStream.format("rate").load().withWatermark("timestamp", "1 minute")
    rows = stream.selectExpr("timestamp", "value", "value * 2 AS a", "value * 3 AS b")
    others = stream.selectExpr("timestamp AS t2", "value * 5 AS c", "value * 7 AS d")
    texts = [describe_stateful_operators(plan(rows, others)) for plan in (before, before, after)]
    assert texts[0] == texts[1]
    assert (texts[1] == texts[2]) is same


@pytest.mark.slow
def test_a_later_version_is_written_down_after_its_first_batch(
    aggregate: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    aggregate.derive()
    before = held(aggregate)
    monkeypatch.setattr(manifest, "__version__", "9.9.9")

    def fails(batch: DataFrame, number: int) -> None:
        raise ZeroDivisionError("the new version's first batch")

    aggregate.land(frame(aggregate.spark, kafka_rows(0, 20, [good(20)])), 1)
    with pytest.raises(Exception, match="the new version's first batch"):
        aggregate.derive(fails)
    assert held(aggregate) == before
    aggregate.derive()
    assert (before.core, held(aggregate).core) == (
        manifest.__version__.replace("9.9.9", before.core),
        "9.9.9",
    )


@pytest.mark.slow
def test_a_checkpoint_of_before_there_were_manifests_is_adopted(aggregate: Pipeline) -> None:
    aggregate.derive()
    (aggregate.folder / "_millrace" / "derive-flights.manifest.json").unlink()
    aggregate.derive()
    (notice,) = told(aggregate, "adopted")
    assert notice["query"] == "derive-flights"
    assert held(aggregate).query == "derive-flights"


@pytest.mark.slow
def test_other_numbers_of_partitions_are_told_and_borne(aggregate: Pipeline) -> None:
    aggregate.derive()
    aggregate.spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        aggregate.land(frame(aggregate.spark, kafka_rows(0, 20, [good(n) for n in range(20, 90)])), 1)
        aggregate.derive()
    finally:
        aggregate.spark.conf.set("spark.sql.shuffle.partitions", "2")
    (notice,) = told(aggregate, "changed")
    assert notice["change"] == (
        "the number of state partitions was 2 and is 3: the checkpoint keeps its own until it is reset"
    )
    assert aggregate.rows() == aggregate.at_once()
    kept = held(aggregate).state
    assert kept is not None
    assert kept.partitions == "2"
    state = aggregate.folder / "derive-flights" / "state" / "0"
    assert {path.name for path in state.iterdir() if path.name.isdecimal()} == {"0", "1"}


def test_a_checkpoint_that_lost_its_identity_is_refused(aggregate: Pipeline) -> None:
    aggregate.derive()
    (aggregate.folder / "derive-flights" / "metadata").unlink()
    with pytest.raises(
        StartError, match="lacks its file `metadata`: without it Spark would give the query a new id"
    ):
        aggregate.query()


@pytest.mark.slow
def test_a_manifest_that_cannot_be_read_is_no_leave_to_go_on(aggregate: Pipeline) -> None:
    aggregate.derive()
    (aggregate.folder / "_millrace" / "derive-flights.manifest.json").write_text('{"version": 2}')
    with pytest.raises(
        StartError,
        match=r"derive-flights.manifest.json cannot be read: not a manifest: format version 2 is not supported; this release reads version 1",
    ):
        aggregate.query()


def test_a_reset_query_begins_where_it_was_told(spark: SparkSession, tmp_path: Path) -> None:
    """For a source; the settings say something else, and its offsets by hand would go before."""
    source = small_job_documents.topic("a", 1, label="a", start_offsets={"0": 5})
    queries = small_job_documents.queries("land", source, tmp_path / "a.ddl", lambda _: "d.t")
    (tmp_path / "a.ddl").write_text("a int")
    events = Events()
    settings = parsed(small_job_documents.settings("j", queries, str(tmp_path), "nowhere:1"))
    start = tmp_path / "_millrace" / "land.start.json"
    start.parent.mkdir()
    start.write_text(json.dumps({"version": 1, "start": "2026-11-20T08:00:00+00:00"}))
    (result,) = (
        CheckpointCheck(JobRun(spark, settings, {}, events.reporter)).check_all_and_apply_resets().queries
    )
    assert isinstance(result, LandSettings)
    (source,) = result.sources
    assert source.start == "2026-11-20T08:00:00+00:00"
    assert getattr(source, "reading").start_offsets is None  # noqa: B009 - of Kafka's sources only
    assert events.all()[0]["at"] == "2026-11-20T08:00:00+00:00"
    # Once it has begun, its checkpoint counts.
    (tmp_path / "land" / "offsets").mkdir(parents=True)
    for name, text in (("metadata", '{"id":"i"}'), ("offsets/0", "v1\n{}\n-")):
        (tmp_path / "land" / name).write_text(text)
    assert (
        CheckpointCheck(JobRun(spark, settings, {}, events.reporter)).check_all_and_apply_resets() == settings
    )
    start.write_text("{}")
    (tmp_path / "land" / "offsets" / "0").unlink()
    with pytest.raises(StartError, match=r"land.start.json"):
        CheckpointCheck(JobRun(spark, settings, {}, events.reporter)).check_all_and_apply_resets()
