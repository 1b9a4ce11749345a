"""Reading of Kinesis streams by an engine's connector into the envelope; their shards and limits."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ...launch.engine_interface_and_registry import KINESIS_IN_PYTHON, Engine
from ...launch.parse_start_position import start_time
from ...launch.sources import KinesisSource
from ...record import envelope
from ...record.errors import NoAnswerError, StartError
from ...services import bundled_boto3_if_missing
from ...services.aws_clients import errors_as_start_error, sts_endpoint
from ..recreated_source_check import Ids
from . import closed_shards
from .closed_shards import Records, Shard, ShardPositions, UnreadShardRest
from .missed_records_guard import Horizon

CALLS = 10
"""Shards that are called at once; a shard allows five calls a second (Kinesis service limits)."""


def open_kinesis_stream(
    spark: SparkSession,
    source: KinesisSource,
    *,
    engine: Engine,
    endpoint: str | None,
    begun: bool,
) -> DataFrame:
    """Open a stream as a streaming DataFrame in the envelope's shape.

    A batch of it is **not** a fixed range: its end is determined while it is read, so
    two actions, or a replay, see different records.

    Parameters
    ----------
    source
        Stream to read.
    engine
        Engine with the connector.
    endpoint
        Endpoint other than the region's own.
    begun
        True if the query's checkpoint was used. The connectors then apply the start to shards
        that are new to them, with "latest" as the time of this start: records that arrived on
        the children of a split while the job was stopped would be skipped.
    """
    if begun:
        source = dataclasses.replace(source, start="earliest")
    if engine.BY_CONSUMER_ARN and source.consumer is not None:
        source = with_consumer_arn(source)
    shards: list[str] = []
    if start_time(source.start) is not None:
        shards = [shard.id for shard in _list_shards(source, endpoint, None)]
    options = engine.kinesis_options(source, endpoint, shards) | engine.kinesis_credential_options(os.environ)
    connector = engine.kinesis_format(spark.version)
    if connector == KINESIS_IN_PYTHON:
        options["region"] = source.region
    records = spark.readStream.format(connector).options(**options).load()
    return envelope.from_kinesis(records, source.name)


def count_open_shards(source: KinesisSource, endpoint: str | None, *, client: Any = None) -> int:
    """Count the open shards.

    Parameters
    ----------
    source, endpoint, client
        As in :func:`make_oldest_record_finder`.

    Raises
    ------
    StartError
        The stream cannot be listed: it does not exist, or the role has no permission.
    """
    return sum(not shard.closed for shard in _list_shards(source, endpoint, client))


def _list_shards(source: KinesisSource, endpoint: str | None, client: Any) -> list[Shard]:
    with errors_as_start_error(f"stream {source.stream}"):
        return closed_shards.list_shards(client or make_kinesis_client(source, endpoint), source.stream)


def with_limits_per_shard(source: KinesisSource, shards: int) -> KinesisSource:
    """Return a source with the limit of a batch divided by the number of shards, rounded up; unchanged without such a limit.

    Parameters
    ----------
    source
        Stream to read.
    shards
        Number of open shards.
    """
    if source.records_per_batch is None:
        return source
    return dataclasses.replace(source, records_per_shard=math.ceil(source.records_per_batch / max(1, shards)))


def make_oldest_record_finder(source: KinesisSource, endpoint: str | None, *, client: Any = None) -> Horizon:
    """Make the look-up of a shard's oldest record, by the Kinesis API.

    Parameters
    ----------
    source
        The stream, and the role that reads it.
    endpoint
        Endpoint other than the region's own.
    client
        A boto3 ``kinesis`` client; by default one is made for each look-up: a role's keys are valid for an hour.
    """

    def find_oldest_sequence_number(kinesis: Any, shard: str) -> str | None:
        try:
            first = next(
                closed_shards.read_shard_pages(kinesis, source.stream, UnreadShardRest(shard, None), limit=1),
                None,
            )
        except kinesis.exceptions.ResourceNotFoundException:
            return None  # a closed shard whose records have all expired
        return None if first is None else str(first[0]["SequenceNumber"])

    def find_oldest_sequence_numbers(shards: Collection[str]) -> dict[str, str | None]:
        kinesis = client or make_kinesis_client(source, endpoint)
        with ThreadPoolExecutor(min(CALLS, len(shards)), "horizon") as pool:
            return dict(
                zip(shards, pool.map(partial(find_oldest_sequence_number, kinesis), shards), strict=True)
            )

    return find_oldest_sequence_numbers


def make_closed_shard_reader(
    source: KinesisSource, endpoint: str | None, *, client: Any = None
) -> Callable[[ShardPositions, ShardPositions], Iterator[Records]]:
    """Make the reader of closed shards that a connector skips, by the Kinesis API.

    Parameters
    ----------
    source, endpoint, client
        As in :func:`make_oldest_record_finder`.

    Returns
    -------
    callable
        Takes the positions at the start of the batch before and of the current batch; yields pages of records.
    """

    def read_skipped_records(before: ShardPositions, current: ShardPositions) -> Iterator[Records]:
        since = start_time(source.start)
        if not before.shards and source.start == "latest":
            return
        kinesis = client or make_kinesis_client(source, endpoint)
        shards = closed_shards.list_shards(kinesis, source.stream)
        for tail in closed_shards.unread_shard_rests(shards, before, current):
            yield from closed_shards.read_shard_pages(
                kinesis, source.stream, tail, None if before.shards else since
            )

    return read_skipped_records


def with_consumer_arn(source: KinesisSource, client: Any = None) -> KinesisSource:
    """Return a source with the ARN of its fan-out consumer in place of the name, which Glue's connector needs.

    An ARN ends with the second in which the consumer was registered: only AWS knows it.

    Parameters
    ----------
    source
        Source with the consumer's name.
    client
        A boto3 ``kinesis`` client; by default one with the job's role.

    Raises
    ------
    StartError
        The stream has no such consumer or cannot be described, or boto3 is missing.
    """
    assert source.consumer is not None, f"{source.name}: no consumer"
    with errors_as_start_error(f"stream {source.stream}"):
        kinesis = client or make_kinesis_client(source)
        summary = kinesis.describe_stream_summary(StreamName=source.stream)["StreamDescriptionSummary"]
        try:
            description = kinesis.describe_stream_consumer(
                StreamARN=summary["StreamARN"], ConsumerName=source.consumer
            )
        except kinesis.exceptions.ResourceNotFoundException as error:
            raise StartError(
                f"stream {source.stream} has no fan-out consumer {source.consumer}: deploy the "
                "environment, which creates it"
            ) from error
    return dataclasses.replace(source, consumer=description["ConsumerDescription"]["ConsumerARN"])


def stream_creation_time_as_id(source: KinesisSource, endpoint: str | None, *, client: Any = None) -> Ids:
    """Return the creation time of a stream: two streams of one name never have the same one.

    Parameters
    ----------
    source
        Stream to read.
    endpoint
        Endpoint other than the region's own.
    client
        A boto3 ``kinesis`` client; by default one is made.

    Returns
    -------
    Mapping
        Empty if the role has no permission (``kinesis:DescribeStreamSummary``), as for a stream of another account.

    Raises
    ------
    NoAnswerError
        The service does not answer, or there is no such stream.
    """
    try:
        with errors_as_start_error(f"stream {source.stream}"):
            description = (client or make_kinesis_client(source, endpoint)).describe_stream_summary(
                StreamName=source.stream
            )
    except StartError as error:
        response = getattr(error.__cause__, "response", None) or {}
        if response.get("Error", {}).get("Code") == "AccessDeniedException":
            return {}
        raise NoAnswerError(str(error)) from error
    made = description["StreamDescriptionSummary"]["StreamCreationTimestamp"].astimezone(UTC)
    return {f"stream {source.stream}": made.replace(microsecond=0).isoformat()}


def make_kinesis_client(source: KinesisSource, endpoint: str | None = None) -> Any:
    """Make a boto3 ``kinesis`` client, with the keys of the source's role if it has one."""
    boto3 = bundled_boto3_if_missing.import_boto3(
        f"to ask stream {source.stream} for its consumers and shards"
    )
    keys: dict[str, str] = {}
    if source.role is not None and endpoint is None:
        sts = boto3.client("sts", region_name=source.region, endpoint_url=sts_endpoint(source.region))
        session = sts.assume_role(RoleArn=source.role, RoleSessionName=source.name)["Credentials"]
        keys = {
            "aws_access_key_id": session["AccessKeyId"],
            "aws_secret_access_key": session["SecretAccessKey"],
            "aws_session_token": session["SessionToken"],
        }
    make: Any = boto3.client  # the overloads do not accept keys by name
    return make("kinesis", region_name=source.region, endpoint_url=endpoint, **keys)
