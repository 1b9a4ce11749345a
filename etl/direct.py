"""Direct: a Kafka topic through decoding and transform into a sink, without a landing table between.

A second of latency and one write less, for what keeps no state. What makes it exact is that a
Kafka batch is a fixed range of offsets: a replay holds the same records, so the range that a
commit holds is written into the commit itself, and the next batch is compared with that. The dead
letters go to a table of their own, and only a batch that has some pays for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import accounts, envelope
from etl.accounts import DirectAccounts, Observed, Reporter
from etl.checkpoint import Checkpoint
from etl.decode import Decoder
from etl.derive import DEAD_LETTER, Composition
from etl.settings import DirectSettings, KafkaSource
from etl.sinks.iceberg import Bound, IcebergSink
from etl.sources.bounds import kafka_bound
from etl.sources.offsets import OffsetRange as OffsetRange
from etl.tables import Table

_QUERY, _RANGE = "millrace.query", "millrace.offsets"
"""Properties of a commit: who wrote it, and which offsets it holds."""


@dataclass
class Director:
    """Writes each batch of a direct query; called by ``foreachBatch``.

    Parameters
    ----------
    settings
        The query's.
    decoder
        Of its payload.
    compose
        Enrichment and transform.
    sink
        Where good records go.
    letters
        Where dead letters go: a table in the shape of a landing table.
    checkpoint
        Which tells the batch's offsets.
    report
        Where batches are reported.
    """

    settings: DirectSettings
    decoder: Decoder
    compose: Composition
    sink: IcebergSink
    letters: IcebergSink
    checkpoint: Checkpoint
    report: Reporter
    _last: OffsetRange | None = field(default=None, repr=False)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape.
        batch_id
            Spark's; only the offsets that its checkpoint has for it count.
        """
        begun = accounts.now()
        source: KafkaSource = self.settings.source
        start = self.checkpoint.start_of(batch.sparkSession, batch_id)
        end = self.checkpoint.end_of(batch.sparkSession, batch_id)
        offsets = OffsetRange.of(source, start, end)
        # Known again only when all of the batch is written: should it fail half-way and come again in this
        # run, the table tells what it holds.
        known = self._last or committed(batch.sparkSession, self.sink.table, self.settings.name)
        last, self._last = known, None
        balance, figures = self._write(batch, offsets, last)
        if figures["bad"]:
            # A second read of the same offsets, by batches that have dead letters only.
            bad = self._decoded(batch).where(F.col("_error").isNotNull())
            self.letters.append(bad, kafka_bound(source, start, end))
        self._last = offsets
        fields = {**balance.fields(), **accounts.times(begun, accounts.now(), figures["oldest"])}
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _write(
        self, batch: DataFrame, offsets: OffsetRange | None, last: OffsetRange | None
    ) -> tuple[DirectAccounts, dict[str, Any]]:
        read = Observed(
            F.count(F.lit(1)).alias("read"),
            F.count("_error").alias("bad"),
            F.expr("min(unix_micros(_arrived_at))").alias("oldest"),
        )
        good = read.on(self._decoded(batch)).where("_error IS NULL").drop(*DEAD_LETTER)
        rows = self.compose(good)
        properties = {_QUERY: self.settings.name}
        if offsets is not None:
            properties[_RANGE] = offsets.text()
        if offsets is not None and last is not None and offsets.follows(last):
            written = self.sink.add(rows, properties)
            transformed = written
        else:
            # The first batch after a start, which may be one that was written and not committed in the
            # checkpoint, and any whose offsets do not join on to the last commit's: a checkpoint that was
            # reset. Each record is looked up by its identity.
            mine = Bound(F.col("_source") == self.settings.source.name)
            appended = self.sink.append(rows, mine, properties=properties)
            transformed, written = appended.offered, appended.written
        figures = read.values()
        return DirectAccounts(figures["read"], figures["bad"], transformed, written), figures

    def _decoded(self, batch: DataFrame) -> DataFrame:
        return self.decoder.decode(
            batch.select(
                *envelope.COLUMNS,
                F.xxhash64("payload").alias("_hash"),
                envelope.moment(accounts.now()).alias("_landed_at"),
                "payload",
            )
        )


def committed(spark: SparkSession, table: Table, name: str) -> OffsetRange | None:
    """The offsets of a query's last commit that a table still knows.

    Parameters
    ----------
    spark
        With the table's catalog.
    table
        Its name.
    name
        Of the query, as its commits bear it.
    """
    for summary in table.commits(spark):
        if summary.get(_QUERY) == name:
            text = summary.get(_RANGE)
            return OffsetRange.parse(str(text)) if text is not None else None
    return None


@dataclass(frozen=True)
class Onward:
    """Takes replayed dead letters that became good to the sink of their direct query.

    Parameters
    ----------
    source
        The logical name of the stream.
    compose, sink
        The query's.
    """

    source: str
    compose: Composition
    sink: IcebergSink

    def __call__(self, good: DataFrame) -> None:
        """Append rows of a landing table's shape, each once however often it is given."""
        rows = self.compose(good.drop(*DEAD_LETTER))
        self.sink.append(rows, Bound(F.col("_source") == self.source))
