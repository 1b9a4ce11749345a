"""Jobs that write a table, and queries that read it."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery


def maintained_tables(environment: Environment, job: str) -> tuple[str, ...]:
    """Return the tables that a job maintains: those that it writes and no earlier job in the file writes.

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
    """Yield job and name of each query that derives from a table.

    Parameters
    ----------
    table
        Name of the table in the file.
    """
    for job, one in environment.jobs.items():
        for name, query in one.queries.items():
            if isinstance(query, DeriveQuery):
                joined = query.state.join if query.state is not None else None
                if table == query.source or (joined is not None and table == joined.source):
                    yield job, name
