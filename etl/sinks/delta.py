"""Delta tables, appended to once per record identity."""

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
from ..record.lookup_bounds import EVERYTHING, Bound, OutsideBoundError
from ..record.tables import nullable
from .base import Again, BatchPlace, Refuse, WriteCounts
from .iceberg import separating_own_errors


@dataclass(frozen=True)
class DeltaSinkSettings(SinkSettings):
    """A Delta table by its path; ``files_per_batch`` as of :class:`ParquetSinkSettings`."""

    NAMED_BY = "path"
    kind: Literal["delta"]
    path: str
    files_per_batch: int

    def open(self, context: JobContext) -> DeltaSink:
        """As of the base."""
        return DeltaSink(self)


@dataclass
class _Held:
    """What the table holds beside the batches since it was asked: nothing that arrived after ``last``.

    Attributes
    ----------
    place
        The batch that was written last; None where the table has to be asked.
    last
        When the youngest record arrived that it held then; None where it was empty.
    """

    place: BatchPlace | None = None
    last: datetime | None = None

    def tells(self, place: BatchPlace | None) -> bool:
        """Whether a batch is a new one of the same checkpoint: one that comes again is held, by us or before."""
        before = self.place
        return (
            before is not None
            and place is not None
            and place.run == before.run
            and place.batch > before.batch
        )


@dataclass(frozen=True)
class DeltaSink:
    """A Delta table by its path.

    Parameters
    ----------
    settings
        Its path, and into how many files a batch goes at most.
    """

    settings: DeltaSinkSettings
    acts_on_rdd: bool = False
    _held: _Held = field(default_factory=_Held, repr=False, compare=False)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table, or check the one that is there.

        Raises
        ------
        StartError
            It has another shape, or Delta is not on the class path.
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
        """Append those rows that the table does not hold, in one transaction.

        Guarantee: exactly once per identity with one writer at a time, whatever is killed, retried or replayed,
        and after a reset checkpoint: no batch number is trusted. What the table held when it was asked arrived
        up to a known moment; a batch that is younger holds none of it, which is checked while it is
        written, and any other is compared by identity. The table is asked by the first batch, by the next one after
        a write that failed, which leaves it as it was, and by a batch that comes again though its write was done.
        """
        spark, held = rows.sparkSession, self._held
        if not held.tells(place):
            (last,) = self._table(spark).agg(F.expr("max(unix_micros(_arrived_at))")).collect()[0]
            held.last = None if last is None else datetime_of_micros(last)
        # Known again only when the batch is in: should it fail half-way, the table tells what it holds.
        held.place = None
        done = self._write_new(rows, held.last, again)
        held.place = place
        return done

    def _write_new(self, rows: DataFrame, last: datetime | None, again: Again | None) -> WriteCounts:
        if last is None:
            return self._append(rows, EVERYTHING)
        try:
            return self._append(rows, Bound.since("_arrived_at", last + timedelta(microseconds=1)))
        except OutsideBoundError:
            known = self._table(rows.sparkSession).where(F.col("_arrived_at") <= F.lit(last))
            return self._append(again() if again is not None else rows, EVERYTHING, known.select(*IDENTITY))

    def _append(self, rows: DataFrame, bound: Bound, known: DataFrame | None = None) -> WriteCounts:
        offered, written = (ObservedFigures(F.count(F.lit(1)).alias("rows")) for _ in range(2))
        new = offered.observe(bound.guard(rows))
        if known is not None:
            new = new.join(known, list(IDENTITY), "left_anti").select(*rows.columns)
        shared = new.repartition(self.settings.files_per_batch)
        with separating_own_errors(self.settings.path):
            written.observe(shared).write.format("delta").mode("append").save(self.settings.path)
        return WriteCounts(offered.values()["rows"], written.values()["rows"])
