"""Where refused rows are kept: an Iceberg table of dead letters, each once."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import tables
from etl.commits import BatchId, Commits, History, Others
from etl.envelope import moment
from etl.sinks.base import LETTER, Refuse
from etl.sinks.iceberg import EVERYTHING, Bound, IcebergSink, with_first_that_holds
from etl.tables import Table


@dataclass
class Letters:
    """Rows that a derive query's sink refused.

    Parameters
    ----------
    table
        In the shape of :data:`etl.sinks.base.LETTER`.
    query
        Its name, which stands for the source of a result of many records.
    """

    table: Table
    query: str
    _commits: Commits = field(init=False, repr=False)
    _others: Others = field(default_factory=Others, init=False, repr=False)

    def __post_init__(self) -> None:
        self._commits = Commits(self.table)

    def prepare(self, spark: SparkSession) -> None:
        """Make the table, or check the one that is there.

        Raises
        ------
        StartError
            It has another shape.
        """
        tables.ensure(spark, self.table, LETTER)

    def of(self, batch: BatchId | None) -> Refuse:
        """What keeps the refused rows of a batch, each once however often the batch comes again.

        A result of many records may be refused again with other values: each of them is kept.

        Parameters
        ----------
        batch
            None where its checkpoint is unknown.
        """
        return partial(self._keep, batch)

    def _keep(self, batch: BatchId | None, letters: DataFrame) -> None:
        result = F.col("_source").isNull()
        identity = F.when(result, F.concat_ws("#", "_id", F.xxhash64("_bytes").cast("string")))
        kept = letters.withColumns(
            {
                "_id": identity.otherwise(F.col("_id")),
                "_source": F.coalesce(F.col("_source"), F.lit(self.query)),
                "_arrived_at": F.coalesce(F.col("_arrived_at"), F.current_timestamp()),
            }
        )

        def attempt(history: History) -> None:
            until = self._others.until(history)

            def write(tried: tuple[Bound | None, bool]) -> None:
                bound, alone = tried
                fence = self._commits.fence(history, batch, alone=alone)
                IcebergSink(self.table).append(kept, bound, added=history.again, fence=fence)

            if until is None:
                write((None, True))
                return
            # What landed after others have written last is not among theirs; of results nobody knows when they landed.
            landed = F.col("_landed_at")
            later = Bound(F.lit(False), "_landed_at", outside=landed.isNull() | (landed < moment(until)))
            with_first_that_holds([(later, True), (EVERYTHING, False)], write)

        self._commits.write(letters.sparkSession, batch, attempt)
