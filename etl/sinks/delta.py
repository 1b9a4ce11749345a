"""Delta tables: appends of each record identity once."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sink_kinds import JobContext, SinkSettings
from ..record.batch_accounts import ObservedFigures
from ..record.envelope import IDENTITY, datetime_of_micros
from ..record.errors import JVM_ERRORS, StartError, describe
from ..record.lookup_bounds import EVERYTHING, LookUpBound, OutsideBoundError
from ..record.tables import nullable
from .base import Again, BatchPlace, Refuse, WriteCounts
from .iceberg import separating_own_errors


@dataclass(frozen=True)
class DeltaSinkSettings(SinkSettings):
    """A Delta table by its path; ``files_per_batch`` as in :class:`ParquetSinkSettings`."""

    NAMED_BY = "path"
    kind: Literal["delta"]
    path: str
    files_per_batch: int

    def open(self, context: JobContext) -> DeltaSink:
        """Make the sink, see the base class."""
        return DeltaSink(self)


@dataclass
class _Held:
    """Known content of the table: besides the batches since it was read, no row that arrived after ``last``.

    Attributes
    ----------
    place
        Batch that was written last; None if the table must be read.
    last
        Arrival time of its youngest record when it was read; None if it was empty.
    """

    place: BatchPlace | None = None
    last: datetime | None = None

    def tells(self, place: BatchPlace | None) -> bool:
        """Check that a batch is a new one of the same checkpoint: a repeated batch may be in the table already."""
        before = self.place
        return (
            before is not None
            and place is not None
            and place.run == before.run
            and place.batch > before.batch
        )


@dataclass(frozen=True)
class DeltaSink:
    """Delta table by its path.

    Parameters
    ----------
    settings
        Path, and most files of a batch.
    """

    settings: DeltaSinkSettings
    acts_on_rdd: bool = False
    _held: _Held = field(default_factory=_Held, repr=False, compare=False)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or check an existing one.

        Raises
        ------
        StartError
            The table has another schema, or Delta is not on the class path.
        """
        path = self.settings.path
        try:
            empty = spark.createDataFrame([], nullable(schema))
            empty.write.format("delta").mode("append").save(path)
            found = {f.name: f.dataType.simpleString() for f in self._table(spark).schema.fields}
        except JVM_ERRORS as error:
            raise StartError(f"Delta table {path}: {describe(error)}") from error
        wanted = {f.name: f.dataType.simpleString() for f in schema.fields}
        if found != wanted:
            raise StartError(
                f"Delta table {path}: its columns are {found}, but the query writes {wanted}; name another path in the sink"
            )

    def _table(self, spark: SparkSession) -> DataFrame:
        return spark.read.format("delta").load(self.settings.path)

    def write(
        self,
        rows: DataFrame,
        place: BatchPlace | None,
        refuse: Refuse,
        again: Again | None = None,
    ) -> WriteCounts:
        """Append the rows that the table does not hold, in one transaction.

        Guarantee: exactly once per identity with one writer at a time, after any kill, retry or replay,
        and after a reset of the checkpoint: no batch number is trusted. The rows that the table held when it was read
        arrived up to a known time. A younger batch has none of them, which is checked during the
        write; any other batch is compared by identity. The table is read by the first batch, by the next one after
        a failed write, which leaves it unchanged, and by a batch that is repeated although its write was completed.
        """
        spark, held = rows.sparkSession, self._held
        if not held.tells(place):
            (last,) = self._table(spark).agg(F.expr("max(unix_micros(_arrived_at))")).collect()[0]
            held.last = None if last is None else datetime_of_micros(last)
        # Set again only when the batch is committed: after a failure the table is read.
        held.place = None
        done = self._write_new(rows, held.last, again)
        held.place = place
        return done

    def _write_new(self, rows: DataFrame, last: datetime | None, again: Again | None) -> WriteCounts:
        if last is None:
            return self._append(rows, EVERYTHING)
        try:
            return self._append(rows, LookUpBound.since("_arrived_at", last + timedelta(microseconds=1)))
        except OutsideBoundError:
            known = self._table(rows.sparkSession).where(F.col("_arrived_at") <= F.lit(last))
            return self._append(again() if again is not None else rows, EVERYTHING, known.select(*IDENTITY))

    def _append(self, rows: DataFrame, bound: LookUpBound, known: DataFrame | None = None) -> WriteCounts:
        offered, written = (ObservedFigures(F.count(F.lit(1)).alias("rows")) for _ in range(2))
        new = offered.observe(bound.fail_outside(rows))
        if known is not None:
            new = new.join(known, list(IDENTITY), "left_anti").select(
                *(F.col(f"`{c}`") for c in rows.columns)
            )
        shared = new.repartition(self.settings.files_per_batch)
        with separating_own_errors(self.settings.path):
            written.observe(shared).write.format("delta").mode("append").save(self.settings.path)
        return WriteCounts(offered.values()["rows"], written.values()["rows"])
