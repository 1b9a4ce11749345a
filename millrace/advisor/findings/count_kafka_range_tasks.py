"""Number of tasks that read a Kafka topic: ``minPartitions`` splits ranges of offsets and never joins them.

Written from Spark's ``KafkaOffsetRangeCalculator`` (3.3 to 4.0).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from millrace.advisor.logs.application_history_model import Batch, Floats
from millrace.advisor.logs.statistics import makespan_of_list_scheduling

LOOKED = 50
"""Number of last batches that are examined: the distribution of a topic's records changes slowly."""

USUAL = 0.8
"""Share of the batches in which a number must give exactly as many tasks, and even work for the cores."""

EVEN = 1.25
"""Largest work of a core, as a multiple of evenly divided work."""


def partition_records_of_batches(batches: Sequence[Batch]) -> list[Floats] | None:
    """Return the records that each of the last batches took of each partition, without those that had none.

    ``None`` where a source has no such offsets.
    """
    found = []
    for batch in batches[-LOOKED:]:
        sizes: list[int] = []
        for source in batch.sources:
            if source.records_by_partition is None:
                return None
            sizes += source.records_by_partition.values()
        found.append(np.array([each for each in sizes if each > 0], float))
    return found if any(len(each) for each in found) else None


def range_tasks_by_partition(sizes: Floats, least: int) -> Floats:
    """Return the number of tasks that read each range of these sizes with ``minPartitions`` set to ``least``."""
    tasks = np.ones(len(sizes))
    if len(sizes) < least:
        large = _parts_per_partition(sizes, least) > 1
        tasks[large] = _parts_per_partition(sizes[large], max(least - int((~large).sum()), 1))
    return tasks


def _parts_per_partition(sizes: Floats, least: int) -> Floats:
    # Java rounds a half up.
    return np.maximum(np.floor(sizes / max(float(sizes.sum()), 1.0) * least + 0.5), 1)


def smallest_min_partitions(batches: Sequence[Floats], tasks: int, cores: int, most: int) -> int | None:
    """Return the smallest ``minPartitions`` from ``tasks`` on that gives all cores as many tasks; ``None`` without any.

    Three even partitions cannot become four tasks: each is split into parts by its share of the records, rounded. Of sixteen
    that are not quite even, half are split for 24 tasks: the others take as long as before.
    """

    def gives_even_work(sizes: Floats, least: int) -> bool:
        parts = range_tasks_by_partition(sizes, least).astype(int)
        work = makespan_of_list_scheduling(np.repeat(sizes / parts, parts), cores)
        return bool(parts.sum() == least and work <= EVEN * sizes.sum() / cores)

    for least in range(-(-tasks // cores) * cores, most + 1, cores):
        if np.mean([gives_even_work(each, least) for each in batches]) >= USUAL:
            return least
    return None
