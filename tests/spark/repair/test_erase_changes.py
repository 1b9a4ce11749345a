"""An erasure reaches the row before a change: an update that takes a value away keeps it there."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.queries import land
from millrace.etl.queries.transform import good_records
from millrace.etl.record import tables
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.repair.erase_condition import ErasureCondition
from millrace.etl.repair.erase_old_snapshots import (
    expire_before_mark_and_count_files,
    remove_rest_and_commit_erasure_mark,
)
from millrace.etl.repair.erase_targets import ErasureTarget
from tests.spark import change_events
from tests.spark.erasure_shop import ZOE, of_zoe
from tests.spark.maintained_table import Names
from tests.spark.queries.test_change_order import decoder_of
from tests.spark.simulated_database_changes import DDL
from tests.spark.source_batches import EPOCH, Events, frame, lander

HERS, GONE, AMYS = ({"id": n, "code": code, "n": 1} for n, code in ((1, ZOE), (1, "gone"), (2, "amy")))
CHANGES = [
    change_events.postgres("c", 10, 5, after=HERS),
    change_events.postgres("u", 20, 15, before=HERS, after=GONE),
    change_events.postgres("c", 30, 25, after=AMYS),
    change_events.postgres("u", 40, 35, before=AMYS, after={**AMYS, "n": 2}),
]
IDENTITIES = [f"t/0/{n}" for n in range(len(CHANGES))]


def landed(spark: SparkSession, table: Names) -> Table:
    """A landing table with the changes."""
    landing, decoder = table("landing"), decoder_of(spark, DDL, "postgresql")
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    rows: list[tuple[Any, ...]] = [
        (f"t/0/{n}", "t", "0", str(n).zfill(20), None, [], EPOCH + timedelta(seconds=n), bytearray(json.dumps(event).encode()))
        for n, event in enumerate(CHANGES)
    ]  # fmt: skip
    write(frame(spark, rows), 0)
    return landing


@pytest.mark.slow
def test_the_row_before_a_change_is_erased_with_what_was_made_of_it(
    spark: SparkSession, table: Names, warehouse: Path
) -> None:
    landing, derived, copied = landed(spark, table), table("derived"), table("copied")
    records = good_records(spark.table(str(landing)))
    records.select(*CARRIED, "n").writeTo(str(derived)).using("iceberg").create()
    # Without identities: what is left of its change tells.
    records.select("id", "code", "_change").writeTo(str(copied)).using("iceberg").create()
    condition = ErasureCondition(spark, f"lower(code) = '{ZOE}' AND `n` IS NOT NULL AND _id LIKE 't/%'")
    of_copies = ErasureCondition(spark, f"code = '{ZOE}'")
    targets = [
        (ErasureTarget(derived, "rows", (), ((landing, "x"),), by_columns=False, kept=True), condition),
        (ErasureTarget(copied, "rows", (), kept=True), of_copies),
        (ErasureTarget(landing, "landing", (), kept=True), condition),
    ]
    for target, each in targets:
        counts = target.count_matches(spark, each)
        assert (counts.rows, counts.letters, counts.total) == (2, 0, 4), target.table
        target.erase_matching_rows(spark, each, "e1")
        assert target.count_matches(spark, each).matching_count == 0
        mark = remove_rest_and_commit_erasure_mark(spark, target.table, "e1")
        expire_before_mark_and_count_files(spark, target.table, mark)
        assert of_zoe(warehouse / "tests" / target.table.name) == []
    kept = spark.table(str(landing)).where("_stage IS NULL")
    assert sorted(row["_id"] for row in kept.collect()) == IDENTITIES[2:]
    assert sorted(row["_id"] for row in spark.table(str(derived)).collect()) == IDENTITIES[2:]


@pytest.mark.slow
def test_a_change_without_a_row_before_it_meets_no_condition_there(spark: SparkSession, table: Names) -> None:
    landing = ErasureTarget(landed(spark, table), "landing", ())
    for where, rows in {"code IS NULL": 0, "NOT code = 'amy'": 2, "_stage IS NULL": 4, "id = 1 -- hers": 2,
        f"exists(array('{ZOE}'), code -> code = '{ZOE}') AND code = 'amy'": 2, f"exists(array('{ZOE}'), c -> c = `code`)": 2,
        f"/* é😀 */ code = '{ZOE}' AND n = 1": 2, f"code = '{ZOE}' AND n = 2": 0, "code = 'amy' AND n = 1": 2,
    }.items():  # fmt: skip
        assert landing.count_matches(spark, ErasureCondition(spark, where)).rows == rows, where
    spark.sql(f"CREATE TABLE {table('other')} (code STRING, _change STRING) USING iceberg")
    other = ErasureTarget(table("other"), "rows", ())
    assert other.count_matches(spark, ErasureCondition(spark, "code IS NULL")).rows == 0
