"""Deletes of a query with ``latest_by``, kept for a time, so that an older record does not bring a deleted row back.

A deleted row leaves nothing in the sink that an older record could be compared with. Such a record comes late from the rest of
a split shard, a backfill or a replay. So the key and order of each delete are kept below the query's checkpoint, for all kinds of sinks.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import timedelta

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ...record import batch_accounts, hadoop_files
from ..base import DELETED, ORDER
from .record_order import replaces

HORIZON = timedelta(days=7)
"""Time for which a delete is kept: the longest retention with which most streams replay. It bounds the personal data in keys, too."""

MOST_SEGMENTS = 16
"""Folders of deletes, one for each batch that has some, before they are merged into one."""

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

    def without_older(self, rows: DataFrame) -> DataFrame:
        """Return the rows whose key was not deleted by a later record.

        Parameters
        ----------
        rows
            ``_id`` and :data:`~etl.sinks.base.ORDER`, and other columns.
        """
        kept = self._read(rows.sparkSession)
        if kept is None:
            return rows
        gone = kept.select(F.col("_id").alias("_gone"), F.col(ORDER).alias("_gone_order"))
        older = (F.col("_id") == F.col("_gone")) & ~F.expr(replaces(ORDER, "_gone_order"))
        return rows.join(gone, older, "left_anti")

    def keep(self, rows: DataFrame) -> None:
        """Keep the deletes among the rows of a batch; a repeated batch keeps them twice, which changes nothing.

        Parameters
        ----------
        rows
            As in :meth:`without_older`, with :data:`~etl.sinks.base.DELETED`; persisted, as they are read twice.
        """
        spark, now = rows.sparkSession, F.lit(batch_accounts.now())
        deletes = rows.where(DELETED).select("_id", ORDER, now.alias("_kept_at"))
        if not deletes.count():
            return
        merged = self._segments if self._segments and len(self._segments) >= MOST_SEGMENTS else []
        if merged and (kept := self._read(spark)) is not None:
            fresh = kept.where(F.col("_kept_at") >= now - F.expr(f"INTERVAL {HORIZON.days} DAYS"))
            deletes = fresh.unionByName(deletes)
        name = uuid.uuid4().hex
        deletes.coalesce(1).write.parquet(f"{self.folder}/{name}")
        self._segments = [*(each for each in self._segments or () if each not in merged), name]
        for each in merged:
            hadoop_files.delete(spark, f"{self.folder}/{each}")

    def _read(self, spark: SparkSession) -> DataFrame | None:
        if self._segments is None:
            self._segments = hadoop_files.list_names(spark, self.folder)
        if not self._segments:
            return None
        return spark.read.schema(_SCHEMA).parquet(*(f"{self.folder}/{each}" for each in self._segments))
