"""Rows of a table are counted as a reader finds them, without those that delete files hide."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from millrace.etl.record.tables import Table
from millrace.sandbox.records import ledger


def test_rows_that_delete_files_hide_are_not_counted(
    spark: SparkSession, table: Callable[[str], Table], warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = table("counted")
    home = warehouse / name.database / name.name

    def count() -> int:
        newest = max(home.glob("metadata/*.metadata.json"), key=lambda file: file.stat().st_mtime_ns)
        monkeypatch.setattr(ledger, "load_table_if_exists", lambda *_: StaticTable.from_metadata(str(newest)))
        return ledger.row_count(None, "t")

    on_read = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("merge", "delete"))
    spark.sql(f"CREATE TABLE {name} (id BIGINT, v INT) USING iceberg TBLPROPERTIES ({on_read})")
    spark.sql(f"INSERT INTO {name} SELECT id, 0 FROM range(87)")  # noqa: S608 - ours
    assert count() == 87
    for version in (1, 2):
        spark.range(80).selectExpr("id", f"{version} AS v").createOrReplaceTempView("newer")
        spark.sql(f"MERGE INTO {name} t USING newer n ON t.id = n.id WHEN MATCHED THEN UPDATE SET v = n.v")
        assert count() == spark.table(str(name)).count() == 87
