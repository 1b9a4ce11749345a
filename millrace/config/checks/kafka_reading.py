"""Checks of the ``kafka`` options of queries: patterns, lists of partitions, limits of a batch."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.model import Environment, Job, Stream
from millrace.config.queries import LandQuery, OneStreamQueryBase
from millrace.config.units import format_duration


def check_reading(
    environment: Environment, path: Path, job: Job, source: str, query: OneStreamQueryBase
) -> Iterator[Finding]:
    """Check the options with which a query reads a topic.

    Parameters
    ----------
    path
        Place of the query in the file.
    source
        The stream that it reads.
    """
    reading, stream = query.kafka, environment.streams.get(source)
    if reading is None or stream is None:
        return
    here = (*path, "kafka")
    if not stream.read_in_ways:
        yield Finding(here, "given", f"nothing: {source} is a {stream.title}")
        return
    if reading.null_payload == "delete" and not isinstance(query, LandQuery):
        yield Finding(
            (*here, "null_payload"),
            "delete",
            "dead_letter, or a land query and a derive query with latest_by: what is deleted is found by its key, "
            "and rows of this query are known by their place in the topic",
        )
    yield from _check_batch_minimum_and_delay(here, job, query, reading)
    yield from _check_listed_partitions_and_start_offsets(here, source, stream, query, reading)
    if (
        reading.min_partitions is not None
        and stream.given_partitions
        and reading.min_partitions <= stream.given_partitions
    ):
        yield Finding(
            (*here, "min_partitions"),
            str(reading.min_partitions),
            f"more than {stream.given_partitions}: a batch has a task for each partition of {source} in any case",
        )


def _check_batch_minimum_and_delay(
    path: Path, job: Job, query: OneStreamQueryBase, reading: KafkaReading
) -> Iterator[Finding]:
    least, delay = reading.min_records_per_batch, reading.max_delay
    if least is not None and query.records_per_batch is not None and least > query.records_per_batch:
        yield Finding(
            (*path, "min_records_per_batch"),
            str(least),
            f"at most {query.records_per_batch}, as records_per_batch says",
        )
    if least is not None and delay is None:
        yield Finding(
            (*path, "max_delay"),
            MISSING,
            f"how long records may wait, below the job's latency of {format_duration(job.latency)}",
            "Spark would wait 15 minutes",
        )
    if delay is not None and least is None:
        yield Finding(
            (*path, "max_delay"), format_duration(delay), "only together with min_records_per_batch"
        )


def _check_listed_partitions_and_start_offsets(
    path: Path, source: str, stream: Stream, query: OneStreamQueryBase, reading: KafkaReading
) -> Iterator[Finding]:
    listed, offsets = reading.partitions, reading.start_offsets
    for key, given in (("partitions", listed), ("start_offsets", offsets)):
        if given is None:
            continue
        if stream.topic_pattern is not None:
            yield Finding((*path, key), "given", f"nothing: {source} is a pattern of topics")
        elif stream.given_partitions is None:
            yield Finding(
                ("streams", source, "partitions"),
                MISSING,
                f"the number of partitions of the topic, as jobs name them one by one ({'.'.join(map(str, path))}.{key})",
            )
    if stream.topic_pattern is not None or stream.given_partitions is None:
        return
    last = stream.given_partitions - 1
    seen: set[int] = set()
    for position, partition in enumerate(listed or ()):
        if partition > last:
            yield Finding(
                (*path, "partitions", position), str(partition), f"0 to {last}, the partitions of {source}"
            )
        elif partition in seen:
            yield Finding((*path, "partitions", position), str(partition), "each partition once")
        seen.add(partition)
    if offsets is None:
        return
    if query.start != "earliest":
        yield Finding(
            (*path[:-1], "start"),
            query.start,
            "nothing beside kafka.start_offsets, which already say where to begin",
        )
    partitions = set(listed) if listed is not None else set(range(stream.given_partitions))
    if set(offsets) != partitions:
        text = ", ".join(map(str, sorted(offsets)))
        allowed = ", ".join(map(str, sorted(partitions)))
        yield Finding((*path, "start_offsets"), text, f"an offset for each partition that is read: {allowed}")
