"""Iceberg tables, appended to once per record identity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from types import MappingProxyType
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sink_kinds import JobContext, SinkSettings
from ..record import tables
from ..record.batch_accounts import ObservedFigures, Reporter, row_count, values_of
from ..record.commits import AddedRows, CommitFence, Commits, History
from ..record.envelope import IDENTITY
from ..record.errors import JVM_ERRORS, ConflictError, LossError, causes, whole_text
from ..record.lookup_bounds import (
    EVERYTHING,
    OUTSIDE,
    Bound,
    LookUpStep,
    OutsideBoundError,
    write_with_first_valid_bound,
)
from ..record.tables import Table
from .base import Again, BatchPlace, Refuse, Sink, WriteCounts
from .iceberg_keyed import KeyedIcebergSink

OTHER_PAYLOAD = "millrace: another payload has the identity of "
"""What a task fails with when the table holds a record of the batch with other bytes."""


@dataclass(frozen=True)
class AppendResult:
    """What an append came to: records offered and written, and the figures asked for, by name.

    Attributes
    ----------
    held
        The figure of the rows that were looked at; None where none was asked for or there were none.
    """

    offered: int
    written: int
    figures: dict[str, Any]
    held: Any = None


_KNOWN, _KNOWN_HASH = "_known", "_known_hash"
HASH = "_hash"
"""Column with a hash of the payload, in tables that have one."""


@dataclass(frozen=True)
class IcebergSinkSettings(SinkSettings):
    """An Iceberg table (``database.table``), appended to once per record identity."""

    kind: Literal["iceberg"]
    table: str

    @property
    def lake_table(self) -> str:
        """The table."""
        return self.table

    def open(self, context: JobContext) -> Sink:
        """As of the base; rows of a key replace each other."""
        table = Table.of(context.catalog, self.table)
        if context.key:
            return KeyedIcebergSink(table, key=context.key, report=context.report)
        return IcebergSink(table, report=context.report)


@dataclass(frozen=True)
class IcebergSink:
    """An append-only Iceberg table.

    Parameters
    ----------
    table
        Its name; made or checked by :func:`etl.record.tables.ensure`.
    report
        Where alterations are told.
    """

    table: Table
    report: Reporter | None = field(default=None, kw_only=True, compare=False)
    acts_on_rdd: bool = field(default=False, kw_only=True)

    @cached_property
    def _commits(self) -> Commits:
        return Commits(self.table)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or alter or check the one that is there.

        Raises
        ------
        StartError
            It has another shape.
        """
        tables.ensure(spark, self.table, schema, report=self.report)

    def write(
        self,
        rows: DataFrame,
        place: BatchPlace | None,
        refuse: Refuse,
        again: Again | None = None,
    ) -> WriteCounts:
        """Append those rows that the table does not hold, in one transaction that names the batch.

        Guarantee: exactly once per identity, as of :meth:`append`, also beside other writers: a commit is
        refused where rows were added since the table was looked at, and the batch looked up again. A second
        process on the same checkpoint fails. Rows of no batch are looked up in the whole table, and appended beside
        the commits of a stream.

        Raises
        ------
        LeaseLostError
            Another process writes the batches of the same checkpoint.
        ConflictError, LossError
            As of :meth:`append`, after several attempts.
        """
        if place is None:
            done = self.append(rows, EVERYTHING)
            return WriteCounts(done.offered, done.written, None)
        spark, batch = rows.sparkSession, place.committed
        first: list[DataFrame] = [rows]

        def attempt(history: History) -> AppendResult:
            def look(tried: LookUpStep) -> AppendResult:
                fence = self._commits.fence(history, batch, alone=tried.alone)
                # Counters are good for one attempt.
                offered = first.pop() if first else rows if again is None else again()
                return self.append(
                    offered, tried.bound, properties=place.properties, added=history.again, fence=fence
                )

            looks = (
                place.lookup(spark, self.table, history) if place.lookup else [LookUpStep(EVERYTHING, False)]
            )
            return write_with_first_valid_bound(looks, look)

        done = self._commits.write(spark, batch, attempt)
        return WriteCounts(done.offered, done.written, None)

    def _commit(self, rows: DataFrame, properties: Mapping[str, str], fence: CommitFence | None) -> None:
        # Whatever the table says, which may be an earlier release's or another owner's (ADR 0285).
        writer = rows.writeTo(str(self.table)).option("fanout-enabled", "false")
        for name, value in {**properties, **(fence.properties if fence else {})}.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        if fence is None or not fence.shut:
            writer.append()
            return
        # Replaces nothing, and is an append for whoever reads the table (apache/iceberg#10150); but Iceberg validates it.
        writer = writer.option("isolation-level", "serializable")
        if fence.base is not None:
            writer = writer.option("validate-from-snapshot-id", str(fence.base))
        try:
            writer.overwrite(F.lit(False))
        except JVM_ERRORS as error:
            if any(cause.getClass().getSimpleName() == "ValidationException" for cause in causes(error)):
                raise ConflictError(
                    f"table {self.table}: another writer added rows after the look-up for duplicates, so nothing was "
                    "committed"
                ) from error
            raise

    def append(
        self,
        batch: DataFrame,
        bound: Bound | None,
        *figures: Column,
        of_offered: Sequence[Column] = (),
        held: Column | None = None,
        beside: Sequence[ObservedFigures] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
        added: Sequence[AddedRows] = (),
        fence: CommitFence | None = None,
        distinct: bool = False,
        tasks: int | None = None,
    ) -> AppendResult:
        """Write those records of a batch that the table does not hold yet, in one transaction.

        Guarantee: exactly once per identity (``_source``, ``_id``), whatever was killed, retried or
        replayed before, also when a replay holds other records. The look-up and the append are one
        action; the append is atomic; a write that fails leaves the table as it was. With a ``fence``
        two writers at once are told apart: the second one fails. Without it each sees the table
        as it was when its own write began.

        Parameters
        ----------
        batch
            With ``_source`` and ``_id``, each pair once, and ``_hash`` where the table has it.
        bound
            Where in the table a record of this batch can be; None where the caller knows that there is none.
        *figures
            Aggregates over the rows that are written.
        of_offered
            Aggregates over all that is offered, with what the table holds already.
        held
            An aggregate over the rows of the table that are looked at, of which ``_source`` and ``_id``
            are known. A row may be given to it more than once.
        beside
            What else the batch observes, for its figures to be among those of the answer.
        properties
            Of the commit; found again in the table's history (``snapshot.summary()``).
        added
            Commits whose rows are looked at as well.
        distinct
            Whether an identity that the table holds more than once is counted once anyway, which costs a shuffle.
        tasks
            That write after a look-up; None for as many as there are cores.

        Returns
        -------
        AppendResult
            The figures, and how many records were offered.

        Raises
        ------
        OutsideBoundError
            The bound does not hold; nothing was written.
        LossError
            The table holds a record of the batch with another payload; nothing was written.
        ConflictError
            The fence does not hold; nothing was written.
        """
        # Where something must be found there is something to look up.
        known = self._known(batch.sparkSession, bound, added, ask=held is None)
        looked = ObservedFigures(held.alias("held")) if known is not None and held is not None else None
        if known is None:
            observed = [ObservedFigures(row_count("written"), *figures, *of_offered)]
            new = observed[0].observe(batch)
        else:
            new, observed = _without(
                batch, looked.observe(known) if looked else known, figures, of_offered, distinct, tasks
            )
        with separating_own_errors(str(self.table)):
            self._commit(new if bound is None else bound.guard(new), properties, fence)
        found = values_of(*(one for one in (*observed, looked, *beside) if one is not None))
        values = {name: value for figures_of_one in found for name, value in figures_of_one.items()}
        written = values.pop("written")
        return AppendResult(values.pop("offered", written), written, values, values.pop("held", None))

    def _known(
        self, spark: SparkSession, bound: Bound | None, added: Sequence[AddedRows], *, ask: bool
    ) -> DataFrame | None:
        """Identities that are looked at; None where that is asked and no file can hold one.

        Mostly there is none, which Iceberg knows from its metadata: then there is nothing to look up, and all
        that is offered is written.
        """
        frames = [commit.rows(spark, self.table) for commit in added]
        if bound is not None:
            table = spark.table(str(self.table))
            frames.append(table if bound.rows is None else table.where(bound.rows))
        found = [
            frame.select(*(c for c in (*IDENTITY, HASH) if c in frame.columns))
            for frame in frames
            if not ask or may_match_files(frame)
        ]
        if len(found) < 2:
            return found[0] if found else None
        # A commit that is looked at may lie within the bound.
        return reduce(DataFrame.unionByName, found).dropDuplicates([*IDENTITY])


def may_match_files(rows: DataFrame) -> bool:
    """Whether any file can hold a row of a table that is filtered, by Iceberg's metadata."""
    plan: Any = rows  # DataFrame.rdd would plan again, to hand the rows over to Python
    return bool(plan._jdf.queryExecution().toRdd().getNumPartitions())


def _without(
    batch: DataFrame,
    known: DataFrame,
    figures: Sequence[Column],
    of_offered: Sequence[Column],
    distinct: bool,
    tasks: int | None,
) -> tuple[DataFrame, list[ObservedFigures]]:
    """Rows of a batch that are not known, counted behind the join.

    Spark may shuffle the batch for the join. What is counted before a shuffle is counted again where executors are lost,
    and what is written is then another set of rows. So both counts stand where the writing does: behind every shuffle.
    """
    hashed = HASH in known.columns and HASH in batch.columns
    columns = [*map(F.col, IDENTITY), *([F.col(HASH).alias(_KNOWN_HASH)] if hashed else [])]
    marked = known.select(*columns, F.lit(True).alias(_KNOWN))
    if distinct:
        marked = marked.dropDuplicates([*IDENTITY])
    offered, written = (
        ObservedFigures(row_count("offered"), *of_offered),
        ObservedFigures(row_count("written"), *figures),
    )
    joined = offered.observe(batch.join(marked, list(IDENTITY), "left"))
    new = F.col(_KNOWN).isNull()
    if hashed:
        other = F.col(_KNOWN_HASH) != F.col(HASH)
        failing = F.raise_error(F.concat(F.lit(OTHER_PAYLOAD), F.concat_ws(": ", *IDENTITY)))
        new = F.when(other, failing.cast("boolean")).otherwise(new)
    # A join makes as many parts as the session says, whatever the batch holds; each would be a file.
    files = tasks or batch.sparkSession.sparkContext.defaultParallelism
    rows = joined.where(new).select(*(F.col(f"`{name}`") for name in batch.columns)).coalesce(files)
    return written.observe(rows), [offered, written]


@contextmanager
def separating_own_errors(what: str) -> Iterator[None]:
    """Tell the errors of a write that our own checks raise from any other.

    Parameters
    ----------
    what
        Is written.

    Raises
    ------
    OutsideBoundError
        A record lies outside the bound.
    LossError
        A record has the identity of another one that is there.
    """
    try:
        yield
    except JVM_ERRORS as error:
        text = whole_text(error)
        if OUTSIDE in text:
            raise OutsideBoundError(what) from error
        if OTHER_PAYLOAD in text:
            # Spark 4 puts its error class behind the text.
            identity = text.split(OTHER_PAYLOAD, 1)[1].splitlines()[0].partition(" SQLSTATE: ")[0]
            raise LossError(
                f"{what} already holds {identity} with another payload, so nothing was written: a topic or stream of "
                "this name was deleted and created again, or belongs to another cluster, and its records repeat old "
                "identities. Give the stream another name in the environment file, and the query a new checkpoint: "
                "identities begin with the stream's name"
            ) from error
        raise
