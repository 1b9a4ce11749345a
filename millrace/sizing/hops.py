"""What each query has to do: its stream's peak, its share of the SLA, the cores it needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace.config.check_lists import shares
from millrace.config.model import Environment, Job
from millrace.config.problems import MISSING, Finding, Path
from millrace.config.queries import DeriveQuery, Landing, LandQuery, Query, RouteQuery, SourceQuery
from millrace.config.units import format_duration
from millrace.sizing.capacity import InfeasibleError, Work, cores_needed


@dataclass(frozen=True)
class Hop:
    """One query as the model sees it.

    Attributes
    ----------
    streams
        The streams whose records it handles, landed by itself or by another query, each with its share of
        them at their peaks.
    lands
        Whether it reads the stream itself, to land it or directly.
    work
        λ, b, a, S and T.
    needed
        Cores as a real number, the spare share included.
    assumed
        Whether the traffic or the job's rate was never measured, or the rate cannot be carried over as
        the query keeps state.
    share
        In words, how this hop's S follows from the job's SLA.
    latency
        Seconds from a record's arrival to its commit here that the SLA allows.
    fan_out
        Whether it reads through a fan-out consumer of its own.
    part
        Share of its stream that it reads: less than 1 where several queries share a topic out.
    partitions
        Those that it reads of such a topic; None where it reads all.
    """

    job: str
    query: str
    streams: Mapping[str, float]
    lands: bool
    work: Work
    needed: float
    assumed: bool
    share: str
    latency: float
    fan_out: bool
    part: float = 1.0
    partitions: int | None = None

    @property
    def path(self) -> Path:
        """Where the query stands in the file."""
        return ("jobs", self.job, "queries", self.query)

    def of(self, stream: str) -> Hop:
        """The part of it that one of its streams asks for."""
        return replace(self, needed=self.needed * self.streams[stream])


def hops(environment: Environment) -> tuple[list[Hop], list[Finding]]:
    """Work out every query's demand.

    Returns
    -------
    tuple
        The hops that can be met, and a finding for each that no number of cores can.
    """
    found: list[Hop] = []
    problems: list[Finding] = []
    for job_name, job in environment.jobs.items():
        for query_name, query in job.queries.items():
            hop = _hop(environment, job_name, job, query_name, query)
            try:
                needed = cores_needed(hop.work)
            except InfeasibleError as error:
                problems.append(_infeasible(hop, job, query, error))
                continue
            # Spare partitions come with their cores: one without a core would be a second wave.
            spare = environment.partition_buffer if job.cores is None else 0.0
            found.append(replace(hop, needed=needed * (1 + spare)))
    return found, problems


def _hop(environment: Environment, job_name: str, job: Job, query_name: str, query: Query) -> Hop:
    names = query.streams if isinstance(query, SourceQuery) else _landed_from(environment, query)
    traffics = {name: environment.streams[name].traffic for name in names}
    peaks = {name: each.records_per_second * each.peak_factor for name, each in traffics.items()}
    if isinstance(query, SourceQuery):
        sla, share = _reading_share(environment, job, query)
    else:
        sla, share = _deriving_share(environment, job, query)
    part, partitions = _part(environment, query)
    peaks = {name: peak * part for name, peak in peaks.items()}
    work = Work(
        rate=sum(peaks.values()),
        per_record=1 / job.rate.records_per_second_per_core,
        overhead=job.rate.batch_overhead.total_seconds(),
        sla=sla,
        trigger=query.trigger.total_seconds() if query.trigger is not None else None,
    )
    return Hop(
        job=job_name,
        query=query_name,
        streams={name: peak / work.rate for name, peak in peaks.items()},
        lands=isinstance(query, SourceQuery),
        work=work,
        needed=0.0,
        # Where records depend on each other, what one partition took says nothing about many.
        assumed="assumed" in (*(each.basis for each in traffics.values()), job.rate.basis)
        or (isinstance(query, DeriveQuery) and query.state is not None),
        share=share,
        latency=sla if isinstance(query, SourceQuery) else job.latency.total_seconds(),
        fan_out=isinstance(query, LandQuery) and query.fan_out,
        part=part,
        partitions=partitions,
    )


def _part(environment: Environment, query: Query) -> tuple[float, int | None]:
    """What a query reads of a topic that is shared out: as much as each of the others, as lists are balanced."""
    listed = query.kafka.partitions if isinstance(query, LandQuery) and query.kafka is not None else None
    if listed is None or not isinstance(query, LandQuery):
        return 1.0, None
    return 1 / len(shares(environment)[query.source, query.table]), len(listed)


def _landing(environment: Environment, table: str) -> tuple[Job, LandQuery | RouteQuery]:
    return next(
        (job, query)
        for job in environment.jobs.values()
        for query in job.queries.values()
        if isinstance(query, LandQuery | RouteQuery) and query.table == table
    )


def _landed_from(environment: Environment, query: DeriveQuery) -> tuple[str, ...]:
    """Streams whose records a derive query takes: those of its table, or that of its route."""
    landing = _landing(environment, query.source)[1]
    if isinstance(landing, RouteQuery) and query.route is not None:
        return (landing.routes[query.route].source,)
    return landing.streams


def _reading_share(environment: Environment, job: Job, query: SourceQuery) -> tuple[float, str]:
    """Half of the tightest SLA that waits for this table, or all of the job's own.

    A record that is landed and then derived passes two triggers, and the ages add.
    """
    readers = [
        other.latency.total_seconds()
        for other in environment.jobs.values()
        for each in other.queries.values()
        if isinstance(query, Landing) and isinstance(each, DeriveQuery) and each.source == query.table
    ]
    own = job.latency.total_seconds()
    half = min(readers, default=2 * own) / 2
    if half < own:
        return half, f"{half:g} s (half of the {2 * half:g} s SLA, deriving takes the rest)"
    return own, f"{own:g} s (the whole SLA)"


def _deriving_share(environment: Environment, job: Job, query: DeriveQuery) -> tuple[float, str]:
    landing_job, landing = _landing(environment, query.source)
    landed, _ = _reading_share(environment, landing_job, landing)
    own = job.latency.total_seconds()
    return own - landed, f"{own - landed:g} s (what landing leaves of the {own:g} s SLA)"


def _infeasible(hop: Hop, job: Job, query: Query, error: InfeasibleError) -> Finding:
    if error.term == "trigger" and query.trigger is not None:
        room = hop.work.sla - hop.work.overhead
        return Finding(
            (*hop.path, "trigger"),
            format_duration(query.trigger),
            f"less than {room:g}s: {error}",
            "or raise latency",
        )
    hops_in_sla = job.latency.total_seconds() / hop.work.sla
    least = 2 * hop.work.overhead * hops_in_sla
    default = "latency" not in job.model_fields_set
    return Finding(
        ("jobs", hop.job, "latency"),
        f"{MISSING}, so {format_duration(job.latency)}" if default else format_duration(job.latency),
        f"more than {least:g}s for {hop.query}: {error}",
        "or lower rate.batch_overhead (a), if the benchmark says so",
    )
