"""A query's sink as its launch document holds it, and what it takes: topics, streams, folders."""

from __future__ import annotations

from typing import Any

from millrace.config.model import Environment, Job, KafkaTopic
from millrace.config.names import Names
from millrace.config.queries import Written, written
from millrace.config.sinks import (
    DeltaSink,
    DynamoDbSink,
    JdbcSink,
    KafkaSink,
    KinesisSink,
    OpenSearchSink,
    ParquetSink,
    Sink,
)
from millrace.sizing.files import files_per_batch
from millrace.sizing.model import QueryPlan


def sinks(job: Job) -> tuple[Sink, ...]:
    """Return the sinks of a job's queries, in the queries' order."""
    return tuple(end.sink for query in job.queries.values() for end in written(query).values())


def written_topics(environment: Environment, job: Job) -> dict[str, KafkaTopic]:
    """Return the Kafka topics that a job writes, by logical name."""
    found = {
        sink.topic: environment.streams[sink.topic] for sink in sinks(job) if isinstance(sink, KafkaSink)
    }
    return {name: stream for name, stream in found.items() if isinstance(stream, KafkaTopic)}


def written_clusters(environment: Environment, job: Job) -> tuple[str, ...]:
    """Return the logical names of the Kafka clusters that a job writes to."""
    return tuple(dict.fromkeys(topic.cluster for topic in written_topics(environment, job).values()))


def folder(sink: ParquetSink | DeltaSink, names: Names) -> str:
    """Return the key prefix of a file sink in the lake's bucket: beside the tables, which lie elsewhere."""
    return f"{sink.kind}/{names.database}/{sink.table}"


def sink_settings(environment: Environment, query: Written, plan: QueryPlan, names: Names) -> dict[str, Any]:
    """Write a query's sink.

    Parameters
    ----------
    environment, query, names
        The environment, the query or one of its routes, and the deployed names.
    plan
        The query's trigger, out of which the number of files comes.

    Returns
    -------
    dict
        JSON, parsed by ``etl.settings.parse``; its keys are those of ``etl.settings_sinks``.
    """
    sink = query.sink
    kind, region = {"kind": sink.kind}, environment.region
    if isinstance(sink, JdbcSink):
        return kind | {
            "url": sink.url,
            "table": sink.table if "." in sink.table else f"public.{sink.table}",
            "secret": sink.secret,
            "region": region,
            "connections": sink.connections,
            "tls": sink.tls,
            "authorities": sink.authorities,
        }
    if isinstance(sink, KafkaSink):
        stream = environment.streams[sink.topic]
        assert isinstance(stream, KafkaTopic), f"{sink.topic} is no Kafka topic"
        return kind | {
            "topic": names.stream(sink.topic),
            "connection": stream.cluster,
            "key": sink.key,
            "max_record_bytes": int(sink.max_record_size),
        }
    if isinstance(sink, KinesisSink):
        return kind | {
            "stream": names.stream(sink.stream),
            "region": region,
            "key": sink.key,
            "max_record_bytes": int(sink.max_record_size),
        }
    if isinstance(sink, DynamoDbSink):
        return kind | {"table": sink.table, "region": region}
    if isinstance(sink, OpenSearchSink):
        return kind | {"endpoint": sink.endpoint, "index": sink.index, "region": sink.domain.split(":")[3]}
    if isinstance(sink, ParquetSink | DeltaSink):
        return kind | {
            "path": f"s3://{names.bucket('lake')}/{folder(sink, names)}",
            "files_per_batch": files_per_batch(environment, query, plan, sink.file_size),
        }
    return kind | {"table": names.table(sink.table)}
