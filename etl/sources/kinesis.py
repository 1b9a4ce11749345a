"""Kinesis streams."""

from __future__ import annotations

import os

from pyspark.sql import DataFrame, SparkSession

from etl import engines, envelope
from etl.settings import Engine, KinesisSource


def read(spark: SparkSession, source: KinesisSource, *, engine: Engine, endpoint: str | None) -> DataFrame:
    """Open a stream as a streaming DataFrame in the envelope's shape.

    A batch of it is **not** a fixed range: its end is found while it is read, so
    that two actions, or a replay, see different records.

    Parameters
    ----------
    spark
        The job's session.
    source
        What to read.
    engine
        Whose connector.
    endpoint
        Another endpoint than the region's own.
    """
    module = engines.module(engine)
    options = module.kinesis_options(source, endpoint) | module.credentials(os.environ)
    records = spark.readStream.format(module.KINESIS_FORMAT).options(**options).load()
    return envelope.from_kinesis(records, source.name)
