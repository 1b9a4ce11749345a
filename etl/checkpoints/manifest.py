"""Manifest of a checkpoint: who wrote it, and whether another version of its query may continue from it.

A checkpoint holds positions that only its connectors, the order of its sources and the layout of its state explain, and
names none of them. The manifest beside it does. Pure functions, without a session.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
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

ANOTHER_NAME = (
    "a record is identified by its stream's name, topic, partition and offset, so under the same name records of the "
    "new topic would be taken for duplicates of old ones and be left out: give the stream another name in the "
    "environment file (a table then keeps the records of both), or the query another table"
)
"""Advice for a topic that was made again or is in another cluster: a new checkpoint alone does not help."""

ANOTHER_SINK = (
    "rows that the sink has under another key or in another order stay in it, and later ones do not replace them: give the query "
    "another table or target, or delete these rows while the job is stopped"
)
"""Advice for another key or order: a new checkpoint alone does not help."""


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


@dataclass(frozen=True)
class ManifestChange:
    """One difference between the writer of a checkpoint and a version that would continue from it.

    Attributes
    ----------
    why
        Reason why the checkpoint cannot be continued; empty if it can be, with ``follows`` as the consequence.
    first
        Step that a new checkpoint needs before it, such as :data:`ANOTHER_NAME`; empty for none.
    """

    what: str
    before: str
    after: str
    why: str = ""
    follows: str = ""
    first: str = ""

    def __str__(self) -> str:
        return f"{self.what} was {self.before} and is {self.after}: {self.why or self.follows}"


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
            content.setdefault("texts", 1)  # the first release did not write it
        manifest: Manifest = typed_json.read_versioned(Manifest, json.dumps(content), "manifest", FORMAT)
    except ValueError as error:
        raise ManifestError(f"not a manifest: {error}") from error
    return manifest


def find_changes(old: Manifest, new: Manifest) -> tuple[ManifestChange, ...]:
    """Find the differences, and whether the checkpoint may still be continued.

    Parameters
    ----------
    old
        Manifest beside the checkpoint.
    new
        Manifest of the version that would continue from it.

    Returns
    -------
    tuple of Change
        Those with ``why`` refuse the start. Changed code, schemas (the tables check them: ``etl.record.schema_evolution``), core,
        engine and a later Spark alone refuse nothing.
    """
    if old.texts < new.texts:
        new = _in_texts_of_version_1(new)
    differences = []
    if old.kind != new.kind:
        differences.append(
            ManifestChange("the query's kind", old.kind, new.kind, "each kind counts and writes its own way")
        )
    differences += _changes_of_sources(old, new)
    for route in sorted(old.sinks.keys() & new.sinks.keys()):
        was, now = old.sinks[route], new.sinks[route]
        if was != now:
            what = f"the sink{f' of route {route}' if route else ''}"
            same = was.partition(" by ")[0] == now.partition(" by ")[0]
            why = "its rows have the other key or order" if same else "a repeated batch would be in both"
            differences.append(ManifestChange(what, was, now, why, first=ANOTHER_SINK if same else ""))
    differences += _changes_of_state(old, new)
    if _major_and_minor(new.spark) < _major_and_minor(old.spark):
        why = "an earlier Spark does not read the states of a later one" if old.state is not None else ""
        follows = "" if why else "the logs of a query without state are read by both"
        differences.append(ManifestChange("Spark", old.spark, new.spark, why, follows))
    return tuple(differences)


def _in_texts_of_version_1(manifest: Manifest) -> Manifest:
    legs = tuple(replace(leg, of=leg.of.partition(" (route ")[0]) for leg in manifest.legs)
    state = manifest.state and replace(manifest.state, time=manifest.state.time.partition(", ")[0])
    return replace(manifest, legs=legs, state=state, operators=None)


def incompatible_changes(differences: tuple[ManifestChange, ...]) -> tuple[ManifestChange, ...]:
    """Return the changes with which a checkpoint cannot be continued."""
    return tuple(change for change in differences if change.why)


def advice_for_changes(
    environment: str, job: str, query: str, differences: tuple[ManifestChange, ...] = ()
) -> str:
    """Return the advice for a checkpoint that cannot be continued for these reasons."""
    first = dict.fromkeys(f"{change.first}; then " for change in differences if change.first)
    return "".join(first) + (
        f"`millrace checkpoint reset {job} {query} --env {environment}` lets it start from the beginning (for a stream or topic with "
        "`--at TIME --overlap 10m`, a time before the oldest record that was not read), a query of another name has a "
        "checkpoint of its own, and the version that wrote this one continues from it"
    )


def describe_sinks_of_stream(query: QuerySettings, stream: str) -> str:
    """Return kind and name of each sink that gets the records of a stream, by the stream's logical name."""
    ends = _settings_with_sink_by_route(query).values()
    mine = [end for end in ends if getattr(end, "source", None) is not None and end.source.name == stream]
    # A query with routes has one table for all of them.
    return "; ".join(
        sorted({_describe_sink(end if hasattr(end, "sink") else query) for end in mine})
    ) or _describe_sink(query)


def _changes_of_sources(old: Manifest, new: Manifest) -> Iterator[ManifestChange]:
    if len(old.legs) != len(new.legs):
        before, after = ("; ".join(map(str, m.legs)) for m in (old, new))
        why = "positions are kept by number, one for each source"
        yield ManifestChange("what it reads", before, after, why)
        return
    for number, (was, now) in enumerate(zip(old.legs, new.legs, strict=True), start=1):
        what, topics = f"source {number}", (", ".join(was.topics), ", ".join(now.topics))
        if was.connector != now.connector and {was.connector, now.connector} <= KINESIS.keys():
            why = (
                f"the positions are those of {KINESIS[was.connector]}, which the other connector cannot read"
            )
            yield ManifestChange(f"{what}'s connector", was.connector, now.connector, why)
        elif was.connector != now.connector or was.of != now.of:
            # The new source numbers its records like the old one: from 0, under the same names.
            first = ANOTHER_NAME if set(was.topics) & set(now.topics) else ""
            why = "its positions belong to the old one"
            yield ManifestChange(what, str(was), str(now), why, first=first)
        elif gone := sorted(set(was.topics) - set(now.topics)):
            why = f"what is unread of {', '.join(gone)} would be passed over"
            yield ManifestChange(f"{what}'s topics", *topics, why)
        elif set(now.topics) - set(was.topics):
            yield ManifestChange(
                f"{what}'s topics", *topics, follows="the new ones are read from their start"
            )


def _changes_of_state(old: Manifest, new: Manifest) -> Iterator[ManifestChange]:
    was, now = old.state, new.state
    if was is None or now is None:
        if was is not now:
            before, after = ("none" if remains is None else "kept" for remains in (was, now))
            yield ManifestChange(
                "state", before, after, "a checkpoint has the state of all batches, or of none"
            )
        return
    why = "what the state holds is laid out by it"
    for what, before, after in (
        ("the watermark's column", was.time, now.time),
        ("the key", ", ".join(was.key) or "none", ", ".join(now.key) or "none"),
        ("distinct", ", ".join(was.distinct) or "none", ", ".join(now.distinct) or "none"),
        ("the joined table", was.joined or "none", now.joined or "none"),
    ):
        if before != after:
            yield ManifestChange(what, before, after, why, first=ANOTHER_SINK)
    # Two versions of Spark may write the same plan differently.
    known = old.operators is not None and new.operators is not None
    if (
        known
        and _major_and_minor(old.spark) == _major_and_minor(new.spark)
        and old.operators != new.operators
    ):
        before, after = ("; ".join(m.operators or ()) or "none" for m in (old, new))
        why += " (an aggregate goes on if the transform casts a wider column to its earlier type)"
        yield ManifestChange("what keeps state", before, after, why, first=ANOTHER_SINK)
    for what, remains, wanted in (
        ("the number of state partitions", was.partitions, now.partitions),
        ("the state store", was.provider, now.provider),
    ):
        if remains != wanted:
            stays = "the checkpoint keeps its own until it is reset"
            yield ManifestChange(what, remains or "Spark's own", wanted or "Spark's own", follows=stays)


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


def _major_and_minor(version: str) -> tuple[int, ...]:
    """Return major and minor version; formats change only between those."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
