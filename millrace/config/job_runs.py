"""Checks of jobs that run in turns: their period, and what such a run cannot do."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.model import Environment, Job
from millrace.config.queries import DeriveQuery, Landing, SourceQuery, StreamQuery
from millrace.config.units import format_duration

_SHORTEST, _LONGEST, _MINUTE = timedelta(minutes=5), timedelta(days=1), timedelta(minutes=1)


def check_run(
    environment: Environment, name: str, job: Job, landing: Mapping[str, Sequence[Landing]]
) -> Iterator[Finding]:
    """Check the keys of one job that decide when it runs.

    Parameters
    ----------
    landing
        Queries that land each table.
    """
    path: Path = ("jobs", name)
    if job.run == "continuous":
        if job.period is not None:
            yield Finding((*path, "period"), format_duration(job.period), "nothing without `run: bounded`")
        yield from _of_other_jobs(environment, path, job, landing)
        return
    if job.period is None:
        yield Finding((*path, "period"), MISSING, "the time from one run to the next, such as 10min")
    elif not _SHORTEST <= job.period <= _LONGEST or job.period % _MINUTE:
        yield Finding((*path, "period"), format_duration(job.period), "whole minutes, 5 minutes to a day")
    for query_name, query in job.queries.items():
        here = (*path, "queries", query_name)
        if query.trigger is not None:
            allowed = "nothing with `run: bounded`: `period` says when batches begin"
            yield Finding((*here, "trigger"), format_duration(query.trigger), allowed)
        if isinstance(query, StreamQuery) and query.kafka is not None:
            least = query.kafka.min_records_per_batch
            if least is not None:
                allowed = "nothing with `run: bounded`: a run does not wait for records"
                yield Finding((*here, "kafka", "min_records_per_batch"), str(least), allowed)
        if isinstance(query, SourceQuery) and query.start == "latest":
            streams = (environment.streams.get(each) for each in query.streams)
            if any(stream is not None and stream.fetched_whole for stream in streams):
                allowed = "earliest or a time: with `run: bounded` each run would skip what came to an idle shard before it"
                yield Finding((*here, "start"), "latest", allowed)
        if isinstance(query, DeriveQuery):
            yield from _landed_elsewhere(here, query, job, landing)


def _landed_elsewhere(
    path: Path, query: DeriveQuery, job: Job, landing: Mapping[str, Sequence[Landing]]
) -> Iterator[Finding]:
    own = {each.table for each in job.queries.values() if isinstance(each, Landing)}
    for table, _ in query.reads:
        if table in landing and table not in own:
            allowed = (
                "a table that this job lands: with `run: bounded` a query derives what its own run has landed"
            )
            yield Finding((*path, "source"), table, allowed)


def _of_other_jobs(
    environment: Environment, path: Path, job: Job, landing: Mapping[str, Sequence[Landing]]
) -> Iterator[Finding]:
    bounded = {
        id(query)
        for other in environment.jobs.values()
        if other.run == "bounded"
        for query in other.queries.values()
    }
    for query_name, query in job.queries.items():
        for table, _ in query.reads if isinstance(query, DeriveQuery) else ():
            if any(id(each) in bounded for each in landing.get(table, ())):
                allowed = "a table of a job that runs all the time: the job that lands this one has `run: bounded`; derive there"
                yield Finding((*path, "queries", query_name, "source"), table, allowed)
