"""Rows with times that a sink cannot store become dead letters; the other rows of the batch are written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.launch.settings import Connection
from millrace.etl.launch.sinks import (
    DynamoDbSinkSettings,
    JdbcSinkSettings,
    KafkaSinkSettings,
    OpenSearchSinkSettings,
    ParquetSinkSettings,
)
from millrace.etl.record import tables
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.sinks.base import (
    JSON_OPTIONS,
    Sink,
    reason_time_not_storable,
    refuse_unwritable_map_keys,
    row_as_json,
)
from millrace.etl.sinks.delivery.python_task_writes import Refused, RowToSend, send_batch
from millrace.etl.sinks.dynamodb import DynamoDbSink
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.jdbc import JdbcSink
from millrace.etl.sinks.kafka import KafkaSink
from millrace.etl.sinks.opensearch import OpenSearchSink
from millrace.etl.sinks.parquet import ParquetSink
from tests import postgres
from tests.faults.moto_server import make_table, moto
from tests.opensearch import OpenSearch
from tests.spark.sink_input_rows import Refused as RefusedRows
from tests.spark.sink_input_rows import none_refused, place, row, rows

pytestmark = pytest.mark.slow

TAKEN = {1: "0001-01-01", 2: "1500-03-01", 3: "1899-12-31", 4: "9999-12-31"}
REFUSED = {5: "-290000-01-01", 6: "-9999-06-01", 7: "0000-12-31", 8: "+10000-01-01", 9: "+287168-02-03"}


def odd(spark: SparkSession, days: dict[int, str], column: str) -> DataFrame:
    """Rows with these days in one column; a second array element and a map's value are columns, too."""
    batch = rows(spark, [row(n) for n in days])
    day = F.create_map(*(F.lit(each) for pair in days.items() for each in pair))[F.col("flight")]
    value = day.cast("date" if column == "day" else "timestamp")
    if column == "seat":
        value = F.struct(F.col("flight").alias("row"), F.array(F.col("at"), value).alias("times"))
    if column == "tags":
        value = F.create_map(F.lit("a"), value)
    return batch.withColumn(column, value)


@pytest.fixture(scope="module")
def sinks(domain: OpenSearch) -> object:
    with postgres.running() as server, moto() as aws:
        patch = pytest.MonkeyPatch()
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")

        def jdbc(name: str) -> JdbcSink:
            settings = JdbcSinkSettings(server.url, f"public.{name}", "", "us-east-1", 2, "off")
            return JdbcSink(settings, lambda: (postgres.USER, postgres.PASSWORD))

        def items(name: str) -> DynamoDbSink:
            make_table(aws.client("dynamodb"), name)
            return DynamoDbSink(DynamoDbSinkSettings(name, "us-east-1"), aws.endpoint)

        def documents(name: str) -> OpenSearchSink:
            domain.create(name)
            return OpenSearchSink(OpenSearchSinkSettings(domain.endpoint, name, "us-east-1"))

        yield {"jdbc": jdbc, "dynamodb": items, "opensearch": documents}
        patch.undo()


@pytest.mark.parametrize("column", ["at", "day", "seat", "tags"])
@pytest.mark.parametrize("kind", ["jdbc", "dynamodb", "opensearch"])
def test_times_of_other_years_are_letters_and_the_other_rows_are_in(
    spark: SparkSession, sinks: dict[str, Callable[[str], Sink]], kind: str, column: str
) -> None:
    batch, refused = odd(spark, TAKEN | REFUSED, column), RefusedRows()
    sink = sinks[kind](f"odd_{column}")
    sink.prepare(spark, batch.schema)
    done = sink.write(batch, place(0), refused)
    assert (done.offered, done.written, done.refused) == (9, 4, 5)
    assert refused.reasons() == {
        f"flights-topic/0/{n}": f"{column} holds a time outside the years 1 to 9999" for n in REFUSED
    }
    assert REFUSED[6] in json.dumps(refused.fields("flights-topic/0/6"))


@pytest.mark.parametrize("column", ["at", "day", "seat", "tags"])
def test_so_are_they_before_a_message_is_sent(spark: SparkSession, column: str) -> None:
    sink = KafkaSink(
        KafkaSinkSettings("topic", "main", None, 1_000_000),
        Connection(None, "x:1", "none"),
    )
    result = sink.to_messages(odd(spark, TAKEN | REFUSED, column)).select("_id", "_refused").collect()
    assert {row["_id"] for row in result if row["_refused"]} == {f"flights-topic/0/{n}" for n in REFUSED}


class Taken:
    """Takes every row, as Kinesis would."""

    written = unordered = 0

    def add_and_yield_refused(self, record: RowToSend) -> list[Refused]:
        assert int(record.id.rpartition("/")[2]) in TAKEN
        self.written += 1
        return []

    def write_rest_and_yield_refused(self) -> list[Refused]:
        return []

    def close(self) -> None:
        """Have nothing open."""


def test_and_before_a_writer_has_them(spark: SparkSession) -> None:
    refused = RefusedRows()
    done = send_batch(odd(spark, TAKEN | REFUSED, "at"), F.lit(None), Taken, refused)
    assert (done.offered, done.written, done.refused) == (9, 4, 5)
    assert len(refused.reasons()) == 5


def test_a_refused_row_is_read_back_from_its_letter(spark: SparkSession) -> None:
    batch = odd(spark, TAKEN | REFUSED, "at")
    shape = batch.select("flight", "at").schema
    read = batch.select(F.from_json(row_as_json(batch), shape, dict(JSON_OPTIONS)).alias("row"))
    result = read.selectExpr("row.flight", "string(date(row.at))").collect()
    assert dict(map(tuple, result)) == TAKEN | REFUSED


def test_tables_hold_every_time_as_it_is(spark: SparkSession, table: Callable[[str], Table]) -> None:
    name, batch = table("odd"), odd(spark, TAKEN | REFUSED, "at")
    tables.create_or_evolve_table(spark, name, batch.schema, time="at")
    assert IcebergSink(name).append(batch, DuplicateLookUp()).written == 9
    result = spark.table(str(name)).selectExpr("flight", "string(date(at))")
    assert dict(map(tuple, result.collect())) == TAKEN | REFUSED


def test_files_hold_every_time_as_it_is(spark: SparkSession, tmp_path: Path) -> None:
    for column in ("at", "day"):
        sink = ParquetSink(ParquetSinkSettings(str(tmp_path / column), 1))
        batch = odd(spark, TAKEN | REFUSED, column)
        sink.prepare(spark, batch.schema)
        assert sink.write(batch, place(0), none_refused).written == 9
        result = spark.read.parquet(str(tmp_path / column)).selectExpr("flight", f"string(date({column}))")
        assert dict(map(tuple, result.collect())) == TAKEN | REFUSED


def test_a_time_without_zone_keeps_its_microseconds(spark: SparkSession) -> None:
    batch = spark.sql("SELECT TIMESTAMP_NTZ'2026-01-01 00:00:00.123456' AS at")
    assert json.loads(batch.select(row_as_json(batch)).first()[0]) == {"at": "2026-01-01T00:00:00.123456"}  # type: ignore[index]
    read = batch.select(
        F.from_json(row_as_json(batch), batch.schema, dict(JSON_OPTIONS)).alias("row")
    ).select("row.at")
    assert read.collect() == batch.collect()


@pytest.mark.parametrize("key", ["X'00'", "DATE'2026-01-01'", "struct(1)", "array(1)"])
def test_a_map_whose_keys_are_no_names_is_refused_at_the_start(spark: SparkSession, key: str) -> None:
    rows = spark.sql(f"SELECT array(struct(map({key}, map('a', 1)))) AS by, map(1.5, map(true, 2)) AS held")
    with pytest.raises(
        StartError, match=r"topic t: a map has keys of type .* cast them to STRING in the transform"
    ):
        refuse_unwritable_map_keys(rows.schema, "topic t")
    refuse_unwritable_map_keys(rows.drop("by").schema, "topic t")


def test_rows_without_a_time_are_not_asked(spark: SparkSession) -> None:
    assert (
        reason_time_not_storable(spark.range(1))._jc.toString() == F.lit(None).cast("string")._jc.toString()
    )
