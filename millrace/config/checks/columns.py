"""Checks of the columns that a query names: against schema files, and against the words in its transform."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path as FilePath

from millrace.config.checks import transforms
from millrace.config.checks.transforms import ProjectModules
from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Finding, Path
from millrace.config.formats.base import schema_file_below_pipelines
from millrace.config.formats.change_format_base import CHANGE
from millrace.config.formats.ddl import DdlType
from millrace.config.model import Environment
from millrace.config.queries import (
    DeriveQuery,
    DirectQuery,
    DirectRoute,
    Enrichment,
    LandQuery,
    LatestBy,
    Payload,
    RouteName,
    RouteQuery,
    Watermark,
    WritesSink,
)
from millrace.config.sinks import KINDS

_TEXT, _TIME = DdlType("string"), DdlType("timestamp")
ENVELOPE: Mapping[str, DdlType] = {
    "_id": _TEXT,
    "_source": _TEXT,
    "_shard": _TEXT,
    "_position": _TEXT,
    "_key": DdlType("binary"),
    "_headers": DdlType("array"),
    "_hash": DdlType("bigint"),
    "_arrived_at": _TIME,
    "_landed_at": _TIME,
}
"""Columns of a record in addition to its payload (``etl.record.envelope``)."""

_BAD: Mapping[str, DdlType] = {"_bytes": DdlType("binary"), "_stage": _TEXT, "_error": _TEXT}
"""More columns of a landing table, for bad records."""

REDACTED = DdlType("redacted")
"""Type of a field that is null in all tables (``redact``)."""

Columns = Mapping[str, DdlType]


@dataclass(frozen=True)
class ColumnCatalog:
    """Columns of all tables that the environment's schema files describe.

    Parameters
    ----------
    tables
        Fields by landing table and route, without a route those of the table itself; None if their schema cannot be read.
    with_tombstones
        Landing tables in which records without a payload are deletes.
    """

    root: FilePath
    tables: Mapping[tuple[str, RouteName | None], Columns | None]
    with_tombstones: Set[str]

    @classmethod
    def from_schema_files(cls, environment: Environment, root: FilePath) -> ColumnCatalog:
        """Read the schemas of all landing tables."""
        tables: dict[tuple[str, RouteName | None], Columns | None] = {}
        with_tombstones = set()
        for _, _, query in environment.queries:
            if isinstance(query, LandQuery):
                tables[query.table, None] = payload_fields(query, root)
                if query.kafka is not None and query.kafka.null_payload == "delete":
                    with_tombstones.add(query.table)
            elif isinstance(query, RouteQuery):
                tables[query.table, None] = {name: DdlType("struct") for name in query.routes}
                tables |= {
                    (query.table, name): payload_fields(each, root) for name, each in query.routes.items()
                }
        return cls(root, tables, with_tombstones)

    def columns_of_table_or_route(self, table: str, route: RouteName | None) -> Columns | None:
        """Return the columns that a query finds in a landing table or in one of its routes; None if they are not known."""
        fields = self.tables.get((table, route))
        return None if fields is None else {**fields, **ENVELOPE}


def payload_fields(payload: Payload, root: FilePath) -> dict[str, DdlType] | None:
    """Return the fields of a payload by name; None if its schema file is wrong or its format has no fixed fields."""
    try:
        fields = payload.format.fields(schema_file_below_pipelines(root, payload.schema_))
    except (ValueError, OSError, TypeError, KeyError):
        return None
    if fields is None:
        return None
    return {each.name: REDACTED if each.name in payload.redact else each.kind for each in fields}


def check_redact(path: Path, query: Payload, root: FilePath) -> Iterator[Finding]:
    """Check that redacted fields exist."""
    fields = payload_fields(query, root) if query.redact else None
    for position, name in enumerate(query.redact if fields is not None else ()):
        yield from _missing_column_finding(
            (*path, position),
            name,
            dict.fromkeys(fields or (), _TEXT),
            f"a top-level field of {query.schema_}",
        )


def check_rules(path: Path, query: Payload, root: FilePath) -> Iterator[Finding]:
    """Check that each rule is a condition on fields that exist and are not redacted."""
    if not query.rules:
        return
    from millrace.config.sql_conditions import parse_condition  # its parser takes half a second to import

    fields = payload_fields(query, root)
    known = None if fields is None else {name.lower(): kind for name, kind in {**fields, **ENVELOPE}.items()}
    for name, rule in query.rules.items():
        here = (*path, name, "where")
        try:
            columns = parse_condition(rule.where).columns
        except ValueError as error:
            yield Finding(here, rule.where, str(error))
            continue
        for column in columns if known is not None else ():
            yield from _missing_column_finding(
                here, column.lower(), known or {}, f"a field of {query.schema_}"
            )


def check_columns(
    path: Path, end: WritesSink, catalog: ColumnCatalog, modules: ProjectModules
) -> Iterator[Finding]:
    """Check the columns of a query or route that writes into a sink.

    Parameters
    ----------
    catalog
        Columns of the tables that it may read.
    modules
        Modules of the project, including its transform.
    """
    read, where = _columns_read_and_their_name(end, catalog)
    state = end.state if isinstance(end, DeriveQuery) else None
    joined: Columns | None = None
    if state is not None:
        yield from _check_watermark((*path, "state", "watermark"), state.watermark, read, where)
        for position, name in enumerate(state.distinct if read is not None else ()):
            yield from _missing_column_finding(
                (*path, "state", "distinct", position), name, read or {}, where
            )
        if state.join is not None:
            joined = catalog.columns_of_table_or_route(state.join.source, state.join.route)
            place = (*path, "state", "join", "watermark")
            yield from _check_watermark(
                place, state.join.watermark, joined, f"a field of {state.join.source}"
            )
    after = state is not None and end.transform is not None
    known = None if after else read
    for position, enrichment in enumerate(end.enrich):
        here = (*path, "enrich", position)
        yield from _check_enrichment(here, enrichment, known, where, catalog)
        if known is not None:
            known = {**known, **{name: DdlType("unknown") for name in enrichment.columns}}
    words = (
        _column_and_field_names(read)
        | _column_and_field_names(joined)
        | {name for each in end.enrich for name in each.columns}
    )
    if isinstance(end, DeriveQuery) and end.latest_by is not None:
        yield from _check_latest_by(path, end, end.latest_by, read, end.source in catalog.with_tombstones)
    for place, name in _named_result_columns(end):
        if name in words or (read is None and end.transform is None):
            continue
        if end.transform is None:
            yield from _missing_column_finding(
                (*path, *place), name, known or {}, f"a column of the result: {where}"
            )
        elif read is not None and not transforms.may_make_column(end.transform, name, modules):
            yield Finding(
                (*path, *place),
                name,
                f"a column of the result: neither what is read nor the module of {end.transform} has this word",
                did_you_mean_text(name, sorted(words)),
            )


def _check_latest_by(
    path: Path, end: DeriveQuery, latest: LatestBy, read: Columns | None, tombstones: bool
) -> Iterator[Finding]:
    path_of_key = (*path, "latest_by")
    changes = read is not None and CHANGE.name in read
    if latest.order is not None and (latest.history or changes or tombstones):
        yield Finding(
            (*path_of_key, "order"),
            latest.order,
            # It would be older than each row: a delete may lack the column, a truncate has none.
            "no order beside deletes, which have no value of the column: their order is that of the topic, or of the database's log",
        )
    if not latest.history:
        return
    if read is not None and not changes:
        yield Finding(
            (*path_of_key, "history"),
            "true",
            f"nothing: {end.source} has no changes of a database (formats debezium and dms)",
        )
    if end.sink.replaces and not end.sink.in_catalog:
        kinds = ", ".join(kind for kind, each in KINDS.items() if each.in_catalog and each.replaces)
        yield Finding((*path, "sink", "kind"), end.sink.kind, f"with history a table of the lake: {kinds}")


def _named_result_columns(end: WritesSink) -> Iterator[tuple[Path, str]]:
    """Yield the columns of the result that a query names, with their places."""
    if isinstance(end, DeriveQuery):
        latest = end.latest_by
        for position, name in enumerate(latest.key if latest is not None else ()):
            # Written as a list, as a rule, where nothing else is named.
            named = latest is not None and (latest.order or latest.history)
            yield ("latest_by", *(("key",) if named else ()), position), name
        if latest is not None and latest.order is not None:
            yield ("latest_by", "order"), latest.order
        for position, name in enumerate(end.state.key if end.state is not None else ()):
            yield ("state", "key", position), name
    key = getattr(end.sink, "key", None)
    if isinstance(key, str):
        yield ("sink", "key"), key


def _columns_read_and_their_name(end: WritesSink, catalog: ColumnCatalog) -> tuple[Columns | None, str]:
    """Return the columns that a query reads, and how messages call them."""
    if isinstance(end, DirectQuery | DirectRoute):
        fields = payload_fields(end, catalog.root)
        return None if fields is None else {**fields, **ENVELOPE}, f"a field of {end.schema_}"
    columns = catalog.columns_of_table_or_route(end.source, end.route)
    if columns is not None and end.latest_by:
        columns = {**columns, "_deleted": DdlType("boolean")}
    route = "" if end.route is None else f", route {end.route}"
    return columns, f"a field of {end.source}{route}"


def _check_watermark(path: Path, mark: Watermark, columns: Columns | None, where: str) -> Iterator[Finding]:
    if columns is None:
        return
    if (kind := columns.get(mark.time)) is None:
        times = [name for name, each in columns.items() if each.name == "timestamp"]
        yield from _missing_column_finding(
            (*path, "time"), mark.time, dict.fromkeys(times, _TIME), f"a timestamp, {where}"
        )
    elif kind == REDACTED:
        yield from _missing_column_finding((*path, "time"), mark.time, columns, where)
    elif kind.name != "timestamp":
        yield Finding(
            (*path, "time"),
            mark.time,
            f"a timestamp, {where}, or _arrived_at; the schema says {kind.name.upper()}",
        )


def _check_enrichment(
    path: Path, enrichment: Enrichment, known: Columns | None, where: str, catalog: ColumnCatalog
) -> Iterator[Finding]:
    for ours in enrichment.on if known is not None else ():
        yield from _missing_column_finding(
            (*path, "on", ours), ours, known or {}, f"{where}, or what an earlier enrichment adds"
        )
    for new in enrichment.columns:
        if known is not None and new in known and not new.startswith("_"):
            yield Finding(
                (*path, "columns", new), new, f"a new column: the stream has {new} already ({where})"
            )
    if (table := catalog.columns_of_table_or_route(enrichment.table, None)) is None:
        return
    for key in ("on", "columns"):
        for ours, theirs in getattr(enrichment, key).items():
            yield from _missing_column_finding(
                (*path, key, ours), theirs, {**table, **_BAD}, f"a column of {enrichment.table}"
            )


def _missing_column_finding(path: Path, name: str, columns: Columns, where: str) -> Iterator[Finding]:
    if columns.get(name) == REDACTED:
        yield Finding(path, name, "a field that is not redacted: its value reaches no table")
    elif name not in columns:
        own = [each for each in columns if not each.startswith("_")]
        listed = f": {', '.join(own)}" if 0 < len(own) <= 12 else ""
        yield Finding(path, name, f"{where}{listed}", did_you_mean_text(name, list(columns)))


def _column_and_field_names(columns: Columns | None) -> set[str]:
    """Return the names of columns and of the fields inside them: a transform may flatten a struct."""
    columns = columns or {}
    types = (each for kind in columns.values() for each in kind.with_types_inside())
    return {
        *(name for name, kind in columns.items() if kind != REDACTED),
        *(field.name for each in types for field in each.fields),
    }
