"""Enrichment of a derive query by reference tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.launch.settings import EnrichmentSettings
from millrace.etl.queries.enrich import ReferenceTable
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from tests.spark.queries.test_derive import Names, Pipeline
from tests.spark.source_batches import frame, good, kafka_rows


def insert(spark: SparkSession, table: Table, *rows: tuple[str | None, str, int]) -> None:
    spark.createDataFrame(rows, "code STRING, title STRING, seats INT").withColumn(
        "more", F.lit(None).cast("array<map<string,int>>")
    ).writeTo(str(table)).append()


@pytest.fixture
def airlines(spark: SparkSession, table: Names) -> Iterator[Table]:
    name = table("airlines")
    spark.sql(
        f"CREATE TABLE {name} (code STRING, title STRING, seats INT, more ARRAY<MAP<STRING, INT>>) USING iceberg"
    )
    insert(spark, name, ("AA", "American", 100), ("UA", "United", 200), (None, "None", 1))
    yield name
    spark.sql(f"DROP TABLE {name}")


ENRICHMENT = EnrichmentSettings("airlines", {"carrier": "code"}, {"airline": "title"}, 60.0)


def stream_of(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(1, "AA"), (2, "UA"), (3, "ZZ"), (4, None)], "n INT, carrier STRING")


def test_enrichment_joins_and_keeps_records_without_a_match(spark: SparkSession, airlines: Table) -> None:
    reference = ReferenceTable(ENRICHMENT, airlines, lambda *_: pytest.fail("not ambiguous"))
    reference.refuse_missing_columns(spark)
    joined = reference.with_joined_columns(stream_of(spark), reference.current_rows(stream_of(spark)))
    assert joined.columns == ["n", "carrier", "airline"]
    assert [r["airline"] for r in joined.orderBy("n").collect()] == ["American", "United", None, None]
    plan = joined._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in plan


def test_names_with_a_dot_are_columns(spark: SparkSession, table: Names) -> None:
    name = table("dotted")
    spark.sql(f"CREATE TABLE {name} (`a.code` STRING, `a.title` STRING) USING iceberg")
    spark.createDataFrame([("AA", "American")], "`a.code` STRING, `a.title` STRING").writeTo(
        str(name)
    ).append()
    stream = stream_of(spark).withColumnRenamed("carrier", "the.carrier")
    settings = EnrichmentSettings(name.name, {"the.carrier": "a.code"}, {"the.airline": "a.title"}, 60.0)
    reference = ReferenceTable(settings, name, lambda *_: pytest.fail("not ambiguous"))
    reference.refuse_missing_columns(spark)
    joined = reference.with_joined_columns(stream, reference.current_rows(stream)).orderBy("n")
    assert [row["the.airline"] for row in joined.collect()] == ["American", None, None, None]


def test_an_ambiguous_key_does_not_double_records_and_is_reported(
    spark: SparkSession, airlines: Table
) -> None:
    insert(spark, airlines, ("AA", "Aachen Air", 1), ("AA", "Zulu", 1))
    said: list[int] = []
    reference = ReferenceTable(ENRICHMENT, airlines, lambda _table, keys: said.append(keys))
    joined = (
        reference.with_joined_columns(stream_of(spark), reference.current_rows(stream_of(spark)))
        .orderBy("n")
        .collect()
    )
    assert [r["airline"] for r in joined] == ["Aachen Air", "United", None, None]
    assert said == [1]


@pytest.mark.slow
def test_keys_that_are_one_to_the_stream_do_not_double_records(spark: SparkSession, airlines: Table) -> None:
    insert(spark, airlines, ("007", "Bond Air", 1), ("7", "Seven", 1), ("7.0", "Float", 1), ("x", "None", 1))
    said: list[int] = []
    numbered = replace(ENRICHMENT, on={"n": "code"})

    def joined_to(stream: DataFrame) -> DataFrame:
        reference = ReferenceTable(numbered, airlines, lambda _table, keys: said.append(keys))
        return reference.with_joined_columns(stream, reference.current_rows(stream)).orderBy("n")

    stream = spark.createDataFrame([(7,), (8,)], "n INT")
    assert [(r["n"], r["airline"]) for r in joined_to(stream).collect()] == [(7, "Bond Air"), (8, None)]
    assert said == [1]
    # To a text they are three.
    texts = spark.createDataFrame([("7",), ("007",)], "n STRING")
    assert [r["airline"] for r in joined_to(texts).collect()] == ["Bond Air", "Seven"]
    listed = spark.createDataFrame([], "n ARRAY<INT>")
    with pytest.raises(
        StartError, match="column n has type array<int>, which cannot be compared with code, of type string"
    ):
        joined_to(listed)


def test_a_reference_table_is_read_again_on_its_interval_only(spark: SparkSession, airlines: Table) -> None:
    now = [0.0]
    reference = ReferenceTable(ENRICHMENT, airlines, lambda *_: None, clock=lambda: now[0])

    def name() -> str | None:
        first = (
            reference.with_joined_columns(stream_of(spark), reference.current_rows(stream_of(spark)))
            .where("n = 3")
            .first()
        )
        assert first is not None
        return first["airline"]  # type: ignore[no-any-return]

    assert name() is None
    insert(spark, airlines, ("ZZ", "Zeppelin", 1))
    now[0] = 59.0
    assert name() is None
    now[0] = 60.0
    assert name() == "Zeppelin"
    # One copy is held, however often the table changed, and also where it did not.
    cached: Any = spark.sparkContext._jsc
    before = {*cached.getPersistentRDDs()}
    for n in range(1, 4):
        insert(spark, airlines, (f"Z{n}", "Zeppelin", 1))
        now[0] += 60
        assert name() == "Zeppelin"
    now[0] += 60
    assert name() == "Zeppelin"
    assert len({*cached.getPersistentRDDs()} - before) <= 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (replace(ENRICHMENT, on={"carrier": "nope"}), "has no column nope"),
        (replace(ENRICHMENT, columns={"airline": "nope"}), "has no column nope"),
        (replace(ENRICHMENT, on={"missing": "code"}), "the stream has no column missing"),
        (replace(ENRICHMENT, columns={"n": "title"}), "the stream already has n"),
        (replace(ENRICHMENT, columns={"a": "title", "b": "more"}), r"airlines_\d+: more has a MAP"),
    ],
)
def test_a_wrong_enrichment_is_refused(
    spark: SparkSession, airlines: Table, settings: EnrichmentSettings, message: str
) -> None:
    reference = ReferenceTable(settings, airlines, lambda *_: None)

    def start() -> None:
        reference.refuse_missing_columns(spark)
        reference.with_joined_columns(stream_of(spark), reference.current_rows(stream_of(spark)))

    with pytest.raises(StartError, match=message):
        start()


def test_columns_that_change_after_the_tables_last_commit(spark: SparkSession, airlines: Table) -> None:
    """A snapshot has the columns of its time: a new name is known from the next commit on, and an old one until then."""
    reference = ReferenceTable(replace(ENRICHMENT, refresh_seconds=0), airlines, lambda *_: None)
    renamed = replace(reference, settings=replace(ENRICHMENT, columns={"airline": "name"}))

    def names(of: ReferenceTable) -> list[str | None]:
        of.refuse_missing_columns(spark)
        joined = of.with_joined_columns(stream_of(spark), of.current_rows(stream_of(spark)))
        return [r["airline"] for r in joined.orderBy("n").collect()]

    spark.sql(f"ALTER TABLE {airlines} RENAME COLUMN title TO name")
    assert names(reference) == ["American", "United", None, None]
    with pytest.raises(
        StartError, match=r"no column name; name is newer than its last commit: write to it once"
    ):
        names(renamed)
    spark.sql(f"DELETE FROM {airlines} WHERE code = 'UA'")  # noqa: S608 - ours
    assert names(renamed) == ["American", None, None, None]
    with pytest.raises(StartError, match=r"airlines_\d+ has no column title$"):
        reference.current_rows(stream_of(spark))


def test_enriched_and_transformed(spark: SparkSession, table: Names, tmp_path: Path, airlines: Table) -> None:
    reference = ReferenceTable(ENRICHMENT, airlines, lambda *_: None)
    pipe = Pipeline(
        spark, table, tmp_path, references=(reference,), transform=lambda r: r.drop("_key", "_headers")
    )
    pipe.land(frame(spark, kafka_rows(0, 0, [good(1), good(2)])), 0)
    pipe.derive()
    assert [r["airline"] for r in pipe.written().collect()] == ["American", "American"]
