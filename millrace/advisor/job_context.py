"""Whose job it is: how its settings are called where they are set, and what its time costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from millrace.advisor.application_history import History, Query
from millrace.advisor.findings.model import Change, Value
from millrace.config import Environment
from millrace.config.problems import dotted
from millrace.config.queries import SourceQuery, StreamQuery
from millrace.sizing import Plan

Setting = Literal[
    "trigger", "limit", "partitions", "shuffle", "merged", "cores", "least", "checkpoint", "cache", "spread"
]
"""What can be changed, whatever a service calls it: the trigger in seconds, the records a batch takes, the tasks that
read, the tasks after a shuffle, the bytes up to which Spark merges those by itself, the task slots, the records a batch
waits for, where checkpoints lie, what is held in memory, and how records are spread over tasks."""

SHUFFLE = "spark.sql.shuffle.partitions"
_ADAPTIVE = "spark.sql.adaptive."
_SPARK: frozenset[Setting] = frozenset({"shuffle", "merged"})
_MOST_CORES = "spark.cores.max"
_MOST_EXECUTORS = "spark.dynamicAllocation.maxExecutors"
_LEAST_EXECUTORS = "spark.dynamicAllocation.minExecutors"

_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "kafka": {
        "limit": "maxOffsetsPerTrigger",
        "partitions": "minPartitions",
        "least": "minOffsetsPerTrigger",
    },
    "glue": {"limit": "maxFetchRecordsPerShard", "least": "avoidEmptyBatches"},
    "qubole": {
        "limit": "kinesis.executor.maxFetchRecordsPerShard",
        "least": "kinesis.client.avoidEmptyBatches",
    },
    "awslabs": {"limit": "kinesis.maxFetchRecordsPerShard"},
    "file": {"limit": "maxFilesPerTrigger"},
    "rate": {"limit": "rowsPerSecond", "partitions": "numPartitions"},
    "iceberg": {"limit": "streaming-max-rows-per-micro-batch"},
}
"""Option names of the sources that Spark, Glue and EMR read with (``docs/kinesis.md``, Spark's own guides)."""


def connector(query: Query, engine: str) -> str:
    """Return which family of options the query's source takes; empty where it is none that is known."""
    text = " ".join({each.description for batch in query.batches[:3] for each in batch.sources}).lower()
    if "kinesis" in text:
        return {"glue": "glue", "emr": "awslabs"}.get(engine, "qubole")
    for name, mark in (("kafka", "kafka"), ("rate", "rate"), ("file", "filestream"), ("iceberg", "iceberg")):
        if mark in text:
            return name
    return ""


@dataclass(frozen=True)
class AdvisedJob:
    """A job of which only the log is known, or one of Glue's or EMR's that is not ours.

    Attributes
    ----------
    where
        What a change is made to: ``job orders``; empty where only a log is known.
    dollars_month
        What all its machines cost in USD a month; ``None`` where nobody knows.
    arguments
        Its arguments now, by the names that its service gives them, and Spark settings by theirs.
    engine
        ``glue`` or ``emr``; empty where only a log is known, which may tell it.
    """

    where: str = ""
    dollars_month: float | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""

    def changes(
        self, query: Query | None, history: History, setting: Setting, old: Value, new: Value
    ) -> tuple[Change, ...]:
        """Say how a setting is changed, the best way first; empty where there is none to name.

        Parameters
        ----------
        query
            Of which; ``None`` where it is of the whole application.
        history
            What ran: its engine, its executors and the settings that it had.
        setting, old, new
            What is changed, from what to what.
        """
        place, engine = self.where or "the job", history.engine
        if setting in _SPARK:
            key, said = self._spark(history, setting)
            return (Change("argument", place, f"--conf {key}", said, new),)
        if setting == "cores":
            return self._cores(place, history, new) if isinstance(new, int) else ()
        if query is None:
            return ()
        name = f"query {query.name}" + (f" of {self.where}" if self.where else "")
        option = _OPTIONS.get(connector(query, engine), {}).get(setting)
        if option == "avoidEmptyBatches" or option == "kinesis.client.avoidEmptyBatches":
            new = "true"
        if option is not None and option.endswith("PerShard"):
            old, new = (_per_shard(value, query) for value in (old, new))
        if option == "maxFilesPerTrigger":  # how many records a file holds, no log tells
            old, new = None, f"as many files as hold {new:,} records" if isinstance(new, int) else new
        if option is not None:
            return (Change("argument", name, option, old, new),)
        if setting == "trigger":
            key = "windowSize" if engine == "glue" else "trigger(processingTime)"
            return (
                Change("argument", name, key, old, f"{_plain(new)} seconds" if new is not None else None),
            )
        if setting == "checkpoint":
            return (Change("argument", name, "checkpointLocation", old, new),)
        if setting == "least":
            return ()
        words = {
            "cache": "foreachBatch",
            "partitions": "repartition",
            "spread": "repartition",
            "limit": "source",
        }
        return (Change("code", name, words.get(setting, setting), old, new),)

    def _spark(self, history: History, setting: Setting) -> tuple[str, str | None]:
        """Name one of Spark's own settings, and what it is set to; ``None`` where it has its default."""
        settings = {**history.properties, **self.arguments}
        key = SHUFFLE
        if setting == "merged":
            # Spark makes at least as many tasks as there are cores, unless it is told to go by the size alone.
            by_size = settings.get(f"{_ADAPTIVE}coalescePartitions.parallelismFirst") == "false"
            key = _ADAPTIVE + (
                "advisoryPartitionSizeInBytes" if by_size else "coalescePartitions.minPartitionSize"
            )
        return key, settings.get(key)

    def _cores(self, place: str, history: History, new: int) -> tuple[Change, ...]:
        """Say task slots as their service counts them: Glue in workers, its driver's with them, most others in executors."""
        each, engine = history.executor_cores, history.engine
        settings = {**history.properties, **self.arguments}
        if each < 1:
            return ()
        master = settings.get("spark.master", "")
        if engine == "local":
            return (Change("argument", place, "--master", master, f"local[{new}]"),)
        if engine == "spark" and not master.startswith(("yarn", "k8s")):
            now = _count(settings.get(_MOST_CORES))
            return (
                Change(
                    "argument", place, f"--conf {_MOST_CORES}", history.cores if now is None else now, new
                ),
            )
        had, wanted = math.ceil(history.cores / each), math.ceil(new / each)
        scales = settings.get("spark.dynamicAllocation.enabled", "true" if engine == "emr" else "false")
        if engine == "glue":
            key, had, wanted = "--number-of-workers", had + 1, wanted + 1
            scales = settings.get("--enable-auto-scaling", "false")
        else:
            key = f"--conf {_MOST_EXECUTORS if scales == 'true' else 'spark.executor.instances'}"
        most = _count(settings.get(key.removeprefix("--conf ")))
        if scales == "true" and wanted > had and (most is None or most >= wanted):
            # It may have as many and took fewer: what has to rise is the least that it keeps, which Glue does not know.
            least = _count(settings.get(_LEAST_EXECUTORS))
            return (
                ()
                if engine == "glue"
                else (Change("argument", place, f"--conf {_LEAST_EXECUTORS}", least, wanted),)
            )
        return (Change("argument", place, key, had if most is None else most, wanted),)

    def code(self, where: str, key: str, new: Value) -> tuple[Change, ...]:
        """Say what a program must do otherwise, which no setting reaches."""
        return (Change("code", where, key, None, new),)

    def latency_seconds(self, query: Query) -> float | None:
        """Return the age in seconds that a record may have when its query commits it, ``None`` where nobody said."""
        del query
        return None


@dataclass(frozen=True)
class EnvironmentJob(AdvisedJob):
    """A job of an environment file.

    Attributes
    ----------
    environment, plan
        Of it.
    job
        Its name.
    """

    environment: Environment | None = None
    plan: Plan | None = None
    job: str = ""

    def changes(
        self, query: Query | None, history: History, setting: Setting, old: Value, new: Value
    ) -> tuple[Change, ...]:
        """As :meth:`AdvisedJob.changes`: the key of the environment file, where there is one."""
        assert self.environment is not None
        file, root = f"environments/{self.environment.name}.yaml", f"jobs.{self.job}"
        job = self.environment.jobs[self.job]
        if setting in _SPARK:
            key, _ = self._spark(history, setting)
            path = dotted(("jobs", self.job, "spark", key))
            return (Change("environment", file, path, job.spark.get(key), str(new)),)
        if setting == "cores":
            if not history.cores:
                return ()
            return (Change("environment", file, f"{root}.cores", job.cores, new),)
        said = job.queries.get(query.name) if query is not None else None
        if said is None:
            return super().changes(query, history, setting, old, new)
        base = f"{root}.queries.{query.name if query else ''}"
        if setting == "trigger":
            return (Change("environment", file, f"{base}.trigger", _text(said.trigger), f"{_plain(new)}s"),)
        if setting == "limit" and isinstance(said, SourceQuery):
            return (Change("environment", file, f"{base}.records_per_batch", said.records_per_batch, new),)
        if setting in {"partitions", "least"} and isinstance(said, StreamQuery):
            key = "min_partitions" if setting == "partitions" else "min_records_per_batch"
            stream = self.environment.streams[said.source]
            if stream.read_in_ways:
                return (
                    Change("environment", file, f"{base}.kafka.{key}", getattr(said.kafka, key, None), new),
                )
            if setting == "partitions":
                return (
                    Change(
                        "environment",
                        file,
                        f"streams.{said.source}.{stream.parts}",
                        stream.given_partitions,
                        new,
                    ),
                )
        if setting in {"limit", "least"}:
            return ()  # the core sets them itself: a derive query's rows of a batch, and no empty batch of Kinesis
        if setting == "partitions":  # of several streams, or of a table
            return self.code(f"query {query.name if query else ''} of {self.where}", "repartition", new)
        return super().changes(query, history, setting, old, new)

    def latency_seconds(self, query: Query) -> float | None:
        """As :meth:`AdvisedJob.latency_seconds`: what the plan gives the query."""
        assert self.plan is not None
        planned = self.plan.jobs[self.job].queries.get(query.name)
        return None if planned is None else planned.latency_seconds.value


def _count(text: str | None) -> int | None:
    """A number as a setting holds it; none where it is not set, or without a bound (``infinity``)."""
    return int(text) if text is not None and text.isdecimal() else None


def _per_shard(value: Value, query: Query) -> Value:
    """Share a batch's limit among the shards, each of which its first stage reads in a task."""
    tasks = [stage.partitions for job in query.batches[-1].jobs for stage in job.stages if len(stage.tasks)]
    return math.ceil(value / tasks[0]) if tasks and isinstance(value, int) else value


def environment_job(environment: Environment, plan: Plan, job: str) -> EnvironmentJob:
    """Return the subject of a job of an environment, with what the plan says that it costs."""
    cost = sum(each.usd for each in plan.jobs[job].cost)
    return EnvironmentJob(f"job {job}", cost, {}, environment.jobs[job].engine, environment, plan, job)


def _plain(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _text(duration: timedelta | None) -> str | None:
    return None if duration is None else f"{duration.total_seconds():g}s"
