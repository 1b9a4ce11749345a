"""Checks of Kafka: authentication of clusters, ``kafka`` options of queries, and topics whose partitions several queries share."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.base import arn_region_account_resource
from millrace.config.document.problems import MISSING, Finding, Path, dotted_path
from millrace.config.kafka.login import TlsLogin
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.model import Environment, ExternalCluster, Job, MskCluster, Stream
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


MSK_SECRET = "AmazonMSK_"  # noqa: S105 - what the names of secrets begin with
"""Prefix of secrets that MSK accepts (MSK developer guide, "Set up SASL/SCRAM authentication for an Amazon MSK cluster",
read 2026-11-23; it also excludes secrets that are encrypted with AWS' own key).
"""


def check_login(name: str, cluster: MskCluster | ExternalCluster) -> Iterator[Finding]:
    """Check a cluster's ``authentication`` for contradictions."""
    login, path = cluster.authentication, ("kafka", name, "authentication")
    if isinstance(cluster, MskCluster):
        yield from _check_msk_login(path, cluster)
    if isinstance(login, TlsLogin) and login.secret is None and login.secret_key is not None:
        yield Finding((*path, "secret_key"), login.secret_key, "nothing without secret")


def _check_msk_login(path: Path, cluster: MskCluster) -> Iterator[Finding]:
    login = cluster.authentication
    if login.kind == "iam":
        return
    if cluster.existing is None:
        yield Finding(
            path,
            login.kind,
            "iam: a cluster that this environment creates supports no other authentication",
            "for another authentication, name an existing cluster with existing, or with kind: external",
        )
    elif cluster.tier == "serverless":
        yield Finding(path, login.kind, "iam: a serverless cluster supports no other authentication")
    elif login.kind == "plain":
        yield Finding(path, login.kind, "iam, scram-sha-512, mutual-tls, tls or none: MSK has no SASL/PLAIN")
    elif login.kind == "scram-sha-512":
        secret, key = login.secret, login.secret_key
        if not arn_region_account_resource(secret)[2].removeprefix("secret:").startswith(MSK_SECRET):
            yield Finding(
                (*path, "secret"), secret, f"a secret whose name begins with {MSK_SECRET}: MSK takes no other"
            )
        if key is None:
            yield Finding(
                (*path, "secret_key"),
                MISSING,
                "the secret's customer key: MSK takes no secret with AWS' own key",
            )


def partition_lists_by_stream_and_table(
    environment: Environment,
) -> dict[tuple[str, str], dict[Path, tuple[int, ...]]]:
    """Return the lists of partitions that queries read, by stream and landing table, and by the query's place in the file."""
    lists: dict[tuple[str, str], dict[Path, tuple[int, ...]]] = {}
    for job, name, query in environment.queries:
        if isinstance(query, LandQuery) and query.kafka is not None and query.kafka.partitions is not None:
            group = lists.setdefault((query.source, query.table), {})
            group["jobs", job, "queries", name] = query.kafka.partitions
    return lists


def check_lag_group_overlap(environment: Environment) -> Iterator[Finding]:
    """Check that at most one query reports the lag of a partition to a group; with two, the lag would jump between them."""
    first: dict[tuple[str, str], list[tuple[Path, set[int] | None]]] = {}
    for job, name, query in environment.queries:
        if not isinstance(query, OneStreamQueryBase) or query.kafka is None or query.kafka.lag_group is None:
            continue
        path: Path = ("jobs", job, "queries", name)
        listed = None if query.kafka.partitions is None else set(query.kafka.partitions)
        others = first.setdefault((query.kafka.lag_group, query.source), [])
        for other, partitions in others:
            if listed is None or partitions is None or listed & partitions:
                yield Finding(
                    (*path, "kafka", "lag_group"),
                    query.kafka.lag_group,
                    f"another group: {'.'.join(map(str, other))} reports its lag of {query.source} to this one",
                )
                break
        others.append((path, listed))


def check_shared_topics(environment: Environment) -> Iterator[Finding]:
    """Check every shared topic; lists that are wrong by themselves are reported elsewhere."""
    for job, name, query in environment.queries:
        listed = isinstance(query, OneStreamQueryBase) and query.kafka is not None and query.kafka.partitions
        if listed and not isinstance(query, LandQuery):
            path = ("jobs", job, "queries", name, "kafka", "partitions")
            yield Finding(path, "given", "nothing: only land queries can share a topic by its partitions")
    for (source, table), group in partition_lists_by_stream_and_table(environment).items():
        stream = environment.streams.get(source)
        parts = (
            stream.given_partitions
            if stream is not None and stream.splits and stream.topic_pattern is None
            else None
        )
        if parts is None:
            continue
        readers: dict[int, Path] = {}
        wrong = False
        for place, partitions in group.items():
            own = [p for p in partitions if p < parts]
            wrong = wrong or len(own) < len(partitions) or len(set(own)) < len(own)
            for position, partition in enumerate(partitions):
                if (first := readers.setdefault(partition, place)) != place:
                    yield Finding(
                        (*place, "kafka", "partitions", position),
                        str(partition),
                        f"a partition that no other query lands in {table}; {dotted_path(first)} does",
                    )
        missing = sorted(set(range(parts)) - readers.keys())
        if missing and not wrong:
            *_, (last, partitions) = group.items()
            yield Finding(
                (*last, "kafka", "partitions"),
                ", ".join(map(str, partitions)),
                f"lists that leave out no partition of {source}: no query lands {', '.join(map(str, missing))} in "
                f"{table}",
                "millrace split writes the lists for all jobs together",
            )
