"""Iceberg sink: tables to which each record identity is appended once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..commits.commit_batch_once import NoRowsSinceSnapshot, TableCommits
from ..commits.commit_beside_streams import NoErasureSinceSnapshot
from ..commits.duplicate_look_up_bounds import (
    OUTSIDE,
    DuplicateLookUp,
    RecordOutsideBoundError,
    whole_table_look_up,
)
from ..launch.sinks import IcebergSinkSettings
from ..record import tables
from ..record.batch_accounts import (
    EventReporter,
    ObservedFigures,
    figures_of_each_observer,
    row_count_aggregate,
)
from ..record.envelope import IDENTITY
from ..record.errors import JVM_ERRORS, ConflictError, LossError, full_error_text, java_causes
from ..record.job_run_context import JobRun
from ..record.tables import Table
from .base import HASH, BatchIdentity, Refuse, Reread, Sink, WriteCounts
from .iceberg_history import IcebergHistorySink
from .iceberg_keyed import KeyedIcebergSink

OTHER_PAYLOAD = "millrace: another payload has the identity of "
"""Message of a task that fails because the table holds a record of the batch with other bytes."""


@dataclass(frozen=True)
class AppendResult:
    """Result of an append: records offered and written, and the requested figures, by name.

    Attributes
    ----------
    held
        Figure of the rows that the look-up read; None if it was not requested or there were none.
    """

    offered: int
    written: int
    figures: dict[str, Any]
    held: Any = None


_KNOWN, _KNOWN_HASH = "_known", "_known_hash"


def open_sink(
    settings: IcebergSinkSettings, run: JobRun, key: tuple[str, ...], *, history: bool = False
) -> Sink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`; with a key, rows replace each other."""
    table = run.table(settings.table)
    if history:
        return IcebergHistorySink(table, report=run.report)
    if key:
        return KeyedIcebergSink(table, key=key, report=run.report)
    return IcebergSink(table, report=run.report)


@dataclass(frozen=True)
class IcebergSink:
    """Append-only Iceberg table.

    Parameters
    ----------
    table
        Its name; the table is made or checked by :func:`etl.record.tables.create_or_evolve_table`.
    report
        Gets an event for each alteration.
    """

    table: Table
    report: EventReporter | None = field(default=None, kw_only=True, compare=False)
    acts_on_rdd: bool = field(default=False, kw_only=True)

    @cached_property
    def _commits(self) -> TableCommits:
        return TableCommits(self.table)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or alter or check an existing one.

        Raises
        ------
        StartError
            The table has another schema.
        """
        tables.create_or_evolve_table(spark, self.table, schema, report=self.report)

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Append the rows that the table does not hold, in one transaction that names the batch.

        Guarantee: exactly once per identity, see :meth:`append`, also beside other writers: a commit is
        refused if rows were added after the look-up, and the look-up is repeated. A second
        process on the same checkpoint fails. Rows of no batch are looked up in the complete table, and appended
        beside the commits of a stream.

        Raises
        ------
        LeaseLostError
            Another process writes batches of the same checkpoint.
        ConflictError, LossError
            As in :meth:`append`, after several attempts.
        """
        if place is None:
            done = self.append(rows, whole_table_look_up())
            return WriteCounts(done.offered, done.written, None)
        first: list[DataFrame] = [rows]

        def append_attempt(look_up: DuplicateLookUp, fence: NoRowsSinceSnapshot) -> AppendResult:
            # Counters are valid for one attempt.
            offered = first.pop() if first else rows if reread is None else reread()
            return self.append(offered, look_up, fence=fence)

        look_ups = place.look_ups or (lambda _: [whole_table_look_up()])
        done = self._commits.write_with_look_ups(
            rows.sparkSession, place.batch_id, look_ups, append_attempt, place.properties
        )
        return WriteCounts(done.offered, done.written, None)

    def _append_files(
        self, rows: DataFrame, fence: NoRowsSinceSnapshot | NoErasureSinceSnapshot | None
    ) -> None:
        if isinstance(fence, NoErasureSinceSnapshot):
            fence.commit(rows)
            return
        # Overrides the table's property, which another owner may have set (docs/design/tables.md#sorted-writes).
        writer = rows.writeTo(str(self.table)).option("fanout-enabled", "false")
        for name, value in (fence.properties if fence else {}).items():
            writer = writer.option(f"snapshot-property.{name}", value)
        if fence is None or not fence.exclusive:
            writer.append()
            return
        # It replaces nothing, and readers of the table see an append (apache/iceberg#10150); but Iceberg validates it.
        writer = writer.option("isolation-level", "serializable")
        if fence.base is not None:
            writer = writer.option("validate-from-snapshot-id", str(fence.base))
        try:
            writer.overwrite(F.lit(False))
        except JVM_ERRORS as error:
            if any(cause.getClass().getSimpleName() == "ValidationException" for cause in java_causes(error)):
                raise ConflictError(
                    f"table {self.table}: another writer added rows while this batch was compared with the "
                    "table, so the batch was not committed"
                ) from error
            raise

    def append(
        self,
        batch: DataFrame,
        look_up: DuplicateLookUp,
        *figures: Column,
        of_offered: Sequence[Column] = (),
        held: Column | None = None,
        observed_elsewhere: Sequence[ObservedFigures] = (),
        fence: NoRowsSinceSnapshot | NoErasureSinceSnapshot | None = None,
        distinct: bool = False,
        tasks: int | None = None,
    ) -> AppendResult:
        """Write the records of a batch that the table does not hold yet, in one transaction.

        Guarantee: exactly once per identity (``_source``, ``_id``), after any kill, retry or
        replay, also if a replay holds other records. The look-up and the append are one
        action; the append is atomic; a failed write leaves the table unchanged. With a ``fence``
        the second of two concurrent writers fails. Without it each sees the table
        as it was when its own write started.

        Parameters
        ----------
        batch
            Rows with ``_source`` and ``_id``, each pair once, and ``_hash`` if the table has it.
        look_up
            Rows of the table that can hold a record of this batch.
        *figures
            Aggregates over the written rows.
        of_offered
            Aggregates over all offered rows, including those that the table holds already.
        held
            Aggregate over the rows of the table that the look-up reads, with the columns ``_source`` and ``_id``.
            A row may be counted more than once.
        observed_elsewhere
            Further observations of the batch, whose figures are added to the result.
        fence
            Condition of the commit, and a batch's properties of it; None for rows that no stream writes.
        distinct
            True to count an identity once that the table holds more than once, which costs a shuffle.
        tasks
            Number of writing tasks after a look-up; None for one per core.

        Returns
        -------
        AppendResult
            The figures, and the number of offered records.

        Raises
        ------
        RecordOutsideBoundError
            The bound does not hold; nothing was written.
        LossError
            The table holds a record of the batch with another payload; nothing was written.
        ConflictError
            The fence does not hold; nothing was written.
        """
        # A requested figure needs the look-up even if no file matches.
        existing = self._existing_identities(batch.sparkSession, look_up, ask=held is None)
        looked = ObservedFigures(held.alias("held")) if existing is not None and held is not None else None
        if existing is None:
            observed = [ObservedFigures(row_count_aggregate("written"), *figures, *of_offered)]
            new = observed[0].observe(batch)
        else:
            new, observed = _new_rows_and_their_figures(
                batch, looked.observe(existing) if looked else existing, figures, of_offered, distinct, tasks
            )
        with own_errors_unwrapped(str(self.table)):
            self._append_files(look_up.with_failure_outside_bound(new), fence)
        found = figures_of_each_observer(
            *(one for one in (*observed, looked, *observed_elsewhere) if one is not None)
        )
        values = {name: value for figures_of_one in found for name, value in figures_of_one.items()}
        written = values.pop("written")
        return AppendResult(values.pop("offered", written), written, values, values.pop("held", None))

    def _existing_identities(
        self, spark: SparkSession, look_up: DuplicateLookUp, *, ask: bool
    ) -> DataFrame | None:
        """Return the identities to look up; None if ``ask`` is set and no file can hold one.

        Mostly there is none, which Iceberg's metadata shows: then there is no look-up, and all
        offered rows are written.
        """
        frames = [commit.rows(spark, self.table) for commit in look_up.commits]
        if look_up.rows is not None:
            frames.append(spark.table(str(self.table)).where(look_up.rows))
        found = [
            frame.selectExpr(*(c for c in (*IDENTITY, HASH) if c in frame.columns))
            for frame in frames
            if not ask or any_file_may_match(frame)
        ]
        if len(found) < 2:
            return found[0] if found else None
        # The rows of such a commit may also be within the bound.
        return reduce(DataFrame.unionByName, found).dropDuplicates([*IDENTITY])


def any_file_may_match(rows: DataFrame) -> bool:
    """Check by Iceberg's metadata that a file can hold a row of a filtered table."""
    return bool(count_read_tasks(rows))


def count_read_tasks(rows: DataFrame) -> int:
    """Count the tasks that read a table, without reading it."""
    plan: Any = rows  # DataFrame.rdd would plan again, to send the rows to Python
    return int(plan._jdf.queryExecution().toRdd().getNumPartitions())


def _new_rows_and_their_figures(
    batch: DataFrame,
    existing: DataFrame,
    figures: Sequence[Column],
    of_offered: Sequence[Column],
    distinct: bool,
    tasks: int | None,
) -> tuple[DataFrame, list[ObservedFigures]]:
    """Return the rows of a batch that are not known, and their counts after the join.

    Spark may shuffle the batch for the join. Rows before a shuffle are counted again if executors are lost,
    and the written rows are then a different set. So both counts are in the writing stage, after every shuffle.
    """
    hashed = HASH in existing.columns and HASH in batch.columns
    # As text, columns are a few calls into the JVM in all; each as an object is several.
    known_hash = [f"{HASH} AS {_KNOWN_HASH}"] if hashed else []
    marked = existing.selectExpr(*IDENTITY, *known_hash, f"true AS {_KNOWN}")
    if distinct:
        marked = marked.dropDuplicates([*IDENTITY])
    offered, written = (
        ObservedFigures(row_count_aggregate("offered"), *of_offered),
        ObservedFigures(row_count_aggregate("written"), *figures),
    )
    joined = offered.observe(batch.join(marked, list(IDENTITY), "left"))
    new = f"{_KNOWN} IS NULL"
    if hashed:
        failing = f"raise_error(concat('{OTHER_PAYLOAD}', concat_ws(': ', {', '.join(IDENTITY)})))"
        new = f"CASE WHEN {_KNOWN_HASH} != {HASH} THEN CAST({failing} AS BOOLEAN) ELSE {new} END"
    # A join makes as many partitions as the session's setting, for any batch; each would be a file.
    files = tasks or batch.sparkSession.sparkContext.defaultParallelism
    rows = joined.where(new).drop(_KNOWN, _KNOWN_HASH).coalesce(files)
    return written.observe(rows), [offered, written]


@contextmanager
def own_errors_unwrapped(what: str) -> Iterator[None]:
    """Convert errors of a write that this code's own checks raise; other errors pass unchanged.

    Parameters
    ----------
    what
        Target of the write, for messages.

    Raises
    ------
    RecordOutsideBoundError
        A record is outside the bound.
    LossError
        A record has the identity of an existing one with another payload.
    """
    try:
        yield
    except JVM_ERRORS as error:
        text = full_error_text(error)
        if OUTSIDE in text:
            raise RecordOutsideBoundError(what) from error
        if OTHER_PAYLOAD in text:
            # Spark 4 appends its error class to the text.
            identity = text.split(OTHER_PAYLOAD, 1)[1].splitlines()[0].partition(" SQLSTATE: ")[0]
            raise LossError(
                f"{what} already holds {identity} with another payload, so nothing was written: a topic or stream of "
                "this name was deleted and created again, or belongs to another cluster, and its records repeat old "
                "identities. Give the stream another name in the environment file, and the query a new checkpoint: "
                "identities begin with the stream's name"
            ) from error
        raise
