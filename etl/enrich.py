"""Enrichment: broadcast joins against reference tables that are read again on their own interval."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl.errors import StartError
from etl.settings import EnrichmentSettings
from etl.tables import Table


@dataclass(frozen=True)
class Reference:
    """A reference table as it was read: join keys, new columns, one row per key.

    Attributes
    ----------
    rows
        Cached.
    ambiguous
        Keys that the table holds more than once.
    """

    rows: DataFrame
    ambiguous: int
    read_at: float


@dataclass
class ReferenceTable:
    """A reference table, held in memory and read again when it is older than its interval.

    Parameters
    ----------
    settings
        Which table, on what, for which columns.
    table
        Its full name.
    on_ambiguous
        Told the number of keys with several rows, each time the table is read.
    clock
        Seconds, monotonic.
    """

    settings: EnrichmentSettings
    table: Table
    on_ambiguous: Callable[[Table, int], None]
    clock: Callable[[], float] = time.monotonic
    _held: Reference | None = field(default=None, repr=False)

    def check(self, spark: SparkSession) -> None:
        """Refuse a table or column that is not there.

        Raises
        ------
        StartError
            With all that is missing.
        """
        if not self.table.exists(spark):
            raise StartError(f"enrichment: there is no table {self.table}")
        there = spark.table(str(self.table)).columns
        ours = sorted(c for c in self.settings.columns if c.startswith("_"))
        if ours:
            raise StartError(f"enrichment: names that begin with _ are taken: {', '.join(ours)}")
        missing = sorted({*self.settings.on.values(), *self.settings.columns.values()} - set(there))
        if missing:
            raise StartError(f"enrichment: table {self.table} has no column {', '.join(missing)}")

    def rows(self, spark: SparkSession) -> DataFrame:
        """The table's rows, read again if the interval has passed.

        Columns are the stream's join columns and the new ones.
        """
        if self._held is None or self.clock() - self._held.read_at >= self.settings.refresh_seconds:
            fresh = self._read(spark)
            if self._held is not None:
                self._held.rows.unpersist()
            self._held = fresh
            if fresh.ambiguous:
                self.on_ambiguous(self.table, fresh.ambiguous)
        return self._held.rows

    def _read(self, spark: SparkSession) -> Reference:
        """Of several rows with one key the smallest is taken, so that records never double and runs agree."""
        keys = {f"_key_{i}": column for i, column in enumerate(self.settings.on.values())}
        values = self.settings.columns
        grouped = (
            self._pinned(spark)
            .dropna(subset=list(self.settings.on.values()))
            .groupBy(*(F.col(column).alias(key) for key, column in keys.items()))
            .agg(
                F.min(F.struct(*(F.col(c).alias(new) for new, c in values.items()))).alias("value"),
                F.count(F.lit(1)).alias("_rows"),
            )
        )
        held = grouped.select(
            *keys, *(F.col("value").getField(new).alias(new) for new in values), "_rows"
        ).cache()
        ambiguous = held.where(F.col("_rows") > 1).count()
        return Reference(held.drop("_rows"), ambiguous, self.clock())

    def _pinned(self, spark: SparkSession) -> DataFrame:
        """The table as it is now: Spark reads a cached table again whenever the same application writes it."""
        snapshot = self.table.metadata(spark).currentSnapshot()
        if snapshot is None:
            return spark.table(str(self.table))
        return spark.read.option("snapshot-id", str(snapshot.snapshotId())).table(str(self.table))

    def join(self, stream: DataFrame, rows: DataFrame) -> DataFrame:
        """Add the new columns; null where the table has no row for a record.

        Raises
        ------
        StartError
            A join column that the stream lacks, or a new column that it has already.
        """
        missing = sorted(set(self.settings.on) - set(stream.columns))
        taken = sorted(set(self.settings.columns) & set(stream.columns))
        if missing or taken:
            parts = [f"the stream has no column {', '.join(missing)}"] * bool(missing)
            parts += [f"the stream already has {', '.join(taken)}"] * bool(taken)
            raise StartError(f"enrichment with {self.table}: {'; '.join(parts)}")
        keys = [f"_key_{i}" for i in range(len(self.settings.on))]
        matches = [stream[column] == rows[key] for column, key in zip(self.settings.on, keys, strict=True)]
        return stream.join(F.broadcast(rows), matches, "left").drop(*keys)
