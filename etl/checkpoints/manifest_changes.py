"""Changes between the manifest beside a checkpoint and that of a version that would continue from it, with advice.

Pure functions, without a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .manifest import KINESIS, Manifest, ManifestSource

ANOTHER_NAME = (
    "a record is identified by its stream's name, topic, partition and offset, so under the same name records of the "
    "new topic would be taken for duplicates of old ones and be left out: give the stream another name in the "
    "environment file (a table then keeps the records of both), or the query another table"
)
"""Advice for a topic that was made again or is in another cluster: a new checkpoint alone does not help."""

RENAMED_CLUSTER = (
    "a cluster that only has another name in the file needs no other checkpoint: stop the job, delete the checkpoint's manifest, and "
    "start it again; otherwise "
)
"""Advice before :data:`ANOTHER_NAME`: clusters that are known by their brokers only are compared by their names in the file."""

ANOTHER_SINK = (
    "rows that the sink has under another key or in another order stay in it, and later ones do not replace them: give the query "
    "another table or target, or delete these rows while the job is stopped"
)
"""Advice for another key or order: a new checkpoint alone does not help."""

_OTHER_ROWS = "the sink's rows have the other key or order"

OTHER_LANDING_TABLE = (
    "what both landing tables hold of a stream would be written a second time: give the query another table or target, or delete its "
    "rows while the job is stopped"
)
"""Advice for another landing table: a new checkpoint alone does harm."""

OTHER_RECORDS = "rows that the route has stay in its column or sink: give the records of the other one a route of another name"
"""Advice for a route of other records: a new checkpoint alone does not help."""

MOVED_SERVER = (
    "a server that moved with its rows needs no other checkpoint: stop the job, delete the checkpoint's manifest, and start it again; "
    "one that lacks them needs one"
)
"""Advice for another server of a sink."""

EARLIER_NAME = (
    "a record is identified by the name of its stream in the environment file, so what is read again under another one would be stored "
    "twice: give the stream its earlier name, or the query another table; only a stream that was deleted and made again keeps the other name"
)
"""Advice for another name of the same stream: a new checkpoint alone does harm."""


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
    differences += _changes_of_sinks(old, new)
    differences += _changes_of_state(old, new)
    if _major_and_minor(new.spark) < _major_and_minor(old.spark):
        why = "an earlier Spark does not read the states of a later one" if old.state is not None else ""
        follows = "" if why else "the logs of a query without state are read by both"
        differences.append(ManifestChange("Spark", old.spark, new.spark, why, follows))
    return tuple(differences)


def _in_texts_of_version_1(manifest: Manifest) -> Manifest:
    legs = tuple(replace(leg, of=_table(leg)) for leg in manifest.legs)
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
            if was.connector == now.connector == "iceberg":
                first = OTHER_LANDING_TABLE if _table(was) != _table(now) else ""
            elif first and was.connector == now.connector:
                first = f"{RENAMED_CLUSTER}{first}"
            why = "its positions belong to the old one"
            yield ManifestChange(what, str(was), str(now), why, first=first)
        elif gone := sorted(set(was.topics) - set(now.topics)):
            why = f"what is unread of {', '.join(gone)} would be passed over"
            yield ManifestChange(f"{what}'s topics", *topics, why)
        elif set(now.topics) - set(was.topics):
            yield ManifestChange(
                f"{what}'s topics", *topics, follows="the new ones are read from their start"
            )
    for place, listed in sorted((new.partitions or {}).items()):
        if old.partitions is None or place not in old.names:
            continue
        had = old.partitions.get(place)
        if had is None or set(had) - set(listed):
            before, after = (
                "all" if partitions is None else ", ".join(map(str, partitions))
                for partitions in (had, listed)
            )
            why = "Spark's source goes on only with all partitions that it had"
            yield ManifestChange(f"the partitions of {place}", before, after, why)
    for place in sorted(old.names.keys() & new.names.keys()):
        if (before := old.names[place]) != (after := new.names[place]):
            why = "the records until now have the earlier one"
            yield ManifestChange(f"the name of {place} in the file", before, after, why, first=EARLIER_NAME)


def _table(source: ManifestSource) -> str:
    return source.of.partition(" (route ")[0]


def _changes_of_sinks(old: Manifest, new: Manifest) -> Iterator[ManifestChange]:
    both, in_both = old.sinks.keys() & new.sinks.keys(), "a repeated batch would be in both"
    for route in sorted(both):
        was, now = old.sinks[route], new.sinks[route]
        what = f"the sink{f' of route {route}' if route else ''}"
        if was != now:
            same = was.partition(" by ")[0] == now.partition(" by ")[0]
            why = _OTHER_ROWS if same else in_both
            yield ManifestChange(what, was, now, why, first=ANOTHER_SINK if same else "")
        elif (before := old.servers.get(route)) and (after := new.servers.get(route)) and before != after:
            why = "the other one lacks what was written until now"
            yield ManifestChange(f"the server of {what}", before, after, why, first=MOVED_SERVER)
    for column in sorted(old.types.keys() & new.types.keys()):
        if (before := old.types[column]) != (after := new.types[column]):
            why = f"{_OTHER_ROWS} (a query goes on if the transform casts the column to its earlier type)"
            yield ManifestChange(f"the type of {column}", before, after, why, first=ANOTHER_SINK)
    for route in sorted(old.routes.keys() & new.routes.keys()):
        if (before := old.routes[route]) != (after := new.routes[route]):
            why = "what reads the route's rows, or its sink, would mix both"
            yield ManifestChange(f"what takes route {route}", before, after, why, first=OTHER_RECORDS)
    left, taken = ([sink for route, sink in m.sinks.items() if route not in both] for m in (old, new))
    if taken and (gone := [sink for sink in left if sink not in taken]):
        yield ManifestChange("the sinks of renamed routes", "; ".join(gone), "; ".join(taken), in_both)


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


def _major_and_minor(version: str) -> tuple[int, ...]:
    """Return major and minor version; formats change only between those."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
