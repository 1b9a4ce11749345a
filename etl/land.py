"""Land: every record of a source, good or bad, into one append-only table, in one action per batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import (
    BinaryType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from etl import accounts, envelope
from etl.accounts import LandAccounts, Observed, Reporter
from etl.checkpoint import Checkpoint
from etl.decode import Decoder, nullable
from etl.envelope import POSITION_DIGITS
from etl.settings import KafkaSource, KinesisSource, LandSettings
from etl.sinks.iceberg import EVERYTHING, Bound, IcebergSink, with_first_that_holds

SLACK = timedelta(seconds=10)
"""How much older than the last batch's oldest record one may be before the wider look-up is needed."""

_ENVELOPE = StructType(
    [
        StructField("_id", StringType()),
        StructField("_source", StringType()),
        StructField("_shard", StringType()),
        StructField("_position", StringType()),
        StructField("_key", BinaryType()),
    ]
)


def table_schema(headers: StructField, schema: StructType) -> StructType:
    """Columns of a landing table.

    Parameters
    ----------
    headers
        The envelope's ``_headers`` column.
    schema
        Of the payload.
    """
    return StructType(
        [
            *_ENVELOPE.fields,
            StructField("_headers", headers.dataType),
            StructField("_arrived_at", TimestampType()),
            StructField("_hash", LongType()),
            StructField("_landed_at", TimestampType()),
            *nullable(schema).fields,
            StructField("_bytes", BinaryType()),
            StructField("_stage", StringType()),
            StructField("_error", StringType()),
        ]
    )


def kafka_bound(source: str, topic: str, start: Any, end: Any) -> Bound:
    """Rows of a table that a Kafka batch can hold again: at or after the batch's first offsets.

    A Kafka batch is a fixed range of offsets, so this holds without a check. A
    partition that only the end names is new, and looked at from its beginning. Every
    condition is one that Iceberg can answer from a file's metadata.

    Parameters
    ----------
    source
        The stream's logical name.
    topic
        The topic's own name.
    start, end
        Spark's Kafka offsets, ``{topic: {partition: offset}}``; None where unknown.
    """
    mine = F.col("_source") == source
    if not start or not end:
        return Bound(mine)
    offsets: dict[str, int] = dict.fromkeys(end.get(topic, {}), 0) | start.get(topic, {})
    later = [
        (F.col("_shard") == shard) & (F.col("_position") >= str(offset).zfill(POSITION_DIGITS))
        for shard, offset in sorted(offsets.items())
    ]
    return Bound(mine & reduce(lambda a, b: a | b, later)) if later else Bound(mine)


def _moment(moment: datetime) -> Column:
    """One moment for all rows, in a form that does not become a part of Spark's generated code.

    A literal time does, so that each batch would be code of its own, compiled and warmed up anew. Arrays
    are handed over beside the code; an index that is only known with the row keeps the optimizer
    from taking the time out again.
    """
    index = F.when(F.col("_arrived_at").isNull(), 1).otherwise(0)
    return F.array(F.lit(moment), F.lit(moment))[index]


@dataclass
class Lander:
    """Writes each batch of a land query; called by ``foreachBatch``.

    Attributes
    ----------
    oldest
        Arrival of the oldest record of the last batch of this run, for Kinesis' bound.
    """

    settings: LandSettings
    decoder: Decoder
    sink: IcebergSink
    checkpoint: Checkpoint
    report: Reporter
    oldest: datetime | None = field(default=None)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Land a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape.
        batch_id
            Spark's; no proof of what the batch holds with Kinesis, used for Kafka's offsets only.
        """
        begun = accounts.now()
        figures, balance = with_first_that_holds(
            self._bounds(batch, batch_id, begun), lambda bound: self._write(batch, bound)
        )
        committed = accounts.now()
        fields: dict[str, Any] = {
            **balance.fields(),
            "seconds": round((committed - begun).total_seconds(), 3),
            "committed_at": accounts.text(committed),
        }
        if figures["oldest"] is not None:
            fields["max_age_seconds"] = round(committed.timestamp() - figures["oldest"] / 1e6, 3)
            if isinstance(self.settings.source, KinesisSource):
                self.oldest = datetime.fromtimestamp(figures["oldest"] / 1e6, tz=UTC)
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _bounds(self, batch: DataFrame, batch_id: int, begun: datetime) -> Iterator[Bound]:
        source = self.settings.source
        if isinstance(source, KafkaSource):
            start = self.checkpoint.start_of(batch.sparkSession, batch_id)
            end = self.checkpoint.end_of(batch.sparkSession, batch_id)
            yield kafka_bound(source.name, source.topic, start, end)
            return
        # A shard moves forward, so a batch is seldom older than the one before. The write
        # itself checks that: a second look at a Kinesis batch would see other records.
        if self.oldest is not None:
            yield Bound.since("_arrived_at", self.oldest - SLACK)
        yield Bound.since("_arrived_at", begun - timedelta(seconds=source.retention_seconds) - SLACK)
        yield EVERYTHING

    def _write(self, batch: DataFrame, bound: Bound) -> tuple[dict[str, Any], LandAccounts]:
        records, read = self._distinct(batch)
        stamped = records.select(
            *envelope.COLUMNS,
            F.xxhash64("payload").alias("_hash"),
            _moment(accounts.now()).alias("_landed_at"),
            "payload",
        )
        appended = self.sink.append(
            self.decoder.decode(stamped),
            bound,
            F.count("_error").alias("bad"),
            F.expr("min(unix_micros(_arrived_at))").alias("oldest"),
        )
        count = read.values()["read"] if read else appended.offered
        return appended.figures, LandAccounts(count, appended.written, appended.figures["bad"])

    def _distinct(self, batch: DataFrame) -> tuple[DataFrame, Observed | None]:
        """Each identity once; with the count of records before, where it may be another one than after.

        Offsets do not repeat in a batch; resharding can repeat a Kinesis record. The shuffle
        by identity also spreads the work of few shards. It stands before the count, so that
        a lost executor's map tasks, run again, are not counted twice.
        """
        if isinstance(self.settings.source, KafkaSource):
            return batch, None
        n = self.settings.repartition
        spread = batch.repartition(n, "_id") if n else batch.repartition("_id")
        read = Observed(F.count(F.lit(1)).alias("read"))
        return read.on(spread).dropDuplicates(["_id"]), read
