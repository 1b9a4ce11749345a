"""A streaming job with at most one fault, as a program that any Spark can run.

``python tests/advisor/job_with_one_fault.py NAME --logs FOLDER --scratch FOLDER --seconds 60 [--work 0.5] [--kafka HOST:PORT --jars A,B]``
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import LongType

CORES = 2
MANAGERS = "org.apache.spark.sql.execution.streaming"
"""Package of what writes checkpoints."""
if tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1):
    MANAGERS += ".checkpointing"
TRIGGER = "2 seconds"

SLOW = """
public class SlowFileSystem extends org.apache.hadoop.fs.RawLocalFileSystem {
  public java.net.URI getUri() { return java.net.URI.create("slow:///"); }
  public boolean rename(org.apache.hadoop.fs.Path from, org.apache.hadoop.fs.Path to) throws java.io.IOException {
    try { Thread.sleep(400L); } catch (InterruptedException e) { Thread.currentThread().interrupt(); }
    return super.rename(from, to);
  }
}
"""
"""A file system that takes as long to commit a file as an object store in a bad hour."""


def work(frame: DataFrame, rounds: int, given: argparse.Namespace) -> DataFrame:
    """Let every record cost CPU time: as many digests of digests, or a share of them."""
    rounds = max(1, round(rounds * given.work))
    # A loop within one expression: as many nested ones are a method too long for the JVM to compile.
    digest = f.aggregate(
        f.sequence(f.lit(1), f.lit(rounds)), f.col("value").cast("string"), lambda made, _: f.sha2(made, 512)
    )
    return frame.withColumn("digest", digest)


def rate(spark: SparkSession, per_second: int, partitions: int = CORES) -> DataFrame:
    return (
        spark.readStream.format("rate")
        .option("rowsPerSecond", per_second)
        .option("numPartitions", partitions)
        .load()
    )


def topic(spark: SparkSession, given: argparse.Namespace, **options: str | int) -> DataFrame:
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", given.kafka)
        .option("subscribe", given.topic)
        .option("startingOffsets", "earliest")
    )
    for key, value in options.items():
        reader = reader.option(key, value)
    return reader.load()


def nowhere(frame: DataFrame) -> DataStreamWriter:
    return frame.writeStream.format("noop")


def clean_plain(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(rate(spark, 1000), 40, given))


def clean_kafka(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(topic(spark, given, maxOffsetsPerTrigger=50_000), 40, given))


def clean_window(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    counted = (
        rate(spark, 1000)
        .withWatermark("timestamp", "4 seconds")
        .groupBy(f.window("timestamp", "4 seconds"), (f.col("value") % 50).alias("key"))
        .count()
    )
    return nowhere(counted).outputMode("update")


def clean_cached(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        for name in ("a", "b"):
            batch.write.mode("append").parquet(f"{given.scratch}/{name}")
        batch.unpersist()

    return work(rate(spark, 1000), 40, given).writeStream.foreachBatch(write)


def two_sinks(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    def write(batch: DataFrame, number: int) -> None:
        for name in ("a", "b"):
            batch.write.mode("append").parquet(f"{given.scratch}/{name}")

    return work(rate(spark, 2000), 100, given).writeStream.foreachBatch(write)


def needless_cache(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    def write(batch: DataFrame, number: int) -> None:
        batch.persist()
        batch.write.mode("append").parquet(f"{given.scratch}/a")
        batch.unpersist()

    return work(rate(spark, round(20_000 * given.work)), 2, given).writeStream.foreachBatch(write)


def hit_limit(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(topic(spark, given, maxOffsetsPerTrigger=1000))


def unstable_start(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(topic(spark, given), 20, given))


def skewed_key(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    key = f.when(f.col("value") % 8 == 0, f.col("value") % 64).otherwise(f.lit(0))
    return nowhere(work(rate(spark, 2000).withColumn("key", key).repartition(4, "key"), 400, given))


def retried_tasks(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    def once_bad(value: int) -> int:
        context = TaskContext.get()
        assert context
        if context.attemptNumber() == 0 and context.partitionId() == 0:
            raise ConnectionResetError("the service closed the connection")
        return value

    return nowhere(rate(spark, 200).withColumn("value", f.udf(once_bad, LongType())("value")))


def short_trigger(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(topic(spark, given)).trigger(processingTime="50 milliseconds")


def slow_checkpoint(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    given.checkpoint = f"slow://{given.scratch}/checkpoint"
    return nowhere(work(rate(spark, 1000), 40, given))


def small_files(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return (
        rate(spark, 1000)
        .repartition(16)
        .writeStream.format("parquet")
        .option("path", f"{given.scratch}/lake")
    )


def few_partitions(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(rate(spark, 2000, partitions=1), 400, given))


def waves(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(rate(spark, 2400, partitions=3), 600, given))


def many_partitions(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    spark.conf.set("spark.sql.shuffle.partitions", "100")
    keyed = rate(spark, 1000).groupBy((f.col("value") % 50).alias("key")).count()
    return nowhere(keyed).outputMode("update")


def growing_state(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(rate(spark, 4000).dropDuplicates(["value"]))


def contention(spark: SparkSession, given: argparse.Namespace) -> DataStreamWriter:
    return nowhere(work(rate(spark, 2000), 100, given))


JOBS: dict[str, Callable[[SparkSession, argparse.Namespace], DataStreamWriter]] = {
    job.__name__.replace("_", "-"): job
    for job in (
        *(
            clean_plain,
            clean_kafka,
            clean_window,
            clean_cached,
            hit_limit,
            unstable_start,
            skewed_key,
            two_sinks,
        ),
        *(needless_cache, retried_tasks, short_trigger, slow_checkpoint, small_files, few_partitions, waves),
        *(many_partitions, growing_state, contention),
    )
}


def session(given: argparse.Namespace) -> SparkSession:
    classes = Path(given.scratch) / "classes"
    classes.mkdir(parents=True, exist_ok=True)
    builder = SparkSession.builder.master(f"local[{CORES},3]").appName(given.job)
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC",
        "spark.driver.extraClassPath": str(classes),
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(CORES),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file://{given.logs}",
        "spark.eventLog.compress": "true",
        "spark.eventLog.compression.codec": given.codec,
        "spark.eventLog.rolling.enabled": "true",
        "spark.eventLog.rolling.maxFileSize": "10m",
        "spark.hadoop.fs.slow.impl": "SlowFileSystem",
        "spark.sql.streaming.checkpointFileManagerClass": f"{MANAGERS}.FileSystemBasedCheckpointFileManager",
        "spark.local.dir": f"{given.scratch}/local",
    }
    if given.jars:
        settings["spark.jars"] = given.jars
    for key, value in settings.items():
        builder = builder.config(key, value)
    made = builder.getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    compiler: Any = made.sparkContext._jvm
    assert compiler
    source = Path(given.scratch) / "SlowFileSystem.java"
    source.write_text(SLOW)
    janino = compiler.org.codehaus.janino.CompilerFactory().newCompiler()
    janino.setDestinationDirectory(compiler.java.io.File(str(classes)), False)
    files = made.sparkContext._gateway.new_array(compiler.java.io.File, 1)  # type: ignore[union-attr]
    files[0] = compiler.java.io.File(str(source))
    janino.compile(files)
    return made


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--logs", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--codec", default="zstd")
    parser.add_argument("--work", type=float, default=1.0)
    parser.add_argument("--kafka")
    parser.add_argument("--topic")
    parser.add_argument("--jars", default="")
    options = parser.parse_args()
    options.checkpoint = f"{options.scratch}/checkpoint"
    spark = session(options)
    writer = (
        JOBS[options.job](spark, options)
        .queryName(options.job)
        .option("checkpointLocation", options.checkpoint)
    )
    if options.job != "short-trigger":
        writer = writer.trigger(processingTime=TRIGGER)
    query = writer.start()
    deadline = time.monotonic() + options.seconds
    while time.monotonic() < deadline and query.isActive:
        query.awaitTermination(1)
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main()
