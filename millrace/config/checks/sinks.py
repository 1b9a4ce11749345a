"""Checks of sinks: each sink's own checks, a table for refused rows, no two queries with one target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath

from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.model import Environment
from millrace.config.queries import (
    DeriveQuery,
    LandingQueryBase,
    Query,
    WritesSink,
)
from millrace.config.sinks import KINDS
from millrace.config.sinks.base import SinkUse


def check_sink(
    path: Path,
    end: WritesSink,
    query: Query,
    environment: Environment,
    landing: Mapping[str, Sequence[LandingQueryBase]],
    root: FilePath,
) -> Iterator[Finding]:
    """Check the sink of a query or of one of its routes.

    Parameters
    ----------
    end
        The query or route with the sink.
    environment
        Its valid parts.
    landing
        Queries that land each table.
    root
        Folder of the project, with certificates.
    """
    sink, here = end.sink, (*path, "sink")
    if isinstance(query, DeriveQuery):
        yield from _dead_letter_findings(path, query)
        if query.key and not sink.replaces:
            *able, last = (kind for kind, each in KINDS.items() if each.replaces)
            yield Finding(
                (*here, "kind"),
                sink.kind,
                f"with {'latest_by' if query.latest_by else 'state.key'} a sink in which a later result replaces an "
                f"earlier one: {', '.join(able)} or {last}",
            )
    yield from sink.check(SinkUse(here, frozenset(_streams_read_by(query, landing)), environment, root))


def check_distinct_targets(environment: Environment) -> Iterator[Finding]:
    """Refuse two queries that write to one place: neither would know what the other replaced."""
    writers: dict[str, str] = {}
    for job, name, query in environment.queries:
        for at, end in query.sinks_by_place.items():
            if end.sink.in_catalog:
                continue
            key, place = end.sink.target_key_and_name
            path = ("jobs", job, "queries", name, *at, "sink", key)
            first = writers.setdefault(place, ".".join(path))
            if first != ".".join(path):
                value = str(getattr(end.sink, key))
                yield Finding(path, value, f"a target that no other query writes; {first} writes it, too")


def _dead_letter_findings(path: Path, query: DeriveQuery) -> Iterator[Finding]:
    here = (*path, "dead_letters")
    if query.sink.refuses and query.dead_letters is None:
        yield Finding(here, MISSING, f"a table for the rows that the {query.sink.kind} sink refuses")
    if not query.sink.refuses and query.dead_letters is not None:
        yield Finding(
            here, query.dead_letters, f"nothing with the {query.sink.kind} sink, which takes every row"
        )


def _streams_read_by(query: Query, landing: Mapping[str, Sequence[LandingQueryBase]]) -> set[str]:
    """Return the streams whose records reach a query."""
    landed = (each for table, _ in query.source_tables_and_routes for each in landing.get(table, []))
    return {*query.source_stream_names, *(stream for each in landed for stream in each.source_stream_names)}
