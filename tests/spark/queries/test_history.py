"""History of rows: what the table shows at any time is what a plain list of the commits says, whatever came late, twice or again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg_history import IcebergHistorySink
from tests.spark.batches import Events, frame, lander
from tests.spark.change_ledger import DDL, Ledger
from tests.spark.queries import test_order
from tests.spark.queries.test_change_order import __name__ as transforms
from tests.spark.queries.test_change_order import decoder_of

Names = Callable[[str], Table]


def shown(rows: Iterable[Row], key: str, at: datetime) -> dict[Any, Any]:
    """Rows of a time, by their key, as the recipe reads them."""
    visible = [
        row
        for row in rows
        if row["_valid_from"].astimezone(at.tzinfo) <= at
        and (row["_valid_to"] is None or at < row["_valid_to"].astimezone(at.tzinfo))
    ]
    found = {row[key]: (row["id"], row["n"]) for row in visible}
    assert len(found) == len(visible), f"two rows of a key at {at}"
    return found


def committed(ledger: Ledger, key: str, at: datetime) -> dict[Any, Any]:
    """Rows of a time, by the list of commits: the last change of a row whose time had come."""
    rows: dict[int, Any] = {}
    for number, begun, row in ledger.log_of_changes:
        if begun <= at:
            rows[number] = row
    return {row["id" if key == "id" else "code"]: (row["id"], row["n"]) for row in rows.values() if row}


@pytest.mark.faults
@pytest.mark.parametrize(
    ("connector", "key", "seed"),
    [
        ("postgresql", "id", 5),
        pytest.param("postgresql", "k", 6, marks=pytest.mark.slow),
        pytest.param("mysql", "id", 7, marks=pytest.mark.slow),
        pytest.param("dms", "id", 5, marks=pytest.mark.slow),
    ],
)
def test_the_rows_of_any_time_are_those_of_the_database(
    spark: SparkSession, table: Names, tmp_path: Path, connector: str, key: str, seed: int
) -> None:
    ledger = Ledger(seed, connector).play(160)
    landing, out = table("landing"), table("history")
    decoder = decoder_of(spark, DDL, connector)
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.ensure(spark, landing, land.table_schema(decoder.schema))
    named = {
        "latest_by": [key],
        "history": True,
        "transform": None if key == "id" else f"{transforms}:by_code",
    }
    what = {**test_order.query(landing, out, "none"), **named}
    commits = ledger.commits()
    for number, commit in enumerate(commits):
        write(frame(spark, commit), number)
        if number % 2 == 0 or number == len(commits) - 1:
            test_order.played(spark, what, tmp_path, dies=number if number == 2 else None)
    rows = spark.table(str(out)).collect()
    for at in sorted({each[1] for each in ledger.log_of_changes}):
        assert shown(rows, key, at) == committed(ledger, key, at)
    now = {row[key] for row in rows if row["_valid_to"] is None}
    assert now == {row["id" if key == "id" else "code"] for row in ledger.rows.values()}
    kept = {(row["id"], row["n"], row["_valid_from"].timestamp()) for row in rows if not row["_is_delete"]}
    assert kept >= {(number, row["n"], at.timestamp()) for number, at, row in ledger.log_of_changes if row}
    assert all(ledger.done[each] for each in ("insert", "update", "delete", "truncate", "restart"))


def test_a_table_of_current_rows_gets_no_history(spark: SparkSession, table: Names) -> None:
    out = table("current")
    tables.ensure(spark, out, spark.range(0).schema, time=None)
    with pytest.raises(StartError, match="it has no history, as it lacks _valid_from: name another table"):
        IcebergHistorySink(out).prepare(
            spark, spark.range(0).withColumn("_valid_from", F.current_timestamp()).schema
        )
