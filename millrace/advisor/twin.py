"""A model of what ran, from its log alone: what a batch costs, what arrived, how it was started and bounded.

A batch lasts as long as nothing of it runs on a core (a: planning, offsets, checkpoint, commits), and as its stages
take. The stages that read the source have a task for each partition, and each task costs κ and b for a record; what
comes after a shuffle is put on the cores again as it was seen (as Sparklens does). All of it is refitted to redrawn
blocks of batches, so that whatever is foretold has an interval (Künsch, *The Jackknife and the Bootstrap for General
Stationary Observations*, Annals of Statistics 17, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from millrace.advisor.history import Batch, History, Query, Stage
from millrace.advisor.statistics import covered, scheduled, settled
from millrace.sizing.simulation import Arrivals
from millrace.sizing.simulation.tasks import Part

Floats = NDArray[np.float64]

LEAST = 8
"""Settled batches with records below which nothing is foretold."""

MOST = 150
"""Of the last ones, that are taken: what comes next is more like them than like those of last week."""

_INSTANT = 1e-3
"""Seconds: Spark tells times in whole milliseconds; and what waited at the begin arrives in the first."""

_ALIGNED = 0.7
"""Share of batches that must begin at multiples of an interval for it to be the trigger: Spark starts them there."""

_OFF = 0.06
"""How far off a multiple, as a share of the interval, a batch may begin: its thread wakes up late."""

_EVEN = 1.15
"""Largest over mean share up to which partitions are even: chance does not make them more equal."""

_VARIES = 0.05
"""Coefficient of variation of a task's records from which κ and b can be told apart."""

_UNTOLD = "all batches are equally large: what a task costs without records cannot be told from its records"

_MANY_PARTS = 256
"""Partitions beyond which they are simulated as alike."""


@dataclass(frozen=True)
class Costs:
    """What batches cost on so many cores.

    Attributes
    ----------
    overhead
        a, seconds in which nothing runs on a core.
    wave
        κ, seconds of a task besides its records, for all stages that read.
    per_record
        b, core-seconds of a record, for all stages that read.
    rest
        Seconds of the stages behind a shuffle, by cores: (for each batch, for each record).
    """

    overhead: float
    wave: float
    per_record: float
    rest: tuple[float, float]


@dataclass(frozen=True, eq=False)
class QueryTwin:
    """A query as its log shows it.

    Attributes
    ----------
    name
        Of it.
    cores
        That its tasks had at once.
    partitions
        P: tasks of a stage that reads.
    parts
        Their shares of the records.
    trigger
        Seconds; 0 where batches follow each other, or wait for records.
    limit
        Records that end a batch, or ``None`` where nothing shows one.
    reads
        Stages of a batch that read the source: more than one computes it more than once.
    arrivals
        From the first of the batches on; what waited then arrives at once.
    sigma
        Standard deviation of the logarithm of a task's time, beyond its records.
    durations, records, ended
        Of the batches: seconds, records, and when they ended, in seconds from the begin of the first.
    told
        Whether batches differ enough in their records for κ and b to be told apart.
    notes
        What could not be told.
    """

    name: str
    cores: int
    partitions: int
    parts: tuple[Part, ...]
    trigger: float
    limit: float | None
    reads: int
    arrivals: Arrivals
    sigma: float
    durations: Floats
    records: Floats
    ended: Floats
    told: bool
    notes: tuple[str, ...]
    _samples: tuple[_Sample, ...] = field(repr=False)

    def costs(self, cores: int, drawn: Sequence[int] | None = None, fixed: float = 0.5) -> Costs:
        """Fit the costs, on so many cores.

        Parameters
        ----------
        cores
            c.
        drawn
            Batches, from :meth:`draws`; left out, all.
        fixed
            Share of a task's time that is κ, where κ and b cannot be told apart: both ends are possible.
        """
        samples = self._samples if drawn is None else [self._samples[n] for n in drawn]
        overhead = float(np.median([each.idle for each in samples]))
        sums: Floats = sum((each.sums for each in samples), np.zeros(6))
        wave, per_record = _line(sums)
        if not self.told and sums[1] > 0:
            task = sums[3] / sums[0]
            wave, per_record = fixed * task, (1 - fixed) * task * sums[0] / sums[1]
        passes = float(np.mean([each.passes for each in samples]))
        rest = np.array([each.rest(cores) for each in samples])
        if not rest.any():
            behind = (0.0, 0.0)
        else:
            records = np.array([each.records for each in samples])
            behind = _line(_sums(records, rest, np.maximum(rest, _INSTANT)))
        return Costs(overhead, wave * passes, per_record * passes, behind)

    def draws(self, number: int) -> Iterator[list[int]]:
        """Yield redrawn batches, in blocks, as neighbours are alike."""
        count = len(self._samples)
        block = max(1, round(count ** (1 / 3)))
        random = np.random.default_rng(count)
        for _ in range(number):
            starts = random.integers(0, count - block + 1, size=-(-count // block))
            yield [int(start) + n for start in starts for n in range(block)][:count]


@dataclass(frozen=True)
class _Sample:
    """What one batch says of the costs."""

    records: float
    idle: float
    sums: Floats
    passes: int
    others: tuple[Floats, ...]

    def rest(self, cores: int) -> float:
        return math.fsum(scheduled(each, cores) for each in self.others)


def twin(history: History, query: Query) -> QueryTwin | None:
    """Return the twin of a query, or ``None`` where its log has too few settled batches with tasks."""
    first = settled([each.duration for each in query.batches])
    batches = [each for each in query.batches[first:] if each.records and any(_stages(each))][-MOST:]
    if len(batches) < LEAST or history.cores < 1:
        return None
    partitions = _partitions(batches)
    # Relative errors are alike, so weights come from a first fit: by the times themselves they would favour short ones.
    first_guess = _line(sum((_sample(each, partitions, None).sums for each in batches), np.zeros(6)))
    samples = tuple(_sample(each, partitions, first_guess) for each in batches)
    arrivals, notes = _arrivals(batches)
    told = _told(samples)
    shares = _shares(batches, partitions)
    twin_ = QueryTwin(
        name=query.name,
        cores=_cores(batches, history.cores),
        partitions=partitions,
        parts=shares,
        trigger=_trigger(batches),
        limit=_limit(batches, partitions),
        reads=round(float(np.median([each.passes for each in samples]))),
        arrivals=arrivals,
        sigma=0.0,
        durations=np.array([each.duration for each in batches]),
        records=np.array([each.records for each in batches], float),
        ended=np.array([each.ended - batches[0].begun for each in batches]),
        told=told,
        notes=notes if told else (*notes, _UNTOLD),
        _samples=samples,
    )
    return _uneven(twin_, batches)


def _stages(batch: Batch) -> Iterator[Stage]:
    return (stage for job in batch.jobs for stage in job.stages if len(stage.tasks))


def _times(stage: Stage) -> Floats:
    """Seconds of its tasks that succeeded, none twice."""
    done = ~stage.tasks.failed & ~stage.tasks.speculative
    return np.asarray(np.maximum(stage.tasks.duration[done], _INSTANT), dtype=np.float64)


def _partitions(batches: Sequence[Batch]) -> int:
    """P: as many tasks as the first stage of most batches has."""
    counts = [next(_stages(each)).partitions or len(next(_stages(each)).tasks) for each in batches]
    values, often = np.unique(counts, return_counts=True)
    return int(values[int(np.argmax(often))])


def _sample(batch: Batch, partitions: int, guess: tuple[float, float] | None) -> _Sample:
    begins, ends = [], []
    sums, passes, others = np.zeros(6), 0, []
    for stage in _stages(batch):
        begins.append(stage.tasks.launched)
        ends.append(stage.tasks.finished)
        times = _times(stage)
        if len(times) != partitions:
            others.append(times)
            continue
        done = ~stage.tasks.failed & ~stage.tasks.speculative
        read = stage.tasks.records_read[done].astype(float)
        # A connector that does not count its records: they are shared out evenly.
        records = read if read.sum() >= batch.records else np.full(len(times), batch.records / partitions)
        expected = np.ones(len(times)) if guess is None else guess[0] + guess[1] * records
        sums = sums + _sums(records, times, np.maximum(expected, _INSTANT))
        passes += 1
    begun, ended = np.concatenate(begins), np.concatenate(ends)
    working = covered(np.maximum(begun, batch.begun), np.minimum(ended, batch.ended))
    return _Sample(float(batch.records), max(0.0, batch.duration - working), sums, passes, tuple(others))


def _sums(records: Floats, times: Floats, expected: Floats) -> Floats:
    """The sums of weighted least squares of times on (1, records), weights 1/expected²."""
    weights = 1 / np.square(expected)
    terms = (weights, weights * records, weights * records**2, weights * times, weights * times * records)
    return np.array([*(np.sum(each) for each in terms), len(times)])


def _line(sums: Floats) -> tuple[float, float]:
    """Solve for (fixed, per record), neither below zero."""
    if sums[5] == 0:
        return 0.0, 0.0
    scale = math.sqrt(sums[2] / sums[0]) if sums[2] > 0 else 1.0
    normal = np.array([[sums[0], sums[1] / scale], [sums[1] / scale, sums[2] / scale**2]]) / sums[0]
    target = np.array([sums[3], sums[4] / scale]) / sums[0]
    values, vectors = np.linalg.eigh(normal)
    kept = values > values[-1] * 1e-9  # all batches alike: what is fixed cannot be told from what grows
    root = np.sqrt(values[kept])
    solved, _ = optimize.nnls(root[:, None] * vectors[:, kept].T, (vectors[:, kept].T @ target) / root)
    return float(solved[0]), float(solved[1] / scale)


def _cores(batches: Sequence[Batch], most: int) -> int:
    """Most tasks of a batch that ran at once, in the median: what other queries left to this one."""
    found = []
    for batch in batches:
        begins = np.concatenate([each.tasks.launched for each in _stages(batch)])
        ends = np.concatenate([each.tasks.finished for each in _stages(batch)])
        # At the same instant one ends before the other begins.
        moments = np.concatenate([ends, begins])
        steps = np.concatenate([-np.ones(len(ends)), np.ones(len(begins))])
        order = np.lexsort((steps, moments))
        widest = max(len(each.tasks) for each in _stages(batch))
        running = int(np.cumsum(steps[order]).max())
        # All of its tasks at once: there may have been room for more.
        found.append(most if running >= min(widest, most) else running)
    return max(1, min(most, int(np.median(found))))


def _trigger(batches: Sequence[Batch]) -> float:
    begun = np.array([each.begun for each in batches])
    ended = np.array([each.ended for each in batches])
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


def _limit(batches: Sequence[Batch], partitions: int) -> float | None:
    """The largest batch where several are as large, as far as whole records of each partition let them be."""
    records = np.array([each.records for each in batches])
    most = int(records.max())
    full = records >= most - partitions
    behind = [sum(source.behind or 0 for source in each.sources) for each in batches]
    known = all(source.behind is not None for each in batches for source in each.sources)
    hit = full & (np.array(behind) > 0) if known else full & (np.diff(records, prepend=-1) == 0)
    return float(most) if hit.sum() >= 3 and most > partitions else None


def _arrivals(batches: Sequence[Batch]) -> tuple[Arrivals, tuple[str, ...]]:
    """Records by the time they had arrived: what was taken and what was left, as of each batch's begin."""
    taken = np.cumsum([each.records for each in batches]).astype(float)
    left = [[source.behind for source in each.sources] for each in batches]
    notes: tuple[str, ...] = ()
    if all(each is not None for every in left for each in every) and all(left):
        seen = taken + np.array([sum(each or 0 for each in every) for every in left], float)
    else:
        seen = taken
        notes = ("the source does not tell what waits: what was processed is taken for what arrived",)
    begun = np.array([each.begun for each in batches])
    seen = np.maximum.accumulate(seen)
    begin = float(begun[0])
    end = max(float(batches[-1].ended), float(begun[-1]) + 2 * _INSTANT) - begin
    edges, totals = [0.0, _INSTANT], [0.0, float(seen[0])]
    for at, total in zip((begun - begin)[1:], seen[1:], strict=True):
        if at > edges[-1]:
            edges.append(float(at))
            totals.append(float(total))
    if end > edges[-1] + _INSTANT:  # the last batch's time brings records at the pace of all
        pace = (totals[-1] - totals[1]) / max(edges[-1] - edges[1], _INSTANT)
        edges.append(end)
        totals.append(totals[-1] + pace * (end - edges[-2]))
    return Arrivals(np.array(edges), np.array(totals)), notes


def _shares(batches: Sequence[Batch], partitions: int) -> tuple[Part, ...]:
    """Shares of the partitions: by offsets, else by what tasks read."""
    found = _by_offset(batches)
    if len(found) != partitions:
        found = np.zeros(partitions)
        for batch in batches:
            stage = next(_stages(batch))
            if len(stage.tasks) == partitions:
                np.add.at(found, np.clip(stage.tasks.index, 0, partitions - 1), stage.tasks.records_read)
    total = float(found.sum())
    if total <= 0 or found.max() / total * partitions <= _EVEN or partitions > _MANY_PARTS:
        return (Part(1 / partitions, partitions),)
    return tuple(Part(float(each) / total, 1) for each in np.sort(found)[::-1] if each > 0)


def _by_offset(batches: Sequence[Batch]) -> Floats:
    totals: dict[str, float] = {}
    for batch in batches:
        for source in batch.sources:
            start: Any = source.start
            end: Any = source.end
            if source.taken is None:
                return np.zeros(0)
            for partition, position in end.items():
                totals[partition] = totals.get(partition, 0.0) + max(
                    0, position - start.get(partition, position)
                )
    return np.array(list(totals.values()))


def _uneven(made: QueryTwin, batches: Sequence[Batch]) -> QueryTwin:
    """Add how far tasks of one stage differ beyond their records."""
    costs = made.costs(made.cores)
    wave, per_record = costs.wave / max(1, made.reads), costs.per_record / max(1, made.reads)
    squares, free = 0.0, 0
    for batch in batches:
        for stage in _stages(batch):
            times = _times(stage)
            if len(times) != made.partitions or len(times) < 2:
                continue
            done = ~stage.tasks.failed & ~stage.tasks.speculative
            read = stage.tasks.records_read[done]
            records = read if read.sum() >= batch.records else np.full(len(times), batch.records / len(times))
            off = np.log(times / np.maximum(wave + per_record * records, _INSTANT))
            squares += float(np.square(off - off.mean()).sum())
            free += len(times) - 1
    return replace(made, sigma=math.sqrt(squares / free)) if free else made


def _told(samples: Sequence[_Sample]) -> bool:
    """Whether records of a task vary by a twentieth: below that chance decides what is κ and what is b."""
    weight, records, squares, *_ = sum((each.sums for each in samples), np.zeros(6))
    if records <= 0:
        return False
    mean = records / weight
    return bool(squares / weight - mean**2 > (_VARIES * mean) ** 2)
