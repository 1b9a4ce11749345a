"""An existing job for tests of ``millrace import``: plain Spark from a topic into two Iceberg tables, without identities.

``millrace import`` reads this file as it reads any Glue job's. It runs until the file ``--stop`` is there, and ends with the
first batch that begins after that, before it writes. With ``--sql`` it runs statements instead.
"""

import argparse
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

ORDER = "n BIGINT, purchase BIGINT, item STRING, amount BIGINT"
parser = argparse.ArgumentParser()
for name in ("brokers", "checkpoint", "stop"):
    parser.add_argument(f"--{name}")
parser.add_argument("--sql", nargs="+")
args = vars(parser.parse_args())
spark = SparkSession.builder.appName("sales").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")


def write(batch: DataFrame, number: int) -> None:
    """Append a batch to both tables, unless the job is to end."""
    if Path(args["stop"]).exists():
        raise InterruptedError("asked to end")
    batch.persist()
    batch.writeTo("lake.theirs.orders_timed").append()
    batch.drop("arrived").writeTo("lake.theirs.orders").append()
    batch.unpersist()


def main() -> None:
    """Copy orders."""
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.theirs")
    spark.sql(f"CREATE TABLE IF NOT EXISTS lake.theirs.orders ({ORDER}) USING iceberg")
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS lake.theirs.orders_timed ({ORDER}, arrived TIMESTAMP) USING iceberg"
    )
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args["brokers"])
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1000)
        .load()
    )
    parsed = records.select(F.from_json(F.col("value").cast("string"), ORDER).alias("o"), "timestamp")
    orders = parsed.where("o.n IS NOT NULL AND o.amount IS NOT NULL").select(
        "o.*", F.col("timestamp").alias("arrived")
    )
    query = (
        orders.writeStream.queryName("copy")
        .foreachBatch(write)
        .option("checkpointLocation", args["checkpoint"])
        .trigger(processingTime="2 seconds")
        .start()
    )
    try:
        query.awaitTermination()
    except StreamingQueryException:
        if not Path(args["stop"]).exists():
            raise


if args["sql"]:
    for statement in args["sql"]:
        spark.sql(statement)
else:
    main()
time.sleep(0.5)
spark.stop()
