"""Kafka into Iceberg with plain Spark and Iceberg's streaming sink."""

import json
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

given = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
records = (
    spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", given["bootstrap"])
    .option("subscribe", given["topic"])
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", given["per_batch"])
    .load()
)
rows = records.select(F.from_json(F.col("value").cast("string"), given["ddl"]).alias("r")).select("r.*")
(
    rows.where("id IS NOT NULL")
    .writeStream.format("iceberg")
    .trigger(processingTime=f"{given['seconds']} seconds")
    .option("checkpointLocation", f"{given['home']}/checkpoint")
    .toTable(f"lake.{given['table']}")
    .awaitTermination()
)
