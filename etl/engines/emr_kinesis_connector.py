"""EMR Serverless: its built-in Kinesis connector (awslabs), since emr-7.1."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..launch.engine_interface_and_registry import Engine
from ..launch.parse_start_position import start_time
from ..launch.sources import KinesisSource
from ..services.aws_clients import endpoint_domain

SHORTEST_FETCH_SECONDS = 10  # the connector refuses a smaller value


class Emr(Engine):
    """EMR Serverless."""

    KINESIS_FORMAT = "aws-kinesis"
    PASSES_OVER_CLOSED_SHARDS = True  # it counts a shard that it finds closed as read to its end
    SPLITS_AGGREGATES = True  # its batches count records, not aggregates

    def kinesis_options(
        self,
        source: KinesisSource,
        endpoint: str | None,
        shards: Sequence[str] = (),
    ) -> dict[str, str]:
        """Return the options of ``spark.readStream.format("aws-kinesis")``; the connector always needs an endpoint."""
        return {
            "kinesis.region": source.region,
            "kinesis.streamName": source.stream,
            "kinesis.consumerType": "GetRecords" if source.consumer is None else "SubscribeToShard",
            "kinesis.endpointUrl": endpoint
            or f"https://kinesis.{source.region}.{endpoint_domain(source.region)}",
            "kinesis.startingPosition": _start_option_value(source.start),
            "kinesis.failOnDataLoss": "true",
            "kinesis.maxFetchRecordsPerShard": str(source.records_per_shard),
            "kinesis.maxFetchTimePerShardSec": str(
                max(SHORTEST_FETCH_SECONDS, math.ceil(source.fetch_seconds))
            ),
            # As on Glue. A search for new shards makes the connector pass over closed ones, at any interval.
            "kinesis.describeShardInterval": "0s",
            "kinesis.clientNumRetries": "10",
            # 10,000 records is the most one GetRecords call returns.
            "kinesis.getRecords.numberOfRecordsPerFetch": str(min(10_000, source.records_per_shard)),
            **({} if source.consumer is None else {"kinesis.consumerName": source.consumer}),
            **(
                {}
                if source.role is None
                else {"kinesis.stsRoleArn": source.role, "kinesis.stsSessionName": source.name}
            ),
        }


def _start_option_value(start: str) -> str:
    moment = start_time(start)
    if moment is None:
        return {"earliest": "TRIM_HORIZON", "latest": "LATEST"}[start]
    return f"AT_TIMESTAMP {moment:%Y-%m-%dT%H:%M:%SZ}"
