"""Observations on a query from its log, without a model: stages, cores, trigger, limit, arrivals, partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from millrace.advisor.logs.application_history_model import Batch, Floats, Stage
from millrace.advisor.logs.statistics import most_open_intervals
from millrace.sizing.queries.partition_tasks import EqualPartitions
from millrace.sizing.simulation import Arrivals

INSTANT = 1e-3
"""Seconds: Spark writes times in whole milliseconds."""

_ALIGNED = 0.7
"""Share of batches that must start at multiples of an interval for it to be the trigger: Spark starts them there."""

_OFF = 0.06
"""Distance from a multiple, as a share of the interval, at which a batch may start: its thread wakes up late."""

_BY_THE_CLOCK = "ratestream"
"""Spark's test source whose batches are proportional to their time; its other one, with so many rows a batch, is not."""

_EVEN = 1.15
"""Ratio of the largest to the mean share up to which partitions are even: chance does not make them more equal."""

_MANY_PARTS = 256
"""Maximum number of partitions that are simulated one by one; more count as equal."""


def successful_task_seconds(stage: Stage) -> Floats:
    """Return the seconds of a stage's tasks that succeeded, without duplicates."""
    return np.asarray(np.maximum(stage.tasks.successful.durations, INSTANT), dtype=np.float64)


def observed_partition_count(batches: Sequence[Batch]) -> int:
    """Return P: the most frequent number of tasks of the longest stage that reads records."""
    counts = []
    for batch in batches:
        read = [each for each in batch.stages if each.tasks.records_read.any()] or batch.stages
        longest = max(read, key=lambda each: float(each.tasks.durations.sum()))
        counts.append(longest.partitions or len(longest.tasks))
    values, often = np.unique(counts, return_counts=True)
    return int(values[int(np.argmax(often))])


def median_tasks_at_once(batches: Sequence[Batch], most: int) -> int:
    """Return the median of the most tasks of a batch that ran at once: the cores that other queries left to this one."""
    counts = []
    for batch in batches:
        begins = np.concatenate([each.tasks.launched for each in batch.stages])
        ends = np.concatenate([each.tasks.finished for each in batch.stages])
        widest = max(len(each.tasks) for each in batch.stages)
        running = most_open_intervals(begins, ends)
        # All of its tasks ran at once: more might have fitted.
        counts.append(most if running >= min(widest, most) else running)
    return max(1, min(most, int(np.median(counts))))


def observed_trigger_seconds(batches: Sequence[Batch]) -> float:
    """Return the seconds between starts of batches that waited for their time; 0 where they run back to back or wait for data."""
    begun = np.array([each.begun for each in batches])
    ended = np.array([each.ended_at for each in batches])
    waited = begun[1:] - ended[:-1] > 0.05
    if waited.mean() < 0.1:
        return 0.0
    seen = float(np.median(np.diff(begun)[waited]))
    for unit in (60.0, 10.0, 5.0, 1.0, 0.5, 0.1, 0.01):
        interval = round(seen / unit) * unit
        if interval <= 0 or abs(interval - seen) > 0.1 * seen:
            continue
        off = np.abs(begun[1:][waited] / interval - np.round(begun[1:][waited] / interval))
        if np.mean(off < max(_OFF, 0.03 / interval)) >= _ALIGNED:
            return interval
    return 0.0


def records_left_behind_by_batch(batches: Sequence[Batch]) -> Floats | None:
    """Return the records that each batch left behind; ``None`` where a source does not report the latest ones."""
    left = [each.records_behind for each in batches]
    return None if None in left or not left else np.array(left, float)


def observed_batch_limit(batches: Sequence[Batch], partitions: int) -> float | None:
    """Return the largest batch if several are as large, up to the rounding to whole records of each partition."""
    if any(source.description.lower().startswith(_BY_THE_CLOCK) for source in batches[-1].sources):
        return None
    records = np.array([each.records for each in batches])
    most = int(records.max())
    full = records >= most - partitions
    behind = records_left_behind_by_batch(batches)
    hit = full & (np.diff(records, prepend=-1) == 0 if behind is None else behind > 0)
    return float(most) if hit.sum() >= 3 and most > partitions else None


def observed_arrivals(batches: Sequence[Batch], ahead: float) -> tuple[Arrivals, tuple[str, ...]]:
    """Return the records by their time of arrival: what was taken and what was left at each batch's start.

    Time starts ``ahead`` seconds before the first batch; all records that it finds arrive in that time.
    """
    processed = np.cumsum([each.records for each in batches]).astype(float)
    left = records_left_behind_by_batch(batches)
    seen = processed if left is None else processed + left
    untold = "the source does not report its backlog: processed records are counted as arrived ones"
    begun = np.array([each.begun for each in batches])
    seen = np.maximum.accumulate(seen)
    begin = float(begun[0]) - ahead
    end = max(float(batches[-1].ended_at), float(begun[-1]) + 2 * INSTANT) - begin
    edges, totals = [0.0, ahead], [0.0, float(seen[0])]
    for at, total in zip((begun - begin)[1:], seen[1:], strict=True):
        if at > edges[-1]:
            edges.append(float(at))
            totals.append(float(total))
    if end > edges[-1] + INSTANT:  # in the last batch's time, records arrive at the mean pace
        pace = (totals[-1] - totals[1]) / max(edges[-1] - edges[1], INSTANT)
        edges.append(end)
        totals.append(totals[-1] + pace * (end - edges[-2]))
    return Arrivals(np.array(edges), np.array(totals)), (untold,) if left is None else ()


def partition_shares(batches: Sequence[Batch], partitions: int) -> tuple[EqualPartitions, ...]:
    """Return the shares of the partitions: by offsets, else by what tasks read."""
    offsets = records_by_partition(batches)
    if len(offsets) != partitions:
        offsets = np.zeros(partitions)
        for batch in batches:
            tasks = batch.stages[0].tasks.successful
            if len(tasks) == partitions:
                np.add.at(offsets, np.clip(tasks.index, 0, partitions - 1), tasks.records_read)
    total = float(offsets.sum())
    if total <= 0 or offsets.max() / total * partitions <= _EVEN or partitions > _MANY_PARTS:
        return (EqualPartitions(1 / partitions, partitions),)
    return tuple(EqualPartitions(float(each) / total, 1) for each in np.sort(offsets)[::-1] if each > 0)


def records_by_partition(batches: Sequence[Batch]) -> Floats:
    """Return the records of each partition by its offsets; empty where a source has none that count records."""
    totals: Counter[str] = Counter()
    for batch in batches:
        for source in batch.sources:
            if source.records_by_partition is None:
                return np.zeros(0)
            totals.update(source.records_by_partition)
    return np.array(list(totals.values()), float)
