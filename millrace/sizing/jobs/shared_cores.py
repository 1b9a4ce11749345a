"""Cores that the queries of one job share: each has a pool of Spark's FAIR scheduler, and the tasks of all run on the same cores."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import CoreSpread, whole_cores

_REMEMBERED = 4096
"""Results that are kept, as a search asks for the same batches again and again, and jobs of a large environment are often alike."""


_STEPS = 32
"""Steps of a time in which tasks end, up to twice as much."""

_DOUBLINGS = 30
"""How often the time of a run is doubled at most."""


class BatchTasks(NamedTuple):
    """Tasks into which a batch is divided.

    Attributes
    ----------
    number, seconds
        How many, and the time of each at most.
    work
        Core-seconds of all of them.
    shuffled
        Whether they begin behind a shuffle: the partitions of the source would be too few and too long.
    partitions
        Partitions that are read without a shuffle, as :attr:`LargestBatch.partitions` counts them.
    """

    number: int
    seconds: float
    work: float
    shuffled: bool = False
    partitions: int = 0


class LargestBatch(NamedTuple):
    """The largest batch of a query, at the peak.

    Attributes
    ----------
    work
        Core-seconds of its records.
    room
        M − a: seconds within which all its tasks must end.
    trigger
        T in seconds.
    source
        What it reads; None for a table, whose records are divided as the plan likes.
    reading
        Core-seconds for which its tasks hold cores while partitions deliver their records.
    stage
        Stage of a bounded run: batches of one share cores, and a later one begins when those before have ended.
    """

    work: float
    room: float
    trigger: float
    source: SourcePartitions | None = None
    reading: float = 0.0
    stage: int = 0

    @property
    def partitions(self) -> int:
        """Partitions that it reads, as many as if all were like the fullest; 0 of a table."""
        return 0 if self.source is None else self.source.partitions

    @property
    def is_always_shuffled(self) -> bool:
        """True if the plan has chosen a shuffle for its files."""
        return self.source is not None and self.source.shuffled

    def divided_into(self, number: int, *, shuffled: bool = False) -> BatchTasks:
        """Return it divided into tasks."""
        if self.source is None:
            return BatchTasks(number, self.work / number, self.work)
        if not shuffled:
            work, given = max(self.work, self.reading), number == self.source.partitions
            even = self.source.evenly if given else float(number)
            return BatchTasks(self.source.tasks if given else number, work / even, work, partitions=number)
        extra = 1 + service_limits()["spark.repartition.overhead"]
        # Those of the source are read before a shuffle, in waves over as many cores.
        seconds = max(self.work * extra / number, self.reading / self.source.evenly_read(number))
        return BatchTasks(number, seconds, number * seconds, shuffled)


@lru_cache(maxsize=_REMEMBERED)
def _fewest_tasks_on_own_cores(batch: LargestBatch, *, free: bool) -> BatchTasks:
    """Return the fewest tasks of a batch that end in time with a core for each."""
    if batch.source is None:
        return batch.divided_into(whole_cores(batch.work / batch.room))
    enough = whole_cores(max(batch.work, batch.reading) / batch.room)
    plain = batch.divided_into(max(batch.partitions, enough) if free else batch.partitions)
    shuffled = batch.divided_into(
        whole_cores(batch.work * (1 + service_limits()["spark.repartition.overhead"]) / batch.room),
        shuffled=True,
    )
    # Shards that are as full as AWS takes them are read in a whole part of the time: rounding must not decide.
    end = batch.room * (1 + 1e-9)
    evenly = batch.source.evenly
    waves = math.floor(end * evenly / batch.reading) if batch.reading else batch.partitions
    if waves and shuffled.seconds >= end:
        # In more waves partitions cannot deliver in time.
        number = max(shuffled.number, math.ceil(evenly / waves * (1 - 1e-12)))
        shuffled = batch.divided_into(number, shuffled=True)
        while shuffled.seconds >= end and shuffled.number <= batch.source.tasks:
            shuffled = batch.divided_into(shuffled.number + 1, shuffled=True)
    possible = [each for each in (plain, shuffled) if each.seconds < end]
    if batch.is_always_shuffled:
        return shuffled
    return min(possible, key=lambda each: each.number, default=plain)


def largest_batch(demand: QueryDemand, source: SourcePartitions) -> LargestBatch:
    """Return the largest batch of a query."""
    work = demand.work
    room = work.longest_batch_seconds - work.overhead
    if not demand.lands:
        return LargestBatch(demand.needed * room, room, work.planned_trigger_seconds, stage=demand.stage)
    # Where others read the shards too, they deliver during the fixed cost what they take afterwards. That counts as a part of what
    # arrives, whatever the trigger, or longer ones would take more cores.
    shared = bool(work.hand_over) and not work.alone
    arriving = work.overhead_factor * room - (work.overhead if shared else 0.0)
    reading = demand.read_at_once * arriving
    return LargestBatch(demand.needed * room, room, work.planned_trigger_seconds, source, reading)


@lru_cache(maxsize=_REMEMBERED)
def fewest_shared_cores(batches: tuple[LargestBatch, ...], *, free: tuple[bool, ...] = ()) -> int:
    """Return the fewest cores on which every batch ends in time, whatever the others do; one for each task always does."""
    return bisect_left(
        range(_undivided_tasks(batches, free)[1]),
        True,
        lo=1,
        key=lambda cores: divide_into_tasks_or_none(batches, cores, free=free) is not None,
    )


@lru_cache(maxsize=_REMEMBERED)
def _undivided_tasks(
    batches: tuple[LargestBatch, ...], free: tuple[bool, ...]
) -> tuple[tuple[BatchTasks, ...], int, tuple[BatchTasks, ...], list[float]]:
    """Return the fewest tasks on own cores, these cores, a task for each partition, and the core-seconds that can be waiting with these."""
    may = free or [False] * len(batches)
    own = tuple(_fewest_tasks_on_own_cores(each, free=more) for each, more in zip(batches, may, strict=True))
    plain = tuple(
        each.divided_into(1, shuffled=True)
        if each.is_always_shuffled
        else each.divided_into(each.partitions or 1)
        for each in batches
    )
    return own, _cores_for_all_tasks(batches, own), plain, _waiting_core_seconds(batches, plain)


@lru_cache(maxsize=_REMEMBERED)
def divide_into_tasks_or_none(
    batches: tuple[LargestBatch, ...], cores: int, *, free: tuple[bool, ...] = ()
) -> tuple[BatchTasks, ...] | None:
    """Return the tasks of all batches that end in time on a number of cores; None if they do not.

    Either there is a core for each task, or the work of all bounds when each task begins (:func:`_max_task_seconds`). Less traffic or a
    longer trigger only makes tasks shorter in their share of the time, so neither takes more cores.

    Parameters
    ----------
    free
        For each batch, whether its source may get more partitions.
    """
    may = free or [False] * len(batches)
    own, enough, undivided, waiting = _undivided_tasks(batches, free)
    if enough <= cores:
        return own
    plain = [*undivided]
    while True:
        found = []
        for place, (batch, tasks) in enumerate(zip(batches, plain, strict=True)):
            most = _max_task_seconds(batch, waiting[place], cores)
            if batch.source and not tasks.shuffled and tasks.seconds >= most and may[place]:
                room = max(most, 1e-9)
                more = math.floor(max(batch.work, batch.reading) / room) + 1
                tasks = batch.divided_into(max(batch.partitions + 1, more))
            elif batch.source is None or batch.is_always_shuffled:
                number = min(cores, math.floor(tasks.work / max(most, 1e-9)) + 1)
                tasks = batch.divided_into(number, shuffled=batch.is_always_shuffled)
            if tasks.seconds < most:
                found.append(tasks)
            elif batch.source and not tasks.shuffled and not may[place]:
                # All others wait for its larger work from now on, so they are divided again.
                number = min(cores, batch.source.tasks) if batch.reading else cores
                plain[place] = batch.divided_into(number, shuffled=True)
                waiting = _waiting_core_seconds(batches, plain)
                break
            else:
                return None
        else:
            return tuple(found)


@lru_cache(maxsize=_REMEMBERED)
def run_tasks_with_headrooms(
    batches: tuple[LargestBatch, ...], fewest: tuple[BatchTasks, ...], cores: int
) -> list[tuple[Sequence[BatchTasks], list[float]]]:
    """Return the tasks with which a bounded run may end soonest on a number of cores, each with the headroom of its batches.

    Parameters
    ----------
    fewest
        Those of the fewest cores, which always end in time.
    """
    others = (run_tasks_at_once_or_none(batches, cores), sequential_run_tasks(batches, cores))
    ways: list[Sequence[BatchTasks]] = [fewest, *(each for each in others if each is not None)]
    found = [(each, load_headroom_factors(batches, each, cores, bounded=True)) for each in ways]
    return [found[0], *(each for each in found[1:] if min(each[1]) > 1)]


def run_tasks_at_once_or_none(batches: Sequence[LargestBatch], cores: int) -> list[BatchTasks] | None:
    """Return the tasks of a bounded run's batches that end soonest with a core for each, about; None if the batches are more.

    A batch with fewer tasks than partitions is shuffled, and each task reads several of them, one after the other.
    """
    found: dict[int, BatchTasks] = {}
    for stage in dict.fromkeys(each.stage for each in batches):
        own = [place for place, each in enumerate(batches) if each.stage == stage]
        if len(own) > cores:
            return None
        reading = (
            each.reading / max(1.0, each.source.evenly)
            for each in map(batches.__getitem__, own)
            if each.source is not None
        )
        least = max(sum(batches[place].work for place in own) / cores, max(reading, default=0.0))
        longer = bisect_left(
            range(_DOUBLINGS * _STEPS),
            True,
            key=lambda step: (
                sum(_fewest_run_tasks(batches[place], least * 2 ** (step / _STEPS))[0] for place in own)
                <= cores
            ),
        )
        for place in own:
            number, shuffled = _fewest_run_tasks(batches[place], least * 2 ** (longer / _STEPS))
            given = batches[place].source is not None and not shuffled
            found[place] = batches[place].divided_into(
                batches[place].partitions if given else number, shuffled=shuffled
            )
    return [found[place] for place in range(len(batches))]


def _fewest_run_tasks(batch: LargestBatch, seconds: float) -> tuple[int, bool]:
    """Return the fewest tasks of at most so many seconds, each with its own core, and whether they are shuffled."""
    if batch.source is None:
        return math.ceil(batch.work / seconds), False
    extra, evenly = 1 + service_limits()["spark.repartition.overhead"], batch.source.evenly
    waves = math.floor(seconds * evenly / batch.reading * (1 + 1e-9)) if batch.reading else math.inf
    number = max(
        math.ceil(batch.work * extra / seconds),
        math.ceil(evenly / min(batch.source.partitions, max(1, waves))),
    )
    tasks = batch.source.tasks
    if number >= tasks and max(batch.work, batch.reading) <= seconds * evenly and not batch.source.shuffled:
        return tasks, False
    return number, True


def sequential_run_tasks(batches: Sequence[LargestBatch], cores: int) -> list[BatchTasks]:
    """Return the tasks of a bounded run's batches that end soonest one batch after the other."""
    used = service_limits()["spark.sharing.share"] * cores
    found = []
    for each in batches:
        ways = [] if each.is_always_shuffled else [each.divided_into(each.partitions or cores)]
        if each.partitions:
            ways.append(each.divided_into(cores, shuffled=True))
        found.append(min(ways, key=lambda way: way.work / used + way.seconds * max(0.0, 1 - 1 / used)))
    return found


def load_headroom_factors(
    batches: Sequence[LargestBatch], tasks: Sequence[BatchTasks], cores: int, *, bounded: bool = False
) -> list[float]:
    """Return how many times larger each batch could be while all others are as much larger as they could be.

    What is to spare is divided by the roots of the batches' work: in proportion to it, a small query beside large ones would be
    limited to hardly more than what arrives, and take a day to catch up. The batches of a bounded run have no limit, and the run ends
    with the last of them, so they get it in proportion, unless each task has its own core.
    """
    alone = [0.0] * len(batches)
    if _cores_for_all_tasks(batches, tasks) <= cores:
        alone = [each.room / own.seconds for each, own in zip(batches, tasks, strict=True)]
    used = service_limits()["spark.sharing.share"] * cores
    # All cores do the work that can be waiting with a batch, beyond which its last task takes a part of its own time.
    shared = [waiting / used for waiting in _waiting_core_seconds(batches, tasks)]
    longer = [own.seconds * max(0.0, 1 - 1 / used) for own in tasks]
    waits = [*zip(batches, shared, longer, strict=True)]
    together = min(each.room / (waiting + last) for each, waiting, last in waits)
    if min(alone) >= together:
        return alone
    found = [together] * len(batches)
    if bounded or together <= 1 or len({each.trigger for each in batches}) > 1:
        return found
    # All of them wait for the same work, whose sum stays.
    most = [(each.room - together * waiting) / last if last else math.inf for each, waiting, last in waits]
    roots = [math.sqrt(own.work) for own in tasks]
    spare, rest = (together - 1) * sum(own.work for own in tasks), sum(roots)
    for place in sorted(range(len(batches)), key=lambda place: (most[place] - 1) * roots[place]):
        more = min(spare * roots[place] / rest, (most[place] - 1) * tasks[place].work)
        found[place] = 1 + more / tasks[place].work
        spare, rest = spare - more, rest - roots[place]
    return found


def _cores_for_all_tasks(batches: Sequence[LargestBatch], tasks: Sequence[BatchTasks]) -> int:
    """Return the cores with which each task of a stage has its own."""
    stages: Counter[int] = Counter()
    for batch, each in zip(batches, tasks, strict=True):
        stages[batch.stage] += each.number
    return max(stages.values())


def _waiting_core_seconds(batches: Sequence[LargestBatch], tasks: Sequence[BatchTasks]) -> list[float]:
    """Return the core-seconds that can be waiting when the tasks of each batch do."""
    together: dict[int, float] = defaultdict(float)
    triggers: dict[int, set[float]] = {}
    for batch, made in zip(batches, tasks, strict=True):
        together[batch.stage] += made.work
        triggers.setdefault(batch.stage, set()).add(batch.trigger)
    return [
        together[own.stage]
        if len(triggers[own.stage]) == 1
        # Between two triggers of this query others may have fired several times, and the first of theirs before.
        else tasks[place].work
        + sum(
            made.work * (1 + math.ceil(own.room / each.trigger - 1e-9))
            for number, (each, made) in enumerate(zip(batches, tasks, strict=True))
            if number != place and each.stage == own.stage
        )
        for place, own in enumerate(batches)
    ]


def _max_task_seconds(batch: LargestBatch, waiting: float, cores: int) -> float:
    """Return the seconds that a task of a batch may take; at most 0 if none can end in time.

    Cores are never idle while a task waits. So the last task of a batch begins when all other work that can be waiting has been
    done, on all cores: ``(Σ work − t)/(U·c) + t`` (Graham, *Bounds on multiprocessing timing anomalies*, 1969, for one batch), where
    a stated share U of the cores is used.
    """
    used = service_limits()["spark.sharing.share"] * cores
    if used <= 1:
        return math.inf if waiting < used * batch.room else 0.0
    return (batch.room - waiting / used) / (1 - 1 / used)


def shared_spreads(
    demands: Sequence[QueryDemand],
    batches: Sequence[LargestBatch],
    tasks: Sequence[BatchTasks],
    cores: int,
    headrooms: Sequence[float],
) -> list[CoreSpread]:
    """Return the queries' shares of a number of cores.

    A query's share is what it needs times its headroom, so limits and capacity follow as on cores of its own, also when all of them
    catch up together.
    """
    return [
        CoreSpread(
            cores=min(own.number, cores),
            effective=demand.needed * headroom,
            repartition=own.number if own.shuffled else None,
            read_at_once=min(
                float(own.number), float(batch.partitions), batch.reading / batch.room * headroom
            )
            if demand.work.hand_over
            else math.inf,
        )
        for demand, batch, own, headroom in zip(demands, batches, tasks, headrooms, strict=True)
    ]
