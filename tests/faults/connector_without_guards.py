"""The source connector without the core's guards, to show that a round detects loss.

Begins the entry script of ``python -m tests.faults --bare``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.etl.engines.glue_kinesis_connector import EngineWithGlueConnector
from millrace.etl.launch.sources import KinesisSource
from millrace.etl.sources.kinesis import connector_stream as kinesis
from millrace.etl.sources.kinesis.missed_records_guard import KinesisLossGuard

MEASURES = ("kinesis.client.describeShardInterval", "kinesis.client.numRetries")


def strip() -> None:
    """Leave the connector's options at their defaults, take a start at its word, and guard nothing."""
    options, read = EngineWithGlueConnector.kinesis_options, kinesis.open_kinesis_stream

    def plain(
        engine: EngineWithGlueConnector,
        source: KinesisSource,
        endpoint: str | None,
        shards: Sequence[str] = (),
    ) -> dict[str, str]:
        return {k: v for k, v in options(engine, source, endpoint, shards).items() if k not in MEASURES}

    def at_its_word(*given: Any, **named: Any) -> DataFrame:
        return read(*given, **{**named, "begun": False})

    def unguarded(_guard: KinesisLossGuard, _spark: SparkSession, _batch: int) -> Mapping[str, str]:
        return {}

    EngineWithGlueConnector.kinesis_options = plain  # type: ignore[method-assign]
    kinesis.open_kinesis_stream = at_its_word  # type: ignore[assignment]
    KinesisLossGuard.checked_positions_before_batch = unguarded  # type: ignore[method-assign]


strip()
