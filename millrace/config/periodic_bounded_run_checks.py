"""Checks of jobs that run in turns: their period, and what a bounded run cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from millrace.config.base import grouped
from millrace.config.document.problems import Finding, Path
from millrace.config.model import Environment, Job
from millrace.config.queries import LandingQueryBase, OneStreamQueryBase, Query, SourceQueryBase
from millrace.config.units import format_duration

_SHORTEST, _LONGEST, _MINUTE = timedelta(minutes=5), timedelta(days=1), timedelta(minutes=1)


def land_queries_by_table(environment: Environment) -> dict[str, list[LandingQueryBase]]:
    """Return the queries that land each table."""
    return grouped(
        (query.table, query) for _, _, query in environment.queries if isinstance(query, LandingQueryBase)
    )


def bounded_run_findings(environment: Environment) -> Iterator[Finding]:
    """Yield what jobs with bounded runs cannot do in an environment that is else valid."""
    landing = land_queries_by_table(environment)
    for name, job in environment.jobs.items():
        yield from check_run_schedule_of_job(environment, name, job, landing)
        yield from job.check(("jobs", name))


def check_run_schedule_of_job(
    environment: Environment, name: str, job: Job, landing: Mapping[str, Sequence[LandingQueryBase]]
) -> Iterator[Finding]:
    """Check when one job runs, and that its queries can run so.

    Parameters
    ----------
    landing
        Queries that land each table.
    """
    path: Path = ("jobs", name)
    every = job.run_every
    if "run_every" in job.model_fields_set and every is not None and job.run in ("continuous", "auto"):
        yield Finding((*path, "run_every"), format_duration(every), f"nothing with `run: {job.run}`")
    if every is not None and (not _SHORTEST <= every <= _LONGEST or every % _MINUTE):
        yield Finding((*path, "run_every"), format_duration(every), "whole minutes, 5 minutes to a day")
    for query_name, query in job.queries.items():
        here = (*path, "queries", query_name)
        if job.has_bounded_runs:
            yield from _check_query_of_bounded_run(environment, here, query)
        yield from _check_tables_landed_by_other_jobs(environment, here, query, job, landing)


def _check_query_of_bounded_run(environment: Environment, path: Path, query: Query) -> Iterator[Finding]:
    if query.trigger is not None:
        allowed = "nothing with bounded runs, whose period says when batches begin"
        yield Finding((*path, "trigger"), format_duration(query.trigger), allowed)
    reading = query.kafka if isinstance(query, OneStreamQueryBase) else None
    if reading is not None and reading.min_records_per_batch is not None:
        allowed = "nothing with bounded runs: one does not wait for records"
        yield Finding((*path, "kafka", "min_records_per_batch"), str(reading.min_records_per_batch), allowed)
    if isinstance(query, SourceQueryBase) and query.start == "latest":
        streams = (environment.streams.get(each) for each in query.source_stream_names)
        if any(stream is not None and stream.fetched_whole for stream in streams):
            allowed = "earliest or a time: each bounded run would skip what came to an idle shard before it"
            yield Finding((*path, "start"), "latest", allowed)


def _check_tables_landed_by_other_jobs(
    environment: Environment,
    path: Path,
    query: Query,
    job: Job,
    landing: Mapping[str, Sequence[LandingQueryBase]],
) -> Iterator[Finding]:
    """Find tables of other jobs where one of the two jobs runs in turns: a run derives what it has landed itself."""
    own = {id(each) for each in job.queries.values()}
    jobs = environment.jobs.values()
    for table, _ in query.source_tables_and_routes:
        others = {id(each) for each in landing.get(table, ())} - own
        in_turns = (id(each) for other in jobs if other.has_bounded_runs for each in other.queries.values())
        if others and (job.has_bounded_runs or not others.isdisjoint(in_turns)):
            allowed = "a table of the same job, as one of the two jobs has bounded runs: one derives what it has landed itself"
            yield Finding((*path, "source"), table, allowed)
