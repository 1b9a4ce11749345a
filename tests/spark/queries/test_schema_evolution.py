"""An added column alters the table and continues the stream; other changes are refused with the remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.job import build_queries
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.queries import derive, land
from millrace.etl.record import schema_evolution, tables
from millrace.etl.record.batch_accounts import call_in_background
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from tests.faults import small_job_documents
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import DDL, Events, drained, frame, good, kafka_rows, lander

Names = Callable[[str], Table]


def until(condition: Callable[[], bool]) -> None:
    deadline = monotonic() + 120
    while not condition() and monotonic() < deadline:
        sleep(0.5)


def struct(spark: SparkSession, ddl: str) -> StructType:
    return spark.createDataFrame([], ddl).schema


def test_a_stream_goes_on_through_an_added_field_and_a_wider_number(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "reader")
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), b"broken"])), 0)
    pipe.derive()
    grown = DDL.replace("flight INT", "flight BIGINT") + ", gate STRING"
    events = Events()
    tables.create_or_evolve_table(
        spark, pipe.landing, land.landing_table_schema(struct(spark, grown)), report=events.reporter
    )
    assert events.last()["changes"] == ["ALTER COLUMN `flight` TYPE bigint", "ADD COLUMN `gate` string"]
    payload = b'{"carrier": "UA", "flight": 5000000000, "gate": "B7"}'
    lander(spark, pipe.landing, Events(), ddl=grown)(frame(spark, kafka_rows(0, 2, [payload])), 1)
    rows = spark.table(str(pipe.landing)).where("_error IS NULL").orderBy("_position").collect()
    assert [(r["flight"], r["gate"]) for r in rows] == [(1, None), (5000000000, "B7")]
    # The query reads on from its checkpoint, and sees what is new.
    seen: list[tuple[int, str | None]] = []

    def take(batch: DataFrame, _: int) -> None:
        seen.extend((r["flight"], r["gate"]) for r in batch.collect())

    drained(derive.stream_landing_table(spark, pipe.landing), take, pipe.checkpoint)
    assert seen == [(5000000000, "B7")]
    assert Checkpoint(str(pipe.checkpoint)).has_planned_batch(spark)


@pytest.mark.slow
def test_a_running_query_is_built_again_when_its_landing_table_grows(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Another job's deployment changed the table; what was opened before reads it with the old types."""
    landing, sink, events = table("landing"), table("sink"), Events()
    lander(spark, landing, Events())(frame(spark, kafka_rows(0, 0, [good(1)])), 0)
    query = {
        "kind": "derive", "name": "plain", "source_table": f"tests.{landing.name}", "enrich": [],
        "transform": None, "trigger_seconds": 0.0, "route": None, "latest_by": [], "state": None,
        "dead_letters": None, "sink": {"kind": "iceberg", "table": f"tests.{sink.name}"},
    }  # fmt: skip
    job = parse_job_settings(small_job_documents.settings("flights", [query], str(tmp_path), None))
    supervisor = Supervisor(spark, events.reporter, retries=RetryLimits(2, first_seconds=0.1))
    queries = build_queries.build_queries(JobRun(spark, job, {}, events.reporter))
    running = call_in_background(lambda: supervisor.run_to_exit_status(queries))
    try:
        until(lambda: spark.table(str(sink)).count() == 1)
        grown = DDL.replace("flight INT", "flight BIGINT") + ", gate STRING"
        payload = b'{"carrier": "UA", "flight": 5000000000, "gate": "B7"}'
        lander(spark, landing, Events(), ddl=grown)(frame(spark, kafka_rows(0, 1, [payload])), 1)
        until(lambda: running.done() or spark.table(str(sink)).count() == 2)
    finally:
        supervisor.request_stop()
    assert running.result(60) == 0, events.all()
    rows = spark.table(str(sink)).orderBy("flight").collect()
    assert [(r["flight"], r["gate"]) for r in rows] == [(1, None), (5000000000, "B7")]


@pytest.mark.parametrize(
    ("found", "wanted", "statements"),
    [
        ("a INT", "a INT, b STRING", ["ADD COLUMN `b` string"]),
        ("a FLOAT", "a DOUBLE", ["ALTER COLUMN `a` TYPE double"]),
        ("a DECIMAL(9,2)", "a DECIMAL(12,2)", ["ALTER COLUMN `a` TYPE decimal(12,2)"]),
        ("a SMALLINT", "a INT", []),
        (
            "s STRUCT<a: INT>",
            "s STRUCT<a: BIGINT, b: STRING>",
            ["ALTER COLUMN `s`.`a` TYPE bigint", "ADD COLUMN `s`.`b` string"],
        ),
        ("l ARRAY<STRUCT<a: INT>>", "l ARRAY<STRUCT<a: INT, b: INT>>", ["ADD COLUMN `l`.`element`.`b` int"]),
        (
            "a INT",
            "a INT, s STRUCT<`my-field`: INT, smallint: STRING, n: SMALLINT>",
            ["ADD COLUMN `s` struct<`my-field`:int,smallint:string,n:int>"],
        ),
        ("m MAP<STRING, INT>", "m MAP<STRING, BIGINT>", ["ALTER COLUMN `m`.`value` TYPE bigint"]),
    ],
)
def test_what_may_change_iceberg_takes(
    spark: SparkSession, table: Names, found: str, wanted: str, statements: list[str]
) -> None:
    name = table("evolving")
    tables.create_or_evolve_table(spark, name, struct(spark, found), time=None)
    assert [
        c.statement for c in schema_evolution.column_changes(struct(spark, found), struct(spark, wanted))
    ] == statements
    tables.create_or_evolve_table(spark, name, struct(spark, wanted), time=None)
    assert schema_evolution.column_changes(spark.table(str(name)).schema, struct(spark, wanted)) == []


@pytest.mark.parametrize(
    ("found", "wanted", "says"),
    [
        ("a INT, b INT", "a INT", "has column b, which the schema lacks"),
        ("a BIGINT", "a INT", "has a as bigint, not int"),
        ("a INT", "a STRING", "has a as int, not string"),
        ("a DECIMAL(9,2)", "a DECIMAL(9,3)", r"has a as decimal\(9,2\), not decimal\(9,3\)"),
        ("s STRUCT<a: INT, b: INT>", "s STRUCT<a: INT>", r"has column s\.b, which the schema lacks"),
        ("m MAP<STRING, INT>", "m MAP<INT, INT>", "has m as map"),
        ("a INT, b INT", "a INT, c INT", "has column b, which the schema lacks"),
    ],
)
def test_what_may_not_is_refused_and_alters_nothing(
    spark: SparkSession, table: Names, found: str, wanted: str, says: str
) -> None:
    name = table("fixed")
    tables.create_or_evolve_table(spark, name, struct(spark, found), time=None)
    with pytest.raises(StartError, match=rf"{says}.*add a field beside the old one"):
        tables.create_or_evolve_table(spark, name, struct(spark, wanted), time=None)
    assert schema_evolution.column_changes(spark.table(str(name)).schema, struct(spark, found)) == []


def test_tables_are_looked_for_and_made_where_their_database_is_not_there(
    spark: SparkSession, table: Names
) -> None:
    name = Table("lake", "made_by_us", table("plain").name)
    assert not name.exists(spark)
    for _ in range(2):
        tables.create_or_evolve_table(spark, name, struct(spark, "a INT"), time=None)
    assert name.exists(spark)
