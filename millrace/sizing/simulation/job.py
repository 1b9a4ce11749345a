"""What is simulated: queries with their work, the workers, and what happens to them."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.scaling import Scaling
from millrace.sizing.simulation.tasks import Part, Tasks, makespan


@dataclass(frozen=True)
class Reshard:
    """At ``at`` seconds the stream's partitions become others; what the old ones still hold is read first."""

    at: float
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Outage:
    """From ``at`` seconds the job is away for ``seconds``; the current batch is lost and starts from the beginning."""

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
        a, seconds of a batch whatever its size.
    per_record
        b, core-seconds for one record.
    trigger
        T in seconds; 0 runs batches back to back.
    source
        When its records arrive; or the name of the query of the same job whose commits it reads.
    parts
        Partitions of its source; empty where a batch divides evenly over all its cores.
    share
        Of the job's cores. Queries get the cores that the plan gives each of them; those that one leaves
        idle help no other, so a job with several errs on the slow side.
    limit
        L, records of a batch over all partitions, each in proportion to what waits (Kafka).
    limit_per_part
        Records of a batch for each partition (Kinesis); derived again after a reshard, so that all partitions
        together keep it.
    wave
        κ, seconds of each task besides its records.
    repartition
        Partitions after a shuffle, or ``None``.
    repartition_overhead
        Extra work for each record of a shuffle, as a share.
    overhead_sigma
        Standard deviation of the logarithm of a batch's overhead: 0 where every batch takes the same.
    hand_over
        Seconds that a partition takes to hand one record over; 0 where nothing bounds it.
    alone
        Whether nobody else reads the partitions.
    """

    name: str
    overhead: float
    per_record: float
    trigger: float
    source: Arrivals | str
    parts: tuple[Part, ...] = ()
    share: float = 1.0
    limit: float | None = None
    limit_per_part: float | None = None
    wave: float = 0.0
    repartition: int | None = None
    repartition_overhead: float = 0.1
    overhead_sigma: float = 0.0
    hand_over: float = 0.0
    alone: bool = True

    def hand_over_seconds(self, taken: list[tuple[float, int]], cores: int) -> float:
        """Return the seconds in which the partitions hand a batch over, each to one core at a time."""
        if not self.hand_over:
            return 0.0
        return makespan([Tasks(self.hand_over * each, count) for each, count in taken if each > 0], cores)

    def batch_tasks(self, taken: list[tuple[float, int]], cores: int) -> list[Tasks]:
        """Return the tasks of a batch, longest first.

        Parameters
        ----------
        taken
            Records for each partition, and how many partitions take so many. A partition without any is no
            task.
        cores
            That the query has.
        """
        records = sum(each * count for each, count in taken)
        if self.repartition is not None or not self.parts:
            count = self.repartition or max(1, cores)
            extra = 1 + (self.repartition_overhead if self.repartition is not None else 0.0)
            return [Tasks(self.wave + self.per_record * extra * records / count, count)]
        found = [Tasks(self.wave + self.per_record * each, count) for each, count in taken if each > 0]
        return sorted(found, key=lambda one: one.seconds, reverse=True)


@dataclass(frozen=True)
class Scenario:
    """One job over some time.

    Attributes
    ----------
    seconds
        How long; records that arrive later are left out.
    queries
        A query that reads another's commits comes after it.
    executor_cores
        Tasks that run at once on one executor.
    scaling
        How many executors there are.
    usd_per_worker_hour
        Of one worker; the driver is one more, all the time that the job runs.
    reshards
        By query.
    outages
        Of the job, in the order of time.
    driver_start
        Seconds from the end of an outage until the first batch may begin.
    sigma
        Standard deviation of the logarithm of a task's time: 0 where every task takes what the model says.
    seed
        Of all chance.
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
