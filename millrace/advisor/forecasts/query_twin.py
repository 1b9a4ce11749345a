"""Model of a query from its log alone: costs of a batch, arrivals, trigger and limit.

A batch lasts for the time in which nothing of it runs on a core (a: planning, offsets, checkpoint, commits), and for its
stages. The stages that read the source have a task for each partition, and each task costs κ, and b for a record; tasks
after a shuffle are scheduled on the cores again with their times in the log (as Sparklens does). All of it is refitted to
resampled blocks of batches, so that every forecast has an interval (Künsch, *The Jackknife and the Bootstrap for General
Stationary Observations*, Annals of Statistics 17, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from millrace.advisor.logs import query_observations
from millrace.advisor.logs.application_history_model import Batch, Floats, History, Query, Stage
from millrace.advisor.logs.query_observations import INSTANT, successful_task_seconds
from millrace.advisor.logs.statistics import (
    QUARTILES,
    count_startup_batches,
    makespan_of_list_scheduling,
    union_seconds,
)
from millrace.sizing.queries.partition_tasks import EqualPartitions
from millrace.sizing.simulation import Arrivals

LEAST = 8
"""Minimum number of settled batches with records for a forecast."""

MOST = 150
"""Maximum number of batches, the last ones: the next batches are more like them than like those of last week."""

_TOLD_APART = 1e-12
"""Relative difference by which one fit must be better than another: less is rounding."""

_VARIES = 0.05
"""Coefficient of variation of a task's records from which on κ and b can be separated."""

_UNTOLD = "all batches are equally large: what a task costs without records cannot be told from its records"


@dataclass(frozen=True)
class BatchDurationModel:
    """Parameters of a batch's duration on so many cores.

    Attributes
    ----------
    overhead, overhead_sigma
        a, seconds in which nothing runs on a core: its mean, and the standard deviation of its logarithm.
    wave
        κ, seconds of a task besides its records, for all stages that read.
    per_record
        b, core-seconds of a record, for all stages that read.
    rest
        Seconds of the stages behind a shuffle, by cores: (for each batch, for each record).
    """

    overhead: float
    overhead_sigma: float
    wave: float
    per_record: float
    rest: tuple[float, float]


@dataclass(frozen=True, eq=False)
class QueryTwin:
    """Model of a query from its log.

    Attributes
    ----------
    name, run_id
        Name of the query, and the run in the log.
    cores
        Cores that its tasks had at once.
    partitions
        P: tasks of a stage that reads.
    parts
        Their shares of the records.
    ranges
        Records of each of the topic's partitions, whose ranges of offsets Kafka's reader splits; empty for other sources.
    trigger
        Seconds; 0 where batches run back to back, or wait for records.
    limit
        Records that end a batch, or ``None`` where the log shows none.
    reads
        Stages of a batch that read the source: more than one computes it more than once.
    arrivals
        They start one interval before the first batch; all records that wait for it arrive in that interval.
    sigma
        Standard deviation of the logarithm of a task's time, beyond its records.
    durations, records, ended
        Of the batches: seconds, records, and their ends, in seconds from the start of the arrivals.
    told
        Whether batches differ enough in their records to separate κ and b.
    notes
        What the log does not show.
    """

    name: str
    run_id: str
    cores: int
    partitions: int
    parts: tuple[EqualPartitions, ...]
    ranges: Floats
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
    _samples: tuple[_BatchSample, ...] = field(repr=False)

    @property
    def records_per_second(self) -> float:
        """Records that arrive in a second, without those that waited for the first batch."""
        begin = float(self.arrivals.times[1])
        waited = self.arrivals.arrived_before(begin)
        return (self.arrivals.records - waited) / (self.arrivals.seconds - begin)

    def fit_batch_durations(
        self, cores: int, drawn: Sequence[int] | None = None, fixed: float = 0.5
    ) -> BatchDurationModel:
        """Fit the durations of batches on so many cores.

        Parameters
        ----------
        cores
            c.
        drawn
            Batches, from :meth:`resampled_batch_indexes`; by default all.
        fixed
            Share of a task's time that is κ, where κ and b cannot be separated: both ends are possible.
        """
        samples = self._samples if drawn is None else [self._samples[n] for n in drawn]
        idle = np.log([max(each.idle, INSTANT) for each in samples])
        # By quantiles: one batch that waited for something else must not count for the others.
        spread = float(np.subtract(*np.percentile(idle, [75, 25]))) / QUARTILES
        overhead = math.exp(float(np.median(idle)) + spread * spread / 2)
        sums: Floats = sum((each.sums for each in samples), np.zeros(6))
        wave, per_record = _fit_fixed_and_per_record(sums)
        if not self.told and sums[1] > 0:
            task = sums[3] / sums[0]
            wave, per_record = float(fixed * task), float((1 - fixed) * task * sums[0] / sums[1])
        passes = float(np.mean([each.passes for each in samples]))
        rest = np.array(
            [math.fsum(makespan_of_list_scheduling(n, cores) for n in each.others) for each in samples]
        )
        records = np.array([each.records for each in samples])
        behind = _fit_fixed_and_per_record(_least_squares_sums(records, rest, np.maximum(rest, INSTANT)))
        return BatchDurationModel(overhead, spread, wave * passes, per_record * passes, behind)

    def resampled_batch_indexes(self, number: int) -> Iterator[list[int]]:
        """Yield resampled batches, in blocks, as neighbours are alike."""
        count = len(self._samples)
        block = max(1, round(count ** (1 / 3)))
        random = np.random.default_rng(count)
        for _ in range(number):
            starts = random.integers(0, count - block + 1, size=-(-count // block))
            yield [int(start) + n for start in starts for n in range(block)][:count]


@dataclass(frozen=True)
class _BatchSample:
    """Data of one batch for the fit of the costs."""

    records: float
    idle: float
    sums: Floats
    passes: int
    others: tuple[Floats, ...]


def twin_of_query(history: History, query: Query) -> QueryTwin | None:
    """Return the twin of a query, or ``None`` when its log has too few settled batches with tasks."""
    first = count_startup_batches([each.duration for each in query.batches])
    batches = [each for each in query.batches[first:] if each.records and each.stages][-MOST:]
    if len(batches) < LEAST or history.cores < 1:
        return None
    partitions, cores = (
        query_observations.observed_partition_count(batches),
        query_observations.median_tasks_at_once(batches, history.cores),
    )
    # Errors are relative, so weights come from a first fit: weights from the times themselves would favour short ones.
    first_guess = _fit_fixed_and_per_record(
        sum((_batch_sample(each, partitions, cores, None).sums for each in batches), np.zeros(6))
    )
    samples = tuple(_batch_sample(each, partitions, cores, first_guess) for each in batches)
    trigger = query_observations.observed_trigger_seconds(batches)
    # The records of the first batch arrive in a trigger, or in the usual time between two batches.
    usual = max(INSTANT, float(np.median(np.diff([each.begun for each in batches]))))
    ahead = trigger if trigger > 0 else usual
    ranges = query_observations.records_by_partition(batches)
    arrivals, notes = query_observations.observed_arrivals(batches, ahead)
    told = _do_records_vary(samples)
    twin_ = QueryTwin(
        name=query.name,
        run_id=query.run_id,
        cores=cores,
        partitions=partitions,
        parts=query_observations.partition_shares(batches, partitions),
        ranges=ranges[ranges > 0],
        trigger=trigger,
        limit=query_observations.observed_batch_limit(batches, partitions),
        reads=round(float(np.median([each.passes for each in samples]))),
        arrivals=arrivals,
        sigma=0.0,
        durations=np.array([each.duration for each in batches]),
        records=np.array([each.records for each in batches], float),
        ended=np.array([each.ended_at - batches[0].begun + ahead for each in batches]),
        told=told,
        notes=notes if told else (*notes, _UNTOLD),
        _samples=samples,
    )
    return _with_task_spread(twin_, batches)


def _batch_sample(
    batch: Batch, partitions: int, cores: int, guess: tuple[float, float] | None
) -> _BatchSample:
    begins, ends, packed = [], [], 0.0
    sums, passes, others = np.zeros(6), 0, []
    for stage in batch.stages:
        begins.append(stage.tasks.successful.launched)
        ends.append(stage.tasks.successful.finished)
        times = successful_task_seconds(stage)
        packed += makespan_of_list_scheduling(times, cores)
        if len(times) != partitions:
            others.append(times)
            continue
        records = _records_per_task(stage, batch)
        expected = np.ones(len(times)) if guess is None else guess[0] + guess[1] * records
        sums = sums + _least_squares_sums(records, times, np.maximum(expected, INSTANT))
        passes += 1
    begun, ended = np.concatenate(begins), np.concatenate(ends)
    working = union_seconds(np.maximum(begun, batch.begun), np.minimum(ended, batch.ended_at))
    # Failed attempts make others wait: the time of tasks beyond their own counts as idle time like any other. Parallel jobs
    # of a batch take less than one after the other.
    idle = max(0.0, batch.duration - min(working, packed))
    return _BatchSample(float(batch.records), idle, sums, passes, tuple(others))


def _records_per_task(stage: Stage, batch: Batch) -> Floats:
    """Return the records of each task that succeeded; divided evenly where the connector does not count them."""
    read = stage.tasks.successful.records_read.astype(float)
    return read if read.sum() >= batch.records else np.full(len(read), batch.records / len(read))


def _least_squares_sums(records: Floats, times: Floats, expected: Floats) -> Floats:
    """Return the sums of weighted least squares of times on (1, records), weights 1/expected²."""
    weights = 1 / np.square(expected)
    terms = (weights, weights * records, weights * records**2, weights * times, weights * times * records)
    return np.array([*(np.sum(each) for each in terms), len(times)])


def _fit_fixed_and_per_record(sums: Floats) -> tuple[float, float]:
    """Solve for (fixed, per record), neither below zero."""
    if sums[5] == 0:
        return 0.0, 0.0
    scale = math.sqrt(sums[2] / sums[0]) if sums[2] > 0 else 1.0
    normal = np.array([[sums[0], sums[1] / scale], [sums[1] / scale, sums[2] / scale**2]]) / sums[0]
    target = np.array([sums[3], sums[4] / scale]) / sums[0]
    values, vectors = np.linalg.eigh(normal)
    # With equal batches, fixed costs cannot be separated from growing ones.
    significant = values > values[-1] * 1e-9
    root = np.sqrt(values[significant])
    terms, wanted = root[:, None] * vectors[:, significant].T, (vectors[:, significant].T @ target) / root
    # The best solution without negative parts is the least squares of its nonzero parts: for two there are three choices.
    choices = ([0], [1], [0, 1]) if significant.all() else ([0], [1])
    solved, left = np.zeros(2), float(np.linalg.norm(wanted))
    least = left * _TOLD_APART
    for parts in choices:
        coefficients = np.zeros(2)
        coefficients[parts] = np.linalg.lstsq(terms[:, parts], wanted, rcond=None)[0]
        off = float(np.linalg.norm(terms @ coefficients - wanted))
        if (coefficients >= 0).all() and off < left - least:
            solved, left = coefficients, off
    return float(solved[0]), float(solved[1] / scale)


def _with_task_spread(made: QueryTwin, batches: Sequence[Batch]) -> QueryTwin:
    """Add the spread of a stage's tasks beyond their records."""
    costs = made.fit_batch_durations(made.cores)
    wave, per_record = costs.wave / max(1, made.reads), costs.per_record / max(1, made.reads)
    squares, free = 0.0, 0
    for batch in batches:
        for stage in batch.stages:
            times = successful_task_seconds(stage)
            if len(times) != made.partitions or len(times) < 2:
                continue
            expected = wave + per_record * _records_per_task(stage, batch)
            off = np.log(times / np.maximum(expected, INSTANT))
            squares += float(np.square(off - off.mean()).sum())
            free += len(times) - 1
    return replace(made, sigma=math.sqrt(squares / free)) if free else made


def _do_records_vary(samples: Sequence[_BatchSample]) -> bool:
    """Check that records of a task vary by a twentieth: below that, chance separates κ and b."""
    weight, records, squares, *_ = sum((each.sums for each in samples), np.zeros(6))
    if records <= 0:
        return False
    mean = records / weight
    return bool(squares / weight - mean**2 > (_VARIES * mean) ** 2)
