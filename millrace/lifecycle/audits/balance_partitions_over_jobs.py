"""Balanced split of a topic's partitions over several jobs, by the records of each partition."""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.lifecycle.audits.kafka import TopicReader


def count_records_by_partition(topic: TopicReader, begin: datetime, end: datetime) -> dict[int, int]:
    """Count the records that each partition of a live topic took in.

    Parameters
    ----------
    topic
        The topic, with the brokers' settings.
    begin, end
        The window, in the records' own time; expired records in it count as none.

    Returns
    -------
    dict
        Partition to the number of offsets between the first records at or after both ends; every partition of
        the topic is in it. Markers of transactions and compacted records count, too.

    Raises
    ------
    millrace.lifecycle.aws_error_messages.AwsError
        The brokers do not answer, or do not have the topic.
    """
    result = topic.offsets_at_times([begin, end], None)
    return {partition: b.offsets[-1] - b.offsets[0] for partition, b in sorted(result.items())}


def balance_partitions(records: Mapping[int, int], jobs: int) -> tuple[tuple[int, ...], ...]:
    """Distribute partitions so that the busiest job has little more to do than the others.

    The method is longest processing time first: the busiest remaining partition goes to the job with the
    fewest records so far; among equal ones, to that with the fewest partitions. The busiest job then has
    at most ``4/3 - 1/(3·jobs)`` times its records in the best lists (R. L. Graham, "Bounds on
    Multiprocessing Timing Anomalies", SIAM J. Appl. Math. 17, 1969).

    Parameters
    ----------
    records
        Records by partition.
    jobs
        Number of jobs: at least 1, and at most the number of partitions.

    Returns
    -------
    tuple of tuple of int
        A sorted list for each job, none of them empty.

    Examples
    --------
    >>> balance_partitions({0: 70, 1: 40, 2: 30, 3: 0}, 2)
    ((0, 3), (1, 2))
    """
    lists: list[list[int]] = [[] for _ in range(jobs)]
    heap = [(0, 0, job) for job in range(jobs)]
    for partition in sorted(records, key=lambda p: (-records[p], p)):
        load, count, job = heapq.heappop(heap)
        lists[job].append(partition)
        heapq.heappush(heap, (load + records[partition], count + 1, job))
    parts = tuple(tuple(sorted(each)) for each in lists)
    covered = sorted(partition for each in parts for partition in each)
    assert covered == sorted(records), f"{parts} are not the partitions {sorted(records)}, each once"
    return parts


def names_of_jobs(
    job: str,
    lists: Sequence[Sequence[int]],
    sharing: Mapping[str, Collection[int]],
    taken: Collection[str],
) -> tuple[str, ...]:
    """Name the jobs of new lists: a checkpoint goes on with the same list, or one with partitions that are new in the topic.

    Parameters
    ----------
    job
        A job that is replaced.
    lists
        Partitions of each new job.
    sharing
        The jobs that share the topic already, with their partitions; their names end with a number.
    taken
        Names of all jobs of the file.

    Examples
    --------
    >>> names_of_jobs("orders-1", [(4,), (0, 3), (1, 2)], {"orders-1": (0, 3), "orders-2": (1, 2)}, ["orders-1", "orders-2"])
    ('orders-3', 'orders-1', 'orders-2')
    """
    base = re.sub(r"-\d+$", "", job) if sharing else job
    new = (name for number in itertools.count(1) if (name := f"{base}-{number}") not in taken)
    kept: dict[str, Sequence[int]] = {}
    shared = {partition for had in sharing.values() for partition in had}
    for name, had in sharing.items():
        fitting = (each for each in lists if set(each) & shared == set(had))
        if (same := next(fitting, None)) is not None:
            kept[name] = same
    by_list = {tuple(each): name for name, each in kept.items()}
    return tuple(by_list.get(tuple(each)) or next(new) for each in lists)


@dataclass(frozen=True)
class TopicSplit:
    """A topic, split over several jobs.

    Attributes
    ----------
    job, query
        The job and its land query that is split.
    replaced
        The jobs that share the topic so far, this one among them.
    job_names
        The jobs of the lists (:func:`names_of_jobs`).
    stream, topic
        The stream and the topic that it reads.
    begin, end
        Window of the measurement.
    records
        Records by partition.
    lists
        Lists of partitions, by job.
    """

    job: str
    query: str
    replaced: tuple[str, ...]
    job_names: tuple[str, ...]
    stream: str
    topic: str
    begin: datetime
    end: datetime
    records: Mapping[int, int]
    lists: tuple[tuple[int, ...], ...]

    def record_count_of_partitions(self, partitions: Sequence[int]) -> int:
        """Return the records of a list."""
        return sum(self.records[partition] for partition in partitions)

    def job_entries(self, job: Mapping[str, Any]) -> dict[str, Any]:
        """Write the jobs for an environment file.

        Parameters
        ----------
        job
            The job in the file. Its other queries stay with the first of the new jobs.

        Returns
        -------
        dict
            Entries that replace the job under ``jobs``.
        """
        result: dict[str, Any] = {}
        for number, (name, partitions) in enumerate(zip(self.job_names, self.lists, strict=True)):
            query = dict(job["queries"][self.query])
            query["kafka"] = {**(query.get("kafka") or {}), "partitions": list(partitions)}
            own = {self.query: query}
            others = {key: value for key, value in job["queries"].items() if key != self.query}
            result[name] = {**job, "queries": own | others if number == 0 else own}
        return result
