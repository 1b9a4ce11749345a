"""Cost of landing change data and keeping its rows, compared with a hand-written ``MERGE``.

``python -m tests.performance.change_data --keys 100000 1000000 --events 200000 --pairs 3``. A topic has Debezium's events of a table with
so many keys: eight of ten update a row, one inserts and one deletes. All runs read the same events into copies of one table, turn about, in
one session.

merge
    What a Spark expert writes by hand: ``from_json``, the last event of each key in the batch, one ``MERGE``. An older event that comes
    later wins; nothing is landed.
append_merge
    The same, and an append of what was parsed before it.
landed
    The core's land query: every change with its operation, position and the row before it, dead letters, duplicates looked up.
derived
    The core's derive query with ``latest_by``, over what has landed.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.job import build_queries
from millrace.etl.launch import settings
from millrace.etl.queries.transform import EnrichThenTransform, good_records
from millrace.etl.record import envelope, tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from millrace.etl.sinks.base import DELETED, ORDER
from millrace.etl.sinks.delivery.keyed_rows import result_identity
from millrace.sandbox.programs import kafka_broker
from tests.faults import small_job_documents
from tests.launch_document_defaults import with_route
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.cpu_time import cpu_since_now
from tests.performance.hand_written_baselines import HOME
from tests.performance.median_intervals import interval
from tests.performance.tables_of_any_size import borrowed
from tests.spark.queries.test_change_order import decoder_of

TOPIC, PARTITIONS = "orders", 4
DDL = "id BIGINT NOT NULL, code STRING NOT NULL, n INT, price DECIMAL(9,2), at TIMESTAMP COMMENT 'epoch microseconds', note STRING"
SOURCE = "connector STRING, name STRING, schema STRING, `table` STRING, snapshot STRING, ts_ms BIGINT, lsn BIGINT, sequence STRING"
ROW = "id BIGINT, code STRING, n INT, price STRING, at BIGINT, note STRING"
"""As the connector writes it."""

LATEST = ("id",)


def row(number: Column) -> Column:
    """A row of the table, as in an event."""
    return F.struct(
        number.alias("id"),
        F.concat(F.lit("order-"), number.cast("string")).alias("code"),
        (number % 1000).cast("int").alias("n"),
        F.lit("BNI=").alias("price"),
        F.lit(1_700_000_000_000_000).alias("at"),
        F.lit("x" * 100).alias("note"),
    )


def events(
    spark: SparkSession, first: int, count: int, keys: int, tasks: int, *, snapshot: bool = False
) -> DataFrame:
    """``key`` and ``value`` of events, from a place of the log on; of a snapshot, one for each key."""
    place = F.col("id")
    number = place if snapshot else F.pmod(F.xxhash64(place), F.lit(keys))
    fate = F.pmod(F.hash(place), F.lit(10))
    op = F.lit("r") if snapshot else F.when(fate == 0, "d").when(fate == 1, "c").otherwise("u")
    # An insert is of a new key.
    number = F.when(op == "c", place + keys).otherwise(number)
    source = F.struct(
        *(
            F.lit(value).alias(name)
            for name, value in (("connector", "postgresql"), ("name", "shop"), ("schema", "public"))
        ),
        F.lit("orders").alias("table"),
        F.lit("true" if snapshot else "false").alias("snapshot"),
        (F.lit(1_700_000_000_000) + place).alias("ts_ms"),
        place.alias("lsn"),
        F.concat(
            F.lit('["'), (place - 1).cast("string"), F.lit('","'), place.cast("string"), F.lit('"]')
        ).alias("sequence"),
    )
    value = F.struct(
        F.when(op == "d", row(number)).alias("before"),
        F.when(op != "d", row(number)).alias("after"),
        source.alias("source"),
        op.alias("op"),
        F.lit(1_700_000_000_000).alias("ts_ms"),
    )
    made = spark.range(first, first + count, 1, tasks)
    return made.select(
        F.to_json(F.struct(number.alias("id"))).cast("binary").alias("key"),
        F.to_json(value).cast("binary").alias("value"),
    )


@dataclass
class Bench:
    """What every case reads, and the copies of the table that they write."""

    spark: SparkSession
    bootstrap: str
    keys: int
    events: int
    per_batch: int
    number: int = 0

    def table(self, name: str) -> Table:
        """A table of this size."""
        return Table("lake", "bench", f"{name}_{self.keys}")

    def seed(self) -> None:
        """Make the rows of each key, with and without their order."""
        given = events(self.spark, 0, self.keys, self.keys, max(2, self.keys // 100_000), snapshot=True)
        # Between two checkpoints, as between two queries: in one plan Spark repeats each expression in all that read it.
        rows = given.localCheckpoint().select(
            F.concat_ws("/", F.lit(TOPIC), F.monotonically_increasing_id()).alias("_id"),
            F.lit("events").alias("_source"),
            F.lit("0").alias("_shard"),
            F.lpad(F.monotonically_increasing_id().cast("string"), 20, "0").alias("_position"),
            F.col("key").alias("_key"),
            F.lit(None).cast(envelope.HEADERS).alias("_headers"),
            F.lit("2023-11-14 22:13:20").cast("timestamp").alias("_arrived_at"),
            F.col("value").alias("payload"),
        )
        landed = (
            decoder_of(self.spark, DDL, "postgresql")
            .decode(rows.withColumn("_landed_at", F.col("_arrived_at")))
            .localCheckpoint()
        )
        compose = EnrichThenTransform((), lambda out: out, "none", latest_by=LATEST)
        whole = compose(good_records(landed, deletes=True)).drop(DELETED)
        for name, made in (("ours", whole), ("plain", None)):
            stored = self.spark.table(str(self.table("ours"))).drop(ORDER) if made is None else made
            tables.create_or_evolve_table(self.spark, self.table(name), stored.schema, time=None)
            stored.writeTo(str(self.table(name))).append()

    def copy(self, name: str, of: str) -> Table:
        """A table with the files of another one."""
        made, lender = self.table(f"{name}_{self.number}"), self.table(of)
        tables.create_or_evolve_table(self.spark, made, self.spark.table(str(lender)).schema, time=None)
        borrowed(self.spark, made, lender, self.keys, {})
        return made

    def queries(self, out: Table) -> list[ReadyQuery]:
        """The core's land and derive query, built from settings as a launch document has them."""
        schema = HOME / "orders.ddl"
        schema.write_text(DDL)
        landed = f"bench.landed_{self.keys}_{self.number}"
        source = small_job_documents.topic(f"{TOPIC}-{self.keys}", self.per_batch)
        land, derive = small_job_documents.queries("derive", source, schema, lambda _: landed)
        land["format"] = {"kind": "debezium", "avro": None, "decimals": "precise", "flattened": False}
        derive |= {
            "sink": {"kind": "iceberg", "table": f"{out.database}.{out.name}"},
            "latest_by": list(LATEST),
        }
        checkpoints = f"{HOME}/checkpoints/{self.keys}-{self.number}"
        job = settings.parse_job_settings(
            small_job_documents.settings(
                "bench", [with_route(each) for each in (land, derive)], checkpoints, self.bootstrap
            )
        )
        return list(
            build_queries.build_queries(JobRun(self.spark, job, {}, EventReporter("bench", io.StringIO())))
        )


def drained(rows: DataFrame, handle: Callable[[DataFrame, int], None], checkpoint: str) -> None:
    """Run a query over what there is."""
    writer = rows.writeStream.foreachBatch(handle).option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()


def by_hand(bench: Bench, name: str, out: Table, landed: Table | None) -> None:
    """The events merged into a table, and first appended to another one."""
    kind = f"before STRUCT<{ROW}>, after STRUCT<{ROW}>, source STRUCT<{SOURCE}>, op STRING, ts_ms BIGINT"
    reader = bench.spark.readStream.format("kafka").option("kafka.bootstrap.servers", bench.bootstrap)
    reader = reader.option("maxOffsetsPerTrigger", str(bench.per_batch)).option("startingOffsets", "earliest")
    topic = reader.option("subscribe", f"{TOPIC}-{bench.keys}").load()
    event = topic.select(
        F.from_json(F.col("value").cast("string"), kind).alias("e"), "offset", "partition", "timestamp"
    )
    names = [each.split()[0] for each in ROW.split(", ")]
    whole = F.coalesce("e.after", "e.before")
    values = {name: whole[name] for name in names}
    values["price"] = (F.conv(F.hex(F.unbase64(values["price"])), 16, 10).cast("decimal(18,0)") / 100).cast(
        "decimal(9,2)"
    )
    values["at"] = F.timestamp_micros(values["at"])
    parsed = event.select(
        "e.op",
        "e.source.lsn",
        *(value.alias(name) for name, value in values.items()),
        "offset",
        "partition",
        "timestamp",
    )
    if landed is not None:
        tables.create_or_evolve_table(bench.spark, landed, parsed.schema, time=None)
    stored = ("_id", *names, "_written_at")

    def merge(batch: DataFrame, _number: int) -> None:
        if landed is not None:
            batch.writeTo(str(landed)).append()
        last = (
            batch.groupBy("id")
            .agg(F.max_by(F.struct("op", *names[1:]), "lsn").alias("row"))
            .select("id", "row.*")
        )
        last.select(
            result_identity(last.schema, LATEST).alias("_id"), "*", F.current_timestamp().alias("_written_at")
        ).createOrReplaceTempView("by_hand")  # fmt: skip
        # The view belongs to the query's own session.
        batch.sparkSession.sql(
            f"MERGE INTO {out} t USING by_hand s ON t._id = s._id WHEN MATCHED AND s.op = 'd' THEN DELETE "  # noqa: S608 - plain names
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in stored)} "
            f"WHEN NOT MATCHED AND s.op != 'd' THEN INSERT ({', '.join(stored)}) VALUES ({', '.join(f's.{n}' for n in stored)})"
        )

    drained(parsed, merge, f"{HOME}/checkpoints/{name}-{bench.keys}-{bench.number}")


CASES = ("merge", "append_merge", "landed", "derived")


def turn(bench: Bench, number: int) -> dict[str, tuple[float, float]]:
    """Run all cases, each with tables of its own; seconds, and seconds of CPU."""
    bench.number = number
    land, derive = bench.queries(bench.copy("derived", "ours"))
    found: dict[str, Callable[[], None]] = {
        "merge": partial(by_hand, bench, "merge", bench.copy("merged", "plain"), None),
        "append_merge": partial(
            by_hand,
            bench,
            "append",
            bench.copy("appended", "plain"),
            bench.table(f"appended_events_{number}"),
        ),
        "landed": partial(drained, land.rows, land.handle, land.checkpoint),
        "derived": partial(drained, derive.rows, derive.handle, derive.checkpoint),
    }
    taken = {}
    # What is derived has landed before.
    for group in in_turn([("merge",), ("append_merge",), ("landed", "derived")], number):
        for name in group:
            begun, cpu = time.monotonic(), cpu_since_now(bench.spark)
            found[name]()
            taken[name] = (time.monotonic() - begun, cpu())
    return taken


def same(bench: Bench) -> int:
    """Rows that differ between the tables of the last turn, by hand and by the core."""
    names = [each.split()[0] for each in ROW.split(", ")]
    ours, plain, appended = (
        bench.spark.table(str(bench.table(f"{name}_{bench.number}"))).select(*names)
        for name in ("derived", "merged", "appended")
    )
    return sum(ours.exceptAll(other).count() + other.exceptAll(ours).count() for other in (plain, appended))


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.change_data", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--keys", type=int, nargs="+", default=[10**5, 10**6])
    reading.add_argument("--events", type=int, default=200_000)
    reading.add_argument("--per-batch", type=int, default=100_000)
    reading.add_argument("--pairs", type=int, default=3, help="measured rounds, after one that warms up")
    reading.add_argument("--cores", type=int, default=2)
    return reading


def main(arguments: Sequence[str]) -> int:
    """Measure, compare, print."""
    given = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    wrong = 0
    with kafka_broker.running_broker() as broker, spark_session(given.cores) as spark:
        for keys in given.keys:
            bench = Bench(spark, broker.bootstrap, keys, given.events, given.per_batch)
            bench.seed()
            topic = f"{TOPIC}-{keys}"
            broker.create_topic(topic, PARTITIONS)
            # One task, as a connector's: several would mix the order of a key's events, and the merge by hand would be wrong.
            made = events(spark, keys, given.events, keys, 1).write.format("kafka")
            made.option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic).save()
            rounds = [turn(bench, number) for number in range(given.pairs + 1)][1:]
            wrong += (differ := same(bench))
            sys.stdout.write(
                f"{keys:,} keys, {given.events:,} changes in batches of {given.per_batch:,}: {differ} rows differ\n"
            )
            for name in CASES:
                rate, low, high = interval([given.events / each[name][0] for each in rounds])
                cpu = interval([each[name][1] / given.events * 1e6 for each in rounds])[0]
                sys.stdout.write(
                    f"  {name:12} {rate:9,.0f} changes/s [{low:,.0f}, {high:,.0f}], {cpu:.0f} us of CPU each\n"
                )
            for what in ("merge", "append_merge"):
                for at, unit in enumerate(("time", "CPU")):
                    ratio, low, high = interval(
                        [(one["landed"][at] + one["derived"][at]) / one[what][at] for one in rounds]
                    )
                    sys.stdout.write(
                        f"  landed and derived / {what}: {unit} {ratio:.2f} [{low:.2f}, {high:.2f}]\n"
                    )
            sys.stdout.flush()
    shutil.rmtree(HOME)
    return int(bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
