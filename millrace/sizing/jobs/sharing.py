"""Cores that the queries of one job share: each has a pool of Spark's FAIR scheduler, and the tasks of all run on the same cores."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millrace.sizing.jobs.capacity import CoreSpread
from millrace.sizing.jobs.demand import QueryDemand
from millrace.sizing.prices_and_limits import limits


@dataclass(frozen=True)
class Batch:
    """The largest batch of a query, at the peak.

    Attributes
    ----------
    tasks, seconds
        Number of its tasks, and the time of each: of its work, or of what its partition delivers meanwhile, as a task that reads
        a Kinesis shard holds its core until it has the records.
    room
        M − a: seconds within which all of them must end.
    trigger, overhead
        T, and a: the seconds before its first task.
    read_at_once
        Most partitions that are read at a time.
    """

    tasks: int
    seconds: float
    room: float
    trigger: float
    overhead: float
    read_at_once: float = math.inf

    @property
    def work(self) -> float:
        """Core-seconds of all its tasks."""
        return self.tasks * self.seconds


def largest_batch(demand: QueryDemand, spread_: CoreSpread, partitions: int) -> Batch:
    """Return the largest batch of a query.

    Parameters
    ----------
    spread_
        Its distribution over cores of its own, which decides whether it is repartitioned, and into how many tasks a table's records
        are divided.
    partitions
        Those of its streams.
    """
    work = demand.work
    room = work.longest_batch - work.overhead
    extra, tasks = 1.0, partitions if demand.lands else spread_.cores
    if spread_.repartition is not None:
        extra, tasks = 1 + limits()["spark.repartition.overhead"], spread_.repartition
    delivered = 0.0
    at_once = spread_.read_at_once if spread_.repartition is not None else float(partitions)
    if work.hand_over:
        read = demand.read_at_once * work.overhead_factor * room
        # Where others read the shards too, or this query reads them in turn, they deliver during the fixed cost what it takes afterwards.
        delivered = read / at_once - (0.0 if work.alone and spread_.waves == 1 else work.overhead)
    seconds = max(demand.needed * room * extra / tasks, delivered)
    return Batch(tasks, seconds, room, work.planned_trigger, work.overhead, at_once)


def fewest_shared_cores(batches: Sequence[Batch]) -> int:
    """Return the fewest cores on which every batch ends in time, whatever the others do; one for each task always does."""
    most = sum(each.tasks for each in batches)
    return bisect_left(range(most), True, lo=1, key=lambda cores: _headroom(batches, cores) > 1)


def _headroom(batches: Sequence[Batch], cores: int) -> float:
    """Return how many times larger all batches could be on so many cores.

    A batch's tasks end within the shorter of two times after its fixed cost.

    Work: cores are never idle while a task waits. So the last task of a batch begins when all other work that can be waiting has
    been done, on all cores: ``(Σ work − t)/c + t`` (Graham, *Bounds on multiprocessing timing anomalies*, 1969, for one batch).
    Of the cores, a stated share is used.

    Share: a core that becomes free goes to the pool with the fewest running tasks. So each query has ``g`` cores or as many as it has
    tasks, for the largest ``g`` that all can have at once: ``ceil(u/g)·t``. FAIR ends no task, so a core that another's tasks took a
    moment before is free only at the end of one.
    """
    every = sum(each.tasks for each in batches) <= cores
    together = len({(each.trigger, each.overhead) for each in batches}) == 1
    used = limits()["spark.sharing.share"]
    share, work = _fair_share([each.tasks for each in batches], cores), sum(each.work for each in batches)
    found = math.inf
    for own in batches:
        # Between two triggers of this query others may have fired several times, and the first of theirs before.
        waiting = (
            work
            if together
            else own.work
            + sum(
                each.work * (1 + math.ceil(own.room / each.trigger - 1e-9))
                for each in batches
                if each is not own
            )
        )
        seconds = (waiting - own.seconds) / (used * cores) + own.seconds
        if share:
            held = 0.0 if every else max(each.seconds for each in batches if each is not own)
            seconds = min(seconds, held + math.ceil(own.tasks / min(own.tasks, share)) * own.seconds)
        found = min(found, own.room / seconds)
    return found


def _fair_share(tasks: Sequence[int], cores: int) -> int:
    """Return the tasks that each query can run at once, or all that it has: the largest ``g`` with ``Σ min(u, g) ≤ c``.

    Examples
    --------
    >>> _fair_share([4, 8], 8), _fair_share([1, 1, 30], 10), _fair_share([1, 1], 1), _fair_share([2, 2], 9)
    (4, 8, 0, 2)
    """
    left, most = cores, len(tasks)
    for number in sorted(tasks):
        if number * most > left:
            return left // most
        left, most = left - number, most - 1
    return max(tasks)


def shared_spreads(
    demands: Sequence[QueryDemand], spreads: Sequence[CoreSpread], batches: Sequence[Batch], cores: int
) -> list[CoreSpread]:
    """Return the queries' shares of a number of cores: at the peak they use the same part of their times.

    A query's share is what it needs times the headroom of all, so limits and capacity follow as on cores of its own, also when all
    of them catch up together.
    """
    headroom = _headroom(batches, cores)
    return [
        replace(
            spread_,
            cores=min(spread_.cores, cores),
            effective=demand.needed * headroom,
            read_at_once=min(batch.read_at_once, demand.read_in_one_wave * headroom)
            if demand.work.hand_over
            else math.inf,
            waves=1,
        )
        for demand, spread_, batch in zip(demands, spreads, batches, strict=True)
    ]
