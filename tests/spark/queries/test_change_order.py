"""Changes of a database give the table of a plain dict, for any connector, order and repetition."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats import schema_files
from millrace.etl.formats.changes import debezium, dms
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.queries import change_order, land
from millrace.etl.queries.transform import EnrichThenTransform, good_records
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from tests.spark.change_events import Event, postgres
from tests.spark.queries import test_keyed_and_windowed_results
from tests.spark.simulated_database_changes import DDL, Ledger
from tests.spark.source_batches import EPOCH, Events, frame, lander

Names = Callable[[str], Table]
CONNECTORS = ("postgresql", "mysql", "mysql-gtid", "sqlserver", "oracle", "oracle-xstream", "dms")


def decoder_of(spark: SparkSession, ddl: str, connector: str) -> ChangeDecoder:
    row = schema_files.parse_ddl_schema(spark, ddl, "test.ddl")
    return ChangeDecoder(row, dms.EVENTS if connector == "dms" else debezium.debezium_envelope())


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
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    named = {"latest_by": [key], "transform": None if key == "id" else f"{__name__}:by_code"}
    what = {**test_keyed_and_windowed_results.query(landing, out, "none"), **named}
    commits = ledger.commits()
    for number, commit in enumerate(commits):
        write(frame(spark, commit), number)
        if number % 2 == 0 or number == len(commits) - 1:
            test_keyed_and_windowed_results.played(spark, what, home, dies=number if number == 2 else None)
    assert spark.table(str(landing)).where("_error IS NOT NULL").count() == 0
    held = spark.table(str(out)).collect()
    return {row[key]: (row["id"], row["n"]) for row in held}


@pytest.mark.faults
@pytest.mark.parametrize(
    ("connector", "key"),
    [
        pytest.param("postgresql", "id", marks=pytest.mark.slow),
        pytest.param("postgresql", "k", marks=pytest.mark.slow),
        pytest.param("dms", "id", marks=pytest.mark.slow),
    ],
)
def test_the_table_is_that_of_the_database(
    spark: SparkSession, table: Names, tmp_path: Path, connector: str, key: str
) -> None:
    ledger = Ledger(5, connector).play(160)
    wanted = {row["id" if key == "id" else "code"]: (row["id"], row["n"]) for row in ledger.rows.values()}
    assert played(spark, table, tmp_path, ledger, key) == wanted
    happened = ["insert", "update", "delete", "truncate", "restart"]
    happened += ["second snapshot", "open in it", "move"] if connector != "dms" else []
    assert all(ledger.done[each] for each in happened), ledger.done


Record = tuple[Any, ...]


def record(partition: int, offset: int, millisecond: int, event: Event) -> Record:
    """A record of a topic."""
    at = EPOCH + timedelta(milliseconds=millisecond)
    payload = bytearray(json.dumps(event).encode())
    name = f"t/{partition}/{offset}"
    return (name, "t", str(partition), str(offset).zfill(20), bytearray(b"k"), [], at, payload)


def inserted(lsn: int, commit: int | None, number: int) -> Event:
    return postgres("c", lsn, commit, after={"id": number, "code": f"c{number}", "n": number})


ROW, TRUNCATED = record(0, 7, 100, inserted(20, 15, 1)), partial(postgres, "t")
FIRST = inserted(2, None, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("history", "commits", "left"),
    [
        pytest.param(
            False,
            [
                [ROW],
                [record(1, 5000, 100, TRUNCATED(10, 5)), record(2, 100, 100, TRUNCATED(30, 25))],
                [record(0, 8, 101, inserted(40, 35, 2))],
            ],
            {2},
            id="two, of which the one with the later text is the earlier one of the log",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            False,
            [
                [ROW],
                [
                    record(1, offset, ms, TRUNCATED(lsn, lsn - 5))
                    for offset, ms, lsn in ((10, 99, 10), (11, 110, 30), (12, 120, 10))
                ],
            ],
            set(),
            id="the first of two once more behind the second",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            True,
            [
                [
                    record(0, 1, 35, FIRST),
                    record(1, 10, 42, TRUNCATED(5, 3)),
                    record(0, 2, 133, FIRST),
                    record(1, 11, 140, TRUNCATED(5, 3)),
                ]
            ],
            set(),
            id="one and the connector's first transaction, both once more",
        ),
    ],
)
def test_truncates_that_a_batch_has_several_times(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    commits: list[list[Record]],
    left: set[int],
    history: bool,
) -> None:
    landing, out = table("landing"), table("latest")
    decoder = decoder_of(spark, DDL, "postgresql")
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    what = test_keyed_and_windowed_results.query(landing, out, "none") | {
        "latest_by": ["id"],
        "transform": None,
    }
    for number, commit in enumerate(commits):
        write(frame(spark, commit), number)
        test_keyed_and_windowed_results.played(spark, what | {"history": history}, tmp_path)
    rows = spark.table(str(out))
    assert {row["id"] for row in (rows.where("_valid_to IS NULL") if history else rows).collect()} == left


def differences(
    spark: SparkSession, connector: str, key: str, arrival: str = "microsecond"
) -> dict[Any, Any]:
    """What a batch with the shuffled records of twelve databases leaves, where it is not what they hold."""
    ledgers = [Ledger(seed, connector, truncates=False).play(120) for seed in range(12)]
    records = [each for ledger in ledgers for each in ledger.records]
    random.Random(1).shuffle(records)
    rows = frame(spark, records).withColumn("_arrived_at", F.date_trunc(arrival, "_arrived_at"))
    rows = rows.withColumn("_landed_at", F.col("_arrived_at"))
    # As a table: its plan ends here.
    landed = decoder_of(spark, DDL, connector).decode(rows).localCheckpoint()
    compose = EnrichThenTransform((), lambda out: out, "none", latest_by=(key,))
    result = compose(good_records(landed, deletes=True)).collect()
    held = {row[key]: (row["id"], row["code"], row["n"]) for row in result if not row["_deleted"]}
    wanted = {row[key]: (row["id"], row["code"], row["n"]) for each in ledgers for row in each.rows.values()}
    return {k: (held.get(k), wanted.get(k)) for k in held | wanted if held.get(k) != wanted.get(k)}


# With one place for all changes of a transaction, only the key of the records has an order.
@pytest.mark.parametrize(
    ("connector", "key"),
    [
        ("dms", "id"),
        *(
            pytest.param(each, key, marks=pytest.mark.slow)
            for each in CONNECTORS
            for key in ("id", "code")
            if (each, key) not in {("dms", "id"), ("oracle-xstream", "code")}
        ),
    ],
)
def test_random_transactions_of_each_connector_in_any_order(
    spark: SparkSession, connector: str, key: str
) -> None:
    assert differences(spark, connector, key) == {}


def test_of_records_that_arrive_in_one_millisecond_the_later_offset_decides(spark: SparkSession) -> None:
    # A producer sends rows of a snapshot and the changes after them in one batch.
    assert differences(spark, "postgresql", "id", arrival="hour") == {}


@pytest.mark.slow
def test_without_the_place_in_the_log_it_would_be_noticed(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_order, "_position_struct_of_change", lambda: F.col("_position"))
    assert differences(spark, "postgresql", "id") != {}
