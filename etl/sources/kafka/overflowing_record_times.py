"""Kafka batches with record times that overflow: read around such records, which become dead letters; other times are limited.

``docs/design/kafka.md#times-of-records`` has the reasons.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ...checkpoints.checkpoint import Checkpoint
from ...formats.base import DecoderWrapper
from ...formats.decoding import redact
from ...formats.decoding.decoder_per_topic import COLUMN
from ...launch.settings import DeriveSettings, QuerySettings
from ...launch.sources import KafkaSource, group_sources_into_legs
from ...record import batch_accounts, envelope, hadoop_files
from ...record.batch_accounts import EventReporter
from ...record.job_run_context import JobRun
from ...record.ready_query import ReadyQuery
from ..source_union import union_of_legs
from . import connection
from .range_reader import LATEST, KafkaRangeReader, Ranges, is_time_overflow
from .topic_stream import options_of_streams_and_batches, to_envelope

STAGE = "timestamp"
"""Stage of dead letters whose time overflows."""

MOST_TOLD = 20
"""Most records that an event names; all of them are in the table."""

_RAW = "_with_payload"

_KAFKA = "org.apache.spark.sql.kafka010."
"""Package of Spark's Kafka source."""


@dataclass(frozen=True)
class RereadableLeg:
    """Topics of one connection, whose batches can be read again."""

    sources: tuple[KafkaSource, ...]
    checkpoint: Checkpoint
    connecting: Callable[[], Mapping[str, str]]
    partitions: int | None

    def reader(self, spark: SparkSession) -> KafkaRangeReader:
        """Return the reader of its topics."""
        return KafkaRangeReader(
            spark, self.connecting(), options_of_streams_and_batches(self.sources[0], self.partitions)
        )

    def offset_ranges_of_batch(self, spark: SparkSession, batch_id: int) -> Ranges:
        """Return the offsets of a batch."""
        start = self.checkpoint.batch_start_offset(spark, batch_id) or self._first_batch_start_offsets(spark)
        begun, ends = (
            {(t, int(p)): int(at) for t, positions in offset.items() for p, at in positions.items()}
            for offset in (start, self.checkpoint.batch_end_offset(spark, batch_id) or {})
        )
        # A partition that only the end names is new, and is read from its beginning.
        return {p: (begun.get(p, 0), at) for p, at in ends.items() if begun.get(p, 0) < at}

    def _first_batch_start_offsets(self, spark: SparkSession) -> Any:
        """Return the start of a checkpoint's first batch, as Spark's Kafka source stores it."""
        text = hadoop_files.read_text(spark, f"{self.checkpoint.location}/sources/{self.checkpoint.place}/0")
        return json.loads(text[text.index("{") :])


@dataclass
class BoundedTimesHandler:
    """Wrapper of a batch handler that limits record times and reads around records whose times overflow.

    Parameters
    ----------
    handle
        Writes a batch in the envelope's shape, idempotently: a dataclass with a ``decoder`` and a ``checkpoint``.
    legs
        Legs of Kafka.
    mixed
        True if other streams are read too; the tasks that Spark planned for a batch read their part.
    report
        Gets an event for each batch that was read around some records.
    """

    handle: Any
    legs: tuple[RereadableLeg, ...]
    mixed: bool
    name: str
    report: EventReporter

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        try:
            self.handle(self._with_bounded_times(batch, batch_id), batch_id)
        except Exception as error:
            if not is_time_overflow(error) or not self._write_around_overflow(batch, batch_id):
                raise

    def _write_around_overflow(self, batch: DataFrame, batch_id: int) -> bool:
        """Write a batch that Spark cannot read; return False if no record explains the error."""
        again = self._without_overflowing_times(batch, batch_id)
        if again is None:
            return False
        # A copy, not a new one: the handler's knowledge of the table's commits belongs to this process.
        handle = copy.copy(self.handle)
        handle.decoder = OverflowingTimesDecoder(handle.decoder)
        handle(self._with_bounded_times(again, batch_id), batch_id)
        return True

    def _without_overflowing_times(self, batch: DataFrame, batch_id: int) -> DataFrame | None:
        """Read the batch around the records whose times overflow; return None if there are none."""
        spark, result = batch.sparkSession, []
        for leg in self.legs:
            if ranges := leg.offset_ranges_of_batch(spark, batch_id):
                reader = leg.reader(spark)
                result.append((leg, reader, ranges, reader.find_overflowing_times(ranges)))
        passed = [f"{t}/{p}/{at}" for *_, odd in result for (t, p), offsets in odd.items() for at in offsets]
        streams = frames_without_kafka_topics(batch, len(result)) if self.mixed else []
        if not passed or streams is None:
            return None
        # If good records and dead letters have separate tables, that of the dead letters.
        kept = getattr(self.handle, "letters", None) or self.handle.sink
        self.report.emit(
            "read_around",
            query=self.name,
            batch=batch_id,
            records=len(passed),
            first=passed[:MOST_TOLD],
            table=str(kept.table),
            stage=STAGE,
        )
        parts = [
            to_envelope(reader.read_without_overflowing_times(ranges, odd), leg.sources)
            for leg, reader, ranges, odd in result
        ]
        return union_of_legs([*parts, *streams])

    def _with_bounded_times(self, batch: DataFrame, batch_id: int) -> DataFrame:
        checkpoint: Checkpoint = self.handle.checkpoint
        planned = checkpoint.batch_planning_time(batch.sparkSession, batch_id) or batch_accounts.utc_now()
        sources = [source for leg in self.legs for source in leg.sources]
        retention = timedelta(seconds=max(source.retention_seconds for source in sources))
        names = [source.name for source in sources] if self.mixed else None
        return envelope.with_bounded_arrival(batch, planned, retention, names)


@dataclass(frozen=True)
class OverflowingTimesDecoder(DecoderWrapper):
    """Decoder wrapper that makes dead letters of records whose times overflow, whatever their payloads."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """See :meth:`etl.formats.base.Decoder.decode`; the stage of these dead letters is ``timestamp``."""
        last = "element_at(_headers, -1)"
        time = F.expr(f"IF({last}.key = '{envelope.TIME_HEADER}', CAST({last}.value AS STRING), NULL)")
        odd = F.coalesce(F.abs(time.cast("decimal(20, 0)")) > F.lit(LATEST), F.lit(False))
        decoded = self.decoder.decode(rows.withColumn(_RAW, F.col("payload")))
        raw = F.col(_RAW)
        bare = self.decoder.redacted_payload(raw)
        error = F.concat(F.lit("the record's time overflows: "), time, F.lit(" ms since 1970"))
        letter = {"_bytes": bare, "_stage": F.lit(STAGE), "_error": redact.redacted_error(error, raw, bare)}
        # The route depends on the topic, and a replay needs it.
        none = {name: F.lit(None) for name in self.schema.fieldNames() if name != COLUMN}
        changed = {**none, **letter}
        return decoded.select(
            *(
                F.when(odd, changed[name]).otherwise(F.col(f"`{name}`")).alias(name)
                if name in changed
                else F.col(f"`{name}`")
                for name in decoded.columns
                if name != _RAW
            )
        )

    def redacted_payload(self, payload: Column) -> Column:
        """See :meth:`etl.formats.base.Decoder.redacted_payload`."""
        return self.decoder.redacted_payload(payload)


def query_with_bounded_times(run: JobRun, query: ReadyQuery, settings: QuerySettings) -> ReadyQuery:
    """Make a Kafka query write its batches with limited times.

    Parameters
    ----------
    query
        Query as it was built.
    """
    assert not isinstance(settings, DeriveSettings), f"{query.name} reads a table"
    legs, mixed = [], False
    for place, leg in enumerate(group_sources_into_legs(settings.sources)):
        topics = tuple(each for each in leg if isinstance(each, KafkaSource))
        if not topics:
            mixed = True
            continue
        options = partial(connection.connection_options, connection.connection_of_topic(topics[0], run))
        legs.append(RereadableLeg(topics, Checkpoint(query.checkpoint, place), options, settings.repartition))
    handle = BoundedTimesHandler(query.handle, tuple(legs), mixed, query.name, run.report)
    return replace(query, handle=handle)


def frames_without_kafka_topics(batch: DataFrame, topics: int) -> list[DataFrame] | None:
    """Return the streams' part of a batch of topics and streams: the tasks that Spark planned, without those of topics.

    Only a connector's own tasks can read its part of a batch; the tasks of Spark's Kafka source are recognised by their class.

    Parameters
    ----------
    batch
        Union of the sources' rows, as Spark passes it to ``foreachBatch``.
    topics
        Number of Kafka sources with records in it.

    Returns
    -------
    list or None
        A DataFrame for each stream with records in it; None if the number of Kafka parts differs: a part that looks like a
        stream's might be a topic's.
    """
    frame: Any = batch  # PySpark's types do not include its JVM objects
    session: Any = batch.sparkSession
    made = session._jsparkSession.internalCreateDataFrame
    parts = [
        (part, _is_kafka_rdd(leaf)) for part, leaf in _parts_of_union_rdd(frame._jdf.queryExecution().toRdd())
    ]
    if sum(of_kafka for _, of_kafka in parts) != topics:
        return None
    return [
        DataFrame(made(part, frame._jdf.schema(), False), batch.sparkSession)
        for part, of_kafka in parts
        if not of_kafka
    ]


def _parts_of_union_rdd(rdd: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the parts of a union, each with the RDD at its start; any other RDD is one part."""
    below = rdd
    while (parents := below.dependencies()).size() == 1:
        below = parents.apply(0).rdd()
    if not parents.size():
        yield rdd, below
    for n in range(parents.size()):
        yield from _parts_of_union_rdd(parents.apply(n).rdd())


def _is_kafka_rdd(leaf: Any) -> bool:
    first = leaf.partitions()[0] if leaf.getNumPartitions() else None
    if first is None or leaf.getClass().getSimpleName() != "DataSourceRDD":
        return False
    return str(first.inputPartitions().head().getClass().getName()).startswith(_KAFKA)
