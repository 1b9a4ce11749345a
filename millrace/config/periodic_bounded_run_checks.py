"""Checks of jobs that run in turns: their period, and what a bounded run cannot do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from millrace.config.document.problems import Finding, Path
from millrace.config.model import Environment, Job
from millrace.config.queries import LandingQueries, OneStreamQueryBase, Query, SourceQueryBase
from millrace.config.units import format_duration

_SHORTEST, _LONGEST, _MINUTE = timedelta(minutes=5), timedelta(days=1), timedelta(minutes=1)


def bounded_run_findings(environment: Environment) -> Iterator[Finding]:
    """Yield what is wrong with the engine's keys of each job, and with its schedule: what bounded runs cannot do."""
    landing = environment.landing_queries
    for name, job in environment.jobs.items():
        yield from _check_run_schedule_of_job(environment, name, job, landing)
        yield from job.check(("jobs", name))


def _check_run_schedule_of_job(
    environment: Environment, name: str, job: Job, landing: LandingQueries
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
        yield from _check_tables_landed_by_other_jobs(environment, name, query_name, landing)


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
    environment: Environment, job: str, query: str, landing: LandingQueries
) -> Iterator[Finding]:
    """Find tables of other jobs where one of the two jobs runs in turns: a run derives what it has landed itself."""
    for table, _ in environment.jobs[job].queries[query].source_tables_and_routes:
        others = {other for other, _, _ in landing.get(table, ())} - {job}
        if others and any(environment.jobs[each].has_bounded_runs for each in (job, *others)):
            allowed = "a table of the same job, as one of the two jobs has bounded runs: one derives what it has landed itself"
            yield Finding(("jobs", job, "queries", query, "source"), table, allowed)
