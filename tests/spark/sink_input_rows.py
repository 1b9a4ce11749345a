"""Rows as derive and direct queries hand them to a sink, and what the sink refuses of them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.sinks.base import LETTER, BatchIdentity

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

COLUMNS = (
    "_id STRING, _source STRING, _arrived_at TIMESTAMP, _landed_at TIMESTAMP, carrier STRING, flight INT, "
    "miles BIGINT, delay DOUBLE, price DECIMAL(12,2), late BOOLEAN, gate TINYINT, day DATE, at TIMESTAMP, "
    "raw BINARY, tags ARRAY<STRING>, seat STRUCT<row: INT, letter: STRING>"
)


def row(number: int, **others: Any) -> tuple[Any, ...]:
    """A record; ``others`` replaces values by column."""
    moment = NOON + timedelta(seconds=number, microseconds=123456)
    values: dict[str, Any] = {
        "_id": f"flights-topic/0/{number}",
        "_source": "flights",
        "_arrived_at": moment,
        "_landed_at": moment,
        "carrier": "ÄA",
        "flight": number,
        "miles": 2**40 + number,
        "delay": number / 4,
        "price": Decimal(number) + Decimal("0.25"),
        "late": number % 2 == 1,
        "gate": number % 100,
        "day": date(2026, 1, 1),
        "at": moment,
        "raw": bytearray(b"\x00\xff"),
        "tags": ["a", "b"],
        "seat": (number, "C"),
    }
    assert not others.keys() - values.keys()
    return tuple({**values, **others}.values())


def rows(spark: SparkSession, records: Iterable[tuple[Any, ...]], parts: int = 2) -> DataFrame:
    """As ``foreachBatch`` has it: rows that the optimizer cannot look into."""
    schema = spark.createDataFrame([], COLUMNS).schema
    return spark.createDataFrame(spark.sparkContext.parallelize(list(records), parts), schema)


def breaking(batch: DataFrame, flight: int) -> DataFrame:
    """The same batch, whose task fails at one flight: what came before it may be written already."""
    failing = F.raise_error(F.lit("the executor was lost")).cast("int")
    return batch.withColumn("flight", F.when(F.col("flight") == flight, failing).otherwise(F.col("flight")))


def results(spark: SparkSession, totals: dict[str, int]) -> DataFrame:
    """Results of many records, known by a key."""
    records = [(json.dumps({"carrier": c}), c, n) for c, n in totals.items()]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(records, 1), "_id STRING, carrier STRING, flights INT"
    )


def changes(spark: SparkSession, totals: dict[str, int | None]) -> DataFrame:
    """Results as :func:`results`; None deletes."""
    records = [
        (json.dumps({"carrier": c}), c if n is not None else None, n, n is None) for c, n in totals.items()
    ]
    return spark.createDataFrame(
        spark.sparkContext.parallelize(records, 1),
        "_id STRING, carrier STRING, flights INT, _deleted BOOLEAN",
    )


def place(batch: int, run: str = "run-1", notes: Path | None = None, created: int = 1) -> BatchIdentity:
    start, end = f'{{"0":{batch}}}', f'{{"0":{batch + 1}}}'
    return BatchIdentity(run, batch, start, end, "" if notes is None else str(notes), created)


class Refused:
    """Collects refused rows, as a table of dead letters would."""

    def __init__(self) -> None:
        self.letters: list[dict[str, Any]] = []

    def __call__(self, letters: DataFrame) -> None:
        assert letters.columns == LETTER.fieldNames()
        self.letters += [r.asDict() for r in letters.collect()]

    def reasons(self) -> dict[str, str]:
        return {letter["_id"]: letter["_error"] for letter in self.letters}

    def fields(self, identity: str) -> dict[str, Any]:
        """The row that was refused, as its letter holds it."""
        (letter,) = (each for each in self.letters if each["_id"] == identity)
        assert letter["_stage"] == "sink"
        result: dict[str, Any] = json.loads(bytes(letter["_bytes"]))
        return result


def none_refused(letters: DataFrame) -> None:
    raise AssertionError(f"refused: {letters.collect()}")
