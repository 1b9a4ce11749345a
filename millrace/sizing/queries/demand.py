"""Demand of one query: the records at the peak, its share of the SLA, and the cores that it needs, as the model has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from millrace.config.base import grouped
from millrace.config.document.problems import Path
from millrace.sizing.plan_model import Inputs
from millrace.sizing.queries.benchmark_figures import QuerySpeed
from millrace.sizing.queries.latency_shares import LatencyShare
from millrace.sizing.queries.sizing_formulas import QueryWork


@dataclass(frozen=True)
class QueryDemand:
    """One query in terms of the model.

    Attributes
    ----------
    streams
        Streams whose records it handles, landed by itself or by another query, each with its share of
        the time for which their tasks hold cores at the peaks.
    lands
        Whether it reads the stream itself, to land it or directly.
    work
        λ, b, a, S and T.
    needed
        Cores as a real number, including the spare share.
    assumed
        Whether the traffic or the job's rate was not measured, or the rate does not apply because
        the query keeps state.
    share, sla_of
        Derivation of this query's S from a job's SLA, in words and in figures.
    latency
        Seconds from a record's arrival to its commit here that the SLA allows.
    fan_out
        Whether it reads through its own fan-out consumer.
    average
        Average rate divided by the peak rate.
    speed
        Speed of the query: a, b, and their source.
    again
        Rate during catch-up as a multiple of the peak; 1 without ``catch_up``.
    burst
        Records of the largest batch by chance as a multiple of those that arrive on average.
    read_at_once
        Partitions that must be read at a time, for the arriving records, for catch-up and for more records than on average.
    held_by
        Partitions whose tasks can hold a batch of a bounded run, on usual workers and on those with the most memory; 0 for other queries.
    stage
        Stage of a bounded run in which it works, 0 or 1: derive queries begin when all is landed.
    part
        Share of its stream that it reads: less than 1 if several queries share a topic.
    partitions
        Number of partitions that it reads of such a topic; None if it reads all.
    inputs
        Returns λ, b, a and S with their origins.
    spares
        Returns what increases its cores above the need of the work alone.
    """

    job: str
    query: str
    streams: Mapping[str, float]
    lands: bool
    work: QueryWork
    needed: float
    assumed: bool
    share: str
    sla_of: LatencyShare
    latency: float
    fan_out: bool
    average: float
    speed: QuerySpeed
    inputs: Callable[[], Inputs] = field(compare=False)
    spares: Callable[[], Inputs] = field(compare=False)
    again: float = 1.0
    part: float = 1.0
    partitions: int | None = None
    burst: float = 1.0
    read_at_once: float = 0.0
    held_by: tuple[float, float] = (0.0, 0.0)
    stage: int = 0

    @property
    def least_cores(self) -> float:
        """Cores for its work, or as many as shards must be read at a time, because a task reads one."""
        return max(self.needed, self.read_at_once)

    @property
    def partitions_to_read_at_a_time(self) -> float:
        """Partitions that must be read at a time: a pinned trigger above the longest batch brings more than that has time for."""
        work = self.work
        return self.read_at_once * max(1.0, work.most_arrival_seconds / work.longest_batch_seconds)

    @property
    def partitions_to_read_in_one_wave(self) -> float:
        """Partitions that must be read in a single wave: for a reader alone, none is read during the fixed cost."""
        return self.read_at_once * (self.work.overhead_factor if self.work.alone else 1.0)

    @property
    def yaml_path(self) -> Path:
        """Path of the query in the file."""
        return ("jobs", self.job, "queries", self.query)

    @property
    def number_key_prefix(self) -> str:
        """Beginning of its numbers' keys in the plan."""
        return f"jobs.{self.job}.queries.{self.query}"

    def numbers_by_stream(self, streams: Mapping[str, int]) -> dict[str, object]:
        """Return all of it that sizes depend on: the numbers of its streams in place of names, and no words."""
        words = ("job", "query", "share", "sla_of", "inputs", "spares")
        found = {key: value for key, value in vars(self).items() if key not in words}
        return found | {"streams": {streams[name]: part for name, part in self.streams.items()}}

    def part_of_stream(self, stream: str) -> QueryDemand:
        """Return the part of the demand that one of its streams causes."""
        part = self.streams[stream]
        if part == 1.0:
            return self
        return replace(
            self,
            needed=self.needed * part,
            read_at_once=self.read_at_once * part,
            held_by=(self.held_by[0] * part, self.held_by[1] * part),
        )


def demands_by_stream(demands: list[QueryDemand]) -> dict[str, list[QueryDemand]]:
    """Return the demands of the queries that read each stream themselves, by stream."""
    return grouped(
        (stream, demand.part_of_stream(stream))
        for demand in demands
        if demand.lands
        for stream in demand.streams
    )
