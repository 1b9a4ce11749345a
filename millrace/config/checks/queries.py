"""Checks of queries: their streams and routes, columns, formats and targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path as FilePath

from millrace.config.checks.transforms import ProjectModules, check_transform, is_function_used_by_transform
from millrace.config.document.explain_validation_errors import did_you_mean_text, findings_of_unknown_name
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.document.yaml_tree import is_file
from millrace.config.formats import KINDS as FORMATS
from millrace.config.formats import PayloadFormat
from millrace.config.formats.base import MOST_SCHEMA_BYTES, FormatUse, file_in_project, is_below_pipelines
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.formats.debezium import DebeziumFormat
from millrace.config.model import Environment
from millrace.config.queries import (
    DeriveQuery,
    DirectQuery,
    DirectRoute,
    LandingQueries,
    Payload,
    Query,
    Route,
    RouteQuery,
    RoutesBase,
    WritesSink,
)
from millrace.config.sinks import KINDS
from millrace.config.sinks.base import SinkUse


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
        if (first := routes.setdefault((route.source, route.topic, route.changes_of), every)) != name:
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
    with suppress(re.error):  # reported where the pattern is written
        if re.fullmatch(pattern, route.topic) is None:
            yield Finding((*path, "topic"), route.topic, f"a topic that the pattern {pattern} matches")


def check_read_routes_exist(path: Path, query: DeriveQuery, landing: LandingQueries) -> Iterator[Finding]:
    """Check that the routes exist that a derive query reads."""
    join = None if query.state is None else query.state.join
    reads = [(path, query.source, query.route)]
    reads += [] if join is None else [((*path, "state", "join"), join.source, join.route)]
    for here, table, route in reads:
        routed = next(
            (each for *_, each in reversed(landing.get(table, [])) if isinstance(each, RouteQuery)), None
        )
        if table not in landing:
            continue  # reported as the source
        if route is not None and routed is None:
            yield Finding((*here, "route"), route, f"nothing: {table} is a table without routes")
        elif route is not None and routed is not None:
            known = list(routed.routes)
            yield from findings_of_unknown_name((*here, "route"), route, known, f"a route of {table}")


_SESSION = "session_window"


def check_state(path: Path, query: DeriveQuery, landing: list[str]) -> Iterator[Finding]:
    """Check that the keys of ``state`` are consistent.

    Parameters
    ----------
    landing
        Names of all landing tables.
    """
    state, here = query.state, (*path, "state")
    if state is None:
        return
    if query.latest_by:
        yield Finding(
            (*path, "latest_by"),
            ", ".join(query.latest_by.key),
            "nothing beside state, whose key says what identifies a result",
        )
    join = state.join
    if join is not None and (
        join.source not in landing or (join.source, join.route) == (query.source, query.route)
    ):
        others = [each for each in landing if each != query.source]
        yield Finding(
            (*here, "join", "source"),
            join.source,
            f"the table of another land query: {', '.join(others) or 'there is none'}",
            did_you_mean_text(join.source, others),
        )
    if query.transform is None and (state.key or join is not None or not state.distinct):
        yield Finding(
            (*path, "transform"),
            MISSING,
            "a function that computes the results: state without a function only supports distinct",
        )
    if "output_mode" in state.model_fields_set and not state.key:
        yield Finding(
            (*here, "output_mode"),
            state.output_mode,
            "nothing without state.key: each row is then a record, which is appended once",
        )


def check_transform_and_its_state(path: Path, end: WritesSink, modules: ProjectModules) -> Iterator[Finding]:
    """Check a transform, and that the query can run what it does to records.

    Parameters
    ----------
    end
        The query or route with the transform.
    """
    if end.transform is None:
        return
    state = end.state if isinstance(end, DeriveQuery) else None
    takes = 2 if state is not None and state.join is not None else 1
    yield from check_transform((*path, "transform"), end.transform, takes, modules)
    if not is_function_used_by_transform(end.transform, _SESSION, modules):
        return
    if not isinstance(end, DeriveQuery):
        yield Finding(
            (*path, "transform"),
            end.transform,
            f"a function without {_SESSION}: a session lasts over many batches; land the topic, then derive with state",
        )
    elif state is None:
        yield Finding(
            (*path, "state"), MISSING, f"a watermark and a key, as {end.transform} has a {_SESSION}"
        )
    elif not state.key:
        yield Finding(
            (*path, "state", "key"),
            MISSING,
            "columns that identify a session, such as a user and when the session began",
        )
    elif state.output_mode != "append":
        yield Finding(
            (*path, "state", "output_mode"),
            state.output_mode if "output_mode" in state.model_fields_set else MISSING,
            f"append: Spark writes the result of a {_SESSION} once, when the watermark has passed its end",
        )


def check_sink(
    path: Path,
    end: WritesSink,
    query: Query,
    environment: Environment,
    landing: LandingQueries,
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
        if sink.refuses and query.dead_letters is None:
            yield Finding(
                (*path, "dead_letters"), MISSING, f"a table for the rows that the {sink.kind} sink refuses"
            )
        if not sink.refuses and query.dead_letters is not None:
            allowed = f"nothing with the {sink.kind} sink, which takes every row"
            yield Finding((*path, "dead_letters"), query.dead_letters, allowed)
        if query.key and not sink.replaces:
            *able, last = (kind for kind, each in KINDS.items() if each.replaces)
            yield Finding(
                (*here, "kind"),
                sink.kind,
                f"with {'latest_by' if query.latest_by else 'state.key'} a sink in which a later result replaces an "
                f"earlier one: {', '.join(able)} or {last}",
            )
    landed = (each for table, _ in query.source_tables_and_routes for *_, each in landing.get(table, []))
    read = {stream for each in (query, *landed) for stream in each.source_stream_names}
    yield from sink.check(SinkUse(here, frozenset(read), environment, root))


def check_distinct_targets(environment: Environment) -> Iterator[Finding]:
    """Refuse two queries that write to one place: neither would know what the other replaced."""
    writers: dict[str, str] = {}
    for job, name, query in environment.queries:
        for at, end in query.sinks_by_place.items():
            if end.sink.in_catalog:
                continue
            key, place = end.sink.target_key_and_name
            path = ("jobs", job, "queries", name, *at, "sink", key)
            if (first := writers.setdefault(place, ".".join(path))) != ".".join(path):
                value = str(getattr(end.sink, key))
                yield Finding(path, value, f"a target that no other query writes; {first} writes it, too")


def check_format(path: Path, query: Payload, root: FilePath) -> Iterator[Finding]:
    """Check a query's schema file and its format.

    Yields
    ------
    Finding
        Nothing if the job can start with them.
    """
    payload_format = query.format
    use = FormatUse(path, query, file_in_project(root, query.schema_), root)
    if use.schema.suffix != payload_format.suffix or not is_below_pipelines(root, query.schema_):
        of = f" for format {payload_format.kind}"
        if "format" not in query.model_fields_set:
            others = [
                kind
                for kind, each in FORMATS.items()
                if each.suffix == use.schema.suffix != payload_format.suffix
            ]
            of = f"; with format {others[0]}: {use.schema.suffix}" if others else ""
        a = "an" if payload_format.suffix == ".avsc" else "a"
        yield use.wrong_schema_finding(
            f"{a} {payload_format.suffix} file below pipelines/, named from there on without .., which travels with the job{of}"
        )
    elif not is_file(use.schema):
        known = [
            str(each.relative_to(root.resolve()))
            for each in sorted(file_in_project(root, "pipelines").rglob(f"*{payload_format.suffix}"))
        ]
        yield Finding(
            (*path, "schema"), query.schema_, "a file that exists", did_you_mean_text(query.schema_, known)
        )
    elif (size := use.schema.stat().st_size) > MOST_SCHEMA_BYTES:
        yield use.wrong_schema_finding(f"a file of at most {MOST_SCHEMA_BYTES:,} bytes, and not {size:,}")
    else:
        yield from payload_format.check_schema(use)
    yield from payload_format.check(use)
    if payload_format.deletes and isinstance(query, DirectQuery | DirectRoute):
        yield Finding(
            (*path, "format", "kind"),
            payload_format.kind,
            "a format of rows, or a land query and a derive query with latest_by: a change may delete, and rows of this query are "
            "known by their place in the topic",
        )


def advice_on_schemas(environment: Environment, root: FilePath) -> Iterator[str]:
    """Yield what is valid in the schemas of an environment and yet lets records pass that nobody means."""
    for job, each in environment.jobs.items():
        for name, query in each.queries.items():
            for payload in query.stream_readings_by_place.values():
                fields = payload.format.fields(root / payload.schema_) or ()
                for advice in payload.format.schema_advice(fields):
                    yield f"jobs.{job}.queries.{name}: {payload.schema_}: {advice}"
