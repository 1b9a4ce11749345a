"""The sizing model: batch duration, cores, waves, triggers and limits, as pure functions.

Symbols are those of the model: λ arriving records/s at peak, b core·s per record
(the inverse of records per second per core), a the fixed seconds of a batch, S the
latency SLA of one demand in seconds, T the trigger in seconds, L the limit of a batch
in records, P source partitions, c executor cores.
"""

from __future__ import annotations

import math
from dataclasses import dataclass


class InfeasibleError(ValueError):
    """No number of cores meets the SLA.

    Attributes
    ----------
    term
        What breaks it: ``overhead`` (a), ``record`` (b) or ``trigger`` (T); ``scaling`` where cores share badly.
    seconds
        What a batch takes at least.
    """

    def __init__(self, term: str, message: str, seconds: float = 0.0) -> None:
        self.term = term
        self.seconds = seconds
        super().__init__(message)


@dataclass(frozen=True)
class Work:
    """What one query has to do.

    Attributes
    ----------
    rate
        λ, records per second at peak.
    per_record
        b, core-seconds for one record.
    overhead
        a, seconds of a batch whatever its size.
    sla
        S, seconds that this demand may take.
    trigger
        T in seconds where it is pinned.
    hand_over
        Seconds that one partition takes to hand one record over to this reader; 0 where nothing bounds it.
    alone
        Whether nobody else takes what a partition could hand over while this reader does not read.
    """

    rate: float
    per_record: float
    overhead: float
    sla: float
    trigger: float | None = None
    hand_over: float = 0.0
    alone: bool = True

    @property
    def longest_batch(self) -> float:
        """min(S − T, S/2) in seconds.

        A record waits T for its batch while batches are shorter than the trigger,
        and one batch more when they run back to back.
        """
        return min(self.sla - (self.trigger or 0.0), self.sla / 2)

    @property
    def overhead_factor(self) -> float:
        """M/(M − a) for the longest batch M: what the fixed cost leaves of a batch does the work of the whole of it.

        A pinned trigger longer than M takes M's place above the line, as a batch has to swallow what arrives in T.
        """
        return max(self.trigger or 0.0, self.longest_batch) / (self.longest_batch - self.overhead)


_SHORTEST_WORK = 1e-6
"""Seconds: a batch with less time than this for its records has none; floats tell no finer."""


def cores_needed(work: Work) -> float:
    """Return the cores, as a real number, above which every record is on time.

    Back to back this is λb / (1 − 2a/S), which is λb·M/(M − a) for the longest
    batch M = S/2; a pinned trigger can make M shorter, and a batch then has to
    swallow what arrives in T.

    Raises
    ------
    InfeasibleError
        The fixed cost, one record or the trigger alone uses up the SLA.
    """
    longest = work.longest_batch
    if longest - work.overhead < _SHORTEST_WORK:
        if work.sla / 2 - work.overhead < _SHORTEST_WORK:
            raise InfeasibleError(
                "overhead",
                f"a batch costs {work.overhead:g} s before its first record, and this query's "
                f"share of the SLA is {work.sla:g} s: batches may take half of that",
                work.overhead,
            )
        raise InfeasibleError(
            "trigger",
            f"a record may wait {work.trigger:g} s for its batch and {work.overhead:g} s of fixed cost, "
            f"and this query's share of the SLA is {work.sla:g} s",
            work.overhead,
        )
    if longest - work.overhead < work.per_record:
        # One record is one core's work, however many there are.
        least = work.overhead + work.per_record
        takes = (
            f"one record takes {work.per_record:g} s on its core and a batch {work.overhead:g} s before it"
        )
        if work.sla / 2 < least:
            said = f"{takes}; of this query's share of the SLA, {work.sla:g} s, batches may take half"
            raise InfeasibleError("record", said, least)
        said = f"a record may wait {work.trigger:g} s for its batch, {takes}, and this query's share of the SLA is"
        raise InfeasibleError("trigger", f"{said} {work.sla:g} s", least)
    return work.rate * work.per_record * work.overhead_factor


def whole_cores(needed: float) -> int:
    """Return the smallest whole number of cores strictly above ``needed``.

    At equality the capacity equals the load: nothing grows, but no backlog ever drains.
    """
    return math.floor(needed) + 1


def effective_cores(partitions: int, cores: int) -> float:
    """Return how many cores work on average: P / ceil(P/c), as partitions run in waves."""
    return partitions / math.ceil(partitions / cores)


def partitions_for(cores: int, needed: float, at_least: int) -> int:
    """Return the fewest partitions, ``at_least`` or more, whose waves keep ``needed`` cores busy.

    A multiple of the cores always does; fewer may do: P > k·needed for k waves.
    """
    waves = math.ceil(max(cores, at_least) / cores)
    partitions = max(cores, at_least, math.floor(waves * needed) + 1)
    while effective_cores(partitions, cores) <= needed:
        partitions += 1
    return partitions


@dataclass(frozen=True)
class CoreSpread:
    """How a batch meets the cores.

    Attributes
    ----------
    cores
        c.
    effective
        Cores' worth of work done at a time, after waves or the repartition's overhead.
    repartition
        Partitions after a shuffle; ``None`` where the source's own are used.
    read_at_once
        p, partitions that hand records over at a time.
    waves
        In which the partitions are read.
    """

    cores: int
    effective: float
    repartition: int | None
    read_at_once: float = math.inf
    waves: int = 1

    def seconds(self, work: Work, records: float) -> float:
        """Return D(n), the seconds of a batch: a and n·b/c, or the time in which its partitions hand it over, n·h/p.

        Where one wave reads them all, none is read during the fixed cost, so that a counts before n·h/p, too. A
        shard keeps no allowance for later: after an answer of 10 MiB, which is 5 s of its 2 MiB/s, it refuses for
        5 s ("GetRecords", Kinesis API reference), and the connectors look for new records, refused as well, before
        they begin a batch. With more waves the partitions of one recover while another is read; where several
        queries share a shard's way out, others take meanwhile what this one leaves.
        """
        handed = self._unread(work) + records * work.hand_over / self.read_at_once
        return max(work.overhead + records * work.per_record / self.effective, handed)

    def steady_batch_seconds(self, work: Work, rate: float) -> float:
        """Return the seconds at which batches back to back settle under a rate below capacity: a/(1 − ρ)."""
        by_cores = work.overhead / (1 - rate * work.per_record / self.effective)
        return max(by_cores, self._unread(work) / (1 - rate * work.hand_over / self.read_at_once))

    def most(self, work: Work, seconds: float) -> float:
        """Return the records that batches of so many seconds can take."""
        by_cores = (seconds - work.overhead) * self.effective / work.per_record
        if not work.hand_over:
            return by_cores
        return min(by_cores, (seconds - self._unread(work)) * self.read_at_once / work.hand_over)

    def _unread(self, work: Work) -> float:
        """Seconds of a batch in which no partition is read."""
        return work.overhead if self.waves == 1 and work.alone else 0.0


def choose_cores(
    partitions: int, needed: float, overhead: float, *, steady: bool = True, read_at_once: float = 0.0
) -> CoreSpread:
    """Choose cores for a source whose partitions are given.

    Parameters
    ----------
    partitions
        P as the reader finds it.
    needed
        Cores from :func:`cores_needed`.
    overhead
        Extra work per record of a repartition, as a share.
    steady
        Whether P stays; on-demand streams change it, so no wave can be counted on.
    read_at_once
        Partitions that must hand records over at a time, as each hands over so many a second: λ times
        ``Work.hand_over``. A task reads one, so more are never read at a time than there are cores.

    Returns
    -------
    Spread
        The fewest cores; waves over the source's partitions where they do, else a repartition.
    """
    assert partitions > read_at_once, "all partitions together hand over less than arrives"
    needed = max(needed, read_at_once)
    fewest = whole_cores(needed)
    if fewest == 1:
        return CoreSpread(1, 1.0, None, 1.0, partitions)
    shuffled = whole_cores(needed * (1 + overhead))
    while effective_cores(partitions, shuffled) <= read_at_once:
        shuffled += 1
    if steady and partitions > needed:
        waves = max(1, math.ceil(partitions / needed) - 1)
        cores = math.ceil(partitions / waves)
        if cores <= shuffled:
            effective = effective_cores(partitions, cores)
            return CoreSpread(cores, effective, None, effective, waves)
    waves = math.ceil(partitions / shuffled)
    return CoreSpread(
        shuffled, shuffled / (1 + overhead), shuffled, effective_cores(partitions, shuffled), waves
    )


def spread_over_cores(
    partitions: int, cores: int, needed: float, overhead: float, *, read_at_once: float = 0.0
) -> CoreSpread | None:
    """Spread a batch over cores that are given; ``None`` where they are too few."""
    read, waves = effective_cores(partitions, cores), math.ceil(partitions / cores)
    if partitions >= cores and read > max(needed, read_at_once):
        return CoreSpread(cores, read, None, read, waves)
    if cores == 1 or read <= read_at_once:
        return CoreSpread(1, 1.0, None, 1.0, waves) if cores == 1 and max(needed, read_at_once) < 1 else None
    shuffled = cores / (1 + overhead)
    return CoreSpread(cores, shuffled, cores, read, waves) if shuffled > needed else None


@dataclass(frozen=True)
class BatchRange:
    """Trigger and limits of one query.

    Attributes
    ----------
    trigger
        T in seconds.
    above
        The limit must be larger, in records, or the backlog grows.
    most
        The limit must not be larger, or a full batch breaks the SLA.
    """

    trigger: float
    above: float
    most: float


def batch_range(work: Work, spread_: CoreSpread, held: float = math.inf) -> BatchRange:
    """Return trigger and range of the limit: (λ·max(T, a/(1 − ρ)), (M − a)·c/b], or as much as partitions hand over.

    Parameters
    ----------
    work
        With ``trigger`` pinned or left to be chosen.
    spread_
        With more cores' worth of work done at a time than :func:`cores_needed`.
    held
        Records of a batch that its tasks can hold: a trigger that is not pinned takes no more at the peak, or a
        looser SLA would ask for larger workers than a tighter one.

    Notes
    -----
    A trigger that is not pinned is S/2, so that waiting and working share the SLA,
    or shorter where a batch of S/2 would be too long; two digits are kept.
    """
    most = spread_.most(work, work.longest_batch)
    trigger = work.trigger
    if trigger is None:
        trigger = _two_digits_down(
            min(work.sla / 2, _BELOW_LIMIT * most / work.rate, _HELD * held / work.rate)
        )
    return BatchRange(trigger, work.rate * max(trigger, spread_.steady_batch_seconds(work, work.rate)), most)


_BELOW_LIMIT = 0.95
"""A chosen trigger keeps a twentieth of the limit free, so that the range is never empty by rounding."""


_HELD = 0.9
"""... and a tenth of what memory holds, for the same reason."""


def _two_digits_down(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / step + 1e-9) * step, 6)


def per_partition(limit: int, partitions: int, above: float) -> int:
    """Divide a limit by the partitions: rounded down where that still keeps up, else up; never 0."""
    down = max(1, limit // partitions)
    return down if down * partitions > above else math.floor(above / partitions) + 1
