"""The whole way through Millrace against one job by hand: ``python -m tests.performance.end_to_end_against_baseline``.

derive
    A land query and a derive query with two broadcast joins, from a Kafka topic of flights, against one ``foreachBatch`` that parses, keeps
    the batch, appends it to the first table, joins, and appends to the second. Both run until the second table is complete.
window, session
    A derive query with state, keyed, over a landing table that gets a commit for each batch, against plain Spark over a like table with a
    ``MERGE`` of the results; sessions, which are written once, by Iceberg's own streaming sink.

By hand there are no checks, no dead letters, no accounts, and a batch that is repeated after a crash is doubled in appended tables. Figures are
ratios of rounds: Millrace's time and CPU to those by hand.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.schema_files import parse_ddl_schema, read_text_schema_file
from millrace.etl.job import build_queries
from millrace.etl.launch import settings
from millrace.etl.queries.transform import good_records
from millrace.etl.record import envelope, tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import kafka_broker
from tests.faults import small_job_documents
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.cpu_time import cpu_since_now, task_seconds
from tests.performance.growth_session import now
from tests.performance.hand_written_baselines import HOME, SCHEMA
from tests.performance.median_intervals import interval
from tests.performance.preloaded_input import PARTITIONS, TOPIC, preload
from tests.performance.tables_of_any_size import Numbered, write

KEYS = 1_000
PROGRESS_SECONDS = 10.0
ENRICH = (
    {"table": "bench.airlines", "on": {"carrier": "carrier"}, "columns": {"airline": "name"}},
    {"table": "bench.airports", "on": {"dest": "faa"}, "columns": {"airport": "name", "zone": "tzone"}},
)
_MARK = {"time": "_arrived_at", "delay_seconds": 600, "ahead_seconds": 1e9}


def by_minute(rows: DataFrame) -> DataFrame:
    """Records and sum of each key in each minute."""
    key = (F.col("n") % KEYS).alias("key")
    counted = rows.groupBy(F.window("_arrived_at", "1 minute"), key).agg(
        F.count(F.lit(1)).alias("records"), F.sum("n").alias("total")
    )
    return counted.select(F.col("window.start").alias("minute"), "key", "records", "total")


def by_session(rows: DataFrame) -> DataFrame:
    """Records of each key that lie no more than five seconds apart; a key comes back after ten, so that each ends."""
    key = (F.floor(F.col("n") / 5) % KEYS).alias("key")
    counted = rows.groupBy(F.session_window("_arrived_at", "5 seconds").alias("visit"), key).agg(
        F.count(F.lit(1)).alias("records"), F.sum("n").alias("total")
    )
    return counted.select(F.col("visit.start").alias("began"), "key", "records", "total")


STATES: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, str], str]] = {
    "window": (by_minute, ("minute", "key"), "update"),
    "session": (by_session, ("began", "key"), "append"),
}


def built(
    spark: SparkSession, name: str, queries: Sequence[dict[str, Any]], bootstrap: str | None
) -> Sequence[ReadyQuery]:
    """Queries of a job, as from a launch document."""
    job = settings.parse_job_settings(
        small_job_documents.settings(name, queries, str(HOME / name), bootstrap)
    )
    return build_queries.build_queries(
        JobRun(spark, job, {}, EventReporter(name, (HOME / f"{name}.jsonl").open("a")))
    )


def writer(query: ReadyQuery) -> Any:
    found = query.rows.writeStream.foreachBatch(query.handle).outputMode(query.output_mode)
    return found.option("checkpointLocation", query.checkpoint)


@dataclass
class Whole:
    """Landing and derive over a topic."""

    spark: SparkSession
    bootstrap: str
    events: int
    per_batch: int

    def millrace(self, name: str) -> list[Any]:
        source = small_job_documents.topic(TOPIC, self.per_batch)
        queries = small_job_documents.queries(
            "derive", source, Path(SCHEMA), lambda each: f"bench.{name}_{each}"
        )
        queries[1]["enrich"] = [{**each, "refresh_seconds": 3600.0} for each in ENRICH]
        return [writer(query) for query in built(self.spark, name, queries, self.bootstrap)]

    def by_hand(self, name: str) -> list[Any]:
        spark = self.spark
        schema = parse_ddl_schema(spark, read_text_schema_file(spark, SCHEMA), SCHEMA)
        reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("maxOffsetsPerTrigger", str(self.per_batch)).option("includeHeaders", "true")
        source = reader.option("subscribe", TOPIC).option("startingOffsets", "earliest").load()
        beside = [F.xxhash64("payload").alias("_hash"), F.current_timestamp().alias("_landed_at")]
        rows = envelope.from_kafka(source, "flights").select(
            *envelope.COLUMNS, *beside, F.from_json(F.col("payload").cast("string"), schema).alias("r")
        )
        rows = rows.select(*(c for c in rows.columns if c != "r"), "r.*")
        airlines = F.broadcast(spark.table("lake.bench.airlines").withColumnRenamed("name", "airline"))
        airports = F.broadcast(
            spark.table("lake.bench.airports").selectExpr("faa AS dest", "name AS airport", "tzone AS zone")
        )

        def joined(batch: DataFrame) -> DataFrame:
            found = batch.join(airlines, "carrier", "left").join(airports, "dest", "left")
            return found.withColumn("_written_at", F.current_timestamp())

        empty = spark.createDataFrame([], rows.schema)
        for table, shape in (("landed", empty), ("out", joined(empty))):
            tables.create_or_evolve_table(spark, Table("lake", "bench", f"{name}_{table}"), shape.schema)

        def both(batch: DataFrame, _number: int) -> None:
            batch.persist()
            batch.writeTo(f"lake.bench.{name}_landed").append()
            joined(batch).writeTo(f"lake.bench.{name}_out").append()
            batch.unpersist()

        return [rows.writeStream.foreachBatch(both).option("checkpointLocation", str(HOME / name))]

    def measure(self, way: str, number: int) -> dict[str, float]:
        """Run one way over the whole topic."""
        name = f"{way}_{number}"
        writers = getattr(self, way)(name)
        cpu, tasks, begun = cpu_since_now(self.spark), task_seconds(self.spark), time.monotonic()
        queries = [each.start() for each in writers]
        try:
            for query in queries:  # the second one when the first has landed all
                query.processAllAvailable()
            seconds, used = time.monotonic() - begun, cpu()
            parts = [
                sum(b["durationMs"]["triggerExecution"] for b in q.recentProgress) / 1000 for q in queries
            ]
        finally:
            for query in queries:
                query.stop()
        if (rows := self.spark.table(f"lake.bench.{name}_out").count()) != self.events:
            raise SystemExit(f"{way}: {rows:,} rows of {self.events:,}")
        for table in self.spark.catalog.listTables("lake.bench"):
            if table.name.startswith(name):
                self.spark.sql(f"DROP TABLE lake.bench.{table.name} PURGE")
        found = {"seconds": seconds, "cpu": used, "tasks": task_seconds(self.spark) - tasks}
        return found | {f"query {at}": part for at, part in enumerate(parts)}


def batches_with_data(query: Any) -> dict[int, float]:
    """Seconds of each batch by its number; while it waits, Spark tells of the next one too, without a batch."""
    return {
        each["batchId"]: each["durationMs"]["triggerExecution"] / 1000
        for each in query.recentProgress
        if "addBatch" in each["durationMs"]
    }


@dataclass
class Stateful:
    """One kind of state, over two landing tables that get the same commits."""

    spark: SparkSession
    kind: str
    rows: int
    queries: dict[str, Any] = field(default_factory=dict)
    first: int = 1

    def __post_init__(self) -> None:
        self.transform, self.key, self.mode = STATES[self.kind]
        self.since = now()
        for way in ("millrace", "by_hand"):
            records = Numbered(0, 1, self.since, 500.0, partitions=PARTITIONS).good(self.spark, 1)
            shape = records.select("*", *(F.lit(None).cast(t).alias(c) for c, t in
                                          (("_bytes", "binary"), ("_stage", "string"), ("_error", "string"))))  # fmt: skip
            tables.create_or_evolve_table(self.spark, Table("lake", "bench", self.landing(way)), shape.schema)
            write(self.spark, Table("lake", "bench", self.landing(way)), records)
            self.queries[way] = getattr(self, way)()

    def landing(self, way: str) -> str:
        return f"{self.kind}_{way}_landed"

    def millrace(self) -> Any:
        name = f"{self.kind}_millrace"
        state = {
            "watermark": _MARK,
            "distinct": [],
            "key": list(self.key),
            "join": None,
            "output_mode": self.mode,
        }
        derive: dict[str, Any] = {
            "kind": "derive", "name": name, "source_table": f"bench.{self.landing('millrace')}", "enrich": [],
            "transform": f"tests.performance.end_to_end_against_baseline:{self.transform.__name__}", "state": state, "latest_by": [],
            "dead_letters": None, "route": None, "trigger_seconds": 0,
            "sink": {"kind": "iceberg", "table": f"bench.{name}"},
        }  # fmt: skip
        return writer(built(self.spark, name, [derive], None)[-1]).start()

    def by_hand(self) -> Any:
        name = f"lake.bench.{self.kind}_by_hand"
        source = self.spark.readStream.format("iceberg").table(f"lake.bench.{self.landing('by_hand')}")
        rows = self.transform(good_records(source).withWatermark("_arrived_at", "600 seconds"))
        table = Table("lake", "bench", f"{self.kind}_by_hand")
        tables.create_or_evolve_table(self.spark, table, rows.schema, time=self.key[0])
        results = rows.writeStream.outputMode(self.mode).option(
            "checkpointLocation", str(HOME / f"{self.kind}_by_hand")
        )
        if self.mode == "append":
            return results.format("iceberg").toTable(name)
        same = " AND ".join(f"t.{each} = s.{each}" for each in self.key)

        def merge(batch: DataFrame, _number: int) -> None:
            batch.persist()  # a MERGE reads it twice
            batch.createOrReplaceTempView("results")
            batch.sparkSession.sql(
                f"MERGE INTO {name} t USING results s ON {same} WHEN MATCHED THEN UPDATE SET * "
                "WHEN NOT MATCHED THEN INSERT *"
            )
            batch.unpersist()

        return results.foreachBatch(merge).start()

    def measure(self, way: str, done: Collection[int]) -> dict[str, float]:
        """Wait for the results of one way, and take the time of all its batches but those that were done before."""
        cpu, query = cpu_since_now(self.spark), self.queries[way]
        query.processAllAvailable()
        batches: list[float] = []
        until = time.monotonic() + PROGRESS_SECONDS
        while not batches and time.monotonic() < until:  # a batch is done before Spark tells of it
            batches = [each for number, each in batches_with_data(query).items() if number not in done]
        if not batches:
            raise SystemExit(f"{way}: Spark told of no batch within {PROGRESS_SECONDS:g} s")
        return {"seconds": sum(batches), "cpu": cpu()}

    def round(self, number: int) -> dict[str, dict[str, float]]:
        since = self.since.timestamp() + self.first / 500
        records = Numbered(self.first, self.rows, type(self.since).fromtimestamp(since, self.since.tzinfo), 500.0,
                           partitions=PARTITIONS).good(self.spark, 2).localCheckpoint()  # fmt: skip
        self.first += self.rows
        found = {}
        for way in in_turn(("millrace", "by_hand"), number):
            # Before the rows are there: a fast query tells of their batch at once.
            done = set(batches_with_data(self.queries[way]))
            write(self.spark, Table("lake", "bench", self.landing(way)), records)
            found[way] = self.measure(way, done)
        return found

    def differing(self) -> int:
        """Results of one way that the other has not."""
        ours, theirs = (
            self.spark.table(f"lake.bench.{self.kind}_{way}").select(*self.key, "records", "total")
            for way in ("millrace", "by_hand")
        )
        return ours.exceptAll(theirs).count() + theirs.exceptAll(ours).count()


def told(title: str, rounds: Sequence[dict[str, dict[str, float]]]) -> None:
    """Print medians of both ways, and ratios."""
    for name in rounds[0]["millrace"]:
        medians = [
            np.median([each[way].get(name, np.nan) for each in rounds]) for way in ("millrace", "by_hand")
        ]
        line = f"{title:10} {name:10} millrace {medians[0]:8.2f}  by hand {medians[1]:8.2f}"
        if name in rounds[0]["by_hand"] and not name.startswith("query"):
            ratios = [each["by_hand"][name] / each["millrace"][name] for each in rounds]
            middle, low, high = interval(ratios)
            every = " ".join(f"{each:.2f}" for each in ratios)
            line += f"  by hand / millrace {middle:.2f} [{low:.2f}, {high:.2f}]  {every}"
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def references(spark: SparkSession) -> None:
    """Tables that flights are joined with."""
    for name in ("airlines", "airports"):
        spark.createDataFrame(records_from_nycflights.read_reference_table(name).to_pandas()).writeTo(
            f"lake.bench.{name}"
        ).create()


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.end_to_end_against_baseline", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--only", nargs="+", choices=("derive", *STATES), default=["derive", *STATES])
    reading.add_argument("--events", type=int, default=600_000)
    reading.add_argument("--per-batch", type=int, default=200_000)
    reading.add_argument("--rows", type=int, default=100_000, help="of a commit, with state")
    reading.add_argument("--pairs", type=int, default=3, help="measured rounds")
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; print ratios."""
    given = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    conf = {"spark.sql.streaming.noDataMicroBatches.enabled": "false"}  # they would run beside the other way
    with spark_session(2, conf=conf) as spark:
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.bench")
        if "derive" in given.only:
            references(spark)
            with kafka_broker.running_broker() as broker:
                broker.create_topic(TOPIC, PARTITIONS)
                preload(broker.bootstrap, given.events)
                whole, rounds = Whole(spark, broker.bootstrap, given.events, given.per_batch), []
                for number in range(given.pairs + 1):
                    rounds.append(
                        {way: whole.measure(way, number) for way in in_turn(("millrace", "by_hand"), number)}
                    )
                    sys.stderr.write(f"{number}: {rounds[-1]}\n")
                told("derive", rounds[1:])
        for kind in (each for each in STATES if each in given.only):
            stateful = Stateful(spark, kind, given.rows)
            rounds = [stateful.round(number) for number in range(given.pairs + 4)]
            told(kind, rounds[4:])
            sys.stdout.write(f"{kind:10} {stateful.differing()} results differ\n")
            for query in stateful.queries.values():
                query.stop()
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
