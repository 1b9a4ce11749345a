"""What one application did, as its event log tells: executors, queries, batches, jobs, stages and tasks.

Times are seconds since the epoch, durations are seconds, sizes are bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]

TASK = np.dtype(
    [
        *((name, np.float64) for name in ("launched", "finished", "run", "cpu", "gc", "delay", "fetch_wait")),
        *((name, np.int64) for name in ("records_read", "bytes_read", "records_written", "bytes_written")),
        *((name, np.int64) for name in ("shuffle_records_read", "shuffle_bytes_read")),
        *((name, np.int64) for name in ("shuffle_records_written", "shuffle_bytes_written", "spilled")),
        *((name, np.int32) for name in ("index", "attempt", "executor")),
        ("failed", np.bool_),
        ("speculative", np.bool_),
    ]
)
"""One task attempt: see :class:`Tasks`."""


@dataclass(frozen=True, eq=False)
class Tasks:
    """The task attempts of one stage attempt, in the order in which they ended: a column for each figure.

    One table instead of an array for each figure: an endless job has many stages of few tasks.

    Attributes
    ----------
    table
        A row of type :data:`TASK` for each attempt.
    """

    table: NDArray[Any]

    @classmethod
    def of(cls, **columns: Sequence[float] | NDArray[Any]) -> Tasks:
        """Make tasks from columns of equal length; those left out are 0."""
        table = np.zeros(max((len(each) for each in columns.values()), default=0), TASK)
        for name, values in columns.items():
            table[name] = values
        return cls(table)

    def __len__(self) -> int:
        return len(self.table)

    @property
    def launched(self) -> Floats:
        """Epoch seconds."""
        return self.table["launched"]

    @property
    def finished(self) -> Floats:
        """Epoch seconds."""
        return self.table["finished"]

    @property
    def duration(self) -> Floats:
        """Seconds from launch to end."""
        return self.finished - self.launched

    @property
    def run(self) -> Floats:
        """Seconds that the executor ran it."""
        return self.table["run"]

    @property
    def cpu(self) -> Floats:
        """Seconds of the JVM thread's CPU time; what a Python worker computes is not in it."""
        return self.table["cpu"]

    @property
    def gc(self) -> Floats:
        """Seconds of garbage collection."""
        return self.table["gc"]

    @property
    def delay(self) -> Floats:
        """Seconds between the scheduler and the executor: what is neither running nor (de)serialising."""
        return self.table["delay"]

    @property
    def fetch_wait(self) -> Floats:
        """Seconds of waiting for shuffled blocks."""
        return self.table["fetch_wait"]

    @property
    def records_read(self) -> Ints:
        """Records read from sources and caches."""
        return self.table["records_read"]

    @property
    def bytes_read(self) -> Ints:
        """Bytes read from sources and caches; 0 where a connector does not count."""
        return self.table["bytes_read"]

    @property
    def records_written(self) -> Ints:
        """Records written to files."""
        return self.table["records_written"]

    @property
    def bytes_written(self) -> Ints:
        """Bytes written to files."""
        return self.table["bytes_written"]

    @property
    def shuffle_records_read(self) -> Ints:
        """Records read from a shuffle."""
        return self.table["shuffle_records_read"]

    @property
    def shuffle_bytes_read(self) -> Ints:
        """Bytes read from a shuffle."""
        return self.table["shuffle_bytes_read"]

    @property
    def shuffle_records_written(self) -> Ints:
        """Records written to a shuffle."""
        return self.table["shuffle_records_written"]

    @property
    def shuffle_bytes_written(self) -> Ints:
        """Bytes written to a shuffle."""
        return self.table["shuffle_bytes_written"]

    @property
    def spilled(self) -> Ints:
        """Bytes spilled to disk."""
        return self.table["spilled"]

    @property
    def index(self) -> NDArray[np.int32]:
        """Partition."""
        return self.table["index"]

    @property
    def attempt(self) -> NDArray[np.int32]:
        """Attempt, from 0."""
        return self.table["attempt"]

    @property
    def executor(self) -> NDArray[np.int32]:
        """Position in the history's executors; -1 where the log does not say."""
        return self.table["executor"]

    @property
    def failed(self) -> Flags:
        """Whether it failed; a killed second copy of a task did not."""
        return self.table["failed"]

    @property
    def speculative(self) -> Flags:
        """Whether it is a second copy of a slow task."""
        return self.table["speculative"]


NO_TASKS = Tasks.of()


@dataclass(frozen=True)
class Failure:
    """Why tasks of a stage failed.

    Attributes
    ----------
    error
        Class of the exception, such as ``java.io.IOException``, or Spark's own reason, such as ``ExecutorLostFailure``.
    message
        Its first line.
    count
        Task attempts that ended so.
    """

    error: str
    message: str
    count: int


@dataclass(frozen=True)
class Scan:
    """What a stage begins with.

    Attributes
    ----------
    name
        As Spark names its operator, such as ``MicroBatchScan kafka`` or ``InMemoryTableScan``.
    cached
        Whether it is held in memory or on disk after it was computed once.
    rdd
        Its number: the same number in two stages is the same data.
    partitions
        How many it has.
    """

    name: str
    cached: bool
    rdd: int
    partitions: int


@dataclass(frozen=True)
class Stage:
    """One attempt of a stage.

    Attributes
    ----------
    id, attempt
        Number and attempt, from 0.
    name
        Its call site.
    submitted, completed
        Epoch seconds; ``None`` where the log does not tell.
    partitions
        Tasks that it needs.
    tasks
        Its task attempts.
    failure
        Why the stage failed, or ``None``.
    failures
        Why its tasks failed.
    scans
        What it reads: RDDs without parents, and cached ones.
    """

    id: int
    attempt: int
    name: str
    submitted: float | None
    completed: float | None
    partitions: int
    tasks: Tasks
    failure: str | None = None
    failures: tuple[Failure, ...] = ()
    scans: tuple[Scan, ...] = ()


@dataclass(frozen=True)
class SparkJob:
    """One action of an application.

    Attributes
    ----------
    id
        Its number.
    execution
        The SQL execution that it belongs to, or ``None``.
    query, batch
        Run id of the query and number of the batch that it was started for, or ``None``.
    submitted, completed
        Epoch seconds; completed is ``None`` where the log was cut off.
    succeeded
        How it ended; ``None`` where the log was cut off.
    stages
        Those that ran, by number and attempt; skipped ones are not among them.
    site
        What the log calls it: a call site or a description.
    """

    id: int
    execution: int | None
    query: str | None
    batch: int | None
    submitted: float
    completed: float | None
    succeeded: bool | None
    stages: tuple[Stage, ...]
    site: str


@dataclass(frozen=True)
class Source:
    """What one source gave to a batch.

    Attributes
    ----------
    description
        As the connector names itself, such as ``KafkaV2[Subscribe[orders]]``.
    start, end, latest
        Offsets: of Kafka, positions by ``topic:partition``; of others what JSON they wrote, or ``None``.
    rows
        ``numInputRows``: what Spark counted, once for each time the rows were computed.
    metrics
        The connector's own, such as ``maxOffsetsBehindLatest``.
    """

    description: str
    start: Any
    end: Any
    latest: Any
    rows: int
    metrics: Mapping[str, str] = field(default_factory=dict)

    @property
    def taken(self) -> int | None:
        """Records between start and end, where offsets count records; ``None`` where they do not."""
        return _between(self.start, self.end)

    @property
    def behind(self) -> int | None:
        """Records between the end of the batch and the latest ones when it began; ``None`` where unknown."""
        return _between(self.end, self.latest)


def _between(low: Any, high: Any) -> int | None:
    if not isinstance(low, dict) or not isinstance(high, dict) or not high:
        return None
    total = 0
    for partition, position in high.items():
        begin = low.get(partition, position)
        if type(begin) is not int or type(position) is not int:
            return None
        total += max(0, position - begin)
    return total


@dataclass(frozen=True)
class StateOperator:
    """The state that one operator keeps.

    Attributes
    ----------
    name
        Such as ``stateStoreSave``; empty where an older Spark does not tell.
    rows, updated, removed, late
        Rows kept, and of this batch: changed, forgotten, dropped as too late.
    memory
        Bytes in memory.
    commit, update
        Seconds, all tasks together.
    partitions
        State stores.
    metrics
        The provider's own.
    """

    name: str
    rows: int
    updated: int
    removed: int
    late: int
    memory: int
    commit: float
    update: float
    partitions: int
    metrics: Mapping[str, float] = field(default_factory=dict)


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
        Input rows of all sources as Spark counted them (:attr:`Source.rows`).
    sources
        What each source gave.
    sink
        The sink's description.
    rows_written
        What the sink says that it wrote, or ``None``.
    state
        What each stateful operator keeps.
    watermark
        Epoch seconds, or ``None``.
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
    sources: tuple[Source, ...] = ()
    sink: str = ""
    rows_written: int | None = None
    state: tuple[StateOperator, ...] = ()
    watermark: float | None = None
    jobs: tuple[SparkJob, ...] = ()
    arrivals: tuple[float, float] | None = None

    @property
    def ended(self) -> float:
        """Epoch seconds."""
        return self.begun + self.duration

    @property
    def records(self) -> int:
        """Records that were new in this batch: by offsets where they count records, else the rows that Spark counted."""
        counted = [each.taken for each in self.sources]
        known = [each for each in counted if each is not None]
        return sum(known) if known and len(known) == len(counted) else self.rows


@dataclass(frozen=True)
class Query:
    """One run of a streaming query.

    Attributes
    ----------
    name
        Its name, or its id where it has none.
    id, run_id
        Of the checkpoint, and of this run.
    started, ended
        Epoch seconds; ``None`` where the log does not tell.
    failure
        First line of the exception that ended it, or ``None``.
    batches
        In their order, none twice.
    """

    name: str
    id: str
    run_id: str
    started: float | None
    ended: float | None
    failure: str | None
    batches: tuple[Batch, ...]


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
        Epoch seconds; ``None`` while it lived on.
    memory
        Bytes for storage and execution, 0 where the log does not tell.
    reason
        Why it was removed.
    """

    id: str
    cores: int
    added: float
    removed: float | None
    memory: int
    reason: str = ""


@dataclass(frozen=True)
class History:
    """What one application did.

    Attributes
    ----------
    app_id, name
        As the log names it.
    spark_version
        Such as ``3.5.6``.
    engine
        ``glue``, ``emr``, ``sandbox`` or ``spark``, as its properties tell.
    started, ended
        Epoch seconds: of the first and the last event.
    complete
        Whether the application's end is in the log.
    properties
        Spark's settings.
    executors
        In the order in which they came.
    queries
        Runs of streaming queries in the order of their start.
    jobs
        Spark jobs that no batch started.
    unread
        Lines that are no JSON or lack what they need; the cut last line of a running job is not one.
    cut_off
        Whether the log ends in the middle of a line or of a compressed block.
    lost
        Parts of a rolled log that were deleted: what they told is missing.
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

    @property
    def cores(self) -> int:
        """Most task slots that there were at one time; 0 where the log names no executor."""
        moments = sorted(
            [(each.added, each.cores) for each in self.executors]
            + [(each.removed, -each.cores) for each in self.executors if each.removed is not None]
        )
        return int(np.max(np.cumsum([cores for _, cores in moments]), initial=0))
