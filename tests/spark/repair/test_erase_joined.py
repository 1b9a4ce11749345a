"""An erasure reaches the rows that joins made of a person's records, and names the results that it cannot find."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.settings import (
    DeriveSettings,
    JobSettings,
    JoinSettings,
    LandSettings,
    StateSettings,
    WatermarkSettings,
)
from millrace.etl.launch.sinks import IcebergSinkSettings
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.etl.repair.erase_condition import ErasureCondition
from millrace.etl.repair.erase_targets import targets_left_out_and_problems
from millrace.etl.sinks.base import LETTER
from tests.spark.erasure_shop import WHERE, ZOE, Shop, order
from tests.spark.maintained_table import Names
from tests.spark.source_batches import EPOCH, Events, frame, kafka_rows, lander

MARK = WatermarkSettings("_arrived_at", 60.0, 3600.0)
LOGS = "s3://logs/a+b/log"


def of_orders(number: int) -> str:
    return f"flights-topic/0/{number}"


def of_payments(number: int) -> str:
    return f"{LOGS}/{number}"


def arrived(identity: str) -> datetime:
    return EPOCH + timedelta(seconds=int(re.split("[/+]", identity)[2]))


class Joined:
    """A shop with a second landing table, whose records are lines of files, and a table of joined rows.

    Of ten orders and ten payments, Zoe has orders 0 and 5 and payments 1 and 6.
    """

    def __init__(self, spark: SparkSession, table: Names, folder: Path) -> None:
        self.spark, self.shop = spark, Shop(spark, table, folder)
        self.payments, self.sink, self.letters = table("payments"), table("joined"), table("joined_letters")
        self.shop.land([order(n) for n in range(10)])
        paid = lander(spark, self.payments, Events(), ddl="customer STRING, amount INT")
        payers = [order(n, ZOE if n % 5 == 1 else "amy@example.org") for n in range(10)]
        rows = [(of_payments(n), "paid", *row[2:]) for n, row in enumerate(kafka_rows(0, 0, payers))]
        paid(frame(spark, rows), 0)

    def write(self, *ids: tuple[str, str]) -> None:
        """Joined rows, by identity and source, with the times of their order; those of a payment alone have none."""
        alone = f"tests.{self.payments.name}"
        rows = [(i, alone, None) if of == "alone" else (i, of, arrived(i)) for i, of in ids]
        made = self.spark.createDataFrame(rows, "_id STRING, _source STRING, _arrived_at TIMESTAMP")
        tables.create_or_evolve_table(self.spark, self.sink, made.schema)
        made.writeTo(str(self.sink)).append()

    def job(self, **changed: Any) -> JobSettings:
        join = JoinSettings(f"tests.{self.payments.name}", MARK)
        query = DeriveSettings(
            "joined", f"tests.{self.shop.landing.name}", (), None, IcebergSinkSettings(f"tests.{self.sink.name}"),
            0.1, StateSettings(MARK, (), (), join), f"tests.{self.letters.name}",
        )  # fmt: skip
        land = self.shop.job.queries[0]
        assert isinstance(land, LandSettings)
        pays = replace(land, name="land-payments", table=f"tests.{self.payments.name}")
        return replace(self.shop.job, queries=(land, pays, replace(query, **changed)))

    def erased(self, table: Table, where: str = WHERE) -> tuple[int, list[str]]:
        """Number of rows that match, and the identities that stay."""
        condition = ErasureCondition(self.spark, where)
        targets, _, problems = targets_left_out_and_problems(self.spark, self.job(), condition)
        assert problems == []
        (target,) = (each for each in targets if each.table == table)
        count = target.count_matches(self.spark, condition).matching_count
        target.erase_matching_rows(self.spark, condition, "e1")
        assert target.count_matches(self.spark, condition).matching_count == 0
        return count, sorted(r["_id"] for r in self.spark.table(str(table)).select("_id").collect())


HERS = (
    (f"{of_orders(0)}+{of_payments(0)}", "flights"),
    (f"{of_orders(1)}+{of_payments(1)}", "flights"),
    (f"{of_orders(2)}/0+{of_payments(6)}", "flights"),
    (f"{of_orders(2)}+{of_payments(6)}/3", "flights"),
    (f"{of_orders(5)}/1+{of_payments(2)}", "flights"),
    (f"{of_orders(0)}+{of_payments(1)}", "flights"),
    (of_orders(5), "flights"),
    (of_payments(1), "alone"),
    (f"{of_payments(6)}/0", "alone"),
)
OF_OTHERS = (
    (f"{of_orders(2)}+{of_payments(2)}", "flights"),
    (f"{of_orders(50)}+{of_payments(10)}", "flights"),
    (f"{of_orders(3)}+{of_payments(60)}/1", "flights"),
    (of_orders(7), "flights"),
    (of_payments(3), "alone"),
    # An order's identity, and another stream's record.
    (of_orders(0), "alone"),
    (of_orders(0), "refunds"),
)


@pytest.mark.slow
def test_rows_of_either_stream_go_with_their_record(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    joined = Joined(spark, table, tmp_path)
    joined.write(*HERS, *OF_OTHERS)
    tables.create_or_evolve_table(spark, joined.letters, LETTER)
    letters = [
        (i, "flights", arrived(i), None, bytearray(b"{}"), "sink", "too long")
        for i, _ in (*HERS[:4], *OF_OTHERS[:3])
    ]
    spark.createDataFrame(letters, LETTER).writeTo(str(joined.letters)).append()
    assert joined.erased(joined.letters) == (4, sorted(i for i, _ in OF_OTHERS[:3]))
    # First the landing tables, as an erasure does: from then on only identities tell.
    assert joined.erased(joined.shop.landing)[0] == 2
    assert joined.erased(joined.payments)[0] == 2
    assert joined.erased(joined.sink) == (len(HERS), sorted(i for i, _ in OF_OTHERS))
    assert joined.erased(joined.sink)[0] == 0


def test_rows_that_do_not_name_the_second_record_are_told(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    joined = Joined(spark, table, tmp_path)
    condition = ErasureCondition(spark, WHERE)
    joined.write(*OF_OTHERS[:2], (of_payments(3), "alone"))
    assert targets_left_out_and_problems(spark, joined.job(), condition)[1] == []
    joined.write((of_orders(8), "flights"))
    (said,) = targets_left_out_and_problems(spark, joined.job(), condition)[1]
    assert said == (
        f"{joined.sink} has rows without the identity of a record of {joined.payments}: it had no match, or the "
        "transform drops _joined_id; rows of the second kind with a record of the person are not found"
    )


@pytest.mark.parametrize("where", [WHERE, f"customer LIKE '{ZOE}%'"])
def test_results_with_a_key_and_their_letters_are_told(
    spark: SparkSession, table: Names, tmp_path: Path, where: str
) -> None:
    joined = Joined(spark, table, tmp_path)
    results = spark.createDataFrame([], "_id STRING, began TIMESTAMP, total LONG")
    tables.create_or_evolve_table(spark, joined.sink, results.schema, time="began")
    tables.create_or_evolve_table(spark, joined.letters, LETTER)
    condition = ErasureCondition(spark, where)
    keyed = joined.job(latest_by=("began",))
    targets, left_out, problems = targets_left_out_and_problems(spark, keyed, condition)
    told = [f"{joined.sink} has no column customer, and no identity of its records"]
    if where != WHERE:
        told.append(f"{joined.letters}: no value of the condition can be looked for in its rows")
    assert (left_out, problems) == (told, [])
    assert (joined.letters in [t.table for t in targets]) == (where == WHERE)
