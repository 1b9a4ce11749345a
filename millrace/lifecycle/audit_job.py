"""Audits one land query, wherever its environment is deployed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pyiceberg.catalog import Catalog, load_catalog

from millrace.config.model import KafkaTopic
from millrace.config.names import Names
from millrace.config.queries import LandQuery
from millrace.config.reading import KafkaReading
from millrace.lifecycle import audit_kafka, audit_kinesis
from millrace.lifecycle.audit import Audit, Hole, Hour, hours_of
from millrace.lifecycle.audit_table import Landed
from millrace.lifecycle.deployed import NotDeployedError
from millrace.lifecycle.kafka_client import Settings, settings
from millrace.lifecycle.problems import AwsError, told
from millrace.lifecycle.verbs import Aws


@dataclass(frozen=True)
class Place:
    """Where an environment is deployed.

    Attributes
    ----------
    names
        Of what is deployed.
    client
        Makes a boto3 client of a service.
    catalog
        Of the environment's tables.
    kafka
        Settings of librdkafka for a cluster, by its logical name.
    counts
        Whether CloudWatch has counts of its streams; if not, streams are read.
    """

    names: Names
    client: Callable[[str], Any]
    catalog: Callable[[], Catalog]
    kafka: Callable[[str], Settings]
    counts: bool = True


def on_aws(aws: Aws) -> Place:
    """An environment in its account."""

    def catalog() -> Catalog:
        return load_catalog("lake", type="glue", **{"client.region": aws.names.environment.region})

    return Place(aws.names, aws.client, catalog, lambda cluster: settings(aws.names, cluster, aws.client))


def audit(
    place: Place,
    job: str,
    query_name: str,
    begin: datetime,
    end: datetime,
    *,
    read: bool = False,
    progress: audit_kinesis.Progress = lambda _: None,
) -> Audit:
    """Compare what a query's stream took in with what landed.

    Parameters
    ----------
    place
        Where it runs.
    job, query_name
        A land query of the environment.
    begin, end
        The window, rounded to whole hours.
    read
        Of a Kinesis stream, read the records again rather than ask for counts.
    progress
        Told how many records were read.

    Raises
    ------
    NotDeployedError
        Nothing landed yet.
    AwsError
        A service refuses, or the window is older than what the counters keep.
    """
    environment = place.names.environment
    query = cast("LandQuery", environment.jobs[job].queries[query_name])
    stream = environment.streams[query.source]
    table = place.names.table(query.table)
    landed = Landed.open(place.catalog(), table, query.source)
    hours = hours_of(begin, end)
    name = place.names.stream(query.source)
    if isinstance(stream, KafkaTopic):
        found, holes = _by_offsets(place, job, query_name, landed, hours)
        return Audit(query_name, name, table, "offsets", found, holes)
    if read or not place.counts:
        return audit_kinesis.compare_records(
            place.client("kinesis"), landed, hours, progress, query=query_name, stream=name, table=table
        )
    if begin < datetime.now(UTC) - audit_kinesis.COUNTED:
        raise AwsError(
            f"CloudWatch keeps counts by the minute for {audit_kinesis.COUNTED.days} days: begin later"
        )
    return audit_kinesis.compare_counts(
        place.client("cloudwatch"),
        landed,
        _ended(hours, end),
        query=query_name,
        stream=name,
        table=table,
    )


def _by_offsets(
    place: Place, job: str, query_name: str, landed: Landed, hours: Sequence[datetime]
) -> tuple[tuple[Hour, ...], tuple[Hole, ...]]:
    """Compare each topic of a query; of a pattern, those that it has read."""
    query = cast("LandQuery", place.names.environment.jobs[job].queries[query_name])
    stream = cast("KafkaTopic", place.names.environment.streams[query.source])
    reading = query.kafka or KafkaReading()
    read = positions(place.client("s3"), f"{place.names.checkpoints(job)}/{query_name}")
    topics = [place.names.stream(query.source)] if stream.pattern is None else sorted(read)
    holes: list[Hole] = []
    sums = {start: Hour(start, 0, 0, 0) for start in hours}
    for topic in topics:
        found, lacking = audit_kafka.compare(
            audit_kafka.Topic(topic, place.kafka(stream.cluster)),
            landed,
            hours,
            only=reading.partitions,
            read={int(partition): offset for partition, offset in read.get(topic, {}).items()},
            whole=query.start == "earliest" and reading.start_offsets is None,
        )
        sums = {hour.start: sums[hour.start] + hour for hour in found}
        holes += (replace(h, shard=f"{topic}/{h.shard}") if len(topics) > 1 else h for h in lacking)
    return tuple(sums.values()), tuple(holes)


def _ended(hours: Sequence[datetime], end: datetime) -> Sequence[datetime]:
    """Hours that are over, with the minutes that CloudWatch may take to count them."""
    done = [hour for hour in hours if hour + timedelta(hours=1, minutes=5) <= datetime.now(UTC)]
    if not done:
        raise AwsError(
            f"no whole hour before {end:%Y-%m-%d %H:%M} UTC is over and counted yet: begin earlier, or read the "
            "stream itself with --read"
        )
    return done


def positions(s3: Any, checkpoint: str) -> dict[str, Any]:
    """Where a query on Kafka goes on, after the last batch that it committed.

    Parameters
    ----------
    s3
        A boto3 client.
    checkpoint
        ``s3://bucket/prefix``.

    Returns
    -------
    dict
        By topic, by partition as text, the next offset.

    Raises
    ------
    NotDeployedError
        No batch was ever committed.
    """
    bucket, prefix = checkpoint.removeprefix("s3://").split("/", 1)
    with told("looking at the query's checkpoint"):
        done = [
            int(key.rsplit("/", 1)[1])
            for page in s3.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=f"{prefix}/commits/"
            )
            for key in (item["Key"] for item in page.get("Contents", ()))
            if re.search(r"/\d+$", key)
        ]
        if not done:
            raise NotDeployedError(f"no batch of {checkpoint} was committed yet")
        log = s3.get_object(Bucket=bucket, Key=f"{prefix}/offsets/{max(done)}")["Body"].read().decode()
    found: dict[str, Any] = json.loads(log.splitlines()[2])
    return found
