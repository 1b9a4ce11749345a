"""Checks of topics that several jobs share: no partition twice, and none missing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from millrace.config.model import Environment
from millrace.config.problems import Finding, Path
from millrace.config.queries import LandQuery, StreamQuery


@dataclass(frozen=True)
class PartitionList:
    """One query's part of a topic.

    Attributes
    ----------
    path
        Place of the query in the file.
    partitions
        Partitions that it reads.
    """

    path: Path
    partitions: tuple[int, ...]

    @property
    def query(self) -> str:
        """The query as the file names it."""
        return ".".join(map(str, self.path))


def partition_lists(environment: Environment) -> dict[tuple[str, str], list[PartitionList]]:
    """Return the queries that read a list of partitions, by stream and landing table."""
    found: dict[tuple[str, str], list[PartitionList]] = {}
    for job, name, query in environment.queries:
        if isinstance(query, LandQuery) and query.kafka is not None and query.kafka.partitions is not None:
            share = PartitionList(("jobs", job, "queries", name), query.kafka.partitions)
            found.setdefault((query.source, query.table), []).append(share)
    return found


def check_lag_groups(environment: Environment) -> Iterator[Finding]:
    """Check that at most one query reports the lag of a partition to a group; with two, the lag would jump between them."""
    first: dict[tuple[str, str], list[tuple[Path, set[int] | None]]] = {}
    for job, name, query in environment.queries:
        if not isinstance(query, StreamQuery) or query.kafka is None or query.kafka.lag_group is None:
            continue
        path: Path = ("jobs", job, "queries", name)
        listed = None if query.kafka.partitions is None else set(query.kafka.partitions)
        others = first.setdefault((query.kafka.lag_group, query.source), [])
        for other, partitions in others:
            if listed is None or partitions is None or listed & partitions:
                yield Finding(
                    (*path, "kafka", "lag_group"),
                    query.kafka.lag_group,
                    f"a group of its own: {'.'.join(map(str, other))} tells it of {query.source}, too",
                )
                break
        others.append((path, listed))


def check_lists(environment: Environment) -> Iterator[Finding]:
    """Check every shared topic; lists that are wrong by themselves are reported elsewhere."""
    for job, name, query in environment.queries:
        listed = isinstance(query, StreamQuery) and query.kafka is not None and query.kafka.partitions
        if listed and not isinstance(query, LandQuery):
            path = ("jobs", job, "queries", name, "kafka", "partitions")
            yield Finding(path, "given", "nothing: land queries alone share a topic out")
    for (source, table), group in partition_lists(environment).items():
        stream = environment.streams.get(source)
        parts = (
            stream.given_partitions
            if stream is not None and stream.splits and stream.matches is None
            else None
        )
        if parts is None:
            continue
        readers: dict[int, PartitionList] = {}
        wrong = False
        for share in group:
            own = [p for p in share.partitions if p < parts]
            wrong = wrong or len(own) < len(share.partitions) or len(set(own)) < len(own)
            for position, partition in enumerate(share.partitions):
                first = readers.setdefault(partition, share)
                if first is not share:
                    yield Finding(
                        (*share.path, "kafka", "partitions", position),
                        str(partition),
                        f"a partition that no other query lands in {table}; {first.query} does",
                    )
        missing = sorted(set(range(parts)) - readers.keys())
        if missing and not wrong:
            last = group[-1]
            yield Finding(
                (*last.path, "kafka", "partitions"),
                ", ".join(map(str, last.partitions)),
                f"lists that leave out no partition of {source}: no query lands {', '.join(map(str, missing))} in "
                f"{table}",
                "millrace split writes the lists for all jobs together",
            )
