"""Direct queries with routes: several Kafka topics, read once, each through a transform into a sink of its own.

A batch is decoded once and held, as it has several readers: one that counts, then a sink for each route that
has records, then the dead letters. What makes it exact is what makes a direct query of one topic exact
(:mod:`etl.direct`): a batch is a fixed range of offsets. So each table's commits bear the range of all that the query
read and how far the table reaches, and other sinks know what they hold. Should one sink fail, the batch comes again as a whole, and those that
had written their part find it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import accounts, outward, tables
from etl.accounts import Reporter
from etl.checkpoint import Checkpoint
from etl.commits import BatchId
from etl.derive import DEAD_LETTER, Composition
from etl.direct import Onward, appender, commit_properties, letter_appender
from etl.envelope import stamped
from etl.outward import OutwardReplay, SinkAccounts, as_landed
from etl.overlap import Appender
from etl.parts import composition
from etl.route import COLUMN, Router, along
from etl.routed import router
from etl.settings import JobSettings, RoutedDirectSettings
from etl.sinks.base import Place, Refuse, Sink, Written
from etl.sinks.iceberg import IcebergSink
from etl.sources.legs import Topics, offsets_of
from etl.sources.offsets import OffsetRange
from etl.sources.opening import landing_table, opened
from etl.supervise import Query
from etl.tables import Table


@dataclass(frozen=True)
class Batch:
    """Which batch it is.

    Attributes
    ----------
    offsets
        Of all that the query reads.
    run
        Id of the query's checkpoint.
    number
        Spark's.
    """

    offsets: OffsetRange
    run: str
    number: int


class End(Protocol):
    """Where a route ends."""

    def write(self, rows: DataFrame, batch: Batch, refuse: Refuse) -> Written:
        """Write the route's rows of a batch, each once however often the batch comes."""


@dataclass
class TableEnd:
    """An Iceberg table, whose commits bear the offsets of the whole batch.

    Parameters
    ----------
    name
        Of the query and the route, as the commits bear it.
    source
        The logical name of the route's stream.
    sink
        The table.
    """

    name: str
    source: str
    sink: IcebergSink
    _rows: Appender = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = appender(self.sink, self.source)

    def write(self, rows: DataFrame, batch: Batch, refuse: Refuse) -> Written:  # noqa: ARG002 - a table takes every row
        """Append; looked up is only what the table may hold."""
        which = BatchId(f"{batch.run}/{self.name}", batch.number)
        mine = batch.offsets.of(f"{self.source}/")
        properties = commit_properties(self.name, batch.offsets)
        done = self._rows.append(rows.sparkSession, lambda: rows, which, mine, properties)
        return Written(done.offered, done.written)


@dataclass(frozen=True)
class SinkEnd:
    """A sink beside the lake's tables.

    Parameters
    ----------
    sink
        Which knows by itself what it holds.
    notes
        A folder of the route's own below the checkpoint.
    """

    sink: Sink
    notes: str

    def write(self, rows: DataFrame, batch: Batch, refuse: Refuse) -> Written:
        """Hand the rows over; they are held, so a second attempt has the same."""
        start, end = (json.dumps(o, sort_keys=True) for o in (batch.offsets.start, batch.offsets.end))
        return self.sink.write(
            rows, Place(batch.run, batch.number, start, end, self.notes), refuse, lambda: rows
        )


@dataclass(frozen=True)
class Lane:
    """A route with what its records go through and where they end."""

    name: str
    source: str
    compose: Composition
    end: End

    def rows(self, good: DataFrame) -> DataFrame:
        """The route's rows of the sink, out of good records of all routes."""
        return self.compose(along(good, self.name, "of the batch"))


@dataclass
class RoutedDirector:
    """Writes each batch of a direct query with routes; called by ``foreachBatch``.

    Parameters
    ----------
    settings
        The query's.
    decoder
        Of all its routes.
    lanes
        One for each route.
    letters
        Where dead letters go: a table in the shape of a landing table with these routes.
    topics
        Legs of Kafka, which tell the offsets of a batch.
    checkpoint
        The query's.
    report
        Where batches are reported.
    """

    settings: RoutedDirectSettings
    decoder: Router
    lanes: tuple[Lane, ...]
    letters: IcebergSink
    topics: tuple[Topics, ...]
    checkpoint: Checkpoint
    report: Reporter
    _kept: Appender = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._kept = letter_appender(self.letters, self.topics)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape: fixed ranges of offsets.
        batch_id
            Spark's.
        """
        begun = accounts.now()
        spark = batch.sparkSession
        which = self.checkpoint.batch(spark, batch_id)
        offsets = offsets_of(spark, self.topics, batch_id)
        assert which is not None, "Spark writes its id before the first batch"
        assert offsets is not None, "Spark writes the end of a batch before it begins"
        place = Batch(offsets, which.run, batch_id)
        letters = _Letters(batch, self.decoder, self._kept, which, offsets)
        held = self.decoder.decode(stamped(batch)).persist()
        try:
            counts = _Counts.of(held)
            good = held.where("_error IS NULL").drop(*DEAD_LETTER)
            done = [self._along(lane, good, place, counts, letters) for lane in self.lanes]
            if counts.bad:
                letters.append(held.where("_error IS NOT NULL"))
        finally:
            held.unpersist()
        balance = SinkAccounts(counts.read, counts.bad, _together(done))
        times = accounts.times(begun, accounts.now(), counts.oldest)
        self.report.emit("batch", query=self.settings.name, batch=batch_id, **balance.fields(), **times)

    def _along(
        self, lane: Lane, good: DataFrame, batch: Batch, counts: _Counts, letters: _Letters
    ) -> Written:
        if not counts.good.get(lane.name):
            return Written(0, 0)
        return lane.end.write(lane.rows(good), batch, letters.refuse)


@dataclass(frozen=True)
class _Letters:
    """Takes dead letters of one batch."""

    batch: DataFrame
    decoder: Router
    sink: Appender
    which: BatchId
    offsets: OffsetRange

    def append(self, letters: DataFrame) -> None:
        self.sink.append(self.batch.sparkSession, lambda: letters, self.which, self.offsets)

    def refuse(self, letters: DataFrame) -> None:
        self.append(as_landed(self.batch, letters, self.decoder))


@dataclass(frozen=True)
class _Counts:
    """What a batch holds; the action that counts it is the one that reads it."""

    read: int
    bad: int
    good: Mapping[str, int]
    oldest: int | None

    @classmethod
    def of(cls, held: DataFrame) -> _Counts:
        bad = F.col("_error").isNotNull()
        figures = (F.count(F.lit(1)).alias("n"), F.expr("min(unix_micros(_arrived_at))").alias("oldest"))
        found = held.groupBy(F.col(COLUMN).alias("route"), bad.alias("bad")).agg(*figures).collect()
        return cls(
            sum(row["n"] for row in found),
            sum(row["n"] for row in found if row["bad"]),
            {row["route"]: row["n"] for row in found if not row["bad"]},
            min((row["oldest"] for row in found if row["oldest"] is not None), default=None),
        )


def _together(done: Sequence[Written]) -> Written:
    return Written(*(sum(getattr(each, name) for each in done) for name in ("offered", "written", "refused")))


def query(
    spark: SparkSession,
    job: JobSettings,
    settings: RoutedDirectSettings,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    """Make a direct query with routes, its tables with it.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    settings
        The query's.
    binds
        Names and values of ``--bind``.
    report
        Where batches are reported.

    Raises
    ------
    StartError
        Whatever does not fit.
    """
    letters = Table.of(job.catalog, settings.dead_letters)
    read = opened(spark, job, settings.name, settings.sources, letters, binds, settings.repartition)
    decoder = router(spark, settings)
    landing_table(spark, letters, read, decoder, report)
    lanes = []
    for route in settings.routes:
        compose = composition(spark, job, settings.name, route, report)
        schema = compose.schema(spark, letters, route.name)
        end: End
        if route.sink.lake_table is not None:
            table = Table.of(job.catalog, route.sink.lake_table)
            tables.ensure(spark, table, schema, report=report)
            end = TableEnd(f"{settings.name}/{route.name}", route.source.name, IcebergSink(table))
        else:
            sink = outward.prepared(spark, job, route.sink, schema, binds)
            end = SinkEnd(sink, f"{read.checkpoint.location}/routes/{route.name}")
        lanes.append(Lane(route.name, route.source.name, compose, end))
    handler = RoutedDirector(
        settings, decoder, tuple(lanes), IcebergSink(letters), read.topics, read.checkpoint, report
    )
    reopen = None if read.guards else read.reopen
    return Query(
        settings.name, read.rows, handler, read.checkpoint.location, settings.trigger_seconds, reopen
    )


@dataclass(frozen=True)
class RoutedOnward:
    """Takes replayed dead letters that became good to the sinks of their routes.

    Parameters
    ----------
    ends
        By route.
    """

    ends: Mapping[str, Onward | OutwardReplay]

    def __call__(self, good: DataFrame) -> None:
        """Write rows of a landing table's shape; each sink writes its own, each once."""
        there = [row[COLUMN] for row in good.select(COLUMN).distinct().collect()]
        for route in sorted(there):
            # DEAD_LETTER's columns stay beside the route's, as those who write drop them.
            self.ends[route](along(good, route, "of dead letters"))


def onward(
    spark: SparkSession,
    job: JobSettings,
    settings: RoutedDirectSettings,
    letters: Table,
    binds: Mapping[str, str],
    report: Reporter,
) -> RoutedOnward:
    """Make what takes replayed dead letters onward; parameters and errors as of :func:`query`, whose tables exist."""
    return RoutedOnward(
        {
            route.name: outward.onward(
                spark, job, settings.name, route, letters, binds, report, route=route.name
            )
            for route in settings.routes
        }
    )
