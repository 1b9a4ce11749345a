"""Several sources in one query: each a leg with its own line in Spark's offset log.

Topics of one connection are one leg, so that a topic can be added to a query that runs: for Spark it is a
new partition of the same source. A stream of Kinesis is a leg of its own, with its own guard. A query whose
legs are others than its checkpoint's is refused by Spark.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from itertools import zip_longest
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import envelope
from etl.checkpoint import Checkpoint
from etl.errors import LossError
from etl.settings import Connection, KafkaSource, KinesisSource
from etl.sinks.iceberg import Bound
from etl.sources import kafka, kinesis_ranges
from etl.sources.bounds import any_of
from etl.sources.kafka import by_shard
from etl.sources.kinesis_guard import KinesisGuard
from etl.sources.kinesis_ranges import Range
from etl.sources.offsets import OffsetRange


def in_order(
    sources: Sequence[KinesisSource | KafkaSource],
) -> tuple[tuple[KafkaSource, ...] | KinesisSource, ...]:
    """Put the sources of a query together into legs, in an order that does not depend on the file's.

    Parameters
    ----------
    sources
        In any order, each once.

    Returns
    -------
    tuple
        First the topics by connection, each pattern a leg of its own, then the streams by name.
    """
    topics: dict[tuple[str, str], list[KafkaSource]] = {}
    streams = []
    for source in sources:
        if isinstance(source, KinesisSource):
            streams.append(source)
            continue
        pattern = source.topic if source.reading is not None and source.reading.pattern else ""
        topics.setdefault((source.connection, pattern), []).append(source)
    together = [tuple(sorted(topics[key], key=lambda s: s.topic)) for key in sorted(topics)]
    return (*together, *sorted(streams, key=lambda s: s.name))


def read_topics(
    spark: SparkSession, sources: Sequence[KafkaSource], connection: Connection, *, partitions: int | None
) -> DataFrame:
    """Open the topics of a leg as one streaming DataFrame in the envelope's shape.

    Parameters
    ----------
    spark
        The job's session.
    sources
        Of one connection, and alike but for topic, name and limit; the limits are added up.
    connection
        After :func:`etl.sources.kafka.bind`.
    partitions
        Least number of tasks of a batch.
    """
    first, *others = sources
    if not others:
        return kafka.read(spark, first, connection, partitions=partitions)
    together = dataclasses.replace(
        first,
        topic=",".join(s.topic for s in sources),
        records_per_batch=sum(s.records_per_batch for s in sources),
    )
    chosen = kafka.options(together, connection, partitions=partitions)
    return enveloped(spark.readStream.format("kafka").options(**chosen).load(), sources)


def enveloped(records: DataFrame, sources: Sequence[KafkaSource]) -> DataFrame:
    """Put records of a leg into the envelope.

    Parameters
    ----------
    records
        Columns of Spark's Kafka source.
    sources
        Of the leg.
    """
    first, *others = sources
    if not others:
        several = first.reading is not None and first.reading.pattern
        return envelope.from_kafka(records, first.name, several=several)
    names = F.create_map(*(F.lit(text) for s in sources for text in (s.topic, s.name)))
    return envelope.from_kafka(records, F.coalesce(names[F.col("topic")], F.col("topic")))


@dataclass(frozen=True)
class Topics:
    """The topics of a leg.

    Parameters
    ----------
    sources
        As :func:`in_order` has them.
    checkpoint
        The leg's place in the query's.
    """

    sources: tuple[KafkaSource, ...]
    checkpoint: Checkpoint

    def offsets(self, spark: SparkSession, batch_id: int) -> tuple[Any, Any]:
        """Where a batch begins and ends, as Spark's log has it; None where unknown."""
        return self.checkpoint.start_of(spark, batch_id), self.checkpoint.end_of(spark, batch_id)

    def names(self) -> dict[str, str]:
        """Logical name of each stream, to what :func:`offsets_of` begins the names of its partitions with."""
        return {source.name: f"{source.name}/" for source in self.sources}


def offsets_of(spark: SparkSession, topics: Sequence[Topics], batch_id: int) -> OffsetRange | None:
    """The offsets of a batch over all legs of Kafka, by stream and partition.

    Parameters
    ----------
    spark
        Whose file systems are used.
    topics
        The legs.
    batch_id
        Spark's.

    Returns
    -------
    OffsetRange or None
        With partitions as ``stream/partition``; None where the checkpoint knows no end.
    """
    legs = [(leg, *leg.offsets(spark, batch_id)) for leg in topics]
    if all(end is None for _, _, end in legs):
        return None
    found: tuple[dict[str, int], dict[str, int]] = {}, {}
    for leg, *ends in legs:
        for source in leg.sources:
            for into, offset in zip(found, ends, strict=True):
                into |= {f"{source.name}/{p}": at for p, at in (by_shard(source, offset) or {}).items()}
    return OffsetRange(*found)


@dataclass
class Legs:
    """Looks before and after each batch of a query on several sources; in the place of a single guard.

    Parameters
    ----------
    topics
        Legs of Kafka.
    streams
        Guards of Kinesis' legs.
    """

    topics: tuple[Topics, ...]
    streams: tuple[KinesisGuard, ...]
    rows: Column | None = field(default=None, repr=False)
    """Rows of the table that can hold a record of the batch's topics; None for none."""

    def before(self, spark: SparkSession, batch_id: int) -> Mapping[str, str]:
        """Check every stream, as :meth:`etl.sources.kinesis_guard.KinesisGuard.before` does.

        Returns
        -------
        Mapping
            ``stream/shard`` to the position that the look-up of this batch must find.
        """
        return {
            f"{guard.source.name}/{shard}": position
            for guard in self.streams
            for shard, position in guard.before(spark, batch_id).items()
        }

    @property
    def blind(self) -> bool:
        """Whether one of the connectors writes positions that cannot be read."""
        return any(guard.blind for guard in self.streams)

    def bounds(self, begun: datetime) -> Iterator[Bound]:
        """Where in the table a record of the batch can be, from the tightest bound to one without times.

        Rows of topics are known by their offsets; times count for those of streams only, and a record that is
        older than its stream's bound fails the write.
        """
        ranges: list[tuple[Range, ...]] = [()] * len(self.streams)
        for level in zip_longest(*(guard.levels(begun) for guard in self.streams)):
            # A stream with fewer levels stays at its last.
            ranges = [now or before for now, before in zip(level, ranges, strict=True)]
            yield self._within(ranges)
        yield Bound(self._or_topics([F.col("_source") == guard.source.name for guard in self.streams]))

    def _within(self, ranges: Sequence[tuple[Range, ...]]) -> Bound:
        mine = [F.col("_source") == guard.source.name for guard in self.streams]
        inside = [m & kinesis_ranges.within(each) for m, each in zip(mine, ranges, strict=True)]
        outside = [m & kinesis_ranges.beyond(each) for m, each in zip(mine, ranges, strict=True)]
        return Bound(self._or_topics(inside), "_arrived_at", outside=any_of(outside))

    def _or_topics(self, conditions: Sequence[Column]) -> Column:
        return any_of([*conditions, *([] if self.rows is None else [self.rows])])

    def held(self, positions: Mapping[str, str]) -> Column | None:
        """Count, over the rows that the look-up reads, how many of these positions are there."""
        counts = [count for guard in self.streams if (count := guard.held(_of(guard, positions))) is not None]
        return reduce(lambda a, b: a + b, (F.coalesce(c, F.lit(0)) for c in counts)) if counts else None

    def after(self, positions: Mapping[str, str], held: int | None) -> None:
        """Compare what the look-up found with what :meth:`before` asked for.

        Raises
        ------
        LossError
            The batch began after a record that is not in the table.
        """
        if positions and (held or 0) < len(positions):
            listed = ", ".join(f"{shard} after {position}" for shard, position in sorted(positions.items()))
            tables = ", ".join(dict.fromkeys(str(guard.table) for guard in self.streams))
            raise LossError(
                f"this batch goes on at {listed}, but of these positions some are not in {tables}: what a connector "
                "read last was not landed. A new checkpoint reads the streams again, and lands what is missing once"
            )

    def figures(self) -> tuple[Column, ...]:
        """When the records of each stream have arrived, over all that a batch holds; see :meth:`KinesisGuard.figures`."""
        return tuple(
            figure
            for place, guard in enumerate(self.streams)
            for figure in guard.figures_named(f"_{place}", f"_source = '{guard.source.name}'")
        )

    def landed(self, figures: Mapping[str, Any]) -> None:
        """Hear what a batch came to."""
        for place, guard in enumerate(self.streams):
            guard.held_records(figures[f"oldest_{place}"], figures[f"steps_{place}"])


def _of(guard: KinesisGuard, positions: Mapping[str, str]) -> dict[str, str]:
    """Those of one stream; a name has no slash."""
    mine = f"{guard.source.name}/"
    return {shard.removeprefix(mine): p for shard, p in positions.items() if shard.startswith(mine)}


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """Rows of all legs; Spark numbers its sources in this order."""
    return reduce(lambda a, b: a.unionByName(b), frames)
