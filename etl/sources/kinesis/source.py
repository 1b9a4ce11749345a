"""Kinesis stream as the source of a query, and the methods that read it."""

from __future__ import annotations

from functools import partial

from pyspark.sql import DataFrame

from ...launch.engine_interface_and_registry import KINESIS_IN_PYTHON
from ...launch.settings import QuerySettings
from ...launch.sources import KinesisSource
from ...record.errors import StartError
from ...record.job_run_context import JobRun
from ..base import Leg, Parts, SourceContext, SourceReader
from ..recreated_source_check import LegIdentity
from . import bounded_run_ends, connector_stream
from .backfill import stream_range_reader
from .missed_records_guard import KinesisLossGuard

ENDPOINT = "kinesis.endpoint"
"""Bind with an endpoint other than the region's own."""


class Reader(SourceReader[KinesisSource]):
    """Reader of a stream."""

    def open(self, context: SourceContext) -> Leg:
        """Make its guard, and the function that opens it with limits for its current shards."""
        spark, engine, endpoint = context.run.spark, context.run.job.runs_on, context.run.binds.get(ENDPOINT)
        tails = (
            connector_stream.make_closed_shard_reader(self.source, endpoint)
            if engine.PASSES_OVER_CLOSED_SHARDS
            else None
        )
        horizon = connector_stream.make_oldest_record_finder(self.source, endpoint)
        guard = KinesisLossGuard(
            self.source,
            context.checkpoint,
            context.table,
            horizon,
            tails,
            splits_aggregates=engine.SPLITS_AGGREGATES,
            ends_planned=engine.kinesis_format(spark.version) == KINESIS_IN_PYTHON,
        )

        def count_open_shards() -> int:
            return connector_stream.count_open_shards(self.source, endpoint)

        def open_with_current_limits() -> DataFrame:
            read = self.source
            if self.source.records_per_batch is not None:
                guard.count_shards, guard.shards = count_open_shards, count_open_shards()
                read = connector_stream.with_limits_per_shard(self.source, guard.shards)
            begun = context.checkpoint.has_planned_batch(spark)
            return connector_stream.open_kinesis_stream(
                spark, read, engine=engine, endpoint=endpoint, begun=begun
            )

        determine_end = partial(
            bounded_run_ends.checker_of_bounded_run_end,
            spark,
            self.source,
            endpoint,
            guard,
            closed=tails is None,
        )
        return Leg(open_with_current_limits, guard, determine_end=determine_end)

    def leg_identity(self, run: JobRun, query: QuerySettings) -> LegIdentity:
        """Return the time at which the stream was made."""
        endpoint = run.binds.get(ENDPOINT)
        # While the query runs its connector detects it: it requests records after a number that another stream does not have.
        return LegIdentity(
            self.source.region,
            lambda: connector_stream.stream_creation_time_as_id(self.source, endpoint),
            while_running=False,
        )

    def backfill_reader(self, run: JobRun, query: str) -> Parts:
        """Return the reader of a range by the Kinesis API."""
        if self.source.role is not None:
            raise StartError(
                f"--backfill {query} --from stream: the stream belongs to another account, so only the "
                "engine's connector can read it; add a land query with another name, and with the time as "
                "its start"
            )
        return stream_range_reader(self.source, run.binds.get(ENDPOINT))
