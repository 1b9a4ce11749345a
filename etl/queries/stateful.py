"""Derive queries with state: windows, aggregates, duplicates by a payload's key, joins of two streams.

Inside ``foreachBatch`` a DataFrame is static, so all state is built before it, on the streaming
DataFrame of the landing table, which replays exactly; so does the result. There are two kinds of output:

rows
    keep their record's identity (``CARRIED``) and are appended once, as in any derive query: records
    without duplicates, and joined records. The identity of a joined row is that of both records; in an outer join, a row of
    the second stream alone has that of its record, and the second table's name as ``_source``.
results
    of a ``key``, such as a window and a carrier: a later one replaces an earlier one. In output mode ``append`` each
    is written once, when the watermark has passed it; Spark has no other mode for session windows.

Enrichment reloads its table at an interval, which a streaming plan cannot do: it runs after the transform.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ..launch.settings import StateSettings, WatermarkSettings
from ..metrics.trigger_metrics import EARLY
from ..record.envelope import CARRIED, COLUMNS
from ..record.errors import StartError
from ..sinks.delivery.keyed_rows import result_identity

JOINED_ID = "_joined_id"
"""Identity of the second stream's record, in the input of a joining transform, which may keep it."""

_ALONE = "_alone"
"""Column of the identity of a record that has a null in a field of ``distinct``; null for all others."""

_ARRIVAL = ("_arrived_at", "_source", "_shard", "_position", "_id")
"""Columns by which records are in the order of their arrival, and each is at one place."""

_HIDDEN = {*COLUMNS, *CARRIED, "_hash"} - {"_id"}
"""Envelope columns that the second stream of a join does not have: the first stream has the same names."""


@dataclass(frozen=True)
class StatefulTransform:
    """Stateful part of a query, as one function from good records to rows or results.

    Parameters
    ----------
    settings
        State and watermark.
    transform
        From the good records of one or two streams to rows or results.
    name
        Name of the transform, for messages.
    """

    settings: StateSettings
    transform: Callable[..., DataFrame]
    name: str

    def __call__(self, records: DataFrame, joined: DataFrame | None = None) -> DataFrame:
        """Build the stateful DataFrame.

        Parameters
        ----------
        records, joined
            Good records of landing tables, streaming.

        Raises
        ------
        StartError
            The transform keeps neither identity nor key.
        pyspark.errors.AnalysisException
            Spark cannot run the transform on a stream.
        """
        out = self._rows_or_results(records, joined, in_order=False)
        # Spark's check at the start refuses each sort of a stream, also inside its partitions: it gets the plan without. As the
        # session's setting is for all queries, all are checked here; so are transforms that `millrace validate` plans.
        session, mode = records.sparkSession, self.settings.output_mode if self.settings.key else "append"
        jvm: Any = session._jvm
        checks = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
        modes = jvm.org.apache.spark.sql.streaming.OutputMode
        if out.isStreaming:
            checks.checkForStreaming(out._jdf.queryExecution().analyzed(), getattr(modes, mode.title())())
        if self.settings.distinct:
            session.conf.set("spark.sql.streaming.unsupportedOperationCheck", "false")
            out = self._rows_or_results(records, joined, in_order=True)
        return out

    def _rows_or_results(self, records: DataFrame, joined: DataFrame | None, *, in_order: bool) -> DataFrame:
        rows = _with_watermark_without_early_rows(records, self.settings.watermark)
        if self.settings.distinct:
            # Spark takes nulls for equal; what is unknown is no repetition, so such a record equals only itself. Without a time it
            # would be forgotten at the next batch.
            fields = (*self.settings.distinct, self.settings.watermark.time)
            known = reduce(and_, (F.col(f"`{name}`").isNotNull() for name in fields))
            rows = rows.withColumn(_ALONE, F.when(~known, F.concat_ws("/", "_source", "_id")))
            keys = [*self.settings.distinct, _ALONE]
            if in_order:
                # A batch that comes again must keep the same record, and tasks end in any order.
                rows = rows.repartition(*(F.col(f"`{name}`") for name in keys)).sortWithinPartitions(
                    *_ARRIVAL
                )
            rows = rows.dropDuplicatesWithinWatermark(keys).drop(_ALONE)
        if joined is not None and self.settings.join is not None:
            mark = self.settings.join.watermark
            others = _with_watermark_without_early_rows(joined, mark, "joined").withColumnRenamed(
                "_id", JOINED_ID
            )
            out = self.transform(rows, others.drop(*(_HIDDEN - {mark.time})))
        else:
            out = self.transform(rows)
        if not isinstance(out, DataFrame):
            raise StartError(
                f"transform {self.name} must return a DataFrame, but returned {type(out).__name__}"
            )
        return self._with_key_as_identity(out) if self.settings.key else self._with_record_identity(out)

    def _with_record_identity(self, out: DataFrame) -> DataFrame:
        lost = [c for c in CARRIED if c not in out.columns]
        if lost:
            raise StartError(
                f"transform {self.name}: its result lacks the columns {', '.join(lost)}; keep "
                "millrace.etl.record.envelope.CARRIED in its select, or name the columns that identify a "
                "result in state.key"
            )
        join = self.settings.join
        if join is not None:
            # Of an outer join: a row of the second stream alone. A look-up by identity finds no null.
            out = out.withColumn("_source", F.coalesce("_source", F.lit(join.source_table)))
        if JOINED_ID not in out.columns:
            if join is None:
                return out
            lacking = f"transform {self.name}: a row of the second stream alone has no identity; keep {JOINED_ID} in its select"
            return out.withColumn("_id", F.coalesce("_id", F.raise_error(F.lit(lacking)).cast("string")))
        return out.withColumn("_id", F.concat_ws("+", "_id", JOINED_ID)).drop(JOINED_ID)

    def _with_key_as_identity(self, out: DataFrame) -> DataFrame:
        lacking = [c for c in self.settings.key if c not in out.columns]
        if lacking:
            raise StartError(
                f"transform {self.name}: its result lacks the columns {', '.join(lacking)}, which "
                "state.key names"
            )
        ours = sorted(c for c in out.columns if c.startswith("_"))
        if ours:
            raise StartError(
                f"transform {self.name}: columns {', '.join(ours)} must not begin with _, which is reserved in "
                "results with state.key; rename them"
            )
        return out.select(result_identity(out.schema, self.settings.key).alias("_id"), "*")


def _with_watermark_without_early_rows(
    rows: DataFrame, mark: WatermarkSettings, which: str = ""
) -> DataFrame:
    """Set the watermark, and drop the rows that would advance it so far that all later rows are late."""
    # The earlier of two clocks: a producer may set Kafka's time of a record, up to a day ahead.
    known = F.least("_arrived_at", "_landed_at") + F.expr(f"INTERVAL '{mark.ahead_seconds:.6f}' SECOND")
    early = F.coalesce(F.col(f"`{mark.time}`") > known, F.lit(False))
    observed = rows.observe(EARLY + which, F.count(F.when(early, 1)).alias("rows"))
    return observed.where(~early).withWatermark(
        f"`{mark.time}`", f"{round(mark.delay_seconds * 1000)} milliseconds"
    )
