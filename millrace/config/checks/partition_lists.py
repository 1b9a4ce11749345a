"""Checks of topics that several jobs share: no partition twice, and none missing."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.document.problems import Finding, Path, dotted_path
from millrace.config.model import Environment
from millrace.config.queries import LandQuery, OneStreamQueryBase


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
                first = readers.setdefault(partition, place)
                if first != place:
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
