"""AWS Glue: its built-in Kinesis connector."""

from __future__ import annotations

from collections.abc import Mapping

from etl.settings import KinesisSource

KINESIS_FORMAT = "kinesis"


def kinesis_options(source: KinesisSource, endpoint: str | None) -> dict[str, str]:
    """Options of ``spark.readStream.format("kinesis")``.

    Glue has two read APIs with two sets of names, and ignores a name it does not
    know in silence, which would mean no limit. These are the names of the
    ``readStream`` API, which the sandbox's connector shares, so that they are tested.

    Parameters
    ----------
    source
        What to read, and how much of it in a batch.
    endpoint
        Another endpoint than the region's own.
    """
    return {
        "streamName": source.stream,
        "endpointUrl": endpoint or f"https://kinesis.{source.region}.amazonaws.com",
        "startingPosition": {"earliest": "TRIM_HORIZON", "latest": "LATEST"}[source.start],
        "failOnDataLoss": "true",
        "kinesis.executor.maxFetchRecordsPerShard": str(source.records_per_shard),
        "kinesis.executor.maxFetchTimeInMs": str(max(1, round(source.fetch_seconds * 1000))),
        # 10,000 records is the most one GetRecords call returns.
        "kinesis.executor.maxRecordPerRead": str(min(10_000, source.records_per_shard)),
        "kinesis.client.avoidEmptyBatches": "true",
    }


def credentials(_environment: Mapping[str, str]) -> dict[str, str]:
    """No options: the job's own role is used."""
    return {}
