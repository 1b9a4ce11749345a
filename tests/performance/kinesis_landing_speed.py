"""Cost of landing from Kinesis: ``python -m tests.performance.kinesis_landing_speed --events 200000 --pairs 5``.

A stream of a local server (kinesalite) is filled once. Then the same connector reads it from its beginning, turn about in
one session, with the same limit, until a table has all of it; the figures to trust are ratios of a round.

append
    What is written by hand: ``from_json`` with the schema, one append to an Iceberg table by Spark's own sink.
landing
    The core's land query: identity, look-up of what is there already, guards of the connector, dead letters, accounts.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from millrace.etl.formats.schema_files import parse_ddl_schema, read_text_schema_file
from millrace.etl.job import build_queries
from millrace.etl.launch import engine_interface_and_registry, settings
from millrace.etl.launch.sources import KinesisSource
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.sandbox.records.producer import KinesisProducer
from tests import kinesalite
from tests.kinesalite import CREDENTIALS, REGION
from tests.launch_document_defaults import with_route
from tests.performance.benchmark_session import spark_session
from tests.performance.hand_written_baselines import HOME, SCHEMA
from tests.performance.kafka_landing_speed import pairs
from tests.performance.median_intervals import interval
from tests.performance.preloaded_input import clean

STREAM = "flights"
SHARDS = 2
FETCH_SECONDS = 30.0
"""A batch ends by its limit of records, not by this."""

STALL_SECONDS = 120.0


def append(spark: SparkSession, endpoint: str, name: str, per_shard: int, _log: TextIO) -> Any:
    """Start the query that is written by hand."""
    module = engine_interface_and_registry.engine_of("sandbox")
    source = KinesisSource(STREAM, STREAM, REGION, "earliest", per_shard, FETCH_SECONDS, 86_400)
    options = module.kinesis_options(source, endpoint, []) | module.kinesis_credential_options(os.environ)
    records = spark.readStream.format(module.KINESIS_FORMAT).options(**options).load()
    schema = parse_ddl_schema(spark, read_text_schema_file(spark, SCHEMA), SCHEMA)
    parsed = F.from_json(F.col("data").cast("string"), schema).alias("r")
    rows = records.select(parsed, F.col("approximateArrivalTimestamp").alias("_arrived_at"))
    rows = rows.select("r.*", "_arrived_at")
    tables.create_or_evolve_table(spark, Table("lake", "bench", name), rows.schema)
    written = rows.writeStream.format("iceberg").option("checkpointLocation", str(HOME / name))
    return written.toTable(f"lake.bench.{name}")


def landing(spark: SparkSession, endpoint: str, name: str, per_shard: int, log: TextIO) -> Any:
    """Start the core's query, built from settings as a launch document has them."""
    source: dict[str, Any] = {
        "kind": "kinesis",
        "name": STREAM,
        "stream": STREAM,
        "region": REGION,
        "start": "earliest",
    }
    source |= {"records_per_shard": per_shard, "fetch_seconds": FETCH_SECONDS, "retention_seconds": 86_400}
    source |= {"consumer": None, "role": None, "records_per_batch": None}
    query: dict[str, Any] = {
        "kind": "land",
        "name": name,
        "source": source,
        "format": {"kind": "json"},
        "schema": SCHEMA,
    }
    query |= {"redact": [], "rules": [], "decompress_up_to": None, "trigger_seconds": 0, "repartition": None}
    query |= {"table": f"bench.{name}"}
    job: dict[str, Any] = {
        "version": 1,
        "environment": "bench",
        "job": "flights",
        "engine": "sandbox",
        "catalog": "lake",
    }
    job |= {"checkpoints": str(HOME), "batch_retries": 0, "dead_letters_kept_seconds": None, "upkeep": None}
    job |= {"erase_share": 0.1, "run_every_seconds": None}
    job |= {"connections": {}, "queries": [with_route(query)]}
    binds = {"kinesis.endpoint": endpoint}
    built = build_queries.build_queries(
        JobRun(spark, settings.parse_job_settings(job), binds, EventReporter("flights", log))
    )[0]
    return (
        built.rows.writeStream.foreachBatch(built.handle)
        .option("checkpointLocation", built.checkpoint)
        .start()
    )


CASES = {"append": append, "landing": landing}


@dataclass(frozen=True)
class Took:
    """Seconds of all batches of a query that held records, as Spark reports them; how many; and of their stages."""

    seconds: float
    batches: int
    stages: Mapping[str, float]

    def told(self) -> str:
        """Where the time of a batch went; what no stage took is planning, commits and logs."""
        parts = dict(self.stages) | {"else": self.seconds - sum(self.stages.values())}
        each = ", ".join(f"{part} {seconds / self.batches:.2f}" for part, seconds in parts.items())
        return f"{self.batches} batches of {self.seconds / self.batches:.2f} s: {each}"


def measure(
    spark: SparkSession, endpoint: str, case: str, number: int, given: argparse.Namespace, log: TextIO
) -> Took:
    """Let a query read the whole stream."""
    name, events = f"{case}_{number}", given.events
    before = {stage.stageId() for stage in _stages(spark)}
    moved = time.monotonic()
    query = CASES[case](spark, endpoint, name, given.per_shard, log)
    took: dict[int, tuple[int, float]] = {}
    seen = 0
    try:
        while seen < events:
            if not query.isActive or time.monotonic() - moved > STALL_SECONDS:
                raise SystemExit(
                    f"{case} stands still at {seen:,} of {events:,} records: {query.exception()}"
                )
            # Seldom, and without a job of Spark's: what asks is paid for by the query that is asked about.
            time.sleep(0.5)
            for batch in query.recentProgress:
                seconds = batch["durationMs"]["triggerExecution"] / 1000
                took[batch["batchId"]] = batch["numInputRows"], seconds
            if (read := sum(rows for rows, _ in took.values())) > seen:
                seen, moved = read, time.monotonic()
    finally:
        query.stop()
    stages = [stage for stage in _stages(spark) if stage.stageId() not in before]
    if (rows := spark.table(f"lake.bench.{name}").count()) != events:
        raise SystemExit(f"{case}: {rows:,} rows of {events:,} records")
    for table in spark.catalog.listTables("lake.bench"):
        spark.sql(f"DROP TABLE lake.bench.{table.name} PURGE")
    held = [seconds for rows, seconds in took.values() if rows]
    return Took(sum(held), len(held), where(stages))


def _stages(spark: SparkSession) -> list[Any]:
    context = spark._jsc.sc()
    gateway = spark.sparkContext._gateway
    listed = context.statusStore().stageList(
        None, False, False, gateway.new_array(gateway.jvm.double, 0), None
    )
    stages = [listed.apply(n) for n in range(listed.size())]
    return [stage for stage in stages if stage.completionTime().isDefined()]


def where(stages: Sequence[Any]) -> dict[str, float]:
    """Seconds of stages, by what they do; Spark counts nothing of what a connector reads."""
    took = {"look-up": 0.0, "reading": 0.0, "writing": 0.0}
    for stage in stages:
        if stage.outputRecords() or stage.shuffleReadRecords():
            what = "writing"
        else:
            what = "look-up" if stage.inputRecords() else "reading"
        seconds = stage.completionTime().get().getTime() - stage.submissionTime().get().getTime()
        took[what] += seconds / 1000
    return took


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.kinesis_landing_speed", description="What landing costs on Kinesis."
    )
    reading.add_argument("--events", type=int, default=200_000)
    reading.add_argument("--pairs", type=pairs, default=5, help="measured rounds")
    reading.add_argument(
        "--per-shard", type=int, default=10_000, help="records of a batch, of each of two shards"
    )
    reading.add_argument("--cores", type=int, default=2)
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    os.environ.update(CREDENTIALS, AWS_CBOR_DISABLE="true", AWS_REGION=REGION, AWS_DEFAULT_REGION=REGION)
    console = Console(width=160, highlight=False)
    with kinesalite.running() as server:
        client = server.client()
        client.create_stream(StreamName=STREAM, ShardCount=SHARDS)
        client.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
        KinesisProducer(client, STREAM).send(clean(given.events), sent=lambda _: None)
        java = "-Dcom.amazonaws.sdk.disableCbor=true"
        with spark_session(given.cores, java) as spark, (HOME / "events.jsonl").open("w") as log:
            rounds = []
            # The first round warms the JVM up and is not counted.
            for number in range(given.pairs + 1):
                turn = list(CASES) if number % 2 else list(CASES)[::-1]
                took = {case: measure(spark, server.endpoint, case, number, given, log) for case in turn}
                rounds.append(took)
                told = ", ".join(f"{case} {given.events / took[case].seconds:,.0f}/s" for case in CASES)
                console.print(f"{'warm-up' if number == 0 else f'round {number}'}: {told}")
    for case in CASES:
        console.print(f"{case}, the last round: {rounds[-1][case].told()}")
    ratios = [took["append"].seconds / took["landing"].seconds for took in rounds[1:]]
    median, low, high = interval(ratios)
    console.print(f"landing / append, rates: {median:.2f} [{low:.2f}, {high:.2f}]")
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
