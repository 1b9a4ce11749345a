"""Load test of the core with ten million records: ``python -m tests.faults.ten_million_records --events 10000000``.

A topic of a real broker is filled. The core's land query reads it, is stopped in the middle of a batch and built anew as often as
asked for, and goes on from its checkpoint. Then Spark holds the table against the topic itself, as multisets of identity and hash
of the payload, both ways. Ends with 1 where a record is missing or twice.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import SandboxError, wait_until
from tests.performance.benchmark_session import spark_session
from tests.performance.hand_written_baselines import HOME
from tests.performance.kafka_landing_speed import Bench, landing
from tests.performance.preloaded_input import PARTITIONS, TOPIC, preload

NAME = "load"
STALL_SECONDS = 180.0


def land(bench: Bench, stops: int, choose: random.Random) -> float:
    """Land the whole topic, with stops on the way; return the seconds."""
    begun = time.monotonic()
    at = sorted(choose.sample(range(1, bench.events), stops))
    for wanted in [*at, bench.events]:
        query = landing(bench, NAME)
        try:
            wait_until(
                lambda wanted=wanted, query=query: _landed(bench) >= wanted or not query.isActive,  # type: ignore[misc]  # of this turn
                seconds=STALL_SECONDS, what="landed", progress=lambda: f"{_landed(bench):,}", poll_seconds=0.25,
            )  # fmt: skip
            if query.exception():
                raise SandboxError(f"it stands still: {query.exception()}")
        finally:
            query.stop()
    return time.monotonic() - begun


def _landed(bench: Bench) -> int:
    newest = bench.spark.table(f"lake.bench.{NAME}.snapshots").orderBy("committed_at", ascending=False)
    last = newest.select("summary").first()
    return 0 if last is None else int(last["summary"].get("total-records", 0))


def difference(bench: Bench) -> tuple[int, int]:
    """Records of the topic that the table lacks, and rows of the table that the topic lacks; as multisets."""
    topic = (
        bench.spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bench.bootstrap)
        .option("subscribe", TOPIC)
        .load()
        .select(
            F.concat_ws("/", "topic", "partition", "offset").alias("_id"), F.xxhash64("value").alias("_hash")
        )
    )
    table: DataFrame = bench.spark.table(f"lake.bench.{NAME}").select("_id", "_hash")
    return topic.exceptAll(table).count(), table.exceptAll(topic).count()


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.ten_million_records", description="Ten million records through the core."
    )
    reading.add_argument("--events", type=int, default=10_000_000)
    reading.add_argument("--stops", type=int, default=5, help="in the middle, each with a new start")
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main(arguments: list[str] | None = None) -> int:
    """Fill, land, compare, print."""
    options = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    choose = random.Random(options.seed)
    with kafka_broker.running_broker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        preload(broker.bootstrap, options.events)
        sys.stderr.write(f"{options.events:,} records sent\n")
        with spark_session(2) as spark, (HOME / "events.jsonl").open("w") as log:
            bench = Bench(spark, broker.bootstrap, 200_000, options.events, log)
            seconds = land(bench, options.stops, choose)
            sys.stderr.write(f"landed in {seconds:.0f} s; comparing\n")
            lacks, more = difference(bench)
            rows = _landed(bench)
    shutil.rmtree(HOME)
    sys.stdout.write(
        f"{options.events:,} records, {options.stops} stops, {rows:,} rows, {options.events / seconds:,.0f} records/s: "
        f"{lacks} lost, {more} too many\n"
    )
    return int(bool(lacks or more))


if __name__ == "__main__":
    raise SystemExit(main())
