"""Land: every record of a source, good or bad, into one append-only table, in one action per batch."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
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
from etl.accounts import LandAccounts, Observed, Reporter, count
from etl.checkpoint import Checkpoint
from etl.decode import nullable
from etl.decoder import Decoder, decode_observed
from etl.errors import LossError
from etl.projection import Projection
from etl.settings import KafkaSource, KinesisSource, LandSettings, RoutedSettings
from etl.sinks.iceberg import TOKEN, Appended, Bound, IcebergSink, with_first_that_holds
from etl.sources.bounds import kafka_bound
from etl.sources.kinesis_guard import KinesisGuard, Records
from etl.sources.kinesis_tails import AGGREGATE
from etl.sources.legs import Legs
from etl.sources.offsets import OffsetRange

MOST_READS = 3
"""How often a Kinesis batch is read in a row, when each time a part of it had to be read again."""

SPLIT_AGGREGATE = (
    "millrace: an aggregate of the Kinesis producer library: this engine's connector may end a batch inside one "
    "and does not number its records, so that they cannot be told apart; switch aggregation off in the producer, "
    "or read the stream on Glue"
)

_CONTENT = "_content"
"""The payload beside what was decoded of it, until its record has an identity of its own."""

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


@dataclass(frozen=True)
class Landing:
    """What one action of a batch came to.

    Attributes
    ----------
    whole
        Whether what was written is what was read: no part of the batch was read twice.
    alone
        Whether the table had nothing where the batch's records could be.
    """

    figures: Mapping[str, Any]
    balance: LandAccounts
    held: int | None
    whole: bool
    alone: bool


@dataclass
class Lander:
    """Writes each batch of a land query; called by ``foreachBatch``.

    Attributes
    ----------
    guard
        Of a query on Kinesis or on several sources; None for one on Kafka, whose batches are fixed ranges.
    splits_aggregates
        Whether the connector may end a batch inside an aggregate of Kinesis' producer library.
    """

    settings: LandSettings | RoutedSettings
    decoder: Decoder
    sink: IcebergSink
    checkpoint: Checkpoint
    report: Reporter
    guard: KinesisGuard | Legs | None = None
    splits_aggregates: bool = False
    _blind: bool = False
    _before: tuple[OffsetRange, str] | None = field(default=None, repr=False)
    """Offsets and token of the batch before, where nothing at or after them was in the table."""
    _identified: Projection | None = field(default=None, repr=False)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Land a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape.
        batch_id
            Spark's; no proof of what the batch holds with Kinesis, used for Kafka's offsets only.

        Raises
        ------
        LossError
            Kinesis records are gone unread, or may be.
        """
        positions = self.guard.before(batch.sparkSession, batch_id) if self.guard else {}
        if self.guard and self.guard.blind and not self._blind:
            self._blind = True
            self.report.emit("unguarded", query=self.settings.name, batch=batch_id)
        for stream in self.guard.streams if self.guard else ():
            for page in stream.passed_over():
                self._land(self._passed_over(batch.sparkSession, stream.source, page), batch_id, {})
        self._land(batch, batch_id, positions)

    def _passed_over(self, spark: SparkSession, source: KinesisSource, records: Records) -> DataFrame:
        if any(r["Data"].startswith(AGGREGATE) for r in records):
            raise LossError(SPLIT_AGGREGATE)
        rows = [
            (bytearray(r["Data"]), r["PartitionKey"], r["SequenceNumber"], r["ApproximateArrivalTimestamp"])
            for r in records
        ]
        read = spark.createDataFrame(
            rows,
            "data BINARY, partitionKey STRING, sequenceNumber STRING, approximateArrivalTimestamp TIMESTAMP",
        )
        return envelope.from_kinesis(read.withColumn("streamName", F.lit(source.stream)), source.name)

    def _land(self, batch: DataFrame, batch_id: int, positions: Mapping[str, str]) -> None:
        for _ in range(MOST_READS):
            begun = accounts.now()
            if self.guard:
                done = with_first_that_holds(
                    self.guard.bounds(begun), lambda bound: self._write(batch, bound, positions)
                )
            else:
                done = self._write_topic(batch, batch_id)
            self._report(done, batch_id, begun)
            if self.guard:
                self.guard.after(positions, done.held)
            if done.whole:
                return
            # What was read first and what was read again end at different records; the connector goes on after
            # the later one. Everything is read once more, and what is landed already is not landed again.
            self.report.emit("read_twice", query=self.settings.name, batch=batch_id)
        raise LossError(
            f"query {self.settings.name}, batch {batch_id}: executors were lost in each of {MOST_READS} reads of "
            "the batch; it is not committed, and read again at the next start"
        )

    def _report(self, done: Landing, batch_id: int, begun: datetime) -> None:
        oldest = done.figures["oldest"]
        fields = {**done.balance.fields(), **accounts.times(begun, accounts.now(), oldest)}
        if self.guard:
            self.guard.landed(done.figures)
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _write_topic(self, batch: DataFrame, batch_id: int) -> Landing:
        """Write a Kafka batch; looked up only where the table may hold some of its offsets.

        Where it held none at or after the offsets of the batch before, it holds none after those: nobody has
        written since, as its newest commit is that batch's.
        """
        assert isinstance(self.settings, LandSettings), f"{self.settings.name}: routes without a guard"
        source = self.settings.source
        assert isinstance(source, KafkaSource), f"{self.settings.name}: Kinesis without a guard"
        spark = batch.sparkSession
        start = self.checkpoint.start_of(spark, batch_id)
        end = self.checkpoint.end_of(spark, batch_id)
        offsets = OffsetRange.of(source, start, end)
        last, self._before = self._before, None
        goes_on = (
            last is not None
            and offsets is not None
            and offsets.end.keys() == last[0].end.keys()
            and offsets.follows(last[0])
            and self.sink.latest(spark, TOKEN) == last[1]
        )
        token = uuid.uuid4().hex
        done = self._write(batch, None if goes_on else kafka_bound(source, start, end), {}, {TOKEN: token})
        if done.alone and offsets is not None:
            self._before = offsets, token
        return done

    def _write(
        self,
        batch: DataFrame,
        bound: Bound | None,
        positions: Mapping[str, str],
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Landing:
        # Topics alone are fixed ranges of offsets: what is read of them twice is the same.
        streams = self.guard.streams if self.guard else ()
        read = Observed(count("read")) if streams else None
        rows = self._apart(batch, read) if read else self.decoder.decode(envelope.stamped(batch))
        appended: Appended = self.sink.append(
            rows,
            bound,
            F.expr("count(_error) AS bad"),
            F.expr("min(unix_micros(_arrived_at)) AS oldest"),
            of_offered=self.guard.figures() if self.guard else (),
            held=self.guard.held(positions) if self.guard else None,
            beside=[read] if read else (),
            properties=properties,
        )
        whole = read is None or appended.figures["read"] == appended.offered
        balance = LandAccounts(appended.offered, appended.written, appended.figures["bad"])
        return Landing(appended.figures, balance, appended.held, whole, appended.alone)

    def _apart(self, batch: DataFrame, read: Observed) -> DataFrame:
        """Read and decode a Kinesis batch, each record with an identity of its own.

        They are decoded where they are read, as a shard takes longer to hand its records over than they take
        to be decoded. The shuffle by identity then spreads the writing of few shards. It also parts what reads
        from what writes: when an executor is lost in between, its shards are read again and to another end,
        while some of the writing is done already. So records are counted on both sides; as many are offered
        to the table as were read exactly if no shard that held some was read twice.
        """
        kept = envelope.stamped(batch).withColumn(_CONTENT, F.col("payload"))
        decoded = decode_observed(self.decoder, kept, lambda rows, _: read.on(rows))
        tasks = self.settings.repartition
        spread = decoded.repartition(tasks, "_id") if tasks else decoded.repartition("_id")
        if self._identified is None:
            others = [F.col(f"`{name}`") for name in decoded.columns if name not in ("_id", _CONTENT)]
            identity = _unlike if self.splits_aggregates else _numbered
            self._identified = Projection(lambda: [identity().alias("_id"), *others])
        return self._identified.of(spread)


def _alike() -> WindowSpec:
    # The hash comes first for the sort: texts that begin alike are compared to their ends.
    return Window.partitionBy(F.xxhash64("_id"), "_id").orderBy("_key", _CONTENT)


def _numbered() -> Column:
    # The records of an aggregate come with the aggregate's sequence number, and in one batch all of them.
    # Numbered by what is in them, each has the same identity in every replay.
    place = F.row_number().over(_alike())
    return F.when((place == 1) & _alone(), F.col("_id")).otherwise(F.concat_ws("/", "_id", place))


def _unlike() -> Column:
    failing = F.raise_error(F.lit(SPLIT_AGGREGATE)).cast("string")
    return F.when(_alone(), F.col("_id")).otherwise(failing)


def _alone() -> Column:
    return F.lead("_source").over(_alike()).isNull()
