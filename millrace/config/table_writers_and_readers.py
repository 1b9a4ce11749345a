"""Jobs that write a table, and queries that read it."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.model import Environment


def maintained_tables(environment: Environment, job: str) -> tuple[str, ...]:
    """Return the tables that a job maintains: those that it writes and no earlier job in the file writes.

    Parameters
    ----------
    job
        One of its jobs.
    """
    return tuple(table for table, (first, *_) in environment.table_writers.items() if first == job)


def readers_of_table(environment: Environment, table: str) -> Iterator[tuple[str, str]]:
    """Yield job and name of each query that derives from a table.

    Parameters
    ----------
    table
        Name of the table in the file.
    """
    return (
        (job, name)
        for job, name, query in environment.queries
        if table in dict(query.source_tables_and_routes)
    )
