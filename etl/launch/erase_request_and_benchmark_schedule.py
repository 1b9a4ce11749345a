"""Files that commands write for a job beside its launch document: the request of an erasure, the schedule of a benchmark."""

from __future__ import annotations

from dataclasses import dataclass

ERASE_FOLDER = "_millrace/erase"
"""Folder below the job's checkpoints: the request, and an answer for each id."""

BENCHMARK_VERSION = 1
"""Format of a schedule, and of what was measured by it."""


@dataclass(frozen=True)
class EraseRequest:
    """Request of an erasure.

    Attributes
    ----------
    id
        Id of the erasure, the same for all jobs.
    where
        Condition in SQL.
    apply
        True to erase; false for a preview.
    by, asked_at
        User and time of the request, from the command.
    keep_condition
        True to keep the condition in the record, beside its digest.
    left_out
        Sentences of the command on data that it does not reach.
    """

    id: str
    where: str
    apply: bool
    by: str
    asked_at: str
    keep_condition: bool
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class BenchmarkRun:
    """One run of a benchmark, with a new checkpoint and new tables.

    Attributes
    ----------
    number
        Position in the order of runs.
    limit
        Most records of a batch.
    partitions
        Number of the topic's partitions to read, from 0 on.
    repetition
        Repetition of the same limit and partitions, from 0 on; -1 for a warm-up.
    batches
        Batches after which the run ends.
    """

    number: int
    limit: int
    partitions: int
    repetition: int
    batches: int


@dataclass(frozen=True)
class BenchmarkSchedule:
    """Runs to measure.

    Attributes
    ----------
    queries
        Names: one query that reads a topic, then those that derive from its table.
    topic_partitions
        Partitions of the topic that was filled.
    result
        URL for the measurements.
    """

    queries: tuple[str, ...]
    topic_partitions: int
    result: str
    runs: tuple[BenchmarkRun, ...]
