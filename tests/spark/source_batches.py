"""Batches as the sources hand them over, and what the core then reports."""

from __future__ import annotations

import io
import json
import re
import tempfile
import uuid
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.formats.decoding.data_rules import decoder_with_rules
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.formats import JsonFormat
from millrace.etl.launch.settings import LandSettings, RuleSettings, SourceRouteSettings
from millrace.etl.launch.sources import KafkaSource, KinesisSource
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.envelope import HEADERS
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sources.base import ReplayedLeg
from millrace.etl.sources.kinesis.missed_records_guard import Horizon, KinesisLossGuard
from millrace.etl.sources.source_union import LegGuards

DDL = "carrier STRING NOT NULL, flight INT NOT NULL, delay DOUBLE"
EPOCH = datetime(2026, 1, 1, 12, tzinfo=UTC)

ENVELOPE = (
    "_id STRING, _source STRING, _shard STRING, _position STRING, _key BINARY, "
    f"_headers {HEADERS}, _arrived_at TIMESTAMP, payload BINARY"
)

KAFKA = KafkaSource("flights", "flights-topic", "main", "earliest", 1000, 3600)
KINESIS = KinesisSource("flights", "flights-stream", "us-east-1", "earliest", 1000, 1.0, 3600)


def good(flight: int) -> bytes:
    return json.dumps({"carrier": "AA", "flight": flight, "delay": flight / 2}).encode()


def kafka_rows(partition: int, first: int, payloads: Sequence[bytes | None]) -> list[tuple[Any, ...]]:
    return [
        (
            f"flights-topic/{partition}/{first + i}",
            "flights",
            str(partition),
            str(first + i).zfill(20),
            bytearray(b"k"),
            [("trace", bytearray(b"\x01"))],
            EPOCH + timedelta(seconds=first + i),
            None if payload is None else bytearray(payload),
        )
        for i, payload in enumerate(payloads)
    ]


def kinesis_rows(numbers: Sequence[int], arrived: datetime) -> list[tuple[Any, ...]]:
    return [
        (
            f"flights-stream/{n}",
            "flights",
            None,
            str(n),
            bytearray(b"k"),
            None,
            arrived + timedelta(milliseconds=n),
            bytearray(good(n)),
        )
        for n in numbers
    ]


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    """As ``foreachBatch`` does it: rows that the optimizer cannot look into."""
    schema = spark.createDataFrame([], ENVELOPE).schema
    return spark.createDataFrame(spark.sparkContext.parallelize(list(rows), 2), schema)


class Events:
    """Collects what the core prints."""

    def __init__(self) -> None:
        self._text = io.StringIO()
        self.reporter = EventReporter("test-job", self._text)

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._text.getvalue().splitlines()]

    def last(self) -> dict[str, Any]:
        return self.all()[-1]

    def accounts(self) -> tuple[int, ...]:
        """read, duplicates, landed, good, bad of the last batch."""
        return tuple(self.last()[k] for k in ("read", "duplicates", "landed", "good", "bad"))


def lander(
    spark: SparkSession,
    table: Table,
    events: Events,
    *,
    source: KafkaSource | KinesisSource = KAFKA,
    checkpoint: Path | None = None,
    sink: IcebergSink | None = None,
    horizon: Horizon | None = None,
    ddl: str = DDL,
    rules: tuple[RuleSettings, ...] = (),
    tasks: int | None = None,
) -> land.LandBatchWriter:
    schema = parse_ddl_schema(spark, ddl, "test.ddl")
    tables.create_or_evolve_table(spark, table, land.landing_table_schema(schema))
    route = SourceRouteSettings(None, None, source, JsonFormat(), "test.ddl", None, (), rules=rules)
    settings = LandSettings("land-flights", (route,), "land", str(table), 1.0, tasks)
    log = Checkpoint(str(checkpoint or tempfile.mkdtemp()))
    log_made(Path(log.location))
    guards = (
        LegGuards((), (KinesisLossGuard(source, log, table, horizon),))
        if isinstance(source, KinesisSource)
        else LegGuards((ReplayedLeg((source,), log),), ())
    )
    sink = sink or IcebergSink(table)
    decoder = decoder_with_rules(spark, JsonDecoder(schema), rules)
    return land.LandBatchWriter(settings, decoder, sink, log, events.reporter, guards)


def first_time(look_up: DuplicateLookUp) -> datetime:
    """The time before which a record of a batch fails the write."""
    found = re.search(r"timestamp_micros\((\d+)", str(look_up.outside))
    assert found is not None, look_up
    return datetime.fromtimestamp(int(found[1]) / 1e6, tz=UTC)


def log_made(checkpoint: Path) -> None:
    """Write a checkpoint's id, where there is none, as Spark does before the first batch."""
    checkpoint.mkdir(parents=True, exist_ok=True)
    if not (checkpoint / "metadata").exists():
        (checkpoint / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))


def log_offsets(checkpoint: Path, batch: int, offset: Any) -> None:
    """Write an entry of Spark's offset log, with the same lines as Spark 3.5 does, and the checkpoint's id before it."""
    log_made(checkpoint)
    folder = checkpoint / "offsets"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / str(batch)).write_text('v1\n{"batchWatermarkMs":0}\n' + json.dumps(offset))


def drained(
    rows: DataFrame, handle: Callable[[DataFrame, int], Any], checkpoint: str | Path, mode: str = "append"
) -> list[Any]:
    """Run a query over what is there, then end; its progress, as Spark tells it."""
    running = (
        rows.writeStream.option("checkpointLocation", str(checkpoint))
        .outputMode(mode)
        .foreachBatch(handle)
        .trigger(processingTime="0 seconds")
        .start()
    )
    try:
        running.processAllAvailable()
        # As JSON, like the core reads it: PySpark 4 turns what was observed into rows.
        return [json.loads(each.json()) for each in running._jsq.recentProgress()]
    finally:
        running.stop()


def ids(spark: SparkSession, table: Table) -> list[str]:
    """Identities that a table holds, each as often as it does."""
    return sorted(r["_id"] for r in spark.table(str(table)).select("_id").collect())


def added_records(spark: SparkSession, table: Table) -> list[int]:
    """Records that each snapshot added, by Iceberg's own count, oldest first."""
    snapshots = spark.table(f"{table}.snapshots").orderBy("committed_at")
    return [int(r["summary"].get("added-records", 0)) for r in snapshots.collect()]
