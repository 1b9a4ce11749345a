"""Enrichment: broadcast joins with reference tables, each reloaded at its own interval."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, MapType, StructField, StructType

from ..formats.decoding.decoder_output_and_checks import contains_type
from ..launch.settings import EnrichmentSettings
from ..record.errors import StartError
from ..record.tables import Table


@dataclass(frozen=True)
class LoadedReferenceTable:
    """Loaded reference table: join keys, new columns, one row per key.

    Attributes
    ----------
    rows
        Cached rows; only this DataFrame itself can be unpersisted.
    snapshot
        Snapshot of the table; None for a table without one.
    ambiguous
        Number of keys that the table holds more than once.
    """

    rows: DataFrame
    snapshot: int | None
    ambiguous: int
    read_at: float


@dataclass
class ReferenceTable:
    """Reference table, held in memory and reloaded when it is older than its interval.

    Parameters
    ----------
    settings
        Table, join columns and new columns.
    table
        Its full name.
    on_ambiguous
        Gets the number of keys with several rows, each time the table is loaded.
    clock
        Returns seconds of a monotonic clock.
    """

    settings: EnrichmentSettings
    table: Table
    on_ambiguous: Callable[[Table, int], None]
    clock: Callable[[], float] = time.monotonic
    _loaded: LoadedReferenceTable | None = field(default=None, repr=False)

    def refuse_missing_columns(self, spark: SparkSession) -> None:
        """Refuse a table or column that does not exist, and maps, of which none is the smallest.

        Raises
        ------
        StartError
            The message lists all that is missing.
        """
        if not self.table.exists(spark):
            raise StartError(f"enrichment: table {self.table} does not exist")
        self._read_snapshot(spark, self._current_snapshot(spark))

    def current_rows(self, stream: DataFrame) -> DataFrame:
        """Return the table's rows, reloaded if the interval has passed.

        The columns are the join keys and the new columns.

        Raises
        ------
        StartError
            A join column cannot be compared with the stream's.
        """
        kinds = {field.name: field.dataType for field in stream.schema.fields}
        ours = tuple(kinds.get(column) for column in self.settings.on)
        loaded = self._loaded
        if loaded is None or self.clock() - loaded.read_at >= self.settings.refresh_seconds:
            loaded = self._loaded = self._reload_if_changed(stream.sparkSession, ours, loaded)
            if loaded.ambiguous:
                self.on_ambiguous(self.table, loaded.ambiguous)
        return loaded.rows.drop("_rows")

    def _reload_if_changed(
        self, spark: SparkSession, ours: tuple[DataType | None, ...], loaded: LoadedReferenceTable | None
    ) -> LoadedReferenceTable:
        snapshot = self._current_snapshot(spark)
        if loaded is not None and loaded.snapshot == snapshot:
            # Spark has one copy of equal plans: to release the old one would release this one.
            return replace(loaded, read_at=self.clock())
        fresh = self._load_one_row_per_key(spark, ours, snapshot)
        if loaded is not None:
            loaded.rows.unpersist()
        return fresh

    def _join_columns_in_compared_type(
        self, table: DataFrame, ours: Sequence[DataType | None]
    ) -> Iterator[Column]:
        """Yield the table's join columns in the type of Spark's comparison; keys that differ in their own type may be equal.

        Spark compares an INT of the stream with a text as INT: then ``7`` and ``007`` are one key.
        """
        kinds = {field.name: field.dataType for field in table.schema.fields}
        for (here, there), our in zip(self.settings.on.items(), ours, strict=True):
            column, kind = F.col(f"`{there}`"), kinds[there]
            # ``join`` reports a column that the stream lacks.
            if our is not None and our != kind:
                both = StructType([StructField("ours", our), StructField("theirs", kind)])
                pairs = table.sparkSession.createDataFrame([], both)
                try:
                    same: Any = pairs.where(F.col("ours") == F.col("theirs"))
                except CapturedException as error:
                    raise StartError(
                        f"enrichment with {self.table}: column {here} has type {our.simpleString()}, which "
                        f"cannot be compared with {there}, of type {kind.simpleString()}"
                    ) from error
                column = column.cast(
                    same._jdf.queryExecution().analyzed().condition().right().dataType().sql()
                )
            yield column

    def _load_one_row_per_key(
        self, spark: SparkSession, ours: tuple[DataType | None, ...], snapshot: int | None
    ) -> LoadedReferenceTable:
        """Load the table; of several rows with one key the smallest is used, so records never double and runs agree."""
        table, values = self._read_snapshot(spark, snapshot), self.settings.columns
        keys = [
            column.alias(f"_key_{i}")
            for i, column in enumerate(self._join_columns_in_compared_type(table, ours))
        ]
        names = [f"_key_{i}" for i in range(len(keys))]
        value = F.struct(*(F.col(f"`{c}`").alias(new) for new, c in values.items())).alias("_value")
        grouped = (
            table.select(*keys, value)
            .dropna(subset=names)
            .groupBy(*names)
            .agg(F.min("_value").alias("value"), F.count(F.lit(1)).alias("_rows"))
        )
        held = grouped.select(
            *names, *(F.col("value").getField(new).alias(new) for new in values), "_rows"
        ).cache()
        ambiguous = held.where(F.col("_rows") > 1).count()
        return LoadedReferenceTable(held, snapshot, ambiguous, self.clock())

    def _current_snapshot(self, spark: SparkSession) -> int | None:
        current = self.table.load_java_table(spark).currentSnapshot()
        return None if current is None else int(current.snapshotId())

    def _read_snapshot(self, spark: SparkSession, snapshot: int | None) -> DataFrame:
        """Return the table at a snapshot: otherwise Spark reloads a cached table whenever the same application writes it.

        Raises
        ------
        StartError
            As in :meth:`refuse_missing_columns`: a snapshot has the columns of its time.
        """
        # By its name, which every Spark version reads: each version takes another option for a snapshot, and with SQL's
        # VERSION AS OF Spark's cache does not distinguish the snapshot from the table.
        rows = spark.table(
            f"{self.table}.snapshot_id_{snapshot}" if snapshot is not None else str(self.table)
        )
        kinds = {field.name: field.dataType for field in rows.schema.fields}
        used = sorted({*self.settings.on.values(), *self.settings.columns.values()})
        if missing := [name for name in used if name not in kinds]:
            late = sorted({*missing} & {*spark.table(str(self.table)).columns})
            why = f"; {', '.join(late)} is newer than its last commit: write to it once" if late else ""
            raise StartError(f"enrichment: table {self.table} has no column {', '.join(missing)}{why}")
        maps = [name for name in used if contains_type(kinds[name], lambda kind: isinstance(kind, MapType))]
        if maps:
            raise StartError(
                f"enrichment: table {self.table}: {', '.join(maps)} has a MAP, which cannot be compared to choose one of "
                "several rows with the same key; enrich with the values that you need, as columns of their own"
            )
        return rows

    def with_joined_columns(self, stream: DataFrame, rows: DataFrame) -> DataFrame:
        """Add the new columns; null where the table has no row for a record.

        Raises
        ------
        StartError
            A join column is missing in the stream, or a new column already exists in it.
        """
        missing = sorted(set(self.settings.on) - set(stream.columns))
        taken = sorted(set(self.settings.columns) & set(stream.columns))
        if missing or taken:
            parts = [f"the stream has no column {', '.join(missing)}"] * bool(missing)
            parts += [f"the stream already has {', '.join(taken)}"] * bool(taken)
            raise StartError(f"enrichment with {self.table}: {'; '.join(parts)}")
        keys = [f"_key_{i}" for i in range(len(self.settings.on))]
        matches = [
            stream[f"`{column}`"] == rows[key] for column, key in zip(self.settings.on, keys, strict=True)
        ]
        return stream.join(F.broadcast(rows), matches, "left").drop(*keys)
