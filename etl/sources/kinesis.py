"""Kinesis streams."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from etl import engines, envelope
from etl.errors import StartError
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
    if engine == "glue" and source.consumer is not None:
        source = with_consumer_arn(source)
    options = module.kinesis_options(source, endpoint) | module.credentials(os.environ)
    records = spark.readStream.format(module.KINESIS_FORMAT).options(**options).load()
    return envelope.from_kinesis(records, source.name)


def with_consumer_arn(source: KinesisSource, client: Any = None) -> KinesisSource:
    """Replace the name of a fan-out consumer by its ARN, which Glue's connector wants.

    An ARN ends with the second at which the consumer was registered: only AWS knows it.

    Parameters
    ----------
    source
        With the consumer's name.
    client
        A boto3 ``kinesis`` client; left out, one with the job's own role.

    Raises
    ------
    StartError
        The stream has no such consumer, or boto3 is not there.
    """
    assert source.consumer is not None, f"{source.name}: no consumer"
    kinesis = client or _client(source)
    stream = kinesis.describe_stream_summary(StreamName=source.stream)["StreamDescriptionSummary"][
        "StreamARN"
    ]
    try:
        found = kinesis.describe_stream_consumer(StreamARN=stream, ConsumerName=source.consumer)
    except kinesis.exceptions.ResourceNotFoundException as error:
        raise StartError(
            f"stream {source.stream} has no fan-out consumer {source.consumer}: deploy its stack first"
        ) from error
    return dataclasses.replace(source, consumer=found["ConsumerDescription"]["ConsumerARN"])


def _client(source: KinesisSource) -> Any:
    # Both engines ship boto3; the core itself needs it for what only AWS knows.
    try:
        import boto3
    except ImportError as error:
        raise StartError("boto3 is needed to look up a fan-out consumer") from error
    return boto3.client("kinesis", region_name=source.region)
