"""A table with history shows at any time the rows of a plain list of commits, with late, repeated and replayed changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.repair.erase_condition import ErasureCondition
from millrace.etl.repair.erase_targets import ErasureTarget
from millrace.etl.sinks.delivery.record_order import with_position_struct
from millrace.etl.sinks.delivery.row_version_history import new_and_newly_ended_versions, versions_of_changes
from millrace.etl.sinks.iceberg_history import IcebergHistorySink
from tests.spark.key_histories import History, frame_of
from tests.spark.queries import test_keyed_and_windowed_results
from tests.spark.queries.test_change_order import __name__ as transforms
from tests.spark.queries.test_change_order import decoder_of
from tests.spark.simulated_database_changes import DDL, Ledger
from tests.spark.source_batches import EPOCH, Events, frame, lander

Names = Callable[[str], Table]
COLUMNS = (
    "_id STRING, _order STRING, _is_delete BOOLEAN, _hash LONG, _valid_from TIMESTAMP, _valid_to TIMESTAMP"
)
NAMES = [each.split()[0] for each in COLUMNS.split(", ")]


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


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize(
    ("connector", "key", "seed"),
    [
        ("postgresql", "id", 5),
        ("postgresql", "k", 9),
        ("mysql", "id", 9),
        ("dms", "id", 5),
    ],
)
def test_the_rows_of_any_time_are_those_of_the_database(
    spark: SparkSession, table: Names, tmp_path: Path, connector: str, key: str, seed: int
) -> None:
    ledger = Ledger(seed, connector).play(160)
    landing, out = table("landing"), table("history")
    decoder = decoder_of(spark, DDL, connector)
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    named = {
        "latest_by": [key],
        "history": True,
        "transform": None if key == "id" else f"{transforms}:by_code",
    }
    what = {**test_keyed_and_windowed_results.query(landing, out, "none"), **named}
    commits = ledger.commits()
    for number, commit in enumerate(commits):
        write(frame(spark, commit), number)
        if number % 2 == 0 or number == len(commits) - 1:
            test_keyed_and_windowed_results.played(
                spark, what, tmp_path, dies=number if number == 2 else None
            )
    rows = spark.table(str(out)).collect()
    for at in sorted({each[1] for each in ledger.log_of_changes}):
        assert shown(rows, key, at) == committed(ledger, key, at)
    now = {row[key] for row in rows if row["_valid_to"] is None}
    assert now == {row["id" if key == "id" else "code"] for row in ledger.rows.values()}
    kept = {(row["id"], row["n"], row["_valid_from"].timestamp()) for row in rows if not row["_is_delete"]}
    assert kept >= {(number, row["n"], at.timestamp()) for number, at, row in ledger.log_of_changes if row}
    done = ("insert", "update", "delete", "restart", *(["truncate"] if ledger.truncates else []))
    assert all(ledger.done[each] for each in done)


def at(second: int) -> datetime:
    return EPOCH + timedelta(seconds=second)


@pytest.mark.slow
def test_random_versions_in_any_batches_show_the_last_of_those_whose_time_had_come(
    spark: SparkSession,
) -> None:
    """Times go back, values repeat, two lanes meet, and some versions delete every key."""
    choose = random.Random(3)
    given = []
    for place in range(150):
        key, lane = choose.choice(("k1", "k2", "k3", "")), choose.choice("ab") * 16
        value = None if not key or choose.random() < 0.2 else choose.randrange(3)
        time, position = f"1{choose.randrange(40):016d}", f"{place:064d}"
        given.append(
            (
                f"{key} {lane}{position}",
                f"{time}{lane}{position}",
                value is None,
                value,
                at(choose.randrange(60)),
                None,
            )
        )
    table: dict[str, Row] = {}
    left = choose.sample(given, len(given))
    while left:
        # A third comes once more with a later batch.
        batch, left = left[:40], left[40:]
        left += [each for each in batch if left and choose.random() < 0.3]
        new, stored = (
            spark.createDataFrame(rows, COLUMNS)
            for rows in (batch, [tuple(r[n] for n in NAMES) for r in table.values()])
        )
        every = any(each[0].startswith(" ") for each in batch)
        values = {each[0]: each for each in batch}
        with new_and_newly_ended_versions(new, stored, every=every) as changed:
            rows = changed.collect()
        for row in rows:
            known = values.get(row["_id"]) or tuple(table[row["_id"]])
            table[row["_id"]] = Row(*NAMES)(known[0], row["_order"], *known[2:5], row["_valid_to"])
    assert len(table) == len(given)
    for key in ("k1", "k2", "k3"):
        mine = [each for each in given if each[0].split(" ")[0] in (key, "")]
        latest: dict[str, str] = {}
        line = []
        for each in mine:
            lane = each[0][-80:-64]
            latest[lane] = max(latest.get(lane, ""), each[1][:17])
            line.append((latest[lane], each[0][-80:], each))
        line.sort(key=lambda each: each[:2])
        for second in range(61):
            here = [each[2] for each in line if each[2][4] <= at(second)]
            wanted = [] if not here or here[-1][2] else [here[-1][3]]
            shown_ = [
                row["_hash"] for row in table.values()
                if row["_id"].split(" ")[0] == key and row["_valid_from"].replace(tzinfo=UTC) <= at(second)
                and (row["_valid_to"] is None or at(second) < row["_valid_to"].replace(tzinfo=UTC))
            ]  # fmt: skip
            assert shown_ == wanted, (key, second)


def written(spark: SparkSession, table: dict[str, Row], batch: list[tuple[Any, ...]]) -> None:
    """Write a batch of versions into a table that may have lost some."""
    new, stored = (
        spark.createDataFrame(rows, COLUMNS)
        for rows in (batch, [tuple(r[n] for n in NAMES) for r in table.values()])
    )
    values = {each[0]: each for each in batch}
    every = any(each[0].startswith(" ") for each in batch)
    with new_and_newly_ended_versions(new, stored, every=every, erased=True) as changed:
        rows = changed.collect()
    for row in rows:
        known = values.get(row["_id"]) or tuple(table[row["_id"]])
        table[row["_id"]] = Row(*NAMES)(known[0], row["_order"], *known[2:5], row["_valid_to"])


def rows_shown(table: dict[str, Row], key: str, second: int) -> list[Any]:
    return [
        row["_hash"] for row in table.values()
        if row["_id"].split(" ")[0] == key and row["_valid_from"].replace(tzinfo=UTC) <= at(second)
        and (row["_valid_to"] is None or at(second) < row["_valid_to"].replace(tzinfo=UTC))
    ]  # fmt: skip


def version(key: str, place: int, second: int, value: int | None) -> tuple[Any, ...]:
    position = f"{'l' * 16}{place:064d}"
    return (f"{key} {position}", f"1{place:016d}{position}", value is None, value, at(second), None)


@pytest.mark.slow
def test_an_erased_version_leaves_a_gap_that_later_batches_keep(spark: SparkSession) -> None:
    """The plain computation knows all versions, and shows nothing while an erased one was the row."""
    choose = random.Random(7)
    given = []
    for place in range(120):
        key = choose.choice(("k1", "k2", "k3", "k4", *([""] if place % 9 == 0 else [])))
        value = None if not key or choose.random() < 0.15 else choose.randrange(4)
        given.append(version(key, place, 2 * place + choose.randrange(2), value))
    table: dict[str, Row] = {}
    erased: set[str] = set()
    for first in range(0, 120, 40):
        again = choose.sample(given[:first], first // 8)
        batch = [*given[first : first + 40], *(each for each in again if each[0] not in erased)]
        written(spark, table, choose.sample(batch, len(batch)))
        gone = {
            i
            for i, row in table.items()
            if (i.split(" ")[0], row["_hash"]) in {("k1", 1), ("k2", 0), ("k3", 2)}
        }
        table = {i: row for i, row in table.items() if i not in gone}
        erased |= gone
    assert len(erased) > 10
    for key in ("k1", "k2", "k3", "k4"):
        mine = [each for each in given if each[0].split(" ")[0] in (key, "")]
        for second in range(242):
            here = [each for each in mine if each[4] <= at(second)]
            wanted = [] if not here or here[-1][2] or here[-1][0] in erased else [here[-1][3]]
            assert rows_shown(table, key, second) == wanted, (key, second)


@pytest.mark.slow
def test_what_lands_late_beside_a_gap(spark: SparkSession) -> None:
    table: dict[str, Row] = {}
    written(spark, table, [version("k", 10, 10, 1), version("k", 30, 30, 2), version("k", 50, 50, 3)])
    [gone] = [i for i, row in table.items() if row["_hash"] == 2]
    del table[gone]
    for late, shown_ in (
        (version("k", 20, 20, 4), {10: [1], 20: [4], 29: [4], 30: [], 49: [], 50: [3]}),
        (version("k", 40, 40, 5), {20: [4], 29: [4], 30: [], 39: [], 40: [5], 49: [5], 50: [3]}),
        (version("k", 60, 60, 4), {29: [4], 30: [], 59: [3], 60: [4], 99: [4]}),
        # Once more, as a producer would send it again.
        (version("k", 30, 30, 2), {29: [4], 30: [2], 39: [2], 40: [5]}),
    ):
        written(spark, table, [late])
        assert {second: rows_shown(table, "k", second) for second in shown_} == shown_


@pytest.mark.slow
def test_an_erasure_in_a_table_leaves_the_version_before_its_end(spark: SparkSession, table: Names) -> None:
    out = table("history")
    schema = spark.createDataFrame([], f"{COLUMNS}, code STRING").schema
    sink = IcebergHistorySink(out)
    sink.prepare(spark, schema)

    def write(*versions: tuple[Any, ...]) -> dict[int, Any]:
        rows = [(*each, f"c{each[3]}") for each in versions]
        sink.write(spark.createDataFrame(rows, schema).persist(), None, lambda _: None)
        kept = spark.table(str(out)).collect()
        return {row["_hash"]: row["_valid_to"] and row["_valid_to"].replace(tzinfo=UTC) for row in kept}

    assert write(version("k", 1, 1, 1), version("k", 2, 2, 2), version("k", 3, 3, 3)) == {
        1: at(2), 2: at(3), 3: None,
    }  # fmt: skip
    ErasureTarget(out, "rows", (), keyed=True).erase_matching_rows(
        spark, ErasureCondition(spark, "code = 'c2'"), "e1"
    )
    assert write(version("k", 4, 4, 4)) == {1: at(2), 3: at(4), 4: None}
    assert write(version("k", 5, 5, 5)) == {1: at(2), 3: at(4), 4: at(5), 5: None}


def test_versions_whose_texts_differ_in_bytes_that_are_no_utf8_are_different(spark: SparkSession) -> None:
    """As ``CAST(binary AS STRING)`` makes them: JSON has one character for all of these bytes."""
    record = History(seed=1).records[0]
    offsets = ({"_id": f"t/0/{n}", "_position": str(n).zfill(20), "n": n, "_deleted": False} for n in (1, 2))
    rows = with_position_struct(frame_of(spark, [{**record, **each} for each in offsets]))
    text = F.unhex(F.concat(F.lit("F"), "n")).cast("string").alias("text")
    for value in (text, F.array(F.struct(text)).alias("texts")):
        versions = versions_of_changes(rows.select("_position", "_deleted", "k", value), ("k",), "t")
        assert versions.select("_hash").distinct().count() == 2


def test_a_table_of_current_rows_gets_no_history(spark: SparkSession, table: Names) -> None:
    out = table("current")
    tables.create_or_evolve_table(spark, out, spark.range(0).schema, time=None)
    with pytest.raises(
        StartError, match="keeps no history, because it lacks the column _valid_from: name another table"
    ):
        IcebergHistorySink(out).prepare(
            spark, spark.range(0).withColumn("_valid_from", F.current_timestamp()).schema
        )
