"""Manifest of a checkpoint: who wrote it, and whether another version of its query may continue from it.

A checkpoint holds positions that only its connectors, the order of its sources and the layout of its state explain, and
names none of them. The manifest beside it does. Pure functions, without a session.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .. import __version__
from ..launch import typed_json
from ..launch.engine_interface_and_registry import KINESIS_IN_PYTHON
from ..launch.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    LandSettings,
    QuerySettings,
)
from ..launch.sources import group_sources_into_legs

FORMAT, TEXTS = 1, 2
"""Versions of a manifest's form, and of its texts: those of version 1 had no routes, no watermark of a joined stream, and
operators without arguments and the columns of joins."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
KINESIS = {
    "kinesis": "Glue's connector or one of its family",
    "aws-kinesis": "EMR's connector",
    KINESIS_IN_PYTHON: "the sandbox's own reader on Spark 4",
}
"""Connectors of Kinesis by Spark's name for them, each with a description for messages; none reads another's positions."""


class ManifestError(ValueError):
    """Error of a text that is not a manifest of this version's format."""


@dataclass(frozen=True)
class ManifestSource:
    """One line of the offset log: its connector and what it reads.

    Attributes
    ----------
    connector
        Such as ``kafka`` or ``iceberg``; for Kinesis the engine's connector, such as ``aws-kinesis``.
    of
        What it reads, under its key in the file: region and stream; connection; table.
    topics
        Topics that are read together, where a leg can have several.
    """

    connector: str
    of: str
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.connector} {self.of}" + (f" ({', '.join(self.topics)})" if self.topics else "")


@dataclass(frozen=True)
class StatefulQueryState:
    """State that a query keeps between batches.

    Attributes
    ----------
    time
        Column of the watermark; of a join, those of both streams.
    key, distinct, joined
        As the query's settings have them; ``joined`` is the second table.
    provider, partitions
        Spark's state store and its number of partitions; a checkpoint keeps its own, whatever the session sets
        (``OffsetSeqMetadata.relevantSQLConfs`` in Spark).
    """

    time: str
    key: tuple[str, ...]
    distinct: tuple[str, ...]
    joined: str | None
    provider: str | None
    partitions: str | None


@dataclass(frozen=True)
class Manifest:
    """Description of the job version that wrote a checkpoint.

    Attributes
    ----------
    engine, spark, core
        Engine, Spark's version and this core's version.
    legs
        In the offset log's order.
    sinks
        Kind and name of each, by route, ``""`` for a query without routes.
    servers
        Database, cluster, domain or region of sinks outside the lake, by route.
    names
        Name in the file of each stream and topic, by its place and its name there.
    routes
        Topic or stream, and table of changes, whose records take each route that has a name.
    partitions
        Partitions of each topic that is shared with other jobs, by the place in ``names``; None where unknown.
    types
        Types of the key's and the order's columns in the result, as :func:`~etl.sinks.delivery.keyed_rows.type_in_identity`
        names them; empty where unknown.
    state
        None for a query without state.
    operators
        Spark's stateful operators with their keys, from its plan; None where unknown.
    schemas, code
        Digests of schema files and transforms, by name: for information only, they refuse nothing here.
    texts
        Version of the texts in ``legs``, ``state`` and ``operators``.
    """

    engine: str
    spark: str
    core: str
    query: str
    kind: str
    legs: tuple[ManifestSource, ...]
    sinks: Mapping[str, str]
    state: StatefulQueryState | None
    operators: tuple[str, ...] | None
    schemas: Mapping[str, str]
    code: Mapping[str, str]
    texts: int = 1
    servers: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    routes: Mapping[str, str] = field(default_factory=dict)
    partitions: Mapping[str, tuple[int, ...]] | None = None
    types: Mapping[str, str] = field(default_factory=dict)


def make_manifest(
    job: JobSettings,
    query: QuerySettings,
    *,
    spark: str,
    conf: Callable[[str], str | None],
    schema_text: Callable[[str], bytes | None],
) -> Manifest:
    """Return the description of the checkpoint that a query would write.

    Parameters
    ----------
    conf
        Returns a Spark setting; None where it is not set.
    schema_text
        Returns a schema file's bytes; None where it cannot be read from here.
    """
    state = None
    if isinstance(query, DeriveSettings) and query.state is not None:
        keeping = query.state
        marks, joined = [keeping.watermark], None
        if keeping.join is not None:
            marks, joined = [*marks, keeping.join.watermark], keeping.join.source_table
        times = ", ".join(mark.time for mark in marks)
        settings = (conf(PROVIDER), conf(PARTITIONS))
        state = StatefulQueryState(times, keeping.key, keeping.distinct, joined, *settings)
    ends = _settings_with_sink_by_route(query)
    places = {
        f"{each.stream_or_cluster_of_positions(job)} {each.physical_name}": each
        for each in getattr(query, "sources", ())
    }
    paths = {route.schema for route in getattr(query, "routes", ())}
    schemas = {path: schema_text(path) for path in sorted(paths)}
    transforms = sorted({t for end in ends.values() if (t := getattr(end, "transform", None)) is not None})
    return Manifest(
        engine=job.engine,
        spark=spark,
        core=__version__,
        query=query.name,
        kind=query.kind,
        legs=_sources_of_query(job, query, spark),
        sinks={route: _describe_sink(end) for route, end in ends.items()},
        state=state,
        operators=None,
        schemas={path: _hex_digest(data) for path, data in schemas.items() if data is not None},
        code={
            name: _hex_digest(source.encode())
            for name in transforms
            if (source := _transform_source_text(name)) is not None
        },
        texts=TEXTS,
        servers={
            route: server
            for route, end in ends.items()
            if (sink := getattr(end, "sink", None)) and (server := sink.server(job))
        },
        names={place: each.name for place, each in places.items()},
        routes={
            route.name: " ".join(filter(None, (route.origin or route.source.physical_name, route.changes_of)))
            for route in getattr(query, "routes", ())
            if route.name is not None
        },
        partitions={
            place: each.assigned_partitions
            for place, each in places.items()
            if each.assigned_partitions is not None
        },
    )


def parse_manifest(text: str) -> Manifest:
    """Read a manifest back.

    Raises
    ------
    ManifestError
        The text is not JSON, not a manifest, or of a later format.
    """
    try:
        content = json.loads(text)
        if isinstance(content, dict):
            # Earlier versions did not write these; keys of a later version of the same format say nothing that this one compares.
            absent = {"texts": 1, "servers": {}, "names": {}, "routes": {}, "partitions": None, "types": {}}
            known = {"version", *(each.name for each in fields(Manifest))}
            content = {key: value for key, value in {**absent, **content}.items() if key in known}
        manifest: Manifest = typed_json.read_versioned(Manifest, json.dumps(content), "manifest", FORMAT)
    except ValueError as error:
        raise ManifestError(f"not a manifest: {error}") from error
    return manifest


def describe_sinks_of_stream(query: QuerySettings, stream: str) -> str:
    """Return kind and name of each sink that gets the records of a stream, by the stream's logical name."""
    ends = _settings_with_sink_by_route(query).values()
    mine = [end for end in ends if getattr(end, "source", None) is not None and end.source.name == stream]
    # A query with routes has one table for all of them.
    return "; ".join(
        sorted({_describe_sink(end if hasattr(end, "sink") else query) for end in mine})
    ) or _describe_sink(query)


def _sources_of_query(job: JobSettings, query: QuerySettings, spark: str) -> tuple[ManifestSource, ...]:
    if isinstance(query, DeriveSettings):
        join = None if query.state is None else query.state.join
        routes = (query.route, None if join is None else join.route)
        # A position is behind the records of all routes, so those of another one would be passed over.
        return tuple(
            ManifestSource("iceberg", table if route is None else f"{table} (route {route})")
            for table, route in zip(query.landing_tables, routes, strict=False)
        )
    return tuple(
        ManifestSource(
            leg[0].connector_name(job.runs_on, spark),
            leg[0].stream_or_cluster_of_positions(job),
            tuple(
                each.name_in_checkpoint_manifest
                for each in leg
                if each.name_in_checkpoint_manifest is not None
            ),
        )
        for leg in group_sources_into_legs(query.sources)
    )


def _settings_with_sink_by_route(query: QuerySettings) -> dict[str, Any]:
    """Return the settings that have a table or a sink, by route; ``""`` where there are no routes."""
    if isinstance(query, DirectSettings):
        return {route.name or "": route for route in query.routes}
    return {"": query}


def lake_tables_of_query(query: QuerySettings) -> frozenset[str]:
    """Return the tables (``database.table``) that hold what a query's checkpoint is behind: those it writes, and landing tables."""
    tables = {query.dead_letters} if isinstance(query, DeriveSettings | DirectSettings) else {query.table}
    sinks = (getattr(end, "sink", None) for end in _settings_with_sink_by_route(query).values())
    tables |= {sink.lake_table for sink in sinks if sink is not None}
    return frozenset(each for each in tables if each is not None) | {*getattr(query, "landing_tables", ())}


def _describe_sink(end: Any) -> str:
    if isinstance(end, LandSettings):
        return f"iceberg {end.table}"
    if not isinstance(end, DeriveSettings) or not end.latest_by:
        return str(end.sink.kind_and_target_name)
    order = f" in the order of {end.latest_order}" if end.latest_order else ""
    return f"{end.sink.kind_and_target_name} by {', '.join(end.latest_by)}{order}{' with history' if end.history else ''}"


def _transform_source_text(transform: str) -> str | None:
    """Return the source of a transform's module, from a folder or the archive."""
    try:
        spec = importlib.util.find_spec(transform.partition(":")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.loader is None:
        return None
    get: Any = getattr(spec.loader, "get_source", None)
    result = None if get is None else get(spec.name)
    return None if result is None else str(result)


def _hex_digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
