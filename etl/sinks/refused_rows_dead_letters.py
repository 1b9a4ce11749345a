"""Table of dead letters for refused rows, in Iceberg, each row once."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..commits.duplicate_look_up_bounds import (
    CommitTimeOfOtherWriters,
    DuplicateLookUp,
    TableHistory,
    older_than_condition,
    whole_table_look_up,
)
from ..record.tables import Table
from .base import LETTER, BatchIdentity, Refuse, raise_on_refused_rows
from .iceberg import IcebergSink


@dataclass
class DeadLetterTable:
    """Dead letters of a derive query: the rows that its sink refused.

    Parameters
    ----------
    table
        Table in the shape of :data:`etl.sinks.base.LETTER`.
    query
        Name of the query, used as the source of a result of many records.
    """

    table: Table
    query: str
    _others: CommitTimeOfOtherWriters = field(
        default_factory=CommitTimeOfOtherWriters, init=False, repr=False
    )

    @cached_property
    def _sink(self) -> IcebergSink:
        return IcebergSink(self.table)

    def prepare(self, spark: SparkSession) -> None:
        """Make the table, or check an existing one.

        Raises
        ------
        StartError
            The table has another schema.
        """
        self._sink.prepare(spark, LETTER)

    def refused_row_handler(self, place: BatchIdentity) -> Refuse:
        """Return the function that stores the refused rows of a batch, each once however often the batch is repeated.

        A result of many records may be refused again with other values: each version is stored.

        Parameters
        ----------
        place
            Identity of the batch.
        """
        return partial(self._store_letters, replace(place, look_ups=self._look_ups))

    def _store_letters(self, place: BatchIdentity, letters: DataFrame) -> None:
        # Of a transform that loses an identity: null equals nothing, so a repeated batch would store it again.
        result = F.col("_source").isNull() | F.col("_id").isNull()
        # Without the time of the write, which is another one in a repeated batch.
        values = F.regexp_replace(F.col("_bytes").cast("string"), '"_written_at":"[^"]*"', "")
        identity = F.when(result, F.concat_ws("#", "_id", F.xxhash64(values).cast("string")))
        kept = letters.withColumns(
            {
                "_id": identity.otherwise(F.col("_id")),
                "_source": F.coalesce(F.col("_source"), F.lit(self.query)),
                "_arrived_at": F.coalesce(F.col("_arrived_at"), F.current_timestamp()),
            }
        )
        self._sink.write(kept, place, raise_on_refused_rows)

    def _look_ups(self, history: TableHistory) -> list[DuplicateLookUp]:
        until = self._others.latest_commit_time(history)
        if until is None:
            return [DuplicateLookUp(nothing_later=True)]
        # A row that landed after the last write of others is not among theirs; the landing time of results is unknown.
        outside = F.col("_landed_at").isNull() | older_than_condition("_landed_at", until)
        return [DuplicateLookUp(outside=outside, nothing_later=True), whole_table_look_up()]
