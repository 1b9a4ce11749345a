"""Input of a simulation: queries with their work, workers, outages, reshards."""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterable
from dataclasses import dataclass

from millrace.sizing.queries.partition_tasks import EqualPartitions, EqualTasks, schedule_seconds
from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.scaling_policies import Scaling


@dataclass(frozen=True)
class Reshard:
    """Change of the stream's partitions at ``at`` seconds; records in the old ones are read first."""

    at: float
    parts: tuple[EqualPartitions, ...]


@dataclass(frozen=True)
class Outage:
    """Outage of the job from ``at`` on, for ``seconds``; the current batch is lost and repeated from its start."""

    at: float
    seconds: float


@dataclass(frozen=True)
class QueryLoad:
    """One query.

    Attributes
    ----------
    name
        In its job.
    overhead
        a, fixed seconds of a batch.
    per_record
        b, core-seconds for one record.
    trigger
        T in seconds; 0 runs batches back to back.
    source
        Arrivals of its records; or the name of the query of the same job whose commits it reads.
    parts
        Partitions of its source; empty if a batch divides evenly into tasks.
    tasks
        Number of these; 0 for one on each core of the job.
    limit
        L, records of a batch over all partitions, each in proportion to its backlog (Kafka).
    limit_per_part
        Records of a batch for each partition (Kinesis); recomputed after a reshard, so that the total
        stays the same.
    wave
        κ, seconds of each task in addition to its records.
    repartition
        Partitions after a shuffle, or ``None``.
    repartition_overhead
        Extra work for each record of a shuffle, as a share.
    overhead_sigma
        Standard deviation of the logarithm of a batch's overhead: 0 if all batches have the same.
    hand_over
        Seconds in which a partition delivers one record; 0 without such a limit.
    alone
        Whether no other query reads the partitions.
    stage
        Stage of a bounded run: 1 begins when all queries of stage 0 have ended theirs.
    """

    name: str
    overhead: float
    per_record: float
    trigger: float
    source: Arrivals | str
    parts: tuple[EqualPartitions, ...] = ()
    tasks: int = 0
    limit: float | None = None
    limit_per_part: float | None = None
    wave: float = 0.0
    repartition: int | None = None
    repartition_overhead: float = 0.1
    overhead_sigma: float = 0.0
    hand_over: float = 0.0
    alone: bool = True
    stage: int = 0

    def delivery_seconds(self, records_by_partition: list[tuple[float, int]], cores: int) -> float:
        """Return the seconds in which the partitions deliver a batch, each to one core at a time."""
        if not self.hand_over:
            return 0.0
        return schedule_seconds(
            [EqualTasks(self.hand_over * each, count) for each, count in records_by_partition if each > 0],
            cores,
        )

    def batch_tasks(self, records_by_partition: list[tuple[float, int]], cores: int) -> list[EqualTasks]:
        """Return the tasks of a batch, longest first.

        Parameters
        ----------
        records_by_partition
            Records for each partition, and the number of partitions with that many. A partition without records has
            no task.
        cores
            Cores of the job.
        """
        if self.repartition is not None or not self.parts:
            records = sum(each * count for each, count in records_by_partition)
            count = self.repartition or self.tasks or cores
            extra = 1 + (self.repartition_overhead if self.repartition is not None else 0.0)
            return [EqualTasks(self.wave + self.per_record * extra * records / count, count)]
        found = [
            EqualTasks(self.wave + self.per_record * each, count)
            for each, count in records_by_partition
            if each > 0
        ]
        return sorted(found, key=lambda one: one.seconds, reverse=True)


@dataclass(frozen=True)
class BoundedRuns:
    """Runs of a job that runs in turns.

    Attributes
    ----------
    every
        Seconds from the start of one run to the start of the next.
    fast, slow
        Least and most seconds until a run's first batch.
    billed
        Seconds before the first batch from which workers are billed.
    least
        Least billed seconds.
    """

    every: float
    fast: float
    slow: float
    billed: float
    least: float

    def seconds_to_first_batch(self, begin: float, seed: int) -> float:
        """Return the seconds from a run's start at ``begin`` to its first batch; the same for all queries of the run."""
        return random.Random(f"{seed} {begin:.3f}").uniform(self.fast, self.slow)

    def billed_spans(
        self, seconds: float, seed: int, batches: Iterable[tuple[float, float]]
    ) -> list[tuple[float, float]]:
        """Return begin and end of the billed time of each run.

        Parameters
        ----------
        seconds
            Duration of the simulation.
        batches
            Seconds of start and end of each batch of all queries.
        """
        starts = [number * self.every for number in range(math.ceil(seconds / self.every))]
        begins = [start + self.seconds_to_first_batch(start, seed) for start in starts]
        ends = [begin - self.billed + self.least for begin in begins]
        for start, end in batches:
            run = max(0, bisect.bisect_right(begins, start + 1e-6) - 1)
            ends[run] = max(ends[run], end)
        spans, last = [], 0.0
        for begin, end in zip(begins, ends, strict=True):
            spans.append((max(last, begin - self.billed), max(last, end)))
            last = spans[-1][1]
        return [(begin, min(end, seconds)) for begin, end in spans if begin < min(end, seconds)]


@dataclass(frozen=True)
class Scenario:
    """One job over some time.

    Attributes
    ----------
    seconds
        Duration; records that arrive later are left out.
    queries
        A query that reads another's commits comes after it.
    executor_cores
        Tasks that run at once on one executor.
    scaling
        Policy for the number of executors.
    usd_per_worker_hour
        Price of one worker; the driver is an additional one, all the time that the job runs.
    reshards
        By query.
    outages
        Outages of the job, in the order of time.
    driver_start
        Seconds from the end of an outage until the first batch may begin.
    sigma
        Standard deviation of the logarithm of a task's time: 0 if every task takes the time of the model.
    seed
        Seed of all random numbers.
    runs
        Its bounded runs; None for a job that runs all the time.
    """

    seconds: float
    queries: tuple[QueryLoad, ...]
    executor_cores: int
    scaling: Scaling
    usd_per_worker_hour: float = 0.0
    reshards: tuple[tuple[str, Reshard], ...] = ()
    outages: tuple[Outage, ...] = ()
    driver_start: float = 0.0
    sigma: float = 0.0
    seed: int = 1
    runs: BoundedRuns | None = None

    @property
    def separate_outages(self) -> list[Outage]:
        """Its outages in order; one that begins before the job is back from another is merged with it."""
        found: list[Outage] = []
        for outage in sorted(self.outages, key=lambda each: each.at):
            last = found[-1] if found else None
            if last is None or outage.at > last.at + last.seconds + self.driver_start:
                found.append(outage)
            else:
                end = max(last.at + last.seconds, outage.at + outage.seconds)
                found[-1] = Outage(last.at, end - last.at)
        return found
