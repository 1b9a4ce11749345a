"""Identities of results: keys that are equal have one, and others have their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.record.tables import Table
from millrace.etl.sinks.delivery.keyed_rows import newest_of_each_key, result_identity
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.spark.sink_input_rows import none_refused, place, results


def test_results_of_times_within_a_millisecond_are_told_apart(spark: SparkSession) -> None:
    def key(*micros: int | None) -> list[str]:
        rows = [(n, None if n is None else f"2026-01-01T12:00:00.{n:06}Z") for n in micros]
        made = spark.createDataFrame(rows, "n INT, text STRING").withColumn("at", F.to_timestamp("text"))
        spans = made.select("n", "at", F.struct("at", F.array("at").alias("all")).alias("span"))
        return [
            r["_id"]
            for r in spans.select(result_identity(spans.schema, ("n", "at", "span")).alias("_id"), "n")
            .orderBy("n")
            .collect()
        ]

    def of(n: int, at: str) -> str:
        return f'{{"n":{n},"at":"{at}","span":{{"at":"{at}","all":["{at}"]}}}}'

    assert key(100, 900) == [of(100, "2026-01-01T12:00:00.000100Z"), of(900, "2026-01-01T12:00:00.000900Z")]
    # Those of tables that are there stay as they are.
    assert key(None, 0, 5000) == [
        '{"span":{"all":[null]}}',
        of(0, "2026-01-01T12:00:00.000Z"),
        of(5000, "2026-01-01T12:00:00.005Z"),
    ]


def test_keys_that_json_writes_alike_have_their_own_identities(spark: SparkSession) -> None:
    keys = spark.sql(
        "SELECT CAST(unhex(bytes) AS STRING) AS key, CAST(at AS TIMESTAMP_NTZ) AS at FROM VALUES "
        "('0081', '2026-01-01 00:00:00'), ('0082', '2026-01-01 00:00:00'), ('EFBFBD', '2026-01-01 00:00:00'), "
        "('414738', '2026-01-01 00:00:00.000001'), ('414738', '2026-01-01 00:00:00.000002'), "
        "(NULL, '2026-01-01 00:00:00') AS (bytes, at)"
    )
    rows = [r[0] for r in keys.select(result_identity(keys.schema, ("key", "at"))).collect()]
    midnight = '"at":"2026-01-01T00:00:00.000'
    assert rows == [
        f'{{"key (base64)":"AIE=",{midnight}000"}}',
        f'{{"key (base64)":"AII=",{midnight}000"}}',
        f'{{"key":"\ufffd",{midnight}"}}',
        f'{{"key":"AG8",{midnight}001"}}',
        f'{{"key":"AG8",{midnight}002"}}',
        f'{{{midnight}"}}',
    ]


def test_a_key_with_parts_has_an_identity_for_each_of_its_texts(spark: SparkSession) -> None:
    rows = spark.sql(
        "SELECT named_struct('x', t, 'n', 1) AS s, array(t) AS `a.b` FROM "
        "(SELECT CAST(unhex(bytes) AS STRING) AS t FROM VALUES ('FF'), ('FE'), ('6F6B'), (NULL) AS (bytes))"
    )
    result = [r[0] for r in rows.select(result_identity(rows.schema, ("s", "a.b"))).collect()]
    assert result == [
        '{"s (base64)":{"x":"/w==","n":1},"a.b (base64)":["/w=="]}',
        '{"s (base64)":{"x":"/g==","n":1},"a.b (base64)":["/g=="]}',
        '{"s":{"x":"ok","n":1},"a.b":["ok"]}',
        '{"s":{"n":1},"a.b":[null]}',
    ]


@pytest.mark.parametrize("kind", ["DOUBLE", "FLOAT"])
def test_a_number_that_equals_another_has_its_identity(spark: SparkSession, kind: str) -> None:
    texts = [(text,) for text in ("0.0", "-0.0", "NaN", "no", "1.5")]
    rows = spark.createDataFrame(texts, "t STRING").select(
        F.coalesce(F.col("t").cast(kind), -F.lit("NaN").cast(kind)).alias("d")
    )
    rows = rows.withColumn("s", F.struct(F.array("d").alias("a")))
    result = [r[0] for r in rows.select(result_identity(rows.schema, ("d",))).collect()]
    assert result == ['{"d":0.0}'] * 2 + ['{"d":"NaN"}'] * 2 + ['{"d":1.5}']
    inside = [r[0] for r in rows.select(result_identity(rows.schema, ("s",))).collect()]
    assert inside[:2] == ['{"s":{"a":[0.0]}}'] * 2


def test_own_columns_that_look_like_ours_are_not_left_out_of_results(spark: SparkSession) -> None:
    rows = spark.range(1).selectExpr(
        "id AS n",
        "now() AS _landed_at",
        "named_struct('position', '1', 'time', '0', 'lane', 'a') AS _position",
        "false AS _deleted",
        "'eu' AS _route",
    )
    assert newest_of_each_key(rows, ("n",), "t").columns == ["_id", "n", "_deleted", "_order", "_lanes"]
    with pytest.raises(StartError, match="columns _score must not begin with _"):
        newest_of_each_key(rows.withColumn("_score", F.lit(1)), ("n",), "t")


def test_two_results_of_a_batch_with_one_key_say_what_the_key_lacks(
    spark: SparkSession, table: Callable[[str], Table]
) -> None:
    one, batch = KeyedIcebergSink(table("totals"), key=("carrier",)), results(spark, {"AA": 1})
    one.prepare(spark, batch.schema)
    one.write(batch, place(0), none_refused)
    with pytest.raises(
        SinkError, match="have the same values of carrier: the key must name every column by which"
    ):
        one.write(batch.union(results(spark, {"AA": 2})), place(1), none_refused)
