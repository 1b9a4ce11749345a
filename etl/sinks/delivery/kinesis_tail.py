"""End of a Kinesis stream: the identities of its latest records."""

from __future__ import annotations

import json
import time
from contextlib import closing
from datetime import datetime
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from ...sources.kinesis.time_range_reader import KinesisTimeRangeReader

QUIET_SECONDS = 2.0
"""Seconds after which a request whose answer was lost has been carried out, or never will be."""

Identity = tuple[str, str]
"""``_source`` and ``_id`` of a record."""

_KNOWN = StructType([StructField("_source", StringType()), StructField("_id", StringType())])


class StreamTail(KinesisTimeRangeReader):
    """Records of a stream from a time on, of which a sink has written some."""

    def identities_in_stream(self, spark: SparkSession, since: str) -> DataFrame:
        """Return the identities of the stream's records since a time.

        Parameters
        ----------
        spark
            Session that runs a task for each shard.
        since
            ISO 8601, from :meth:`service_time` before any of them was written.

        Returns
        -------
        DataFrame
            ``_source`` and ``_id``.
        """
        time.sleep(QUIET_SECONDS)
        with closing(self.make_client()) as client:
            until, shards = self.service_time(client), self.shard_ids(client)
        read = partial(self.yield_records_of_shards, datetime.fromisoformat(since), until)
        records = spark.sparkContext.parallelize(shards, len(shards)).mapPartitions(read)
        identities = records.map(lambda record: identity_of_record(record["Data"])).filter(bool)
        return spark.createDataFrame(identities, _KNOWN)


def identity_of_record(data: bytes) -> Identity | None:
    """Return ``_source`` and ``_id`` of a record; None if a sink did not write it.

    Examples
    --------
    >>> identity_of_record(b'{"_source":"flights","_id":"t/0/1","n":1}')
    ('flights', 't/0/1')
    >>> identity_of_record(b"[]") is None
    True
    """
    try:
        fields = json.loads(data)
        source, identity = fields["_source"], fields["_id"]
    except (ValueError, TypeError, KeyError):
        return None
    return (source, identity) if isinstance(source, str) and isinstance(identity, str) else None
