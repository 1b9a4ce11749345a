"""Queries give the same results under the Spark settings of each engine, with any join and number of tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import TimestampType

from millrace.etl.record.tables import Table
from millrace.etl.sinks.delivery.keyed_rows import result_identity
from tests.spark.engine_sessions import BROADCAST, ODD, PARTITIONS, Profile, profiles
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import (
    KINESIS,
    Events,
    frame,
    good,
    kafka_rows,
    kinesis_rows,
    lander,
    log_offsets,
)

Names = Callable[[str], Table]


# Two joins and two numbers of partitions; what else differs between the engines' settings is looked for on its day.
OFTEN = (
    "5.1 partitions=2 autoBroadcastJoinThreshold=-1",
    "emr-7.13.0",
    str(Profile("emr", "emr-7.13.0", ODD)),
)


@pytest.fixture(
    params=[pytest.param(each, marks=() if str(each) in OFTEN else pytest.mark.slow) for each in profiles()],
    ids=str,
)
def profile(request: pytest.FixtureRequest) -> Profile:
    result: Profile = request.param
    return result


@pytest.fixture
def engine(spark: SparkSession, profile: Profile) -> SparkSession:
    return profile.session(spark)


def counted(spark: SparkSession, table: Table) -> Counter[str]:
    return Counter(row["_id"] for row in spark.table(str(table)).select("_id").collect())


# What Spark 3.5 makes of them; by default Spark 4 fails on the first three.
TEXTS = {
    "decode(b, 'UTF-8')": "\ufffdA",
    "decode(b, 'windows-1252')": "ÿA",
    "hex(encode(t, 'ISO-8859-1'))": "613F",
    "to_json(split(s, '', 2))": '["x","7"]',
}


def test_functions_of_text_have_the_same_results_on_each_line(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(bytearray(b"\xffA"), "a€", "x7yz")] * 2, "b BINARY, t STRING, s STRING")
    found = rows.selectExpr(*(f"{expression} AS c{n}" for n, expression in enumerate(TEXTS)))
    assert [tuple(row) for row in found.collect()] == [tuple(TEXTS.values())] * 2


def newest_plan(spark: SparkSession) -> str:
    """What Spark made of the last action that it noted."""
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    store = spark._jsparkSession.sharedState().statusStore()
    noted = store.executionsList()
    result = max((noted.apply(n) for n in range(noted.size())), key=lambda each: each.executionId())
    return str(result.physicalPlanDescription())


def test_a_session_has_the_settings_of_its_engine(engine: SparkSession, profile: Profile) -> None:
    """A profile that set nothing would prove nothing."""
    wanted = profile.settings()
    for name in (PARTITIONS, BROADCAST, "spark.sql.adaptive.enabled", "spark.sql.ansi.enabled"):
        assert engine.conf.get(name) == wanted[name]


def test_identities_and_types_do_not_depend_on_the_session(engine: SparkSession) -> None:
    rows = engine.sql(
        "SELECT 1 AS a, CAST(NULL AS STRING) AS b, CAST('2026-01-31 10:00:00' AS TIMESTAMP) AS at"
    )
    assert rows.schema["at"].dataType == TimestampType()
    [(identity,)] = rows.select(result_identity(rows.schema, ("a", "b"))).collect()
    assert identity == '{"a":1}'


@pytest.mark.slow
def test_a_stream_is_landed_once_when_it_is_read_again(
    engine: SparkSession, profile: Profile, table: Names
) -> None:
    landing, events = table("landing"), Events()
    land = lander(engine, landing, events, source=KINESIS)
    arrived = datetime.now(UTC) - timedelta(seconds=30)
    land(frame(engine, kinesis_rows(range(200), arrived)), 0)
    land(frame(engine, kinesis_rows(range(100, 300), arrived)), 1)
    # The profile decides it, or these tests would all be one.
    join = "SortMergeJoin" if profile.settings()[BROADCAST] == "-1" else "BroadcastHashJoin"
    assert join in newest_plan(engine)
    assert events.accounts() == (200, 100, 100, 100, 0)
    assert counted(engine, landing) == Counter({f"flights-stream/{n}": 1 for n in range(300)})


@pytest.mark.slow
def test_a_topic_is_landed_once_when_it_is_read_again(
    engine: SparkSession, table: Names, tmp_path: Path
) -> None:
    landing, events = table("landing"), Events()
    batch = frame(engine, [row for p in (0, 1) for row in kafka_rows(p, 0, [good(n) for n in range(100)])])
    log_offsets(tmp_path, 0, {"flights-topic": {"0": 100, "1": 100}})
    lander(engine, landing, events, checkpoint=tmp_path)(batch, 0)
    lander(engine, landing, events, checkpoint=tmp_path)(batch, 0)  # another run
    assert events.accounts() == (200, 200, 0, 0, 0)
    assert set(counted(engine, landing).values()) == {1}


@pytest.mark.slow
def test_what_is_landed_is_derived_once_when_a_batch_comes_again(
    engine: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipeline = Pipeline(engine, table, tmp_path)
    pipeline.land(frame(engine, kafka_rows(0, 0, [good(n) for n in range(90)])), 0)
    pipeline.derive()

    def twice(batch: DataFrame, batch_id: int) -> None:
        pipeline.deriver(batch, batch_id)
        pipeline.deriver(batch, batch_id)

    pipeline.land(frame(engine, kafka_rows(0, 90, [good(n) for n in range(90, 180)])), 1)
    pipeline.derive(twice)
    wanted = {f"flights-topic/0/{n}": 1 for n in range(180) if n % 3}
    assert counted(engine, pipeline.sink) == Counter(wanted)


@pytest.mark.slow
def test_a_checkpoint_keeps_the_number_of_tasks_of_its_first_start(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Before Spark 4.1 a query without state, too; since then such a one takes that of the launch document (SPARK-53942)."""
    session = spark.newSession()
    pipeline = Pipeline(session, table, tmp_path)
    seen: list[Any] = []

    def look(batch: DataFrame, batch_id: int) -> None:
        seen.append(batch.sparkSession.conf.get(PARTITIONS))
        pipeline.deriver(batch, batch_id)

    for batch, number in enumerate(("5", "3")):
        session.conf.set(PARTITIONS, number)
        pipeline.land(frame(session, kafka_rows(0, 10 * batch, [good(1)])), batch)
        pipeline.derive(look)
    assert seen[0] == "5"
    assert seen[-1] == ("5" if spark.version.startswith(("3.", "4.0")) else "3")
