"""Changes of a database, landed and derived: the table is that of a dict, whatever the connector, order and repetitions."""

from __future__ import annotations

import io
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats import debezium, dms, schemas
from millrace.etl.formats.decoding.changes import ChangeDecoder
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.etl.sinks.delivery import change_order
from tests.spark import test_order
from tests.spark.batches import Events, frame, lander
from tests.spark.change_ledger import DDL, Ledger

Names = Callable[[str], Table]
CONNECTORS = ("postgresql", "mysql", "sqlserver", "oracle", "dms")


def decoder_of(spark: SparkSession, ddl: str, connector: str) -> ChangeDecoder:
    row = schemas.parse_schema(spark, ddl, "test.ddl")
    return ChangeDecoder(row, dms.EVENTS if connector == "dms" else debezium.events())


def by_code(records: DataFrame) -> DataFrame:
    """Rows by a column that is no primary key: an update moves a row to another."""
    return records.select("_position", "_deleted", F.col("code").alias("k"), "id", "n")


def played(
    spark: SparkSession, table: Names, home: Path, ledger: Ledger, key: str
) -> dict[Any, tuple[Any, ...]]:
    """Land and derive the records of a ledger, with a kill; the rows of the sink by their key."""
    landing, out = table("landing"), table("latest")
    decoder = decoder_of(spark, DDL, ledger.connector)
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.ensure(spark, landing, land.table_schema(decoder.schema))
    named = {"latest_by": [key], "transform": None if key == "id" else f"{__name__}:by_code"}
    what = {**test_order.query(landing, out, "none"), **named}
    commits = ledger.commits()
    for number, commit in enumerate(commits):
        write(frame(spark, commit), number)
        if number % 2 == 0 or number == len(commits) - 1:
            test_order.played(spark, what, home, dies=number if number == 2 else None)
    assert spark.table(str(landing)).where("_error IS NOT NULL").count() == 0
    held = spark.table(str(out)).collect()
    return {row[key]: (row["id"], row["n"]) for row in held}


@pytest.mark.faults
@pytest.mark.parametrize(("connector", "key"), [("postgresql", "id"), ("postgresql", "k"), ("dms", "id")])
def test_the_table_is_that_of_the_database(
    spark: SparkSession, table: Names, tmp_path: Path, connector: str, key: str
) -> None:
    ledger = Ledger(5, connector).play(160)
    wanted = {row["id" if key == "id" else "code"]: (row["id"], row["n"]) for row in ledger.rows.values()}
    assert played(spark, table, tmp_path, ledger, key) == wanted
    happened = ["insert", "update", "delete", "truncate", "restart"]
    happened += ["second snapshot", "open in it"] if connector != "dms" else []
    assert all(ledger.done[each] for each in happened), ledger.done
