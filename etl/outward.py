"""Batches of derive and direct queries into sinks beside the lake's own tables.

What differs from :mod:`etl.derive` and :mod:`etl.direct` is that such a sink knows by itself what it holds, so
that nothing is looked up here, and that it may refuse a row, which then becomes a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import StructType

from etl import accounts, envelope, redact
from etl.accounts import Observed, Reporter
from etl.checkpoint import Checkpoint
from etl.decoder import Decoder
from etl.derive import DEAD_LETTER, Composition
from etl.direct import Onward, letter_appender
from etl.envelope import stamped
from etl.errors import AccountsError
from etl.hadoop import modified, read_text
from etl.overlap import Appender
from etl.parts import composition
from etl.settings import DeriveSettings, DirectRouteSettings, DirectSettings, JobSettings
from etl.sinks import JobContext, SinkSettings
from etl.sinks.base import STAGE, Place, Sink, Written, refuses_none
from etl.sinks.iceberg import IcebergSink
from etl.sinks.letters import Letters
from etl.sinks.sending import PlanCounted
from etl.sources.legs import Topics, offsets_of
from etl.tables import Table

_PARTS = 3
"""Of a Kafka record's identity: topic (which holds no ``/``), partition, offset."""


@dataclass(frozen=True)
class SinkAccounts:
    """``read = bad + good``, ``good = written + filtered + duplicates + refused``.

    ``filtered`` is negative where a transform adds rows; ``bad`` is None for a derive query, which reads good
    records only.
    """

    read: int
    bad: int | None
    done: Written

    def __post_init__(self) -> None:
        done = self.done
        counts = (self.read, self.bad or 0, done.written, done.refused)
        if min(counts) < 0 or (self.bad or 0) > self.read or done.written + done.refused > done.offered:
            raise AccountsError(f"accounts do not balance: {self}")

    def fields(self) -> dict[str, int]:
        """The figures as the batch's line has them."""
        good = self.read - (self.bad or 0)
        first = {} if self.bad is None else {"bad": self.bad, "good": good}
        return {
            "read": self.read,
            **first,
            "duplicates": self.done.offered - self.done.written - self.done.refused,
            "filtered": good - self.done.offered,
            "written": self.done.written,
            "refused": self.done.refused,
        }


def prepared(
    spark: SparkSession,
    job: JobSettings,
    settings: SinkSettings,
    schema: StructType,
    binds: Mapping[str, str],
) -> Sink:
    """Make a sink, and what it writes to, for rows of a schema.

    Raises
    ------
    StartError
        As of :meth:`etl.sinks.SinkSettings.open` and :meth:`etl.sinks.base.Sink.prepare`.
    """
    sink = settings.open(JobContext(job.connections, binds))
    sink.prepare(spark, schema)
    return sink


def onward(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    end: DirectSettings | DirectRouteSettings,
    letters: Table,
    binds: Mapping[str, str],
    report: Reporter,
    *,
    route: str | None = None,
) -> Onward | OutwardReplay:
    """Make what takes replayed dead letters of a direct query to its sink, or to that of one of its routes.

    Parameters
    ----------
    name, end, letters
        The query's name, what has the sink, and the query's table of dead letters, which exists.
    """
    compose = composition(spark, job, name, end, report)
    if end.sink.lake_table is not None:
        return Onward(end.source.name, compose, IcebergSink(Table.of(job.catalog, end.sink.lake_table)))
    return OutwardReplay(
        compose, prepared(spark, job, end.sink, compose.schema(spark, letters, route), binds)
    )


def place_of(spark: SparkSession, checkpoint: Checkpoint, batch_id: int) -> Place:
    """Which batch it is, as its checkpoint has it.

    Parameters
    ----------
    spark
        Whose file systems are used.
    checkpoint
        The query's; Spark writes a file with an id into it, once, which a reset checkpoint does not have again.
    batch_id
        Spark's.
    """
    of_spark = f"{checkpoint.location}/metadata"
    run, created = json.loads(read_text(spark, of_spark))["id"], modified(spark, of_spark)
    start, end = checkpoint.start_of(spark, batch_id), checkpoint.end_of(spark, batch_id)
    return Place(str(run), batch_id, _text(start), _text(end), checkpoint.location, int(created.timestamp()))


def _text(offset: Any) -> str:
    return "" if offset is None else json.dumps(offset, sort_keys=True)


class _Read:
    """Counts what a batch holds, on the way to a sink of either kind; of several attempts, in the last."""

    def __init__(self, sink: Sink, *figures: Column) -> None:
        self._sends, self._figures = sink.sends, figures
        self._plan: PlanCounted | None = None
        self._observed: Observed | None = None

    def on(self, rows: DataFrame) -> DataFrame:
        if self._sends:
            self._plan = PlanCounted(self._figures)
            return self._plan.on(rows)
        self._observed = Observed(*self._figures)
        return self._observed.on(rows)

    def values(self, done: Written) -> Mapping[str, Any]:
        if self._plan is not None:
            assert done.ran is not None, "a sink that sends tells which frame it sent"
            return self._plan.values(done.ran)
        assert self._observed is not None, "nothing was counted"
        return self._observed.values()


@dataclass(frozen=True)
class Outward:
    """Writes each batch of a derive query; called by ``foreachBatch``.

    Parameters
    ----------
    settings, compose, checkpoint, report
        As of :class:`etl.derive.Deriver`.
    sink
        Where rows go.
    letters
        Keep what the sink refuses; None where it takes every row.
    """

    settings: DeriveSettings
    compose: Composition
    sink: Sink
    letters: Letters | None
    checkpoint: Checkpoint
    report: Reporter

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            Good records of the landing table, or rows of what keeps state.
        batch_id
            Spark's.
        """
        begun = accounts.now()
        read = _Read(self.sink, F.count(F.lit(1)).alias("read"))
        place = place_of(batch.sparkSession, self.checkpoint, batch_id)

        def offered() -> DataFrame:
            return self.compose(read.on(batch))

        which = self.checkpoint.batch(batch.sparkSession, batch_id)
        refuse = refuses_none if self.letters is None else self.letters.of(which)
        done = self.sink.write(offered(), place, refuse, offered)
        balance = SinkAccounts(read.values(done)["read"], None, done)
        self.report.emit(
            "batch",
            query=self.settings.name,
            batch=batch_id,
            **balance.fields(),
            **accounts.times(begun, accounts.now()),
        )


@dataclass
class OutwardDirect:
    """Writes each batch of a direct query; called by ``foreachBatch``.

    Parameters
    ----------
    settings, decoder, compose, letters, checkpoint, report
        As of :class:`etl.direct.Director`.
    sink
        Where rows go.
    """

    settings: DirectSettings
    decoder: Decoder
    compose: Composition
    sink: Sink
    letters: IcebergSink
    checkpoint: Checkpoint
    report: Reporter
    _kept: Appender = field(init=False, repr=False)
    _topics: tuple[Topics, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._topics = (Topics((self.settings.source,), self.checkpoint),)
        self._kept = letter_appender(self.letters, self._topics)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape: a fixed range of offsets.
        batch_id
            Spark's.
        """
        begun = accounts.now()
        place = place_of(batch.sparkSession, self.checkpoint, batch_id)
        which = self.checkpoint.batch(batch.sparkSession, batch_id)
        offsets = offsets_of(batch.sparkSession, self._topics, batch_id)
        read = _Read(
            self.sink,
            F.count(F.lit(1)).alias("read"),
            F.count("_error").alias("bad"),
            F.expr("min(unix_micros(_arrived_at))").alias("oldest"),
        )

        def offered() -> DataFrame:
            good = read.on(self._decoded(batch)).where("_error IS NULL").drop(*DEAD_LETTER)
            return self.compose(good)

        def keep(letters: Callable[[], DataFrame]) -> None:
            self._kept.append(batch.sparkSession, letters, which, offsets)

        def refuse(letters: DataFrame) -> None:
            keep(lambda: as_landed(batch, letters, self.decoder))

        done = self.sink.write(offered(), place, refuse, offered)
        figures = read.values(done)
        if figures["bad"]:
            # A second read of the same offsets, by batches that have dead letters only.
            keep(lambda: self._decoded(batch).where(F.col("_error").isNotNull()))
        fields = SinkAccounts(figures["read"], figures["bad"], done).fields()
        times = accounts.times(begun, accounts.now(), figures["oldest"])
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **fields, **times)

    def _decoded(self, batch: DataFrame) -> DataFrame:
        return self.decoder.decode(stamped(batch))


def as_landed(batch: DataFrame, letters: DataFrame, decoder: Decoder) -> DataFrame:
    """Refused rows in the shape of a landing table, with the bytes of the record that they came of.

    What the decoder redacts is taken out of the bytes, as it is where it cannot decode them. A transform that makes
    several rows of a record adds to its identity (``_id`` and what follows a ``/``): such rows are one dead letter,
    which a replay takes through the transform again.

    Parameters
    ----------
    batch
        In the envelope's shape: of Kafka.
    letters
        In the shape of :data:`etl.sinks.base.LETTER`.
    decoder
        Of the query, which makes the columns of the table of dead letters.

    Raises
    ------
    AccountsError
        A refused row has an identity of the transform's own: nobody knows what it came of.
    """
    # By equality, not by what an identity begins with: that would compare each record with each letter.
    record = F.substring_index("_id", "/", _PARTS).alias("_id")
    told = letters.select("_source", record, F.col("_error").alias("_why")).dropDuplicates(
        [*envelope.IDENTITY]
    )
    stray = told.join(batch, [*envelope.IDENTITY], "left_anti").first()
    if stray is not None:
        raise AccountsError(
            f"the sink refuses {stray['_id']} ({stray['_why']}), which is no record of the batch: keep _id in the "
            "transform, and write / and a number after it where it makes several rows of a record"
        )
    chosen = stamped(batch).join(told, [*envelope.IDENTITY])
    bare = redact.bare(decoder, F.col("payload"))
    have = {*envelope.COLUMNS, "_hash", "_landed_at"}
    last = {
        "_bytes": bare,
        "_stage": F.lit(STAGE),
        "_error": redact.said(F.col("_why"), F.col("payload"), bare),
    }
    shape = decoder.decode(stamped(batch.limit(0))).schema
    return chosen.select(
        *(
            F.col(f.name) if f.name in have else last.get(f.name, F.lit(None).cast(f.dataType)).alias(f.name)
            for f in shape.fields
        )
    )


@dataclass(frozen=True)
class OutwardReplay:
    """Takes replayed dead letters that became good to the sink of their direct query.

    Parameters
    ----------
    compose, sink
        The query's.
    """

    compose: Composition
    sink: Sink

    def __call__(self, good: DataFrame) -> None:
        """Write rows of a landing table's shape; a sink that knows them by identity writes each once.

        Raises
        ------
        AccountsError
            The sink refuses some again: they stay dead letters.
        """

        def refuse(letters: DataFrame) -> None:
            first = letters.first()
            assert first is not None
            raise AccountsError(
                f"the sink refuses {letters.count()} of them, {first['_id']}: {first['_error']}"
            )

        self.sink.write(self.compose(good.drop(*DEAD_LETTER)), None, refuse)
