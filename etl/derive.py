"""Derive: the good records of a landing table through enrichment and transform into a sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import StructType

from etl import accounts, strict
from etl.accounts import DeriveAccounts, Observed, Reporter, count
from etl.checkpoint import Checkpoint
from etl.commits import Added, BatchId, Commits, Fence, History, Others
from etl.enrich import ReferenceTable
from etl.envelope import CARRIED, moment
from etl.errors import StartError
from etl.formats.deletes import STAGE as DELETE
from etl.results import ORDER, newest
from etl.route import along
from etl.settings import DeriveSettings
from etl.sinks.base import DELETED
from etl.sinks.iceberg import EVERYTHING, Bound, IcebergSink, with_first_that_holds
from etl.tables import Table

Transform = Callable[[DataFrame], DataFrame]

ROWS_PER_BATCH = 1_000_000
"""Most rows that a batch takes from the landing table, by whole files: bounds the first batch after a pause."""

SLACKS = (timedelta(seconds=1), timedelta(hours=1))
"""What is taken off a bound: first nothing to speak of, then enough for two drivers' clocks or two land queries."""

DEAD_LETTER = ("_bytes", "_stage", "_error")


def load_transform(name: str | None) -> Transform:
    """Find a transform by name.

    Parameters
    ----------
    name
        ``package.module:function``; None for none.

    Raises
    ------
    StartError
        It cannot be imported or is not a function.
    """
    if name is None:
        return lambda rows: rows
    try:
        found = strict.named(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise StartError(f"transform {name}: {error}") from error
    if not callable(found):
        raise StartError(f"transform {name}: not a function")
    transform: Transform = found
    return transform


def good_records(landing: DataFrame, *, deletes: bool = False) -> DataFrame:
    """Rows of a landing table without the dead letters and their columns.

    Parameters
    ----------
    landing
        The table.
    deletes
        Whether records that delete are among them, told by :data:`~etl.sinks.base.DELETED`; else they are left out.
    """
    if not deletes:
        return landing.where("_error IS NULL AND _stage IS NULL").drop(*DEAD_LETTER)
    good = landing.where("_error IS NULL").withColumn(DELETED, F.col("_stage").eqNullSafe(DELETE))
    return good.drop(*DEAD_LETTER)


def read(
    spark: SparkSession, table: Table, most: int | None = ROWS_PER_BATCH, *, deletes: bool = False
) -> DataFrame:
    """Open a landing table as a stream of its good records.

    A batch is a fixed range of the table's snapshots: a replay holds the same
    records. Compaction and deletes (upkeep, redaction) make no records.

    Parameters
    ----------
    spark
        With the table's catalog.
    table
        Its name.
    most
        Rows in a batch, by whole files; None for all that there are.
    deletes
        As of :func:`good_records`.
    """
    reader = (
        spark.readStream.format("iceberg")
        .option("streaming-skip-overwrite-snapshots", "true")
        .option("streaming-skip-delete-snapshots", "true")
    )
    if most is not None:
        reader = reader.option("streaming-max-rows-per-micro-batch", str(most))
    return good_records(reader.table(str(table)), deletes=deletes)


@dataclass(frozen=True)
class Composition:
    """Enrichment and transform as one function from good records to rows of the sink.

    It takes a static or a streaming DataFrame, so that what keeps state can be
    built before ``foreachBatch``.

    Attributes
    ----------
    carries
        Columns of ours that the transform hands on.
    latest_by
        Columns that identify a row, of which the last record is kept; none where each record is a row.
    """

    references: tuple[ReferenceTable, ...]
    transform: Transform
    name: str
    carries: tuple[str, ...] = CARRIED
    latest_by: tuple[str, ...] = ()

    def __call__(self, rows: DataFrame) -> DataFrame:
        """Enrich, transform, stamp.

        Raises
        ------
        StartError
            The transform loses a column that identity or latency rest on, or takes one of ours.
        """
        for reference in self.references:
            rows = reference.join(rows, reference.rows(rows))
        out = self.transform(rows)
        if not isinstance(out, DataFrame):
            raise StartError(f"transform {self.name}: returned {type(out).__name__}, not a DataFrame")
        carries = (*ORDER, DELETED) if self.latest_by else self.carries
        lost = [c for c in carries if c not in out.columns]
        if lost:
            whole = ", ".join(carries) if self.latest_by else "etl.envelope.CARRIED"
            raise StartError(f"transform {self.name}: loses {', '.join(lost)}; keep {whole} in its select")
        if "_written_at" in out.columns:
            raise StartError(f"transform {self.name}: _written_at is a column of the sink's own")
        if self.latest_by:
            out = newest(out, self.latest_by, self.name)
        # Of a stream Spark fixes the time for each batch; a moment of ours would be that of its start.
        written = F.current_timestamp() if out.isStreaming else moment(accounts.now(), "_id = ''")
        return out.withColumn("_written_at", written)

    def schema(self, spark: SparkSession, landing: Table, route: str | None = None) -> StructType:
        """Columns of the sink; finds mistakes in the transform before the stream starts."""
        rows = good_records(spark.table(str(landing)).limit(0), deletes=bool(self.latest_by))
        return self(along(rows, route, str(landing))).schema


def snapshot_bound(landing: Any, start: Any) -> datetime | None:
    """A moment that no record of a batch was landed before.

    Records of a snapshot were landed after the append before it was committed,
    as one query lands them, a batch at a time.

    Parameters
    ----------
    landing
        The landing table, as Iceberg's Java object.
    start
        Iceberg's streaming offset at which the batch begins.

    Returns
    -------
    datetime or None
        None where the table no longer knows, or the batch begins with its first append, or reads all files of a
        state (:mod:`etl.beginning`).
    """
    snapshot = landing.snapshot(int(start["snapshot_id"])) if start and not start["scan_all_files"] else None
    if snapshot is None:
        return None
    finished = start["position"] >= int(snapshot.summary().getOrDefault("added-data-files", "0"))
    while not (finished and snapshot.operation() == "append"):
        parent = snapshot.parentId()
        snapshot = landing.snapshot(parent) if parent is not None else None
        if snapshot is None:
            return None
        finished = True
    return datetime.fromtimestamp(snapshot.timestampMillis() / 1000, tz=UTC)


@dataclass
class Deriver:
    """Writes each batch of a derive query; called by ``foreachBatch``.

    A batch is a fixed range of the landing table's snapshots, so the run's last commit tells whether it was written
    before. What else the table can hold of it was written by another checkpoint or by a backfill, out of records that
    had landed by then: a batch of later ones needs no look-up.
    """

    settings: DeriveSettings
    landing: Table
    compose: Composition
    sink: IcebergSink
    checkpoint: Checkpoint
    report: Reporter
    _commits: Commits = field(init=False, repr=False)
    _others: Others = field(default_factory=Others, init=False, repr=False)

    def __post_init__(self) -> None:
        self._commits = Commits(self.sink.table)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            Good records of the landing table.
        batch_id
            Spark's.
        """
        begun = accounts.now()
        spark = batch.sparkSession
        which = self.checkpoint.batch(spark, batch_id)
        balance = self._commits.write(
            spark, which, lambda history: self._attempt(batch, batch_id, which, history)
        )
        self.report.emit(
            "batch",
            query=self.settings.name,
            batch=batch_id,
            **balance.fields(),
            **accounts.times(begun, accounts.now()),
        )

    def _attempt(
        self, batch: DataFrame, batch_id: int, which: BatchId | None, history: History
    ) -> DeriveAccounts:
        others = self._others.until(history)

        def write(tried: tuple[Bound | None, bool]) -> DeriveAccounts:
            bound, alone = tried
            return self._write(batch, bound, history.again, self._commits.fence(history, which, alone=alone))

        if others is None:
            return write((None, True))
        since = self._since(batch.sparkSession, batch_id)
        tries: list[tuple[Bound | None, bool]] = [(bound, False) for bound in self._bounds(since)]
        if self._later(since, others):
            # Nothing is looked up; a record that landed before fails the write.
            tries.insert(0, (Bound(F.lit(False), "_landed_at", others), True))
        return with_first_that_holds(tries, write)

    def _later(self, since: datetime | None, others: datetime) -> bool:
        """Whether all of a batch landed after others have written last."""
        state = self.settings.state
        if state is not None and state.join is not None:
            return False  # the second stream has a position of its own
        return since is not None and since - SLACKS[-1] > others

    def _since(self, spark: SparkSession, batch_id: int) -> datetime | None:
        """A moment that no record of the batch was landed before; None where nobody knows."""
        return snapshot_bound(self.landing.metadata(spark), self.checkpoint.start_of(spark, batch_id))

    def _bounds(self, since: datetime | None) -> Iterator[Bound]:
        state = self.settings.state
        # A joined row was landed when its first record was, which may have waited in the state for the second.
        slacks = SLACKS if state is None or state.join is None else SLACKS[1:]
        if since is not None:
            for slack in slacks:
                yield Bound.since("_landed_at", since - slack)
        yield EVERYTHING

    def _write(
        self, batch: DataFrame, bound: Bound | None, again: Sequence[Added], fence: Fence
    ) -> DeriveAccounts:
        read = Observed(count("read"))
        appended = self.sink.append(self.compose(read.on(batch)), bound, added=again, fence=fence)
        return DeriveAccounts(read.values()["read"], appended.offered, appended.written)
