"""A landing table that is kept up, and a query that reads it: landed, compacted, expired, begun, read."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.checkpoints.derive_allowed_batch_ends import query_with_allowed_batch_ends
from millrace.etl.checkpoints.derive_start_after_expiry import write_starts_and_list_expired_tables
from millrace.etl.maintenance.table_maintenance import Compaction, SnapshotExpiry
from millrace.etl.queries import derive
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import Events, frame, good, kafka_rows

Names = Callable[[str], Table]

NOW = timedelta(0)
"""Keeps nothing that need not be kept."""


def files(spark: SparkSession, table: Table) -> int:
    return spark.table(f"{table}.files").count()


def snapshots(spark: SparkSession, table: Table) -> int:
    return spark.table(f"{table}.snapshots").count()


def compact(spark: SparkSession, table: Table, events: Events | None = None) -> None:
    Compaction(table=table, file_size=64 * 1024**2, report=(events or Events()).reporter)(spark)


def expire(spark: SparkSession, pipe: Pipeline, *readers: Path, keep: timedelta = NOW) -> Events:
    events = Events()
    SnapshotExpiry(table=pipe.landing, keep=keep, readers=tuple(map(str, readers)), report=events.reporter)(
        spark
    )
    return events


def land(pipe: Pipeline, first: int, batches: int, rows: int = 2) -> None:
    for number in range(first, first + batches):
        offsets = range(number * rows, (number + 1) * rows)
        pipe.land(frame(pipe.spark, kafka_rows(0, offsets[0], [good(n) for n in offsets])), number)


def begin(pipe: Pipeline, rows: DataFrame | None = None) -> tuple[str, ...]:
    rows = derive.stream_landing_table(pipe.spark, pipe.landing) if rows is None else rows
    return write_starts_and_list_expired_tables(
        pipe.spark, rows, Checkpoint(str(pipe.checkpoint)), "derive-flights"
    )


def read(pipe: Pipeline, most: int | None = None, rows: DataFrame | None = None) -> tuple[list[int], int]:
    """What a query reads that doubles what comes twice, and how often its batch was cut."""
    result: list[int] = []

    def take(batch: DataFrame, _: int) -> None:
        result.extend(row["flight"] for row in batch.collect())

    rows = derive.stream_landing_table(pipe.spark, pipe.landing, most) if rows is None else rows
    bare = ReadyQuery("derive-flights", rows, take, str(pipe.checkpoint), 0.0)
    for cuts in range(9):
        query = query_with_allowed_batch_ends(bare, Checkpoint(str(pipe.checkpoint)), whole_commits=False)
        running = (
            rows.writeStream.option("checkpointLocation", query.checkpoint).foreachBatch(query.handle).start()
        )
        try:
            running.processAllAvailable()
            return sorted(result), cuts
        except StreamingQueryException as error:
            if "the query restarts with the right ones" not in str(error):
                raise
        finally:
            running.stop()
    raise AssertionError("cut again and again")


def flights(pipe: Pipeline) -> list[int]:
    return sorted(row["flight"] for row in pipe.written().collect())


def wanted(rows: int) -> list[int]:
    return [n for n in range(rows) if n % 3]
