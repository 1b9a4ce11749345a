"""Loads what most Spark programs load: at its end, the JVM writes that to the archive of :func:`tests.run.share_classes`."""

from __future__ import annotations

import tempfile

from pyspark.sql import DataFrame, SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    rows = spark.range(100).selectExpr("id % 7 AS key", "to_json(struct(id)) AS text")
    rows.write.parquet(f"{folder}/rows")
    read = spark.readStream.schema(rows.schema).parquet(f"{folder}/rows")

    def batch(parsed: DataFrame, _: int) -> None:
        """Look rows up, and count."""
        parsed.join(rows, "key", "left_anti").groupBy("key").count().collect()

    parsed = read.selectExpr("key", "from_json(text, 'id BIGINT') AS value")
    query = parsed.writeStream.foreachBatch(batch).option("checkpointLocation", f"{folder}/checkpoint")
    query.trigger(availableNow=True).start().awaitTermination()
spark.stop()
