"""Memory that an executor needs, compared with the memory of a worker."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.config.model import Environment, Job
from millrace.config.queries import Query, SourceQueryBase
from millrace.sizing.plan_model import Figure
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import CoreSpread
from millrace.sizing.queries.trigger_interval_limits import most_fetched_bytes

MIB, GIB = 1024**2, 1024**3
_MORE_EXECUTORS = 1000
"""Executors beyond those for the cores that are tried."""


@dataclass(frozen=True)
class ExecutorMemory:
    """Memory of a job's executors.

    Attributes
    ----------
    per_task
        Bytes for each task: records that a connector has fetched, and a file that is written.
    per_executor
        Bytes for each executor, independent of its cores: joined tables.
    together
        Bytes that all executors share: state, and batches that are held for a join.
    joined
        Whether batches are held for a join: what they take grows with the trigger.
    python_per_task
        Bytes outside the heap for each task.
    why
        In words.
    """

    per_task: float
    per_executor: float
    together: float
    joined: bool
    python_per_task: float
    why: str

    def worker_bytes_needed(self, tasks: int, executors: int, heap_share: float) -> float:
        """Return the memory in bytes that a worker must have.

        Parameters
        ----------
        tasks
            Number of tasks that run at once on one executor.
        heap_share
            Share of a worker's memory that is its executor's heap; Python uses the rest.
        """
        heap = self._own_heap_bytes(tasks) + self.together / executors
        python = tasks * self.python_per_task
        return max(heap / heap_share, heap + python)

    def fewest_executors(self, tasks: int, least: int, heap_share: float, worker_bytes: float) -> int:
        """Return the fewest executors on which workers of this memory hold what all share, from ``least`` on; ``least`` if none do."""
        if not self.together:
            return least
        # What is left for it by both bounds of worker_bytes_needed; a little less, as rounding must not decide.
        heap = min(worker_bytes * heap_share, worker_bytes - tasks * self.python_per_task) * (1 - 1e-12)
        room = heap - self._own_heap_bytes(tasks)
        if self.together > room * (least + _MORE_EXECUTORS):
            return least
        return max(least, math.ceil(self.together / room))

    def _own_heap_bytes(self, tasks: int) -> float:
        """Return the heap in bytes of an executor, without its part of what all share."""
        known = service_limits()
        own = (known["memory.reserved_mib"] + known["memory.base_mib"]) * MIB
        return own + tasks * self.per_task + self.per_executor


def memory_of_job(
    environment: Environment,
    job: Job,
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Sequence[SourcePartitions],
    limits: Sequence[Figure[int] | None],
) -> ExecutorMemory:
    """Return the memory of a job's executors.

    Parameters
    ----------
    demands, spreads, sources, limits
        Of its queries; a limit is the records of the largest batch.
    """
    known = service_limits()
    fetched = held = 0.0
    for demand, spread, source, limit in zip(demands, spreads, sources, limits, strict=True):
        arriving = demand.work.rate * demand.work.planned_trigger_seconds
        records = arriving if limit is None else float(limit.value)
        # A task reads one partition of the source, before any repartition.
        tasks = max(1.0, source.evenly if demand.lands else spread.cores)
        size = records * mean_record_bytes(environment, demand)
        query = job.queries[demand.query]
        if isinstance(query, SourceQueryBase):
            whole = size / tasks * known["memory.expansion"]
            if not any(environment.streams[name].fetched_whole for name in demand.streams):
                whole = min(whole, known["memory.kafka_fetch_mib_per_task"] * MIB)
            fetched = max(fetched, whole)
        elif query.state is not None and query.state.join is not None:
            held += size * known["memory.expansion"]
    python = any(_passes_through_python(query) for query in job.queries.values())
    tables, state = job.memory.tables or 0, job.memory.state or 0
    parts = [
        f"{known['memory.writer_mib_per_task']:g} MiB to write a file",
        f"{fetched / MIB:,.0f} MiB fetched for each task",
    ]
    parts += [f"{tables / MIB:,.0f} MiB of joined tables"] * bool(tables)
    parts += [f"{state / MIB:,.0f} MiB of state over all executors"] * bool(state)
    parts += [f"{held / MIB:,.0f} MiB of held batches over all executors"] * bool(held)
    parts += [f"{known['memory.python_mib_per_task']:g} MiB of Python for each task"] * python
    return ExecutorMemory(
        per_task=fetched + known["memory.writer_mib_per_task"] * MIB,
        per_executor=float(tables),
        together=float(state) + held,
        joined=held > 0,
        python_per_task=known["memory.python_mib_per_task"] * MIB if python else 0.0,
        why=", ".join(parts),
    )


def mean_record_bytes(environment: Environment, demand: QueryDemand) -> float:
    """Return the mean size of the records that a query reads."""
    traffics = [environment.streams[name].traffic for name in demand.streams]
    peaks = [each.peak_records_per_second for each in traffics]
    return sum(each.record_size * peak for each, peak in zip(traffics, peaks, strict=True)) / sum(peaks)


def _passes_through_python(query: Query) -> bool:
    """Return whether records pass through Python, as with all readers and writers except Spark's own."""
    return any(
        each.format.in_python or each.decompress_up_to for each in query.stream_readings_by_place.values()
    ) or any(each.sink.in_python for each in query.sinks_by_place.values())


def kinesis_records_that_fit(environment: Environment, demand: QueryDemand, tasks: float) -> float:
    """Return the records of a Kinesis batch that tasks hold at once within their share of the heap.

    Glue's and EMR's connectors fetch all records of a shard for a batch before they return the first one; a Kafka
    consumer does not, so a topic's batch has no such bound.
    """
    if not any(environment.streams[name].fetched_whole for name in demand.streams):
        return math.inf
    return most_fetched_bytes(tasks) / mean_record_bytes(environment, demand)
