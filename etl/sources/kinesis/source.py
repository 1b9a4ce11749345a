"""Kinesis stream as the source of a query, and the methods that read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from ...launch.engine import KINESIS_IN_PYTHON, Engine
from ...launch.settings import JobSettings, QuerySettings
from ...launch.source_kinds import Source
from ...record.errors import StartError
from ..base import Leg, Parts, SourceContext
from ..identity_check import Identity
from . import stream
from .backfill import read_stream_range
from .missed_records_guard import KinesisGuard

ENDPOINT = "kinesis.endpoint"
"""Bind with an endpoint other than the region's own."""


@dataclass(frozen=True)
class KinesisSource(Source):
    """A Kinesis stream as the source of a query.

    Attributes
    ----------
    stream
        The stream's own name.
    start
        Start of a query without a checkpoint: ``earliest``, ``latest`` or a time in ISO 8601, UTC.
    records_per_shard
        Limit for one shard and batch, for the plan's number of shards.
    fetch_seconds
        Longest time one batch reads from one shard.
    retention_seconds
        Retention of the stream in seconds; no older record can be read again.
    consumer
        Name of the query's own fan-out consumer; ``None`` to share a shard's throughput with other readers.
    role
        ARN of the role to assume for a stream of another account.
    records_per_batch
        Limit for a batch, divided by the number of shards at run time; ``None``
        keeps ``records_per_shard``.
    """

    kind: Literal["kinesis"]
    name: str
    stream: str
    region: str
    start: str
    records_per_shard: int
    fetch_seconds: float
    retention_seconds: int
    consumer: str | None = None
    role: str | None = None
    records_per_batch: int | None = None

    REPLAYS = False

    @property
    def own_name(self) -> str:
        """The stream."""
        return self.stream

    @property
    def partition_limit(self) -> int:
        """Limit of a shard."""
        return self.records_per_shard

    def origin(self, job: JobSettings) -> str:
        """Return region and stream."""
        return f"{self.region}/{self.stream}"

    def connector(self, engine: Engine, spark: str) -> str:
        """Return the engine's connector: each has its own form of positions."""
        return engine.kinesis_format(spark)

    def open(self, leg: Sequence[KinesisSource], context: SourceContext) -> Leg:
        """Make its guard, and the function that opens it with limits for its current shards."""
        engine, endpoint = context.job.engine, context.binds.get(ENDPOINT)
        tails = stream.closed_shard_reader(self, endpoint) if engine.PASSES_OVER_CLOSED_SHARDS else None
        horizon = stream.oldest_record_lookup(self, endpoint)
        guard = KinesisGuard(self, context.checkpoint, context.table, horizon, tails)
        guard.splits_aggregates = engine.SPLITS_AGGREGATES
        guard.ends_planned = engine.kinesis_format(context.spark.version) == KINESIS_IN_PYTHON

        def count_shards() -> int:
            return stream.open_shards(self, endpoint)

        def opened() -> DataFrame:
            read = self
            if self.records_per_batch is not None:
                guard.count_shards, guard.shards = count_shards, count_shards()
                read = stream.with_limits_per_shard(self, guard.shards)
            begun = context.checkpoint.begun(context.spark)
            return stream.read(context.spark, read, engine=engine, endpoint=endpoint, begun=begun)

        return Leg(opened, guard)

    def identity(
        self,
        leg: Sequence[KinesisSource],
        spark: SparkSession,
        job: JobSettings,
        query: QuerySettings,
        binds: Mapping[str, str],
    ) -> Identity:
        """Return the time at which the stream was made."""
        endpoint = binds.get(ENDPOINT)
        # While the query runs its connector detects it: it requests records after a number that another stream does not have.
        return Identity(self.region, lambda: stream.identifiers(self, endpoint), while_running=False)

    def backfill(self, job: JobSettings, query: str, binds: Mapping[str, str]) -> Parts:
        """Return the reader of a range by the Kinesis API."""
        if self.role is not None:
            raise StartError(
                f"--backfill {query} --from stream: its stream belongs to another account, and only the engine's "
                "connector can read it; add a land query with another name and the time as its start"
            )
        return read_stream_range(self, binds.get(ENDPOINT))
