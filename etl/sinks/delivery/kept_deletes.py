"""Deletes of a query with ``latest_by``, kept for a time, so that an older record does not bring a deleted row back.

A deleted row leaves nothing in the sink that an older record could be compared with. Such a record comes late from the rest of
a split shard, a backfill or a replay. So the key and order of each delete are kept below the query's checkpoint, for all kinds of sinks.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...record import batch_accounts, hadoop_files
from ...record.batch_accounts import compute_aggregates, row_count_aggregate
from ..base import DELETED, ORDER
from .record_order import not_older_sql, order_bytes_sql

HORIZON = timedelta(days=7)
"""Time for which a delete is kept: the longest retention with which most streams replay. It bounds the personal data in keys, too."""

MOST_SEGMENTS = 16
"""Folders of deletes, one for each batch that has some, before they are merged into one."""

MERGED_EVERY = timedelta(days=1)
"""Time after which they are merged although they are fewer, so that old deletes go; also in the first batch of a run."""

_EVERY = "*"
"""``_id`` of a truncate, which deletes every key; a key is JSON."""

_SCHEMA = "_id STRING, _order STRING, _kept_at TIMESTAMP"


@dataclass
class KeptDeletes:
    """Deletes of one query.

    Parameters
    ----------
    folder
        URL below the query's checkpoint; Spark reads only its own folders there.
    """

    folder: str
    _segments: list[str] | None = field(default=None, init=False, repr=False)
    """Names of the folders; None before the first look. The query is their only writer."""

    _merged_at: datetime | None = field(default=None, init=False, repr=False)

    def without_rows_older_than_deletes(self, rows: DataFrame) -> DataFrame:
        """Return the rows whose key was not deleted by a later record.

        Parameters
        ----------
        rows
            ``_id`` and :data:`~etl.sinks.base.ORDER`, and other columns.
        """
        deletes = self._read_deletes(rows.sparkSession)
        if deletes is None:
            return rows
        gone = deletes.select(F.col("_id").alias("_gone"), F.col(ORDER).alias("_gone_order"))
        older = ~F.expr(not_older_sql(order_bytes_sql(ORDER), order_bytes_sql("_gone_order")))
        rows = rows.join(gone, (F.col("_id") == F.col("_gone")) & older, "left_anti")
        # Two joins: a condition for any key would make the first one compare all rows.
        return rows.join(F.broadcast(gone.where(f"_gone = '{_EVERY}'")), older, "left_anti")

    def keep_deletes_of(self, rows: DataFrame, truncates: Sequence[str] = ()) -> int:
        """Keep the deletes among the rows of a batch; a repeated batch keeps them twice, which changes nothing.

        Parameters
        ----------
        rows
            As in :meth:`without_rows_older_than_deletes`, with :data:`~etl.sinks.base.DELETED`; persisted, as they are read twice.
        truncates
            Orders of deletes of every key.

        Returns
        -------
        int
            Number of rows: they are read once for it and for the number of deletes.
        """
        spark, now = rows.sparkSession, batch_accounts.utc_now()
        deletes = rows.where(DELETED).select("_id", ORDER, F.lit(now).alias("_kept_at"))
        if truncates:
            every = spark.createDataFrame([(_EVERY, each, now) for each in truncates], _SCHEMA)
            deletes = deletes.unionByName(every)
        due = self._merged_at is None or now - self._merged_at >= MERGED_EVERY
        merged = [each for each in self._segments or () if due or len(self._segments or ()) >= MOST_SEGMENTS]
        figures = (row_count_aggregate("rows"), F.expr(f"count_if({DELETED}) AS deletes"))
        counts = compute_aggregates(rows, figures)
        if not merged and not truncates and not counts["deletes"]:
            return int(counts["rows"])
        if merged and (stored := self._read_deletes(spark)) is not None:
            deletes = stored.where(F.col("_kept_at") >= F.lit(now - HORIZON)).unionByName(deletes)
            self._merged_at = now
        name = uuid.uuid4().hex
        deletes.coalesce(1).write.parquet(f"{self.folder}/{name}")
        self._segments = [*(each for each in self._segments or () if each not in merged), name]
        for each in merged:
            hadoop_files.delete_if_exists(spark, f"{self.folder}/{each}")
        return int(counts["rows"])

    def _read_deletes(self, spark: SparkSession) -> DataFrame | None:
        if self._segments is None:
            self._segments = hadoop_files.list_names(spark, self.folder)
        if not self._segments:
            return None
        return spark.read.schema(_SCHEMA).parquet(*(f"{self.folder}/{each}" for each in self._segments))
