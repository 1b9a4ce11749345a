"""Direct: a Kafka topic through decoding and transform into a sink, without a landing table between.

A second of latency and one write less, for what keeps no state. What makes it exact is that a
Kafka batch is a fixed range of offsets: a replay holds the same records, so each commit names its batch, and
what the table may hold besides is known by its offsets (:mod:`etl.overlap`). The dead
letters go to a table of their own, and only a batch that has some pays for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import accounts, envelope
from etl.accounts import DirectAccounts, Observed, Reporter, count
from etl.checkpoint import Checkpoint
from etl.decoder import Decoder, decode_observed
from etl.derive import DEAD_LETTER, Composition
from etl.overlap import Appender, derived_ends, landed_bound, landed_ends
from etl.settings import DirectSettings
from etl.sinks.iceberg import Bound, IcebergSink
from etl.sources.legs import Topics, offsets_of
from etl.sources.offsets import OffsetRange

QUERY, RANGE = "millrace.query", "millrace.offsets"
"""Properties of a commit: who wrote it, and which offsets it holds; the audit reads them."""


def appender(sink: IcebergSink, source: str) -> Appender:
    """What appends records of a stream to a table that has their identities, but not their offsets.

    Parameters
    ----------
    sink
        The table.
    source
        Logical name of the stream.
    """
    return Appender(sink, derived_ends(source, f"{source}/"), lambda _: Bound(F.col("_source") == source))


def letter_appender(sink: IcebergSink, topics: tuple[Topics, ...]) -> Appender:
    """What appends dead letters to a table in the shape of a landing table.

    Parameters
    ----------
    sink
        The table.
    topics
        That the query reads.
    """
    names = {source: prefix for leg in topics for source, prefix in leg.names().items()}
    return Appender(sink, landed_ends(names), landed_bound(names))


def commit_properties(query: str, offsets: OffsetRange | None) -> Mapping[str, str]:
    """What the audit looks for in a commit.

    Parameters
    ----------
    query
        Its name, or those of the query and its route.
    offsets
        Of the batch; None where unknown.
    """
    text = None if offsets is None else offsets.text()
    return {QUERY: query} | ({} if text is None else {RANGE: text})


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
    _rows: Appender = field(init=False, repr=False)
    _letters: Appender = field(init=False, repr=False)
    _topics: tuple[Topics, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._topics = (Topics((self.settings.source,), self.checkpoint),)
        self._rows = appender(self.sink, self.settings.source.name)
        self._letters = letter_appender(self.letters, self._topics)

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
        spark = batch.sparkSession
        which = self.checkpoint.batch(spark, batch_id)
        offsets = offsets_of(spark, self._topics, batch_id)
        read: list[Observed] = []

        def rows() -> DataFrame:
            read[:] = [Observed(count("read"), F.expr("min(unix_micros(_arrived_at)) AS oldest"))]
            decoded = decode_observed(
                self.decoder,
                envelope.stamped(batch),
                lambda rows, error: read[0].on(rows, F.expr(f"count({error}) AS bad")),
            )
            return self.compose(decoded.where("_error IS NULL").drop(*DEAD_LETTER))

        plain = None if offsets is None else offsets.without(f"{self.settings.source.name}/")
        done = self._rows.append(spark, rows, which, offsets, commit_properties(self.settings.name, plain))
        figures = read[0].values()
        if figures["bad"]:
            # A second read of the same offsets, by batches that have dead letters only.
            self._letters.append(spark, lambda: self._bad(batch), which, offsets)
        balance = DirectAccounts(figures["read"], figures["bad"], done.offered, done.written)
        fields = {**balance.fields(), **accounts.times(begun, accounts.now(), figures["oldest"])}
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields)

    def _bad(self, batch: DataFrame) -> DataFrame:
        return self.decoder.decode(envelope.stamped(batch)).where(F.col("_error").isNotNull())


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
