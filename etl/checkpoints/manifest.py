"""What a checkpoint was written by, and whether another version of its query may continue from it.

A checkpoint says where a query is, in terms that only its connectors, its sources' order and its state's layout make
sense of, and names none of them. The manifest beside it does. Pure functions, without a session.
"""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .. import __version__
from ..launch import typed_json
from ..launch.engine import KINESIS_IN_PYTHON
from ..launch.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    LandSettings,
    QuerySettings,
)
from ..launch.source_kinds import group_sources

FORMAT = 1
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
PARTITIONS = "spark.sql.shuffle.partitions"
KINESIS = {
    "kinesis": "Glue's connector or one of its family",
    "aws-kinesis": "EMR's connector",
    KINESIS_IN_PYTHON: "the sandbox's own reader on Spark 4",
}
"""The connectors of Kinesis, as Spark names them, each with whose positions those are that only it reads."""

ANOTHER_NAME = (
    "a record is identified by its stream's name, topic, partition and offset, so under the same name records of the "
    "new topic would be taken for duplicates of old ones and be left out: give the stream another name in the "
    "environment file (a table then keeps the records of both), or the query another table"
)
"""What leads out where a topic was made again, or is one of another cluster: a new checkpoint alone does not."""


class ManifestError(ValueError):
    """Not a manifest that this version reads."""


@dataclass(frozen=True)
class Leg:
    """A line of the offset log: what it counts in, and of what.

    Attributes
    ----------
    connector
        Such as ``kafka`` or ``iceberg``; of Kinesis what the engine reads it with, such as ``aws-kinesis``.
    of
        Region and stream; connection; table.
    topics
        That are read together, where a leg can have several.
    """

    connector: str
    of: str
    topics: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.connector} {self.of}" + (f" ({', '.join(self.topics)})" if self.topics else "")


@dataclass(frozen=True)
class State:
    """What a query keeps from batch to batch.

    Attributes
    ----------
    time
        Column of the watermark.
    key, distinct, joined
        As the query's settings have them; ``joined`` is the second table.
    provider, partitions
        Of Spark's state store; a checkpoint keeps its own, whatever the session says
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
    """What a checkpoint was written by.

    Attributes
    ----------
    engine, spark, core
        Who wrote: the engine, Spark's version and this core's.
    legs
        In the offset log's order.
    sinks
        Kind and name of each, by route, ``""`` for a query without routes.
    state
        None for a query that keeps nothing.
    operators
        Spark's own stateful operators with their keys, as its plan has them; None where that is not known.
    schemas, code
        Digests of schema files and transforms, by name: for people, nothing is refused for them here.
    """

    engine: str
    spark: str
    core: str
    query: str
    kind: str
    legs: tuple[Leg, ...]
    sinks: Mapping[str, str]
    state: State | None
    operators: tuple[str, ...] | None
    schemas: Mapping[str, str]
    code: Mapping[str, str]

    def text(self) -> str:
        """Write it as JSON."""
        return json.dumps({"version": FORMAT, **dataclasses.asdict(self)}, indent=1, sort_keys=True)


@dataclass(frozen=True)
class Change:
    """One difference between who wrote a checkpoint and who would continue from it.

    Attributes
    ----------
    why
        Why the checkpoint cannot be continued; empty where it can, with a word about what follows.
    repeats
        Whether what is read now counts its records as what was read before did: from 0, under the same names.
    """

    what: str
    before: str
    after: str
    why: str = ""
    follows: str = ""
    repeats: bool = False

    def __str__(self) -> str:
        return f"{self.what} was {self.before} and is {self.after}: {self.why or self.follows}"


def of(
    job: JobSettings,
    query: QuerySettings,
    *,
    spark: str,
    conf: Callable[[str], str | None],
    schema_text: Callable[[str], bytes | None],
) -> Manifest:
    """Describe a query as it would write its checkpoint.

    Parameters
    ----------
    conf
        A Spark setting; None where it is not set.
    schema_text
        A schema file's bytes; None where it cannot be read from here.
    """
    state = None
    if isinstance(query, DeriveSettings) and query.state is not None:
        kept = query.state
        joined = None if kept.join is None else kept.join.source_table
        settings = (conf(PROVIDER), conf(PARTITIONS))
        state = State(kept.watermark.time, kept.key, kept.distinct, joined, *settings)
    ends = _ends(query)
    paths = {route.schema for route in getattr(query, "routes", ())}
    schemas = {path: schema_text(path) for path in sorted(paths)}
    transforms = sorted({t for end in ends.values() if (t := getattr(end, "transform", None)) is not None})
    return Manifest(
        engine=job.engine.kind,
        spark=spark,
        core=__version__,
        query=query.name,
        kind=query.kind,
        legs=_legs(job, query, spark),
        sinks={route: _sink(end) for route, end in ends.items()},
        state=state,
        operators=None,
        schemas={path: _digest(data) for path, data in schemas.items() if data is not None},
        code={name: _digest(source.encode()) for name in transforms if (source := _source(name)) is not None},
    )


def read(text: str) -> Manifest:
    """Read a manifest back.

    Raises
    ------
    ManifestError
        Not JSON, not a manifest, or one of a later format.
    """
    try:
        manifest: Manifest = typed_json.read_versioned(Manifest, text, "manifest", FORMAT)
    except ValueError as error:
        raise ManifestError(f"not a manifest: {error}") from error
    return manifest


def changes(old: Manifest, new: Manifest) -> tuple[Change, ...]:
    """Find what differs, and whether the checkpoint may be continued in spite of it.

    Parameters
    ----------
    old
        Beside the checkpoint.
    new
        Of the version that would continue from it.

    Returns
    -------
    tuple of Change
        Those with ``why`` refuse the start. Changed code, schemas (which the tables judge: ``etl.record.schema_evolution``), core, engine
        and a later Spark refuse nothing by themselves.
    """
    found = []
    if old.kind != new.kind:
        found.append(
            Change("the query's kind", old.kind, new.kind, "each kind counts and writes its own way")
        )
    found += _leg_changes(old, new)
    for route in sorted(old.sinks.keys() & new.sinks.keys()):
        if old.sinks[route] != new.sinks[route]:
            what = f"the sink{f' of route {route}' if route else ''}"
            why = "a batch that comes again would be in both"
            found.append(Change(what, old.sinks[route], new.sinks[route], why))
    found += _state_changes(old, new)
    if _minor(new.spark) < _minor(old.spark):
        if old.state is not None:
            why = "an earlier Spark does not read the states of a later one"
            found.append(Change("Spark", old.spark, new.spark, why))
        else:
            follows = "the logs of a query without state are read by both"
            found.append(Change("Spark", old.spark, new.spark, follows=follows))
    return tuple(found)


def incompatible_changes(found: tuple[Change, ...]) -> tuple[Change, ...]:
    """Those changes with which a checkpoint is not continued."""
    return tuple(change for change in found if change.why)


def remedy(environment: str, job: str, query: str, found: tuple[Change, ...] = ()) -> str:
    """What a person can do about a checkpoint that cannot be continued, for these reasons."""
    first = f"{ANOTHER_NAME}; then " if any(change.repeats for change in found) else ""
    return first + (
        f"`millrace checkpoint reset {job} {query} --env {environment}` lets it start from the beginning (for a stream or topic with "
        "`--at TIME --overlap 10m`, a time before the oldest record that was not read), a query of another name has a "
        "checkpoint of its own, and the version that wrote this one continues from it"
    )


def sinks_of_stream(query: QuerySettings, stream: str) -> str:
    """Where the records of a stream go, by its logical name: kind and name of each sink."""
    ends = _ends(query).values()
    mine = [end for end in ends if getattr(end, "source", None) is not None and end.source.name == stream]
    # A routed query has one table for all.
    return "; ".join(sorted({_sink(end if hasattr(end, "sink") else query) for end in mine})) or _sink(query)


def _leg_changes(old: Manifest, new: Manifest) -> list[Change]:
    if len(old.legs) != len(new.legs):
        before, after = ("; ".join(map(str, m.legs)) for m in (old, new))
        return [Change("what it reads", before, after, "positions are kept by number, one for each source")]
    found = []
    for number, (was, now) in enumerate(zip(old.legs, new.legs, strict=True), start=1):
        what = f"source {number}"
        if was.connector != now.connector and {was.connector, now.connector} <= KINESIS.keys():
            why = (
                f"the positions are those of {KINESIS[was.connector]}, which the other connector cannot read"
            )
            found.append(Change(f"{what}'s connector", was.connector, now.connector, why))
        elif was.connector != now.connector or was.of != now.of:
            repeats = bool(set(was.topics) & set(now.topics))
            found.append(
                Change(what, str(was), str(now), "its positions belong to the old one", repeats=repeats)
            )
        elif gone := sorted(set(was.topics) - set(now.topics)):
            why = f"what is unread of {', '.join(gone)} would be passed over"
            found.append(Change(f"{what}'s topics", ", ".join(was.topics), ", ".join(now.topics), why))
        elif set(now.topics) - set(was.topics):
            follows = "the new ones are read from their start"
            found.append(
                Change(f"{what}'s topics", ", ".join(was.topics), ", ".join(now.topics), follows=follows)
            )
    return found


def _state_changes(old: Manifest, new: Manifest) -> list[Change]:
    was, now = old.state, new.state
    if was is None or now is None:
        if was is now:
            return []
        before, after = ("none" if kept is None else "kept" for kept in (was, now))
        return [Change("state", before, after, "a checkpoint has the state of all batches, or of none")]
    found = []
    why = "what the state holds is laid out by it"
    for what, before, after in (
        ("the watermark's column", was.time, now.time),
        ("the key", ", ".join(was.key) or "none", ", ".join(now.key) or "none"),
        ("distinct", ", ".join(was.distinct) or "none", ", ".join(now.distinct) or "none"),
        ("the joined table", was.joined or "none", now.joined or "none"),
    ):
        if before != after:
            found.append(Change(what, before, after, why))
    # Two versions of Spark may write the same plan in two ways.
    known = old.operators is not None and new.operators is not None
    if known and _minor(old.spark) == _minor(new.spark) and old.operators != new.operators:
        before, after = ("; ".join(m.operators or ()) or "none" for m in (old, new))
        found.append(Change("what keeps state", before, after, why))
    for what, kept, wanted in (
        ("the number of state partitions", was.partitions, now.partitions),
        ("the state store", was.provider, now.provider),
    ):
        if kept != wanted:
            stays = "the checkpoint keeps its own until it is reset"
            found.append(Change(what, kept or "Spark's own", wanted or "Spark's own", follows=stays))
    return found


def _legs(job: JobSettings, query: QuerySettings, spark: str) -> tuple[Leg, ...]:
    if isinstance(query, DeriveSettings):
        return tuple(Leg("iceberg", table) for table in query.landings)
    return tuple(
        Leg(
            leg[0].connector(job.engine, spark),
            leg[0].origin(job),
            tuple(each.manifest_name for each in leg if each.manifest_name is not None),
        )
        for leg in group_sources(query.sources)
    )


def _ends(query: QuerySettings) -> dict[str, Any]:
    """By route, ``""`` where there is none: settings that have a table or a sink."""
    if isinstance(query, DirectSettings):
        return {route.name or "": route for route in query.routes}
    return {"": query}


def _sink(end: Any) -> str:
    if isinstance(end, LandSettings):
        return f"iceberg {end.table}"
    by = f" by {', '.join(end.latest_by)}" if isinstance(end, DeriveSettings) and end.latest_by else ""
    return f"{end.sink.target}{by}"


def _source(transform: str) -> str | None:
    """Source of the module that a transform stands in, out of a folder or the archive."""
    try:
        spec = importlib.util.find_spec(transform.partition(":")[0])
    except (ImportError, ValueError):
        return None
    if spec is None or spec.loader is None:
        return None
    get: Any = getattr(spec.loader, "get_source", None)
    found = None if get is None else get(spec.name)
    return None if found is None else str(found)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _minor(version: str) -> tuple[int, ...]:
    """Major and minor version: those between which formats change."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
