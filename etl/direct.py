"""Direct: a Kafka topic through decoding and transform into a sink, without a landing table between.

A second of latency and one write less, for what keeps no state. What makes it exact is that a
Kafka batch is a fixed range of offsets: a replay holds the same records, so how far the table reaches
is written into each commit, and the next batch is compared with that (:mod:`etl.reach`). The dead
letters go to a table of their own, and only a batch that has some pays for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import accounts, envelope
from etl.accounts import DirectAccounts, Observed, Reporter, count
from etl.checkpoint import Checkpoint
from etl.decoder import Decoder, decode_observed
from etl.derive import DEAD_LETTER, Composition
from etl.reach import Chain
from etl.settings import DirectSettings, KafkaSource
from etl.sinks.iceberg import Bound, IcebergSink
from etl.sources.bounds import kafka_bound
from etl.sources.offsets import OffsetRange


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
    _chain: Chain = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._chain = Chain(self.settings.name, self.settings.source.name, self.sink)

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
        balance, figures = self._write(batch, offsets)
        if figures["bad"]:
            # A second read of the same offsets, by batches that have dead letters only.
            bad = self.decoder.decode(envelope.stamped(batch)).where(F.col("_error").isNotNull())
            self.letters.append(bad, kafka_bound(source, start, end))
        fields = {**balance.fields(), **accounts.times(begun, accounts.now(), figures["oldest"])}
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _write(self, batch: DataFrame, offsets: OffsetRange | None) -> tuple[DirectAccounts, dict[str, Any]]:
        read = Observed(count("read"), F.expr("min(unix_micros(_arrived_at)) AS oldest"))
        decoded = decode_observed(
            self.decoder,
            envelope.stamped(batch),
            lambda rows, error: read.on(rows, F.expr(f"count({error}) AS bad")),
        )
        good = decoded.where("_error IS NULL").drop(*DEAD_LETTER)
        transformed, written = self._chain.append(self.compose(good), offsets)
        figures = read.values()
        return DirectAccounts(figures["read"], figures["bad"], transformed, written), figures


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
