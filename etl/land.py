"""Land: every record of a source, good or bad, into one append-only table, in one action per batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
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
from etl.commits import Added, Commits, Fence, History
from etl.decode import nullable
from etl.decoder import Decoder, decode_observed
from etl.errors import LossError
from etl.overlap import Held, Overlap, landed_bound, landed_ends
from etl.projection import Projection
from etl.settings import KafkaSource, KinesisSource, LandSettings, RoutedSettings
from etl.sinks.iceberg import Appended, Bound, IcebergSink, with_first_that_holds
from etl.sources.kinesis_guard import KinesisGuard, Records
from etl.sources.kinesis_tails import unpack
from etl.sources.legs import Legs, Topics, offsets_of

MOST_READS = 3
"""How often a Kinesis batch is read in a row, when each time a part of it had to be read again."""

SPLIT_AGGREGATE = (
    "millrace: an aggregate of the Kinesis producer library: this engine's connector may end a batch inside one "
    "and does not number its records, so that they cannot be told apart; switch aggregation off in the producer, "
    "or read the stream on Glue (docs/kinesis.md, Past an aggregate): "
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
    """

    figures: Mapping[str, Any]
    balance: LandAccounts
    held: int | None
    whole: bool


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
    _commits: Commits = field(init=False, repr=False)
    _overlap: Overlap = field(init=False, repr=False)
    _topics: tuple[Topics, ...] = field(init=False, repr=False)
    _identified: Projection | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._commits = Commits(self.sink.table)
        self._topics = self._legs()
        self._names = {s: name for leg in self._topics for s, name in leg.names().items()}
        self._overlap = Overlap(self.sink.table, landed_ends(self._names))

    def _legs(self) -> tuple[Topics, ...]:
        if isinstance(self.guard, Legs):
            return self.guard.topics
        source = None if isinstance(self.settings, RoutedSettings) else self.settings.source
        return (Topics((source,), self.checkpoint),) if isinstance(source, KafkaSource) else ()

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
        rows = [_alone_in_its_record(r, source.stream) for r in records]
        read = spark.createDataFrame(
            rows,
            "data BINARY, partitionKey STRING, sequenceNumber STRING, approximateArrivalTimestamp TIMESTAMP",
        )
        return envelope.from_kinesis(read.withColumn("streamName", F.lit(source.stream)), source.name)

    def _land(self, batch: DataFrame, batch_id: int, positions: Mapping[str, str]) -> None:
        spark = batch.sparkSession
        which = self.checkpoint.batch(spark, batch_id)
        # An identity that the table holds more than once looks like a second read, unless it is counted once.
        for distinct in (False, *[True] * (MOST_READS - 1)):
            begun = accounts.now()

            def attempt(history: History, begun: datetime = begun, distinct: bool = distinct) -> Landing:
                held = self._held(spark, history, batch_id)
                fence = self._commits.fence(history, which, alone=held.alone)

                def write(bound: Bound | None) -> Landing:
                    return self._write(batch, bound, positions, held.again, fence, distinct)

                return with_first_that_holds(self._bounds(held, begun), write)

            done = self._commits.write(spark, which, attempt)
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

    def _held(self, spark: SparkSession, history: History, batch_id: int) -> Held:
        """What of the batch's topics the table may hold; of streams nobody knows before they are read."""
        if not self._topics:
            return Held({}, (), alone=False)
        return self._overlap.of(spark, history, offsets_of(spark, self._topics, batch_id))

    def _bounds(self, held: Held, begun: datetime) -> Iterator[Bound | None]:
        topics = None if held.ranges == {} else landed_bound(self._names)(held.ranges)
        if self.guard is None or not self.guard.streams:
            yield topics
            return
        if isinstance(self.guard, Legs):
            self.guard.rows = None if topics is None else topics.rows
        yield from self.guard.bounds(begun)

    def _write(
        self,
        batch: DataFrame,
        bound: Bound | None,
        positions: Mapping[str, str],
        again: Sequence[Added],
        fence: Fence,
        distinct: bool,
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
            added=again,
            fence=fence,
            distinct=distinct,
            tasks=self.settings.repartition,
        )
        whole = read is None or appended.figures["read"] == appended.offered
        balance = LandAccounts(appended.offered, appended.written, appended.figures["bad"])
        return Landing(appended.figures, balance, appended.held, whole)

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
        # The session's number of parts is not ours: 200 by default, and each would be a file.
        tasks = self.settings.repartition or batch.sparkSession.sparkContext.defaultParallelism
        spread = decoded.repartition(tasks, "_id")
        if self._identified is None:
            others = [F.col(f"`{name}`") for name in decoded.columns if name not in ("_id", _CONTENT)]
            identity = _unlike if self.splits_aggregates else _numbered
            self._identified = Projection(lambda: [identity().alias("_id"), *others])
        return self._identified.of(spread)


def _alone_in_its_record(record: Mapping[str, Any], stream: str) -> tuple[bytearray, str, str, datetime]:
    """A record of the Kinesis API as a connector hands it over."""
    number, arrived = record["SequenceNumber"], record["ApproximateArrivalTimestamp"]
    packed = unpack(record["Data"])
    # What is no aggregate, or one of nothing, is a record like others; one of one record has its number.
    if not packed:
        return bytearray(record["Data"]), record["PartitionKey"], number, arrived
    if len(packed) > 1:
        raise LossError(f"{SPLIT_AGGREGATE}{stream}/{number}, arrived {arrived:%Y-%m-%dT%H:%M:%SZ}")
    [(key, data)] = packed
    return bytearray(data), key, number, arrived


def _alike() -> WindowSpec:
    # The hash comes first for the sort: texts that begin alike are compared to their ends.
    return Window.partitionBy(F.xxhash64("_id"), "_id").orderBy("_key", _CONTENT)


def _numbered() -> Column:
    # The records of an aggregate come with the aggregate's sequence number, and in one batch all of them.
    # Numbered by what is in them, each has the same identity in every replay.
    place = F.row_number().over(_alike())
    return F.when((place == 1) & _alone(), F.col("_id")).otherwise(F.concat_ws("/", "_id", place))


def _unlike() -> Column:
    which = F.concat(
        F.lit(SPLIT_AGGREGATE), "_id", F.date_format("_arrived_at", "', arrived 'yyyy-MM-dd'T'HH:mm:ss'Z'")
    )
    failing = F.raise_error(which).cast("string")
    return F.when(_alone(), F.col("_id")).otherwise(failing)


def _alone() -> Column:
    return F.lead("_source").over(_alike()).isNull()
