"""Commits of rows of no batch, such as a backfill's, beside the batches of streams.

The fence of a batch (:class:`~etl.commits.commit_batch_once.NoRowsSinceSnapshot`) refuses it after any added row. A
step of a backfill takes longer than a trigger, so beside a stream it would never pass. The fence here refuses a commit
only if rows that arrived in the range of its own rows were added since its look-up. Spark has no such condition for an
append. So Spark writes the files only, as it does for Iceberg's rewrites, and Iceberg's API commits them.

Rows of a person who was erased since the look-up would come back: such a commit is refused, too.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from typing import Any, Self, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ..record.batch_accounts import ObservedFigures
from ..record.envelope import datetime_of_micros
from ..record.errors import JVM_ERRORS, ConflictError, java_causes
from ..record.tables import Table
from .commit_batch_once import MOST_ATTEMPTS
from .snapshot_history import ARRIVALS, ERASURE, snapshot_and_earlier

Result = TypeVar("Result")
Condition = TypeVar("Condition", bound="NoErasureSinceSnapshot")

_NOT_COMMITTED = {"ValidationException", "CommitFailedException"}
"""Iceberg's errors of a commit that has certainly not happened; after others its files may be in the table."""


def write_beside_streams(
    spark: SparkSession, table: Table, condition: type[Condition], attempt: Callable[[Condition], Result]
) -> Result:
    """Read, look up and write rows, again if the condition did not hold at the commit.

    Parameters
    ----------
    spark
        Session with the table's catalog.
    attempt
        Makes one attempt: a complete new action, which begins to read and to look up after the call.

    Raises
    ------
    ConflictError
        The condition held in none of the ``MOST_ATTEMPTS`` attempts; nothing was committed.
    """
    for _ in range(MOST_ATTEMPTS - 1):
        with suppress(ConflictError):
            return attempt(condition.at_newest(spark, table))
    return attempt(condition.at_newest(spark, table))


@dataclass(frozen=True)
class NoErasureSinceSnapshot:
    """Condition of a commit: it fails if a person's records were erased since a snapshot.

    Attributes
    ----------
    base
        Id of the snapshot; None for a table without one.
    """

    table: Table
    base: int | None
    _java_table: Any

    @classmethod
    def at_newest(cls, spark: SparkSession, table: Table) -> Self:
        """Return the condition from the table's newest snapshot on."""
        java_table = table.load_java_table(spark)
        newest = java_table.currentSnapshot()
        return cls(table, None if newest is None else int(newest.snapshotId()), java_table)

    def commit(self, rows: DataFrame) -> None:
        """Write rows and commit them.

        Raises
        ------
        ConflictError
            The condition does not hold; nothing was committed.
        """
        self._commit_files(
            self._written_files(rows), (), _iceberg_expressions(rows.sparkSession).alwaysFalse()
        )

    def _written_files(self, rows: DataFrame) -> Sequence[Any]:
        """Write rows into files of the table, and return them uncommitted, as Iceberg's Java objects."""
        name = uuid.uuid4().hex
        jvm: Any = rows.sparkSession._jvm
        # Iceberg looks its catalog up in the thread's session, which a new thread does not have.
        jvm.org.apache.spark.sql.SparkSession.setActiveSession(rows.sparkSession._jsparkSession)
        spark_classes = jvm.org.apache.iceberg.spark
        # Of an instance: Py4J cannot tell the class's `get` from that with an argument.
        tables = spark_classes.SparkTableCache().get()
        rewrites = spark_classes.FileRewriteCoordinator.get()
        # As Iceberg's own compaction does, in every version: under this name no table can be committed.
        tables.add(name, self._java_table)
        try:
            writer = rows.write.format("iceberg").option("rewritten-file-scan-task-set-id", name)
            # Overrides the table's property, which another owner may have set (docs/design/tables.md#sorted-writes).
            writer.option("fanout-enabled", "false").mode("append").save(name)
            return [*rewrites.fetchNewFiles(self._java_table, name)]
        finally:
            rewrites.clearRewrite(self._java_table, name)
            tables.remove(name)

    def _commit_files(
        self, added: Sequence[Any], removed: Sequence[Any], conflicting: Any, arrivals: str | None = None
    ) -> None:
        if not added and not removed:
            return
        commit = self._java_table.newOverwrite().conflictDetectionFilter(conflicting)
        commit = commit.validateNoConflictingData().validateNoConflictingDeletes()
        if self.base is not None:
            commit = commit.validateFromSnapshot(self.base)
        if arrivals is not None:
            commit.set(ARRIVALS, arrivals)
        for file in added:
            commit.addFile(file)
        for file in removed:
            commit.deleteFile(file)
        try:
            self._refuse_after_erasure()
            commit.commit()
        except ConflictError:
            self._delete_files(added)
            raise
        except JVM_ERRORS as error:
            names = {cause.getClass().getSimpleName() for cause in java_causes(error)}
            if names & _NOT_COMMITTED:
                self._delete_files(added)
            if "ValidationException" not in names:
                raise
            raise ConflictError(
                f"table {self.table}: another writer added rows of the same time meanwhile, so nothing was committed"
            ) from error

    def _refuse_after_erasure(self) -> None:
        self._java_table.refresh()
        newest = self._java_table.currentSnapshot()
        since = takewhile(
            lambda one: int(one.snapshotId()) != self.base, snapshot_and_earlier(self._java_table, newest)
        )
        if any(one.summary().get(ERASURE) for one in since):
            raise ConflictError(
                f"table {self.table}: a person's records were erased meanwhile, so nothing was committed"
            )

    def _delete_files(self, files: Sequence[Any]) -> None:
        for file in files:
            self._java_table.io().deleteFile(str(file.path()))


@dataclass(frozen=True)
class NoRowsOfSameArrivalSinceSnapshot(NoErasureSinceSnapshot):
    """Condition of a commit: it fails also if rows that arrived in the range of its own were added since a snapshot."""

    def commit(self, rows: DataFrame) -> None:
        """Write rows and commit them; the range is that of their arrival, which the commit names (:data:`ARRIVALS`).

        Raises
        ------
        ConflictError
            The condition does not hold; nothing was committed.
        """
        spark = rows.sparkSession
        span = ObservedFigures(
            F.expr("count_if(_arrived_at IS NULL) AS timeless"),
            F.expr("min(unix_micros(_arrived_at)) AS first"),
            F.expr("max(unix_micros(_arrived_at)) AS last"),
        )
        files = self._written_files(span.observe(rows))
        if not files:
            return  # no range either
        figures = span.values()
        make = _iceberg_expressions(spark)
        arrivals = ""
        if figures["timeless"]:
            same = make.alwaysTrue()
        else:
            arrivals = f"{figures['first']} {figures['last']}"
            first, last = (datetime_of_micros(figures[end]).isoformat() for end in ("first", "last"))
            from_first = make.greaterThanOrEqual("_arrived_at", first)
            same = getattr(make, "and")(from_first, make.lessThanOrEqual("_arrived_at", last))
        self._commit_files(files, (), same, arrivals)

    def replace_range(self, rows: DataFrame, since: datetime, until: datetime) -> int:
        """Write rows and commit them in place of the table's rows that arrived from a time to another one (excluded).

        Row by row: a file may also hold rows of other hours, which are written again, as Iceberg's copy on write does. What
        is there, and what replaces it, are of one snapshot, which a ``MERGE`` cannot promise.

        Parameters
        ----------
        rows
            Rows with columns of the table, all of that range.

        Returns
        -------
        int
            Number of replaced rows.

        Raises
        ------
        ConflictError
            The condition does not hold; nothing was committed.
        """
        spark = rows.sparkSession
        make = _iceberg_expressions(spark)
        same = getattr(make, "and")(
            make.greaterThanOrEqual("_arrived_at", since.isoformat()),
            make.lessThan("_arrived_at", until.isoformat()),
        )
        replaced: dict[str, int] = {}
        files: Sequence[Any] = ()
        if self.base is not None:
            there = spark.sql(f"SELECT *, _file FROM {self.table} VERSION AS OF {self.base}")  # noqa: S608 - plain names, see Table
            arrived = F.col("_arrived_at")
            within = (arrived >= F.lit(since)) & (arrived < F.lit(until))
            found = there.where(within).groupBy("_file").count().collect()
            replaced = {row["_file"]: row["count"] for row in found}
            files = self._files_at_base(same, replaced)
        if files:
            mixed = there.where(self._arrival_bounds(spark, files) | arrived.isNull())
            # Never null: rows without an arrival stay.
            outside = ~F.coalesce(within, F.lit(False))
            kept = mixed.where(F.col("_file").isin([*replaced]) & outside)
            rows = kept.drop("_file").unionByName(rows, allowMissingColumns=True)
        self._commit_files(self._written_files(rows), files, same)
        return sum(replaced.values())

    def _files_at_base(self, same: Any, names: Collection[str]) -> Sequence[Any]:
        """Return files of the snapshot by name, as Iceberg's Java objects with the bounds of their columns."""
        scan = self._java_table.newScan().useSnapshot(self.base).filter(same).includeColumnStats().planFiles()
        planned = (task.file() for task in scan.iterator())
        files = [file for file in planned if str(file.path()) in names]
        scan.close()
        assert len(files) == len(names), "Iceberg plans each file once"
        return files

    def _arrival_bounds(self, spark: SparkSession, files: Sequence[Any]) -> Column:
        """Return a condition, which rows of these files with an arrival meet: without it all files would be read."""
        jvm: Any = spark._jvm
        column = self._java_table.schema().findField("_arrived_at")
        ends = []
        for file in files:
            for bounds in (file.lowerBounds(), file.upperBounds()):
                bound = bounds and bounds.get(column.fieldId())
                if bound is None:
                    return F.lit(True)
                ends.append(jvm.org.apache.iceberg.types.Conversions.fromByteBuffer(column.type(), bound))
        first, last = (F.lit(datetime_of_micros(end)) for end in (min(ends), max(ends)))
        return F.col("_arrived_at").between(first, last)


def _iceberg_expressions(spark: SparkSession) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.expressions.Expressions
