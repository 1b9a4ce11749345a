"""Results of a simulation: ages, backlog, executors and dollars, as arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from millrace.sizing.simulation.cumulative_arrivals import Arrivals, Floats
from millrace.sizing.simulation.scenario_model import Scenario

LEAST_BILLED = 60.0
"""Least seconds that Glue and EMR Serverless bill for a worker (their price pages)."""


class CommittedBatch(NamedTuple):
    """A committed batch.

    Attributes
    ----------
    start, end
        Seconds.
    records, backlog
        Records of the batch, and those that waited at its start.
    spans
        Group of partitions, and the records of the stream from which and to which it was read.
    tasks
        Number of tasks.
    """

    start: float
    end: float
    records: float
    backlog: float
    spans: Sequence[tuple[int, float, float]]
    tasks: int


class RepeatedBatches(NamedTuple):
    """Batches that are like the last ``pattern`` ones, ``number`` times.

    Attributes
    ----------
    seconds, backlog
        Difference between a batch and the next that is like it.
    lanes
        Records of the stream between the two, by group of partitions.
    """

    seconds: float
    backlog: float
    lanes: Mapping[int, float]
    number: int
    pattern: int


@dataclass(frozen=True, eq=False)
class Ages:
    """Ages of records at their commit, as weighted spans of evenly distributed ages.

    Attributes
    ----------
    low, high
        Seconds.
    records
        Number of records in each span.
    """

    low: Floats
    high: Floats
    records: Floats

    @cached_property
    def _cumulative_distribution(self) -> tuple[Floats, Floats]:
        # The density is a sum of constant densities; it changes at each end of a span.
        high = np.maximum(self.high, self.low + 1e-9)
        density = self.records / (high - self.low)
        places = np.concatenate((self.low, high))
        order = np.argsort(places, kind="stable")
        slopes = np.cumsum(np.concatenate((density, -density))[order])
        places = places[order]
        rising = np.maximum(slopes[:-1], 0.0) * np.diff(places)
        return places, np.concatenate(([0.0], np.cumsum(rising)))

    def percentile(self, percent: float) -> float:
        """Return the age in seconds that a percentage of the records does not exceed; NaN without records."""
        if not len(self.records):
            return float("nan")
        places, below = self._cumulative_distribution
        return float(np.interp(percent / 100 * below[-1], below, places))

    @property
    def oldest(self) -> float:
        """Age of the oldest record in seconds."""
        return float(self.high.max()) if len(self.high) else float("nan")

    @property
    def mean(self) -> float:
        """Mean age in seconds."""
        if not len(self.records):
            return float("nan")
        return float(np.average((self.low + self.high) / 2, weights=self.records))

    def share_within(self, seconds: float) -> float:
        """Return the share of records that were no older; NaN without records."""
        if not len(self.records):
            return float("nan")
        places, below = self._cumulative_distribution
        return float(np.interp(seconds, places, below) / below[-1])


@dataclass(frozen=True, eq=False)
class QueryResult:
    """Result of one query.

    Attributes
    ----------
    name
        In its job.
    arrived, committed, waiting
        Records until the end; each record that arrived is committed or waiting.
    starts, ends, records, backlog
        For each batch: seconds, seconds, records, and the backlog at its start.
    arrivals
        Of its source.
    spans
        Returns the ages of records, the seconds at which each span of these was committed, and the age of each batch's oldest record;
        computed once, and only if asked for, for all jobs with this result.
    """

    name: str
    arrived: float
    committed: float
    waiting: float
    starts: Floats
    ends: Floats
    records: Floats
    backlog: Floats
    arrivals: Arrivals
    spans: Callable[[], tuple[Ages, Floats, Floats]]

    @property
    def ages(self) -> Ages:
        """Ages of all committed records."""
        return self.spans()[0]

    @property
    def oldest_age_by_batch(self) -> Floats:
        """Age in seconds of each batch's oldest record at its commit."""
        return self.spans()[2]

    def ages_since(self, begin: float) -> Ages:
        """Return the ages of the records that were committed from a time on, in seconds."""
        return _ages_since(self.spans, begin)

    def share_in_time(self, sla: float, end: float, *, since: float = 0.0) -> float | None:
        """Return the share of records that were committed in time, among those that were committed or are already too late.

        Waiting records have no age. If only committed records counted, a job that commits nothing would meet the SLA best.

        Parameters
        ----------
        sla
            Seconds within which a record must be committed.
        end
            End of the simulation, in seconds.
        since
            Seconds from which commits count.

        Returns
        -------
        float or None
            None if no record was committed or too late.
        """
        ages = self.ages_since(since)
        committed = float(ages.records.sum())
        judged = committed + max(0.0, self.arrivals.arrived_before(end - sla) - self.committed)
        if not judged:
            return None
        return (ages.share_within(sla) if committed else 0.0) * committed / judged

    def waiting_at(self, times: Floats) -> Floats:
        """Return the backlog at each time: records that had arrived and were not committed."""
        arrived = np.interp(times, self.arrivals.times, self.arrivals.totals)
        done = np.concatenate(([0.0], np.cumsum(self.records)))
        return np.asarray(
            np.maximum(arrived - done[np.searchsorted(self.ends, times, side="right")], 0.0), dtype=np.float64
        )

    @property
    def most_waiting(self) -> float:
        """Largest backlog at any time; it occurs just before a batch ends, or at the end."""
        arrived = np.interp(self.ends, self.arrivals.times, self.arrivals.totals)
        before = np.cumsum(self.records) - self.records
        return float(np.max(arrived - before, initial=self.waiting))


@lru_cache(maxsize=2048)
def _ages_since(spans: Callable[[], tuple[Ages, Floats, Floats]], begin: float) -> Ages:
    # Jobs of a large environment are often alike.
    ages, committed_at, _ = spans()
    late = committed_at >= begin
    return Ages(ages.low[late], ages.high[late], ages.records[late])


@dataclass(frozen=True, eq=False)
class JobResult:
    """Result of a job over some time.

    Attributes
    ----------
    seconds
        Duration.
    queries
        By name.
    times, executors
        Seconds at which the number of executors changed, and the new number.
    worker_seconds
        Billed seconds, including the driver's, at least a minute for each worker.
    usd
        Cost of these seconds.
    usd_per_worker_hour
        Price of one worker.
    """

    seconds: float
    queries: Mapping[str, QueryResult]
    times: Floats
    executors: NDArray[np.int64]
    worker_seconds: float
    usd: float
    usd_per_worker_hour: float
    driver: tuple[tuple[float, float], ...]

    def executors_at(self, times: Floats) -> NDArray[np.int64]:
        """Return the number of executors at each time."""
        place = np.searchsorted(self.times, times, side="right") - 1
        return np.asarray(self.executors[np.maximum(place, 0)], dtype=np.int64)

    def dollars_spent_until(self, times: Floats) -> Floats:
        """Return the cost until each time in dollars, by the second and without the least billed minute of each worker."""
        edges = np.append(self.times, self.seconds)
        spent = np.concatenate(([0.0], np.cumsum(self.executors * np.diff(edges))))
        workers = np.interp(times, edges, spent)
        driver = sum(np.clip(times - begin, 0.0, end - begin) for begin, end in self.driver)
        return np.asarray((workers + driver) / 3600 * self.usd_per_worker_hour, dtype=np.float64)

    @property
    def mean_executors(self) -> float:
        """Mean number of executors over the duration."""
        edges = np.append(self.times, self.seconds)
        return float(np.sum(self.executors * np.diff(edges)) / self.seconds)


def query_result(
    name: str,
    arrivals: Arrivals,
    batches: Sequence[CommittedBatch | RepeatedBatches],
    weights: Sequence[float],
    seconds: float,
    waiting: float,
) -> QueryResult:
    """Combine a query's batches into its result.

    Parameters
    ----------
    weights
        Share of the records of each group of partitions.
    """
    table = _rows_of_batches(batches, len(weights))
    commits = []
    for lane, weight in enumerate(weights):
        first, cuts, at = table[:, (4 + 2 * lane, 5 + 2 * lane, 1)][
            table[:, 5 + 2 * lane] > table[:, 4 + 2 * lane]
        ].T
        if len(first):
            commits.append((weight, np.concatenate((first[:1], cuts)), at))
    return QueryResult(
        name=name,
        arrived=arrivals.arrived_before(seconds),
        committed=float(sum(weight * (cuts[-1] - cuts[0]) for weight, cuts, _ in commits)),
        waiting=waiting,
        starts=table[:, 0],
        ends=table[:, 1],
        records=table[:, 2],
        backlog=table[:, 3],
        arrivals=arrivals,
        spans=cache(partial(_ages_commits_and_oldest_by_batch, arrivals, commits, table[:, 1])),
    )


def _rows_of_batches(batches: Sequence[CommittedBatch | RepeatedBatches], lanes: int) -> Floats:
    """Return a row for each batch: start, end, records, backlog, and the begin and end of its records in each lane, 0 where it has none.

    Batches that repeat others are these, shifted each time.
    """
    width = 4 + 2 * lanes
    found, own = [np.empty((0, width))], list[list[float]]()
    for each in batches:
        if isinstance(each, CommittedBatch):
            row = [*each[:4], *[0.0] * (2 * lanes)]
            for lane, first, last in each.spans:
                row[4 + 2 * lane : 6 + 2 * lane] = first, last
            own.append(row)
        else:
            shift = [each.seconds, each.seconds, 0.0, each.backlog]
            shift += [records for lane in range(lanes) for records in [each.lanes.get(lane, 0.0)] * 2]
            found.append(np.asarray(own))
            times = np.arange(1.0, each.number + 1)[:, None, None]
            found.append((found[-1][-each.pattern :] + times * np.asarray(shift)).reshape(-1, width))
            own = []
    return np.concatenate((*found, np.asarray(own, dtype=np.float64).reshape(-1, width)))


def _ages_commits_and_oldest_by_batch(
    arrivals: Arrivals, commits: Sequence[tuple[float, Floats, Floats]], ends: Floats
) -> tuple[Ages, Floats, Floats]:
    lows, highs, masses, moments = [], [], [], []
    oldest = np.zeros(len(ends))
    for weight, cuts, at in commits:
        edges, first, last = arrivals.spans_with_arrival_times(cuts)
        # Each span is within one batch, because cuts are edges, too.
        place = np.searchsorted(cuts, (edges[:-1] + edges[1:]) / 2) - 1
        lows.append(at[place] - last)
        highs.append(at[place] - first)
        masses.append(np.diff(edges) * weight)
        moments.append(at[place])
        np.maximum.at(oldest, np.searchsorted(ends, at[place]), highs[-1])
    if not lows:
        return Ages(np.empty(0), np.empty(0), np.empty(0)), np.empty(0), oldest
    ages = Ages(np.concatenate(lows), np.concatenate(highs), np.concatenate(masses))
    return ages, np.concatenate(moments), oldest


def job_result(
    scenario: Scenario,
    queries: dict[str, QueryResult],
    lives: Sequence[tuple[float, float]],
    driver: Sequence[tuple[float, float]],
) -> JobResult:
    """Combine the results of a job's queries."""
    changes: dict[float, int] = {0.0: 0}
    for born, died in lives:
        changes[born] = changes.get(born, 0) + 1
        if died < scenario.seconds:
            changes[died] = changes.get(died, 0) - 1
    times = np.asarray(sorted(changes))
    executors = np.cumsum([changes[time] for time in times.tolist()])
    billed = sum(max(LEAST_BILLED, died - born) for born, died in (*lives, *driver))
    return JobResult(
        seconds=scenario.seconds,
        queries=MappingProxyType(queries),
        times=times,
        executors=executors.astype(np.int64),
        worker_seconds=billed,
        usd=billed / 3600 * scenario.usd_per_worker_hour,
        usd_per_worker_hour=scenario.usd_per_worker_hour,
        driver=tuple(driver),
    )
