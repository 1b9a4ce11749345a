"""Benchmark: runs of a job's queries over existing records, at rising limits, each from an empty start.

It is started instead of the job (``--benchmark URL``), on any engine, from the job's own launch
document: the measured job is the one that will run. The schedule and the measurements
are JSON; ``millrace.benchmark`` interprets them.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from ..launch import typed_json
from ..launch.erase_request_and_benchmark_schedule import BENCHMARK_VERSION, BenchmarkRun, BenchmarkSchedule
from ..launch.settings import DeriveSettings, DirectSettings, LandSettings, SourceRouteSettings
from ..launch.sinks import SinkSettings
from ..record import batch_accounts, hadoop_files
from ..record.errors import StartError, describe_error
from ..record.job_run_context import JobRun
from ..record.ready_query import ReadyQuery

POLL_SECONDS = 0.1

MOST_SECONDS = 900.0
"""Longest time of one run; a run that hangs must not block the others."""

_BATCH = re.compile(r"batch = (\d+)")

Route = TypeVar("Route", bound=SourceRouteSettings)

Opened = Callable[[JobRun, str, int | None], ReadyQuery]
"""Builds a query of a job by name; the number limits the rows that a derive query reads in a batch."""


def read_schedule(spark: SparkSession, url: str) -> BenchmarkSchedule:
    """Read a schedule.

    Raises
    ------
    StartError
        The file does not exist or is no schedule.
    """
    try:
        text = hadoop_files.read_text(spark, url)
        schedule: BenchmarkSchedule = typed_json.read_versioned(
            BenchmarkSchedule, text, "schedule", BENCHMARK_VERSION
        )
    except (OSError, ValueError) as error:
        raise StartError(f"--benchmark {url}: {error}") from error
    if not schedule.runs or not schedule.queries:
        raise StartError(f"--benchmark {url}: the schedule in this file names no queries or no runs")
    return schedule


@dataclass
class BenchmarkRunner:
    """Runner of a schedule.

    Parameters
    ----------
    opened
        Builds a query.
    """

    job_run: JobRun
    opened: Opened
    _made: set[str] = field(default_factory=set)

    def __call__(self, schedule: BenchmarkSchedule) -> int:
        """Run the schedule and write the measurements.

        Returns
        -------
        int
            Exit status 0.

        Raises
        ------
        StartError
            A query cannot be measured this way.
        """
        chain = self._queries_in_order(schedule)
        begun = batch_accounts.utc_now()
        measured: list[dict[str, Any]] = []
        for run in schedule.runs:
            measured.extend(self._run_queries_and_yield_measurements(chain, run, schedule.topic_partitions))
            self.job_run.report.emit(
                "measured",
                number=run.number,
                of=len(schedule.runs),
                limit=run.limit,
                partitions=run.partitions,
            )
        outcome = {
            "version": BENCHMARK_VERSION,
            "job": self.job_run.job.job,
            "engine": self.job_run.job.engine,
            "begun_at": batch_accounts.iso_text(begun),
            "ended_at": batch_accounts.iso_text(batch_accounts.utc_now()),
            **describe_machine(self.job_run.spark),
            "runs": measured,
        }
        hadoop_files.write_text(self.job_run.spark, schedule.result, json.dumps(outcome))
        self.job_run.report.emit("benchmarked", result=schedule.result, runs=len(measured))
        return 0

    def _queries_in_order(
        self, schedule: BenchmarkSchedule
    ) -> tuple[LandSettings | DirectSettings | DeriveSettings, ...]:
        """Return the queries in their order: each one after the first derives from the first one's table."""
        have = {q.name: q for q in self.job_run.job.queries}
        unknown = [name for name in schedule.queries if name not in have]
        if unknown:
            raise StartError(
                f"the benchmark measures query {', '.join(unknown)}, which the job does not have; the job "
                f"has {', '.join(have)}"
            )
        chain = tuple(have[name] for name in schedule.queries)
        first = chain[0]
        if isinstance(first, DeriveSettings) or any(
            route.name is not None or route.source.starting_at_beginning(1, 1, 1) is None
            for route in first.routes
        ):
            raise StartError(
                f"query {first.name} cannot be measured; the benchmark measures only a query that reads "
                "one Kafka topic"
            )
        for query in chain:
            if not isinstance(query, LandSettings):
                sink = query.sink if isinstance(query, DeriveSettings) else query.routes[0].sink
                if sink.lake_table is None:
                    raise StartError(
                        f"query {query.name} cannot be measured, because its sink is {sink.kind}; only a "
                        "query with an iceberg sink can"
                    )
        return chain

    def _run_queries_and_yield_measurements(
        self,
        chain: Sequence[LandSettings | DirectSettings | DeriveSettings],
        run: BenchmarkRun,
        partitions: int,
    ) -> Iterator[dict[str, Any]]:
        job = dataclasses.replace(
            self.job_run.job,
            checkpoints=f"{self.job_run.job.checkpoints}/benchmark-{time.time_ns()}",
            queries=tuple(self._query_reading_from_beginning(query, run, partitions) for query in chain),
        )
        fresh = dataclasses.replace(self.job_run, job=job)
        try:
            for query in chain:
                batches = self._run_and_measure_batches(self.opened(fresh, query.name, run.limit), run)
                yield {"query": query.name, **dataclasses.asdict(run), "batches": batches}
        finally:
            self._drop_benchmark_tables()
            hadoop_files.delete_if_exists(self.job_run.spark, job.checkpoints)

    def _query_reading_from_beginning(
        self,
        query: LandSettings | DirectSettings | DeriveSettings,
        run: BenchmarkRun,
        partitions: int,
    ) -> LandSettings | DirectSettings | DeriveSettings:
        """Return the query with the topic's beginning as its start, its own tables and no wait between triggers."""
        if isinstance(query, DeriveSettings):
            table = self._benchmark_table_name_to_drop(query.source_table)
            return dataclasses.replace(
                query,
                source_table=table,
                sink=self._sink_into_benchmark_table(query.sink),
                trigger_seconds=0.0,
            )
        if isinstance(query, LandSettings):
            [route] = query.routes
            return dataclasses.replace(
                query,
                routes=(_route_from_topic_start(route, run, partitions),),
                table=self._benchmark_table_name_to_drop(query.table),
                trigger_seconds=0.0,
                repartition=None,
            )
        [end] = query.routes
        end = dataclasses.replace(
            _route_from_topic_start(end, run, partitions), sink=self._sink_into_benchmark_table(end.sink)
        )
        return dataclasses.replace(
            query,
            routes=(end,),
            dead_letters=self._benchmark_table_name_to_drop(query.dead_letters),
            trigger_seconds=0.0,
            repartition=None,
        )

    def _sink_into_benchmark_table(self, sink: SinkSettings) -> SinkSettings:
        return sink.with_target(self._benchmark_table_name_to_drop(str(sink.lake_table)))

    def _benchmark_table_name_to_drop(self, table: str) -> str:
        name = f"{table}_benchmark"
        self._made.add(name)
        return name

    def _drop_benchmark_tables(self) -> None:
        for name in sorted(self._made):
            self.job_run.spark.sql(f"DROP TABLE IF EXISTS {self.job_run.table(name)} PURGE")

    def _run_and_measure_batches(self, query: ReadyQuery, run: BenchmarkRun) -> list[dict[str, Any]]:
        done = 0

        def handle_and_count(batch: DataFrame, batch_id: int) -> None:
            nonlocal done
            query.handle(batch, batch_id)
            done += 1

        running = (
            query.rows.writeStream.queryName(query.name)
            .option("checkpointLocation", query.checkpoint)
            .outputMode(query.output_mode)
            .foreachBatch(handle_and_count)
            .start()
        )
        ends = time.monotonic() + MOST_SECONDS
        try:
            while running.isActive and len(_batches_with_records(running.recentProgress)) < run.batches:
                if done and not running.status["isDataAvailable"] and not running.status["isTriggerActive"]:
                    break
                if time.monotonic() > ends:
                    raise StartError(
                        f"query {query.name}: only {done} of {run.batches} batches of {run.limit:,} records ended "
                        f"within {MOST_SECONDS:.0f} s; measure a smaller limit (--largest) or fewer batches "
                        "(--batches)"
                    )
                time.sleep(POLL_SECONDS)
            progress = _batches_with_records(running.recentProgress)
            # Read before the stop, which interrupts the current batch: that is no failure.
            failure = None if running.isActive else running.exception()
        finally:
            running.stop()
        if failure is not None:
            raise StartError(f"query {query.name}: {describe_error(failure)}")
        work = task_seconds_by_batch(self.job_run.spark, str(running.runId))
        return [
            {
                "batch": each["batchId"],
                "records": each["numInputRows"],
                "seconds": {part: ms / 1000 for part, ms in sorted(each["durationMs"].items())},
                "tasks": work.get(each["batchId"], []),
            }
            for each in progress[: run.batches]
        ]


def _route_from_topic_start(route: Route, run: BenchmarkRun, partitions: int) -> Route:
    """Return the route with a source that reads from the beginning of its topic, as far as the run needs."""
    source = route.source.starting_at_beginning(run.limit, run.partitions, partitions)
    assert source is not None, f"{route.source.name} was taken for one that can be measured"
    return dataclasses.replace(route, source=source)


def _batches_with_records(progress: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the batches that held records."""
    return [each for each in progress if each["numInputRows"]]


def task_seconds_by_batch(spark: SparkSession, run: str) -> dict[int, list[list[float]]]:
    """Return the run time in seconds of each task of a query's batches.

    Parameters
    ----------
    run
        Id of the query's run.

    Returns
    -------
    dict
        By batch: a list for each stage, with the seconds of its tasks, both in order.
    """
    context = spark._jsc.sc()
    gateway: Any = spark.sparkContext._gateway
    store = context.statusStore()
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = store.stageList(None, False, False, quantiles, None)
    batches: dict[int, dict[int, list[float]]] = {}
    for position in range(stages.size()):
        stage = stages.apply(position)
        description = stage.description()
        text = str(description.get()) if description.isDefined() else ""
        batch = _BATCH.search(text)
        if batch is None or run not in text or stage.numCompleteTasks() == 0:
            continue
        tasks = store.taskList(stage.stageId(), stage.attemptId(), stage.numCompleteTasks())
        seconds = []
        for number in range(tasks.size()):
            metrics = tasks.apply(number).taskMetrics()
            if metrics.isDefined():
                seconds.append(metrics.get().executorRunTime() / 1000)
        batches.setdefault(int(batch[1]), {})[stage.stageId()] = seconds
    return {batch: [by_stage[stage] for stage in sorted(by_stage)] for batch, by_stage in batches.items()}


def describe_machine(spark: SparkSession) -> dict[str, Any]:
    """Describe the machine of the measurements."""
    context = spark.sparkContext
    jvm: Any = spark._jvm
    return {
        "spark": spark.version,
        "java": str(jvm.java.lang.System.getProperty("java.version")),
        "python": platform.python_version(),
        "cores": context.defaultParallelism,
        "processors": int(jvm.java.lang.Runtime.getRuntime().availableProcessors()),
        "processor": f"{platform.system()} {platform.machine()}",
        "settings": {
            key: value
            for key, value in sorted(context.getConf().getAll())
            if key.startswith(("spark.sql.shuffle", "spark.executor.", "spark.driver.memory", "spark.master"))
        },
    }
