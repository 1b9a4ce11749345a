"""The sizing model: batch duration, cores, waves, triggers and limits, as pure functions.

Symbols are those of the model: λ arriving records/s at peak, b core·s per record
(the inverse of records per second per core), a the fixed seconds of a batch, S the
latency SLA of one demand in seconds, T the trigger in seconds, L the limit of a batch
in records, P source partitions, c executor cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from millrace.sizing.queries.partition_tasks import SourcePartitions


class InfeasibleError(ValueError):
    """No number of cores meets the SLA.

    Attributes
    ----------
    term
        Cause: ``overhead`` (a), ``record`` (b) or ``trigger`` (T); ``scaling`` for contention of cores.
    seconds
        Shortest possible batch.
    """

    def __init__(self, term: str, message: str, seconds: float = 0.0) -> None:
        self.term = term
        self.seconds = seconds
        super().__init__(message)


@dataclass(frozen=True)
class QueryWork:
    """Work of one query.

    Attributes
    ----------
    rate
        λ, records per second at peak.
    per_record
        b, core-seconds for one record.
    overhead
        a, fixed seconds of a batch.
    sla
        S, seconds that this demand may take.
    trigger
        T in seconds if it is pinned.
    hand_over
        Seconds in which one partition delivers one record to this reader; 0 without such a limit.
    alone
        Whether the reader has the partitions' throughput alone, so that none is used while it does not read.
    most_trigger
        Seconds that a trigger which is not pinned may have at most: records of more do not fit into memory, or a derive
        query would get a part of a landing batch.
    beside
        Seconds of arrivals that a batch may have beyond its trigger's: a landing batch that commits at another time.
    """

    rate: float
    per_record: float
    overhead: float
    sla: float
    trigger: float | None = None
    hand_over: float = 0.0
    alone: bool = True
    most_trigger: float = math.inf
    beside: float = 0.0

    @cached_property
    def longest_batch_seconds(self) -> float:
        """M = min(S − T, S/2) in seconds, and not above :attr:`most_trigger`.

        A record waits T for its batch while batches are shorter than the trigger,
        and one batch more when they run back to back.
        """
        half = math.floor(500 * self.sla + 1e-6) / 1000  # a trigger has whole milliseconds
        if self.trigger is None:
            return min(half, self.most_trigger)
        longest = min(self.sla - self.trigger, half)
        return min(longest, self.most_trigger) if self.trigger <= self.most_trigger else longest

    @property
    def planned_trigger_seconds(self) -> float:
        """T in seconds: the pinned one, or M, so that waiting and working share the SLA."""
        return self.longest_batch_seconds if self.trigger is None else self.trigger

    @property
    def most_arrival_seconds(self) -> float:
        """Seconds of arrivals in the largest batch."""
        return self.planned_trigger_seconds + self.beside

    @property
    def overhead_factor(self) -> float:
        """M/(M − a) for the longest batch M: a batch has M − a seconds for the work of M seconds.

        A pinned trigger longer than M replaces M in the numerator, because a batch has to process what arrives in T.
        """
        return max(self.most_arrival_seconds, self.longest_batch_seconds) / (
            self.longest_batch_seconds - self.overhead
        )


_SHORTEST_WORK = 1e-6
"""Seconds: a batch with less time than this for its records has none; floats are not more precise."""


def cores_needed(work: QueryWork) -> float:
    """Return the cores, as a real number, above which every record is on time.

    Back to back this is λb / (1 − 2a/S), which is λb·M/(M − a) for the longest
    batch M = S/2; a pinned trigger can make M shorter, and a batch then has to
    process what arrives in T.

    Raises
    ------
    InfeasibleError
        The fixed cost, one record or the trigger alone uses up the SLA.
    """
    longest = work.longest_batch_seconds
    if longest - work.overhead < _SHORTEST_WORK:
        if work.trigger is None or work.sla / 2 - work.overhead < _SHORTEST_WORK:
            raise InfeasibleError(
                "overhead",
                f"a batch has {work.overhead:g} s of fixed cost, but may take only half of this query's "
                f"share of the SLA, which is {work.sla:g} s",
                work.overhead,
            )
        raise InfeasibleError(
            "trigger",
            f"a record waits up to {work.trigger:g} s for its batch, which has {work.overhead:g} s of fixed "
            f"cost, but this query's share of the SLA is only {work.sla:g} s",
            work.overhead,
        )
    if longest - work.overhead < work.per_record:
        # One core processes a record, so more cores do not help.
        least = work.overhead + work.per_record
        takes = (
            f"one record takes {work.per_record:g} s on its core and a batch {work.overhead:g} s before it"
        )
        if work.trigger is None or work.sla / 2 < least:
            said = f"{takes}; of this query's share of the SLA, {work.sla:g} s, batches may take half"
            raise InfeasibleError("record", said, least)
        said = f"a record may wait {work.trigger:g} s for its batch, {takes}, and this query's share of the SLA is"
        raise InfeasibleError("trigger", f"{said} {work.sla:g} s", least)
    return work.rate * work.per_record * work.overhead_factor


def burst_factor(records: float) -> float:
    """Return by how much batches of so many records on average are exceeded: by one in some 10,000, if records arrive by chance.

    That is n + 3.7√n + 1 for few records (Poisson). Of 100 and more ever less is added, and of 300 nothing: a traffic's peak is the
    mean of many. Fewer records never have a larger batch. An SLA without time for a batch, which is refused elsewhere, has none.
    """
    if records <= 0:
        return 1.0
    return 1 + max(0.0, min(3.7 * math.sqrt(records) + 1, 20, 30 - records / 10)) / records


def whole_cores(needed: float) -> int:
    """Return the smallest whole number of cores strictly above ``needed``.

    At equality the capacity equals the load: the backlog does not grow, but never drains.
    """
    return math.floor(needed) + 1


def fewest_partitions_for_busy_cores(cores: int, needed: float, at_least: int) -> int:
    """Return the fewest partitions, ``at_least`` or more, whose waves keep ``needed`` cores busy.

    A multiple of the cores always does; fewer may do: P > k·needed for k waves.
    """
    waves = math.ceil(max(cores, at_least) / cores)
    partitions = max(cores, at_least, math.floor(waves * needed) + 1)
    while SourcePartitions.of_equal(partitions).effective_cores(cores) <= needed:
        partitions += 1
    return partitions


class CoreSpread(NamedTuple):
    """Distribution of a batch over the cores.

    Attributes
    ----------
    cores
        c.
    effective
        Number of cores that work on average, after waves or the repartition's overhead.
    repartition
        Partitions after a shuffle; ``None`` if the source's own are used.
    read_at_once
        p, partitions that are read at a time.
    waves
        Number of waves in which the partitions are read.
    """

    cores: int
    effective: float
    repartition: int | None
    read_at_once: float = math.inf
    waves: int = 1

    def batch_seconds(self, work: QueryWork, records: float) -> float:
        """Return D(n), the seconds of a batch: a + n·b/c, or the time in which its partitions deliver it, n·h/p.

        If one wave reads all partitions, none is read during the fixed cost, so a is added to n·h/p, too. A shard does not
        save throughput for later: after an answer of 10 MiB, which is 5 s of its 2 MiB/s, it refuses for 5 s
        ("GetRecords", Kinesis API reference), and the connectors look for new records, also refused, before they start a
        batch. With more waves, partitions recover while others are read; if several queries share a shard's throughput,
        other queries use meanwhile what this one leaves.
        """
        handed = self._seconds_without_reading(work) + records * work.hand_over / self.read_at_once
        return max(self.seconds_by_cores(work, records), handed)

    def seconds_by_cores(self, work: QueryWork, records: float) -> float:
        """Return the seconds of a batch whose partitions deliver at once: a + n·b/c."""
        return work.overhead + records * work.per_record / self.effective

    def batch_seconds_alone(
        self, work: QueryWork, records: float, source: SourcePartitions, overhead: float
    ) -> float:
        """Return D(n) of a query whose tasks have a core each while others have nothing to do."""
        read = source.effective_cores(self.cores)
        busy = read if self.repartition is None else self.cores / (1 + overhead)
        handed = self._seconds_without_reading(work) + records * work.hand_over / max(self.read_at_once, read)
        return max(work.overhead + records * work.per_record / max(self.effective, busy), handed)

    def steady_batch_seconds(self, work: QueryWork, rate: float) -> float:
        """Return the seconds at which consecutive batches settle under a rate below capacity: a/(1 − ρ)."""
        by_cores = work.overhead / (1 - rate * work.per_record / self.effective)
        # What shares its partitions' throughput may use all of its part, and leaves none of it unused.
        unread = self._seconds_without_reading(work)
        return max(by_cores, unread and unread / (1 - rate * work.hand_over / self.read_at_once))

    def records_of_largest_batch(self, work: QueryWork, seconds: float) -> float:
        """Return the most records that batches of this duration can process."""
        by_cores = (seconds - work.overhead) * self.effective / work.per_record
        if not work.hand_over:
            return by_cores
        return min(
            by_cores, (seconds - self._seconds_without_reading(work)) * self.read_at_once / work.hand_over
        )

    def _seconds_without_reading(self, work: QueryWork) -> float:
        """Return the seconds of a batch in which no partition is read."""
        return work.overhead if self.waves == 1 and work.alone else 0.0


def choose_core_spread(
    source: SourcePartitions, needed: float, overhead: float, *, read_at_once: float = 0.0
) -> CoreSpread:
    """Choose cores for a source with given partitions.

    Parameters
    ----------
    source
        The partitions; on-demand streams change their number, so waves cannot be planned.
    needed
        Cores from :func:`cores_needed`.
    overhead
        Extra work per record of a repartition, as a share.
    read_at_once
        Partitions that must be read at a time because of their throughput: λ times
        ``Work.hand_over``. A task reads one, so at most as many are read at a time as there are cores.

    Returns
    -------
    CoreSpread
        The fewest cores; waves over the source's partitions if they suffice, else a repartition.
    """
    assert source.all_at_once > read_at_once, "all partitions together hand over less than arrives"
    # A task that waits for its partition does not wait longer behind a repartition.
    shuffled = whole_cores(max(needed * (1 + overhead), read_at_once))
    needed = max(needed, read_at_once)
    if whole_cores(needed) == 1 and not source.shuffled:
        return CoreSpread(1, 1.0, None, 1.0, math.ceil(source.read_in_waves))
    while source.effective_cores(shuffled) <= read_at_once:
        shuffled += 1
    if source.steady and source.all_at_once > needed and not source.shuffled:
        cores = source.fewest_cores_with_busy(needed)
        if cores <= shuffled:
            effective = source.effective_cores(cores)
            return CoreSpread(cores, effective, None, effective, math.ceil(source.read_in_waves / cores))
    waves = math.ceil(source.read_in_waves / shuffled)
    return CoreSpread(shuffled, shuffled / (1 + overhead), shuffled, source.effective_cores(shuffled), waves)


def spread_over_cores_or_none(
    source: SourcePartitions, cores: int, needed: float, overhead: float, *, read_at_once: float = 0.0
) -> CoreSpread | None:
    """Return the distribution of a batch over a given number of cores; ``None`` if they are too few."""
    read, waves = source.effective_cores(cores), math.ceil(source.read_in_waves / cores)
    if source.steady and not source.shuffled and source.tasks >= cores and read > max(needed, read_at_once):
        return CoreSpread(cores, read, None, read, waves)
    if (cores == 1 and not source.shuffled) or read <= read_at_once:
        return CoreSpread(1, 1.0, None, 1.0, waves) if cores == 1 and max(needed, read_at_once) < 1 else None
    shuffled = cores / (1 + overhead)
    return CoreSpread(cores, shuffled, cores, read, waves) if shuffled > needed else None


def fastest_spread(source: SourcePartitions, cores: int, overhead: float) -> CoreSpread:
    """Return the distribution over a number of cores with which a batch ends soonest, by the source's partitions or by a repartition."""
    read, waves = source.effective_cores(cores), math.ceil(source.read_in_waves / cores)
    if read >= cores / (1 + overhead) and not source.shuffled:
        return CoreSpread(cores, read, None, read, waves)
    return CoreSpread(cores, cores / (1 + overhead), cores, read, waves)


def least_limit_to_keep_up(work: QueryWork, spread_: CoreSpread, again: float = 1.0) -> float:
    """Return the limit λ·max(T, a/(1 − ρ)) in records, at or below which the backlog grows, where ``again`` times λ arrive.

    Parameters
    ----------
    work
        With ``trigger`` pinned, or None: then T is M, and a batch of T ends within T, because the cores are above
        :func:`cores_needed`. Two queries of one path so start each batch together, and each derive batch has the same number
        of landing batches.
    spread_
        With more effective cores than :func:`cores_needed`.
    """
    rate = work.rate * again
    return rate * max(work.planned_trigger_seconds, spread_.steady_batch_seconds(work, rate))


def limit_per_partition(limit: int, partitions: int, above: float) -> int:
    """Return a limit divided by the partitions: rounded down if that still keeps up, else up; never 0."""
    down = max(1, limit // partitions)
    return down if down * partitions > above else math.floor(above / partitions) + 1
