"""The comparison of derived tables with one batch of their transforms accepts any cut into batches and finds each fault."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.job import build_queries
from millrace.etl.launch.settings import DeriveSettings, JobSettings, parse_job_settings
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.sandbox.records.derived_tables_against_batch import (
    compare_until_settled,
    counts_of_differing_rows,
)
from tests.faults import small_job_documents
from tests.spark.source_batches import Events, drained, frame, good, kafka_rows, lander

Names = Callable[[str], Table]
MARK = {"time": "_arrived_at", "delay_seconds": 5, "ahead_seconds": 3600}
STATE: dict[str, Any] = {"watermark": MARK, "distinct": [], "key": [], "join": None, "output_mode": "update"}
EXACT = dict.fromkeys(("lost", "doubled", "different", "unknown"), 0)


def row_by_row(flights: DataFrame) -> DataFrame:
    """Two rows of each third flight, none of the next one, and a column that no two runs have alike."""
    both = F.explode(F.expr("slice(array('one', 'two'), 1, 2 - cast(flight % 3 as int))")).alias("side")
    return flights.select(*CARRIED, "flight", "delay", F.rand().alias("chance"), both)


def per_minute(flights: DataFrame) -> DataFrame:
    """Sums, in whose last digits the order shows."""
    sums = flights.groupBy(F.window("_arrived_at", "10 seconds")).agg(
        F.count(F.lit(1)).alias("flights"), F.sum(F.col("delay") / 3).alias("delay")
    )
    return sums.select(F.col("window.start").alias("minute"), "flights", "delay")


def latest(flights: DataFrame) -> DataFrame:
    """The last record of each parity."""
    return flights.select(
        "_position", "_deleted", (F.col("_position.position").substr(56, 1)).alias("digit"), "flight"
    )


CASES: Mapping[str, tuple[Callable[..., DataFrame], Mapping[str, Any]]] = {
    "rows": (row_by_row, {}),
    "latest": (latest, {"latest_by": ["digit"]}),
    "windows": (per_minute, {"state": {**STATE, "key": ["minute"]}}),
    "closed windows": (per_minute, {"state": {**STATE, "key": ["minute"], "output_mode": "append"}}),
}


class Derived:
    """A landing table in three batches, and the table that a query derives from it."""

    def __init__(self, spark: SparkSession, table: Names, folder: Path, case: str) -> None:
        self.spark, self.folder, self.landing, self.sink = spark, folder, table("landing"), table("sink")
        self.function, self.more = CASES[case]
        self.land, first = lander(spark, self.landing, Events()), 0
        for batch, size in enumerate((25, 1, 30)):
            payloads = [good(n) for n in range(first, first + size)]
            self.land(frame(spark, kafka_rows(0, first, [*payloads, b"bad"])), batch)
            first += size + 1
            if batch == 1 and case == "latest":
                gone = spark.table(str(self.landing)).where("_error IS NULL").limit(1)
                gone = gone.withColumns({"_stage": F.lit("delete"), "_position": F.lit(f"{first:020}")})
                gone.withColumn("_id", F.lit(f"flights-topic/0/{first}")).writeTo(str(self.landing)).append()
                first += 1
            self.derive()

    def derive(self) -> None:
        """Run the query over what is there, then end."""
        [query] = build_queries.build_queries(JobRun(self.spark, self.settings(), {}, Events().reporter))
        drained(query.rows, query.handle, query.checkpoint, query.output_mode)

    def settings(self) -> JobSettings:
        query = {
            "kind": "derive",
            "name": "derive-flights",
            "source_table": f"tests.{self.landing.name}",
            "enrich": [],
            "transform": f"{__name__}:{self.function.__name__}",
            "sink": {"kind": "iceberg", "table": f"tests.{self.sink.name}"},
            "trigger_seconds": 0,
            "state": None,
            "route": None,
            "latest_by": [],
            "dead_letters": None,
            **self.more,
        }
        return parse_job_settings(small_job_documents.settings("flights", [query], str(self.folder), None))

    def compared(self) -> dict[str, Any]:
        job = self.settings()
        [query] = job.queries
        assert isinstance(query, DeriveSettings)
        return compare_until_settled(JobRun(self.spark, job, {}, Events().reporter), query, patience=0)


def counts(result: Mapping[str, Any]) -> dict[str, int]:
    return {name: result[name] for name in EXACT}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_was_derived_in_batches_is_what_one_batch_makes_and_faults_are_seen(
    spark: SparkSession, table: Names, tmp_path: Path, case: str
) -> None:
    derived = Derived(spark, table, tmp_path, case)
    result = derived.compared()
    assert counts(result) == EXACT, result
    assert result["left_out"] == (["chance"] if case == "rows" else [])
    rows = spark.table(str(derived.sink))
    there = rows.count()
    assert there == result["rows"] - result["pending"] > 3
    assert (result["pending"] > 0) == (case == "closed windows")

    ids = sorted({row["_id"] for row in rows.select("_id").collect()})
    changed = "delay" if case != "latest" else "flight"
    spark.sql(f"UPDATE {derived.sink} SET {changed} = {changed} + 1 WHERE _id = '{ids[0]}'")  # noqa: S608 - this test's names
    altered = rows.where(F.col("_id") == ids[0]).count()
    rows.where(F.col("_id") == ids[1]).limit(1).writeTo(str(derived.sink)).append()
    rows.where(F.col("_id") == ids[2]).limit(1).withColumn("_id", F.lit("x/0/1")).writeTo(
        str(derived.sink)
    ).append()
    removed = rows.where(F.col("_id") == ids[3]).count()
    spark.sql(f"DELETE FROM {derived.sink} WHERE _id = '{ids[3]}'")  # noqa: S608 - this test's names
    result = derived.compared()
    lost = 0 if case == "closed windows" else removed
    assert counts(result) == {"lost": lost, "doubled": 1, "different": altered, "unknown": 1}
    assert changed in result["differing"]


@pytest.mark.slow
def test_lateness_that_depends_on_batches_is_said_and_not_counted(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    derived = Derived(spark, table, tmp_path, "windows")
    derived.land(frame(spark, kafka_rows(1, 0, [good(n) for n in range(9)])), 3)
    derived.derive()
    assert "later than the delay of the watermark" in derived.compared()["reason"]


@pytest.mark.parametrize("seed", range(3))
def test_differences_are_those_of_multisets(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    sides = [
        [(f"id-{chance.randrange(12)}", chance.choice((0.1 + 0.2, 0.3, 1e9, None))) for _ in range(25)]
        for _ in range(2)
    ]
    wanted, written = sides
    plain: dict[str, list[Counter[Any]]] = defaultdict(lambda: [Counter(), Counter()])
    for side, rows in enumerate(sides):
        for identity, value in rows:
            plain[identity][side][None if value is None else round(value, 6)] += 1
    expected = Counter(EXACT)
    for ours, theirs in plain.values():
        missing, extra = (ours - theirs).total(), (theirs - ours).total()
        expected["different"] += min(missing, extra)
        expected["lost"] += max(0, missing - extra)
        expected["doubled" if ours else "unknown"] += max(0, extra - missing)
    one, other = (spark.createDataFrame(rows, "_id STRING, value DOUBLE") for rows in (wanted, written))
    assert counts_of_differing_rows(one, other, ["value"]) == dict(expected)
