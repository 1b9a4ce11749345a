"""Shares that queries have of the SLAs of jobs: what a record may wait for landing, and for what is derived."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, LandingQueryBase, Query, SourceQueryBase
from millrace.config.units import format_duration
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.benchmark_figures import QuerySpeed


@dataclass(frozen=True)
class LatencyShare:
    """A query's share of a job's SLA: ``part`` times the SLA, minus ``taken`` seconds.

    Attributes
    ----------
    seconds
        S of the demand.
    words
        The same in words, with the reason.
    of
        Origin of a half, such as ``half of the 60 s SLA``; empty for the complete SLA, or for what landing leaves.
    job
        Job with the SLA: another one, if that job waits for the table.
    """

    seconds: float
    words: str
    job: str
    part: float = 1.0
    taken: float = 0.0
    of: str = ""

    def job_sla_for_query_seconds(self, seconds: float) -> float:
        """Return the job's SLA that gives the query this many seconds."""
        return (seconds + self.taken) / self.part


class LatencyShares:
    """Shares of the queries of an environment.

    Parameters
    ----------
    speeds
        By job and query.

    Attributes
    ----------
    landing
        Queries that land each table.
    readers
        SLA in seconds, and the job, of each derive query that reads a table, by table.
    """

    def __init__(self, environment: Environment, speeds: Mapping[tuple[str, str], QuerySpeed]) -> None:
        self.environment, self.speeds = environment, speeds
        self.landing = environment.landing_queries
        self.readers: dict[str, list[tuple[float, str]]] = {}
        for job, _, query in environment.queries:
            if isinstance(query, DeriveQuery):
                for table, _ in query.source_tables_and_routes:
                    self.readers.setdefault(table, []).append((self.sla_seconds(job), job))

    def sla_seconds(self, job: str) -> float:
        """Return the seconds from arrival to commit that a job is sized for, for one query or for several."""
        settings = self.environment.jobs[job]
        if settings.has_sla:
            return settings.latency.total_seconds()
        longest = (
            max(self.speeds[job, query].overhead for query in settings.queries)
            / service_limits()["batch.overhead.share"]
        )
        demands = 2 if any(isinstance(query, DeriveQuery) for query in settings.queries.values()) else 1
        return 2 * longest * demands

    def of_query(self, job: str, query: Query) -> LatencyShare:
        """Return the share of a query."""
        every = self.environment.jobs[job].run_every
        if every is not None:
            return self._of_run_stage(job, every)
        if isinstance(query, SourceQueryBase):
            return self._of_reading(job, query)
        return self._of_deriving(job, query)

    def _of_reading(self, job: str, query: SourceQueryBase) -> LatencyShare:
        """Return half of the tightest SLA that waits for this table, or all of the job's own.

        A record that is landed and then derived waits for two triggers, and the ages add up.
        """
        readers: list[tuple[float, str]] = (
            self.readers.get(query.table, []) if isinstance(query, LandingQueryBase) else []
        )
        own = self.sla_seconds(job)
        tightest, reader = min(readers, default=(2 * own, job))
        half = tightest / 2
        goal = self.environment.jobs[job].goal
        if half < own:
            whose = "" if reader == job else f" of job {reader}"
            of = f"half of the {2 * half:g} s SLA{whose}"
            return LatencyShare(half, f"{half:g} s ({of}, deriving takes the rest)", reader, part=0.5, of=of)
        if goal == "throughput":
            sized = "two batches of which little is fixed cost"
            return LatencyShare(own, f"{own:g} s ({sized})", job, of=f"{sized}, and no SLA")
        return LatencyShare(own, f"{own:g} s (the whole SLA)", job)

    def _of_deriving(self, job: str, query: DeriveQuery) -> LatencyShare:
        # A query of two tables waits for the later one.
        landed = max(
            (self._of_reading(*self.landing[table][0][::2]) for table, _ in query.source_tables_and_routes),
            key=lambda share: share.seconds,
        )
        own = self.sla_seconds(job)
        rest = own - landed.seconds
        words = f"{rest:g} s (what landing leaves of the {own:g} s SLA)"
        if landed.job == job and landed.part < 1:
            return LatencyShare(rest, words, job, part=1 - landed.part)
        return LatencyShare(rest, words, job, taken=landed.seconds)

    def _of_run_stage(self, job: str, every: timedelta) -> LatencyShare:
        """Return the share of one stage of a bounded run: a record waits for the run, its start, and the stages one after the other.

        A run also ends within its period: while it starts, it processes nothing.
        """
        queries = self.environment.jobs[job].queries.values()
        stages = 1 + any(isinstance(query, DeriveQuery) for query in queries)
        start, period, sla = (
            service_limits()["bounded.start_seconds"],
            every.total_seconds(),
            self.sla_seconds(job),
        )
        room = (min(sla - period, period) - start) / stages
        whole = f"the {sla:g} s SLA" if sla < 2 * period else "the period"
        start_words = (
            f"they and a start of {start:g} s leave" if sla < 2 * period else f"a start of {start:g} s leaves"
        )
        left = f"{'half of ' if stages > 1 else ''}what {start_words}"
        words = f"{period + room:g} s ({period:g} s between two runs, and {left} of {whole})"
        of = f"two runs and a part of their time; the SLA is {format_duration(timedelta(seconds=sla))}"
        return LatencyShare(period + room, words, job, 1 / stages, (start + period) / stages - period, of)
