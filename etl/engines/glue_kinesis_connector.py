"""AWS Glue: its built-in Kinesis connector."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from ..launch.engine_interface_and_registry import Engine
from ..launch.parse_start_position import epoch_milliseconds_text, start_time
from ..launch.sources import KinesisSource
from ..services.aws_clients import endpoint_domain, sts_endpoint

MOST_RECORDS_OF_A_CALL = 10_000
"""Most records of one GetRecords call (Kinesis service limit)."""


class EngineWithGlueConnector(Engine):
    """Engines with Glue's Kinesis connector, or one of the same family."""

    # It reads closed shards to their end and returns all records of a call, which are the defaults of the base class.
    KINESIS_FORMAT = "kinesis"

    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the options of ``spark.readStream.format("kinesis")``; a ``consumer`` is an ARN here.

        Glue has two read APIs with different option names, and ignores an unknown name
        without an error; a limit would then not apply. These are the names of the
        ``readStream`` API. The sandbox's connector has the same names, so they are tested.
        """
        reads = math.ceil(source.records_per_shard / MOST_RECORDS_OF_A_CALL)
        return {
            "streamName": source.stream,
            "endpointUrl": endpoint or f"https://kinesis.{source.region}.{endpoint_domain(source.region)}",
            "startingPosition": _start_option_value(source, shards),
            "failOnDataLoss": "true",
            # The connector stops after the call with which it has *more* than this: 100 with calls of
            # 100 gave batches of 200, 99 gave 100. So this is the limit minus one, in calls that add up to the limit.
            "kinesis.executor.maxFetchRecordsPerShard": str(max(1, source.records_per_shard - 1)),
            "kinesis.executor.maxFetchTimeInMs": str(max(1, round(source.fetch_seconds * 1000))),
            "kinesis.executor.maxRecordPerRead": str(math.ceil(source.records_per_shard / reads)),
            "kinesis.client.avoidEmptyBatches": "true",
            # List the shards before every batch (Kinesis allows 1,000 such calls a second): the connector drops a shard
            # that was read to its end with the next batch, and would then treat its children as unrelated shards.
            "kinesis.client.describeShardInterval": "0s",
            # More than the AWS SDK's default; the waits between retries grow to 10 s, so this takes a little over a minute.
            "kinesis.client.numRetries": "10",
            **({} if source.consumer is None else {"fanoutConsumerARN": source.consumer}),
            **(
                {}
                if source.role is None
                else {
                    "awsSTSRoleARN": source.role,
                    "awsSTSSessionName": source.name,
                    # The connector's default is the global STS (Glue developer guide, "Kinesis connections").
                    "awsSTSEndpoint": sts_endpoint(source.region),
                }
            ),
        }


class Glue(EngineWithGlueConnector):
    """AWS Glue."""

    ADDS_ARGUMENTS = True
    BY_CONSUMER_ARN = True


def _start_option_value(source: KinesisSource, shards: Sequence[str]) -> str:
    moment = start_time(source.start)
    if moment is None:
        return {"earliest": "TRIM_HORIZON", "latest": "LATEST"}[source.start]
    # These connectors take a time only in the form of a checkpoint: for each shard.
    at = {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": epoch_milliseconds_text(moment)}
    metadata = {"streamName": source.stream, "batchId": "-1"}
    return json.dumps({"metadata": metadata, **dict.fromkeys(shards, at)})
