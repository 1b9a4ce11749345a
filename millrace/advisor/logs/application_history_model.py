"""Records of one application from its event log: executors, queries, batches, jobs, stages and tasks.

Times are seconds since the epoch, durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from millrace.advisor.logs.task_attempts_as_columns import NO_TASKS, TASK, Flags, Floats, TaskAttempts

__all__ = [
    "NO_TASKS",
    "TASK",
    "Batch",
    "BatchSource",
    "Executor",
    "Flags",
    "Floats",
    "History",
    "InitialRdd",
    "Query",
    "SparkJob",
    "Stage",
    "StateOperator",
    "TaskAttempts",
]


@dataclass(frozen=True)
class InitialRdd:
    """An RDD with which a stage starts.

    Attributes
    ----------
    name
        Spark's name of its operator, such as ``MicroBatchScan kafka`` or ``InMemoryTableScan``.
    cached
        Whether it is kept in memory or on disk after its first computation.
    rdd
        Its number: the same number in two stages means the same data.
    """

    name: str
    cached: bool
    rdd: int


@dataclass(frozen=True)
class Stage:
    """One attempt of a stage.

    Attributes
    ----------
    id, attempt
        Number and attempt, from 0.
    partitions
        Tasks that it needs.
    tasks
        Its task attempts.
    failures
        Number of its task attempts that failed, by the class of the exception, such as ``java.io.IOException``, or Spark's own
        reason, such as ``ExecutorLostFailure``, and by the first line of the message.
    scans
        What it reads: RDDs without parents, and cached ones.
    adaptive
        Whether adaptive query execution chose the number of tasks that read its shuffle.
    """

    id: int
    attempt: int
    partitions: int
    tasks: TaskAttempts
    failures: Mapping[tuple[str, str], int] = field(default_factory=dict)
    scans: tuple[InitialRdd, ...] = ()
    adaptive: bool = False


WITHOUT_START = -1
"""Number of the job that has the stages of all jobs whose start is not in the log."""


@dataclass(frozen=True)
class SparkJob:
    """One action of an application.

    Attributes
    ----------
    id
        Its number.
    execution
        The SQL execution that it belongs to, or ``None``.
    stages
        Those that ran, by number and attempt; skipped ones are not among them.
    site
        Its name in the log: a call site or a description.
    """

    id: int
    execution: int | None
    stages: tuple[Stage, ...]
    site: str


@dataclass(frozen=True)
class BatchSource:
    """Input of a batch from one source.

    Attributes
    ----------
    description
        The connector's own description, such as ``KafkaV2[Subscribe[orders]]``.
    start, end, latest
        Positions by ``topic:partition`` where offsets count records (Kafka), else ``None``.
    rows
        ``numInputRows``: Spark's count, once for each time the rows were computed.
    """

    description: str
    start: Mapping[str, int] | None
    end: Mapping[str, int] | None
    latest: Mapping[str, int] | None
    rows: int

    @property
    def records_by_partition(self) -> Mapping[str, int] | None:
        """Records between start and end by partition, where offsets count records; ``None`` where they do not."""
        return _difference_of_offsets(self.start, self.end)

    @property
    def records_read(self) -> int | None:
        """Records of all partitions between start and end; ``None`` where offsets do not count records."""
        return None if self.records_by_partition is None else sum(self.records_by_partition.values())

    @property
    def records_behind(self) -> int | None:
        """Records between the end of the batch and the latest ones at its start; ``None`` where unknown."""
        left = _difference_of_offsets(self.end, self.latest)
        return None if left is None else sum(left.values())


def _difference_of_offsets(
    low: Mapping[str, int] | None, high: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    if low is None or not high:
        return None
    return {each: max(0, position - low.get(each, position)) for each, position in high.items()}


@dataclass(frozen=True)
class StateOperator:
    """The state that one operator keeps.

    Attributes
    ----------
    name
        Such as ``stateStoreSave``; empty in an older Spark.
    rows, removed
        Rows kept, and rows that this batch removed.
    memory
        Bytes in memory.
    """

    name: str
    rows: int
    removed: int
    memory: int


@dataclass(frozen=True)
class Batch:
    """One micro-batch.

    Attributes
    ----------
    id
        Its number.
    begun
        Epoch seconds at which its trigger fired.
    duration
        ``triggerExecution`` in seconds.
    parts
        Seconds by the names that Spark gives them: ``latestOffset``, ``getBatch``, ``queryPlanning``, ``walCommit``,
        ``addBatch``, ``commitOffsets``, ``triggerExecution``.
    rows
        Input rows of all sources as Spark counted them (:attr:`BatchSource.rows`).
    sources
        Input by source.
    state
        State by operator.
    has_watermark
        Whether the query has a watermark.
    jobs
        Its Spark jobs.
    arrivals
        Epoch seconds at which its oldest and its youngest record arrived, where the core observed them.
    """

    id: int
    begun: float
    duration: float
    parts: Mapping[str, float]
    rows: int
    sources: tuple[BatchSource, ...] = ()
    state: tuple[StateOperator, ...] = ()
    has_watermark: bool = False
    jobs: tuple[SparkJob, ...] = ()
    arrivals: tuple[float, float] | None = None

    @property
    def ended_at(self) -> float:
        """End of the batch, in epoch seconds."""
        return self.begun + self.duration

    @property
    def records(self) -> int:
        """New records of this batch: by offsets where they count records, else the rows that Spark counted."""
        counted = _sum_of_known([each.records_read for each in self.sources])
        return self.rows if counted is None else counted

    @property
    def records_behind(self) -> int | None:
        """Records that this batch left behind; ``None`` where a source does not report the latest ones."""
        return _sum_of_known([each.records_behind for each in self.sources])

    @property
    def stages(self) -> list[Stage]:
        """Stages that ran tasks."""
        return [stage for job in self.jobs for stage in job.stages if len(stage.tasks)]


def _sum_of_known(values: Sequence[int | None]) -> int | None:
    """Return the sum; ``None`` where a value is unknown, or without any."""
    known = [each for each in values if each is not None]
    return sum(known) if known and len(known) == len(values) else None


@dataclass(frozen=True)
class Query:
    """One run of a streaming query.

    Attributes
    ----------
    name
        Its name, or its id where it has none.
    id, run_id
        Of the checkpoint, and of this run.
    started
        Epoch seconds; ``None`` where the log has no time.
    failure
        First line of the exception that ended it, or ``None``.
    batches
        In their order, without duplicates.
    unread_after
        Lines of the log after its last batch that are not read: one of them may be a later batch.
    """

    name: str
    id: str
    run_id: str
    started: float | None
    failure: str | None
    batches: tuple[Batch, ...]
    unread_after: int = 0


@dataclass(frozen=True)
class Executor:
    """One executor.

    Attributes
    ----------
    id
        As Spark names it; ``driver`` where the driver runs the tasks.
    cores
        Task slots.
    added, removed
        Epoch seconds; ``None`` for one that was not removed.
    counted
        Whether the log has only its tasks: its slots are then as many as ran at once, and may be more.
    """

    id: str
    cores: int
    added: float
    removed: float | None
    counted: bool = False


@dataclass(frozen=True)
class History:
    """History of one application.

    Attributes
    ----------
    app_id, name
        As the log names it.
    spark_version
        Such as ``3.5.6``.
    engine
        ``glue``, ``emr``, ``local`` or ``spark``, by its properties.
    started, ended
        Epoch seconds: of the first and the last event.
    complete
        Whether the application's end is in the log.
    properties
        Spark's settings.
    executors
        In the order of their start.
    queries
        Runs of streaming queries in the order of their start.
    jobs
        Spark jobs that no batch started.
    unread
        Lines that are not JSON or lack required fields; the cut last line of a running job is not one.
    cut_off
        Whether the log ends in the middle of a line or of a compressed block.
    lost
        Whether parts of a rolled log were deleted; their content is missing.
    ended_at
        Why reading stopped before the log's end, as the log is above a limit; ``None`` for a complete read.
    """

    app_id: str
    name: str
    spark_version: str
    engine: str
    started: float
    ended: float
    complete: bool
    properties: Mapping[str, str]
    executors: tuple[Executor, ...]
    queries: tuple[Query, ...]
    jobs: tuple[SparkJob, ...] = ()
    unread: int = 0
    cut_off: bool = False
    lost: bool = False
    ended_at: str | None = None

    @property
    def tasks_without_job(self) -> int:
        """Tasks of jobs whose start is not in the log: no batch has them."""
        return sum(len(stage.tasks) for job in self.jobs if job.id == WITHOUT_START for stage in job.stages)

    @property
    def title(self) -> str:
        """Name of the application and Spark's version, for people, as far as the log has them."""
        return f"{self.name or self.app_id or 'an application'}, Spark {self.spark_version}".rstrip()

    @property
    def cores(self) -> int:
        """Task slots that were there for most of the time: the median over its seconds; 0 where the log names no executor.

        An executor that scales away, or overlaps with the lost one that it replaces, is not there for the rest of the run.
        """
        moments = sorted(
            [(each.added, each.cores) for each in self.executors]
            + [(each.removed, -each.cores) for each in self.executors if each.removed is not None]
        )
        if not moments:
            return 0
        slots = np.cumsum([cores for _, cores in moments])
        seconds = np.diff([at for at, _ in moments], append=self.ended) * (slots > 0)
        order = np.argsort(-slots)
        return int(slots[order][np.searchsorted(np.cumsum(seconds[order]), seconds.sum() / 2)])

    @property
    def smallest_executor_cores(self) -> int:
        """Task slots of the smallest executor; 0 where the log names none."""
        return min((each.cores for each in self.executors if each.cores > 0), default=0)
