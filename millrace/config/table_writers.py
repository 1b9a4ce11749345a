"""Which job writes a table, and which queries read it."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery


def maintained_tables(environment: Environment, job: str) -> tuple[str, ...]:
    """Tables that a job keeps up: those it writes and no job before it in the file.

    Parameters
    ----------
    job
        One of its jobs.
    """
    owners: dict[str, str] = {}
    for name, one in environment.jobs.items():
        for query in one.queries.values():
            for table in query.writes.values():
                owners.setdefault(table, name)
    return tuple(table for table, owner in owners.items() if owner == job)


def readers(environment: Environment, table: str) -> Iterator[tuple[str, str]]:
    """Job and name of each query that derives from a table.

    Parameters
    ----------
    table
        As jobs name it.
    """
    for job, one in environment.jobs.items():
        for name, query in one.queries.items():
            if isinstance(query, DeriveQuery):
                joined = query.state.join if query.state is not None else None
                if table == query.source or (joined is not None and table == joined.source):
                    yield job, name
