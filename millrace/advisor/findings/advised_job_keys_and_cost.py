"""Job of a log: names of its settings where they are set, and the cost of its time."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from millrace.advisor.findings.model import Change, Value
from millrace.advisor.logs.application_history_model import History, Query
from millrace.config import Environment
from millrace.config.document.problems import dotted_path
from millrace.config.queries import OneStreamQueryBase, SourceQueryBase
from millrace.sizing import Plan, plan
from millrace.sizing.environment_with_plan_choices import environment_with_choices

Setting = Literal[
    "trigger", "limit", "partitions", "shuffle", "merged", "cores", "least", "checkpoint", "cache", "spread"
]
"""Settings that can be changed, whatever a service calls them: the trigger in seconds, the records of a batch, the tasks that
read, the tasks after a shuffle, the bytes up to which Spark merges those by itself, the task slots, the records that a batch
waits for, the place of checkpoints, caches, and the spread of records over tasks.
"""

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
"""Option names of the sources on Spark, Glue and EMR (``docs/kinesis.md``, Spark's own guides)."""


def option_family_of_query(query: Query, engine: str) -> str:
    """Return the family of options for the query's source; empty for an unknown one."""
    text = " ".join({each.description for batch in query.batches[:3] for each in batch.sources}).lower()
    if "kinesis" in text:
        return {"glue": "glue", "emr": "awslabs"}.get(engine, "qubole")
    for name, mark in (("kafka", "kafka"), ("rate", "rate"), ("file", "filestream"), ("iceberg", "iceberg")):
        if mark in text:
            return name
    return ""


@dataclass(frozen=True)
class AdvisedJob:
    """A job of which only the log is known, or a job of Glue or EMR that Millrace did not deploy.

    Attributes
    ----------
    where
        The place of a change: ``job orders``; empty where only a log is known.
    dollars_month
        Cost of all its machines in USD a month; ``None`` where unknown.
    arguments
        Its current arguments by their names in its service, and Spark settings by theirs.
    engine
        ``glue`` or ``emr``; empty where only a log is known, which may contain it.
    """

    where: str = ""
    dollars_month: float | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    engine: str = ""

    def changes_for(
        self, query: Query | None, history: History, setting: Setting, old: Value, new: Value
    ) -> tuple[Change, ...]:
        """Return the changes that set a setting, the best way first; empty without any.

        Parameters
        ----------
        query
            The query; ``None`` for the complete application.
        history
            For the engine, the executors and the settings.
        setting, old, new
            The setting, its old and its new value.
        """
        place, engine = self.where or "the job", history.engine
        if setting in _SPARK:
            key, said = self._spark_setting_name_and_value(history, setting)
            return (Change("argument", place, f"--conf {key}", said, new),)
        if setting == "cores":
            return self._task_slot_changes(place, history, new) if isinstance(new, int) else ()
        if query is None:
            return ()
        name = f"query {query.name}" + (f" of {self.where}" if self.where else "")
        options = {
            "checkpoint": "checkpointLocation",
            **_OPTIONS.get(option_family_of_query(query, engine), {}),
        }
        option = options.get(setting)
        if option == "avoidEmptyBatches" or option == "kinesis.client.avoidEmptyBatches":
            new = "true"
        if option is not None and option.endswith("PerShard"):
            old, new = (_limit_per_shard(value, query) for value in (old, new))
        if option == "maxFilesPerTrigger":  # no log has the number of records in a file
            old, new = None, f"as many files as hold {new:,} records" if isinstance(new, int) else new
        if option is not None:
            return (Change("argument", name, option, old, new),)
        if setting == "trigger":
            key = "windowSize" if engine == "glue" else "trigger(processingTime)"
            return (
                Change(
                    "argument", name, key, old, f"{_plain_value(new)} seconds" if new is not None else None
                ),
            )
        if setting == "least":
            return ()
        words = {
            "cache": "foreachBatch",
            "partitions": "repartition",
            "spread": "repartition",
            "limit": "source",
        }
        return (Change("code", name, words.get(setting, setting), old, new),)

    def _spark_setting_name_and_value(self, history: History, setting: Setting) -> tuple[str, str | None]:
        """Return the name of one of Spark's own settings, and its value; ``None`` for the default."""
        settings = {**history.properties, **self.arguments}
        key = SHUFFLE
        if setting == "merged":
            # Spark makes at least as many tasks as there are cores, unless a setting says to use the size alone.
            by_size = settings.get(f"{_ADAPTIVE}coalescePartitions.parallelismFirst") == "false"
            key = _ADAPTIVE + (
                "advisoryPartitionSizeInBytes" if by_size else "coalescePartitions.minPartitionSize"
            )
        return key, settings.get(key)

    def _task_slot_changes(self, place: str, history: History, new: int) -> tuple[Change, ...]:
        """Return the change of task slots in the service's unit: Glue's workers, with the driver's; executors for most others."""
        each, engine = history.smallest_executor_cores, history.engine
        settings = {**history.properties, **self.arguments}
        if each < 1:
            return ()
        master = settings.get("spark.master", "")
        if engine == "local":
            return (Change("argument", place, "--master", master, f"local[{new}]"),)
        if self._counts_single_cores(history):
            now = _setting_as_count(settings.get(_MOST_CORES))
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
        most = _setting_as_count(settings.get(key.removeprefix("--conf ")))
        if scales == "true" and wanted > had and (most is None or most >= wanted):
            # It may have as many and used fewer: the minimum has to rise, which Glue does not have.
            least = _setting_as_count(settings.get(_LEAST_EXECUTORS))
            return (
                ()
                if engine == "glue"
                else (Change("argument", place, f"--conf {_LEAST_EXECUTORS}", least, wanted),)
            )
        return (Change("argument", place, key, had if most is None else most, wanted),)

    def whole_executors(self, history: History, cores: int) -> int:
        """Round cores up to whole executors, as the service gives them; local Spark and Spark's own cluster give single cores."""
        each = 1 if self._counts_single_cores(history) else max(1, history.smallest_executor_cores)
        return math.ceil(cores / each) * each

    def _counts_single_cores(self, history: History) -> bool:
        master = {**history.properties, **self.arguments}.get("spark.master", "")
        return history.engine == "local" or (
            history.engine == "spark" and not master.startswith(("yarn", "k8s"))
        )

    def code_changes(self, where: str, key: str, new: Value) -> tuple[Change, ...]:
        """Return a change of the program, which no setting can make."""
        return (Change("code", where, key, None, new),)

    def least_cores(self) -> int:
        """Return the least cores that its owner may give it; a log alone shows what its own traffic needs."""
        return 1

    def latency_limit_seconds(self, query: Query) -> float | None:
        """Return the age in seconds that a record may have at its commit, ``None`` where unknown."""
        return None


@dataclass(frozen=True, kw_only=True)
class EnvironmentJob(AdvisedJob):
    """A job of an environment file.

    Attributes
    ----------
    job
        Its name.
    """

    environment: Environment
    plan: Plan
    job: str

    def changes_for(
        self, query: Query | None, history: History, setting: Setting, old: Value, new: Value
    ) -> tuple[Change, ...]:
        """Return what :meth:`AdvisedJob.changes_for` does, with the key of the environment file, where there is one."""
        file, root = f"environments/{self.environment.name}.yaml", f"jobs.{self.job}"
        job = self.environment.jobs[self.job]
        if setting in _SPARK:
            key, _ = self._spark_setting_name_and_value(history, setting)
            path = dotted_path(("jobs", self.job, "spark", key))
            return (Change("environment", file, path, job.spark.get(key), str(new)),)
        if setting == "cores":
            if not history.cores or _lies_between(new, history.cores, self.plan.jobs[self.job].cores.value):
                return ()
            return (Change("environment", file, f"{root}.cores", job.cores, new),)
        said = job.queries.get(query.name) if query is not None else None
        if said is None:
            return super().changes_for(query, history, setting, old, new)
        base = f"{root}.queries.{query.name if query else ''}"
        if setting == "trigger":
            return (
                Change(
                    "environment",
                    file,
                    f"{base}.trigger",
                    None if said.trigger is None else f"{said.trigger.total_seconds():g}s",
                    f"{_plain_value(new)}s",
                ),
            )
        if setting == "limit" and isinstance(said, SourceQueryBase):
            return (Change("environment", file, f"{base}.records_per_batch", said.records_per_batch, new),)
        if setting in {"partitions", "least"} and isinstance(said, OneStreamQueryBase):
            key = "min_partitions" if setting == "partitions" else "min_records_per_batch"
            stream = self.environment.streams[said.source]
            if stream.read_in_ways:
                return (
                    Change("environment", file, f"{base}.kafka.{key}", getattr(said.kafka, key, None), new),
                )
            if setting == "partitions":
                if _lies_between(new, old, self.plan.streams[said.source].expected_partitions.value):
                    return ()
                path = f"streams.{said.source}.{stream.parts}"
                return (Change("environment", file, path, stream.given_partitions, new),)
        if setting in {"limit", "least"}:
            return ()  # the core sets them itself: the rows of a derive query's batch, and no empty batch of Kinesis
        if setting == "partitions":  # several streams, or a table
            return self.code_changes(
                f"query {query.name if query else ''} of {self.where}", "repartition", new
            )
        return super().changes_for(query, history, setting, old, new)

    def least_cores(self) -> int:
        """Return what :meth:`AdvisedJob.least_cores` does: those of the plan without a pin, for the traffic at its peak."""
        unpinned = environment_with_choices(self.environment, "jobs", "cores", {self.job: None})
        return plan(unpinned).jobs[self.job].cores.value

    def latency_limit_seconds(self, query: Query) -> float | None:
        """Return what :meth:`AdvisedJob.latency_limit_seconds` does, from the plan."""
        planned = self.plan.jobs[self.job].queries.get(query.name)
        return None if planned is None else planned.latency_seconds.value


def _lies_between(new: Value, ran: Value, planned: int) -> bool:
    """Tell whether a number lies between the run's and the file's, where it would be a change the other way in the file."""
    return isinstance(new, int) and isinstance(ran, int) and sorted((ran, planned, new))[1] == new


def _setting_as_count(text: str | None) -> int | None:
    """Return the number of a setting; none where it is not set, or without a bound (``infinity``)."""
    return int(text) if text is not None and text.isdecimal() else None


def _limit_per_shard(value: Value, query: Query) -> Value:
    """Divide a batch's limit by the number of shards: its first stage reads each in a task."""
    stages = query.batches[-1].stages
    return math.ceil(value / stages[0].partitions) if stages and isinstance(value, int) else value


def advised_environment_job(environment: Environment, plan: Plan, job: str) -> EnvironmentJob:
    """Return the advised job of an environment, with its cost in the plan."""
    cost = sum(each.usd for each in plan.jobs[job].cost)
    return EnvironmentJob(
        f"job {job}", cost, {}, environment.jobs[job].engine, environment=environment, plan=plan, job=job
    )


def _plain_value(value: Value) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
