"""Values in PostgreSQL are those of the rows: what a column does not hold exactly is refused, on a real server."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.sinks import JdbcSinkSettings
from millrace.etl.record.errors import StartError
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.jdbc import JdbcSink
from tests import postgres
from tests.postgres import PASSWORD, USER, Postgres
from tests.spark.sink_input_rows import Refused, none_refused, place, rows
from tests.spark.sink_input_rows import row as full_row

NARROW = {
    "numeric_to_int": ("DECIMAL(10,2)", "int", Decimal("12.00"), Decimal("12.75")),
    "numeric_to_numeric": ("DECIMAL(10,4)", "numeric(10,2)", Decimal("12.3400"), Decimal("12.3456")),
    "numeric_to_double": ("DECIMAL(20,2)", "float8", Decimal("0.25"), Decimal("900719925474099.31")),
    "double_to_int": ("DOUBLE", "bigint", 2.0, 1.5),
    "double_to_real": ("DOUBLE", "real", 0.5, 0.1),
    "double_to_numeric": ("DOUBLE", "numeric", 0.30000000000000004, None),
    "double_to_cents": ("DOUBLE", "numeric(8,2)", 0.1, 0.333),
    "float_to_numeric": ("FLOAT", "numeric", 16777216.0, None),
    "bigint_to_real": ("BIGINT", "real", 16777216, 16777217),
    "bigint_to_double": ("BIGINT", "float8", 2**53, 2**53 + 1),
    "bigint_to_int": ("BIGINT", "int", 7, 2**31),
    "bigint_to_text": ("BIGINT", "varchar(3)", 123, 1234),
    "int_to_boolean": ("INT", "boolean", 1, 5),
    "at_to_date": (
        "TIMESTAMP", "date", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 10, 30, tzinfo=UTC),
    ),
    "at_to_seconds": (
        "TIMESTAMP", "timestamptz(0)", datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 0, 0, 0, 6, tzinfo=UTC),
    ),
    "day_to_at": ("DATE", "timestamp", date(2024, 1, 1), None),
}  # fmt: skip
"""Types of row and table, a value that the table's type holds, and one that it does not."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as running:
        running.run("CREATE SCHEMA shop")
        yield running


def sink(server: Postgres, table: str) -> JdbcSink:
    settings = JdbcSinkSettings(server.url, f"shop.{table}", "arn", "us-east-1", 2, "off")
    return JdbcSink(settings, lambda: (USER, PASSWORD))


def test_a_value_that_an_existing_column_does_not_hold_exactly_is_refused(
    spark: SparkSession, server: Postgres
) -> None:
    types = ", ".join(f"{name} {kind}" for name, (_, kind, *_) in NARROW.items())
    server.run(f"CREATE TABLE shop.narrow (_id text PRIMARY KEY, {types})")
    schema = ", ".join(f"{name} {kind}" for name, (kind, *_) in NARROW.items())
    good: list[Any] = [fits for *_, fits, _ in NARROW.values()]
    records = [("good", *good)]
    for n, (name, (*_, bad)) in enumerate(NARROW.items()):
        if bad is not None:
            records.append((name, *good[:n], bad, *good[n + 1 :]))
    batch = spark.createDataFrame(spark.sparkContext.parallelize(records, 2), f"_id STRING, {schema}")
    one, refused = sink(server, "narrow"), Refused()
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), refused) == WriteCounts(len(records), 1, len(records) - 1)
    assert server.run(f"SELECT {', '.join(NARROW)} FROM shop.narrow") == [  # noqa: S608
        ["12", "12.34", "0.25", "2", "0.5", "0.30000000000000004", "0.10", "16777216", "1.6777216e+07",
         "9.007199254740992e+15", "7",
         "123", "t", "2024-01-01", "2024-01-01 00:00:00+00", "2024-01-01 00:00:00"]
    ]  # fmt: skip
    assert "12.75 is not exact in its column" in refused.reasons()["numeric_to_int"]


def test_a_column_that_gives_no_value_back_is_refused_at_the_start(
    spark: SparkSession, server: Postgres
) -> None:
    server.run("CREATE TABLE shop.clock (_id text PRIMARY KEY, at time)")
    schema = spark.createDataFrame([], "_id STRING, at TIMESTAMP").schema
    with pytest.raises(
        StartError, match=r'at is pg_catalog\."time": timestamp with time zone cannot be cast'
    ):
        sink(server, "clock").prepare(spark, schema)


def test_days_that_the_julian_calendar_left_out_are_stored(spark: SparkSession, server: Postgres) -> None:
    moments = [datetime(1582, 10, 1, 23, 59, 59, 999999, tzinfo=UTC) + timedelta(n) for n in range(20)]
    moments += [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
    moments += [datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC)]
    batch = rows(spark, [full_row(n, at=at, day=at.date()) for n, at in enumerate(moments)] + [
        full_row(len(moments), at=None, day=None)
    ])  # fmt: skip
    one = sink(server, "julian")
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused).written == len(moments) + 1
    found = server.run(
        "SET timezone = 'UTC'; SELECT day, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US') FROM shop.julian ORDER BY flight"
    )
    said = [[at.date().isoformat(), at.replace(tzinfo=None).isoformat(" ", "microseconds")] for at in moments]
    assert found == [*said, ["", ""]]
