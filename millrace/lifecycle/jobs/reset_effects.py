"""Effects of a query's reset: records that it reads again, and sinks that cannot take them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, SourceQueryBase


def records_read_again_lines(
    environment: Environment, job: str, query: str, since: datetime, now: datetime
) -> Iterator[str]:
    """Yield a line for each source with what a query reads again, by the traffic that the environment states.

    Parameters
    ----------
    since
        Start of the query.
    """
    definition = environment.jobs[job].queries[query]
    if isinstance(definition, SourceQueryBase):
        for name in definition.source_stream_names:
            stream = environment.streams[name]
            records = round(stream.traffic.records_per_second * max(0.0, (now - since).total_seconds()))
            size = records * stream.traffic.record_size / 1024**3
            lost = since < now - stream.retention
            yield (
                f"{name}: about {records:,} records ({size:,.2f} GiB) are read again (from the traffic in the environment "
                f"file){'; RECORDS OLDER THAN ITS RETENTION ARE LOST' if lost else ''}"
            )


def reset_objection(environment: Environment, job: str, query: str, at: datetime | None) -> str | None:
    """Return why a query cannot start from the beginning without a wrong table at its sink; None where it can.

    Parameters
    ----------
    at
        Start time; None for that of its settings, or for all landed records.
    """
    definition = environment.jobs[job].queries[query]
    for path, end in definition.sinks_by_place.items():
        if end.sink.keeps is not None:
            route = f" of {path}" if path else ""
            return f"its sink{route} is {end.sink.kind}: {end.sink.keeps}"
    if not isinstance(definition, DeriveQuery):
        return None
    if at is not None:
        what = (
            "a result that is computed from a part of its records is wrong"
            if definition.state
            else "it reads a table"
        )
        return (
            f"it derives from {definition.source}, and {what}: without --at it starts with all landed records"
        )
    if definition.state is not None and definition.state.distinct and not definition.state.key:
        return (
            "it keeps the first of equal records, and of all that landed another one may come first, which is then written "
            "beside the one of before: name another table for it"
        )
    return None
