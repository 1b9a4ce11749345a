"""Checks of routes: records that each route takes, and queries that read routed records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.formats import PayloadFormat
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.formats.debezium import DebeziumFormat
from millrace.config.model import Environment
from millrace.config.queries import DeriveQuery, LandingQueryBase, Route, RouteQuery, RoutesBase


def check_routes(path: Path, query: RoutesBase, environment: Environment) -> Iterator[Finding]:
    """Check that each record can take one route at most."""
    routes: dict[tuple[str, str | None, str | None], str] = {}
    forms: dict[tuple[str, str | None], PayloadFormat] = {}
    whole = {
        (each.source, each.topic): name
        for name, each in reversed([*query.routes.items()])
        if each.changes_of is None
    }
    for name, route in query.routes.items():
        here = (*path, "routes", name)
        stream = environment.streams.get(route.source)
        pattern = None if stream is None else stream.topic_pattern
        if stream is not None:
            yield from _check_route_topic(here, route, pattern)
        yield from _check_changes_route(here, route)
        # The first route's format tells the table of every change.
        form = forms.setdefault((route.source, route.topic), route.format) if route.changes_of else None
        if form is not None and route.format != form:
            allowed = f"the format of the other routes of {route.source}: {form.kind}"
            yield Finding((*here, "format"), route.format.kind, allowed)
        every = whole.get((route.source, route.topic), name)
        first = routes.setdefault((route.source, route.topic, route.changes_of), every)
        if first != name:
            key = "changes_of" if route.changes_of else "topic" if route.topic else "source"
            yield Finding(
                (*here, key),
                getattr(route, key),
                f"records that no other route takes; {first} takes these",
            )


def _check_changes_route(path: Path, route: Route) -> Iterator[Finding]:
    if route.changes_of is None:
        return
    if not isinstance(route.format, ChangeFormat):
        yield Finding(
            (*path, "changes_of"), route.changes_of, f"nothing: {route.format.kind} has no changes of tables"
        )
    elif isinstance(route.format, DebeziumFormat) and route.format.payload == "avro":
        yield Finding(
            (*path, "changes_of"),
            route.changes_of,
            "nothing with payload avro: use one stream for each table",
        )
    if route.decompress_up_to is not None:
        yield Finding(
            (*path, "decompress_up_to"),
            str(route.decompress_up_to),
            "nothing: a compressed event does not show its table",
        )


def _check_route_topic(path: Path, route: Route, pattern: str | None) -> Iterator[Finding]:
    if pattern is None:
        if route.topic is not None:
            yield Finding(
                (*path, "topic"),
                route.topic,
                f"nothing: {route.source} is one stream, and no pattern of topics",
            )
        return
    if route.topic is None:
        yield Finding((*path, "topic"), MISSING, f"one topic of the pattern {pattern}")
        return
    try:
        fits = re.fullmatch(pattern, route.topic) is not None
    except re.error:
        return  # reported where the pattern is written
    if not fits:
        yield Finding((*path, "topic"), route.topic, f"a topic that the pattern {pattern} matches")


def check_read_routes_exist(
    path: Path, query: DeriveQuery, landing: Mapping[str, Sequence[LandingQueryBase]]
) -> Iterator[Finding]:
    """Check that the routes exist that a derive query reads."""
    join = None if query.state is None else query.state.join
    reads = [(path, query.source, query.route)]
    reads += [] if join is None else [((*path, "state", "join"), join.source, join.route)]
    for here, table, route in reads:
        routed = next(
            (each for each in reversed(landing.get(table, [])) if isinstance(each, RouteQuery)), None
        )
        if table not in landing:
            continue  # reported as the source
        if route is not None and routed is None:
            yield Finding((*here, "route"), route, f"nothing: {table} is a table without routes")
        elif route is not None and routed is not None and route not in routed.routes:
            known = list(routed.routes)
            yield Finding(
                (*here, "route"),
                route,
                f"a route of {table}: {', '.join(known)}",
                did_you_mean_text(route, known),
            )
