"""Owners of tables: the query that writes a table from a source, by the checkpoint that it continues from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from millrace.config.base import grouped
from millrace.etl.launch.sinks import SinkSettings

Document = Mapping[str, Any]

_PLACES = tuple(dict.fromkeys(kind.NAMED_BY for kind in SinkSettings.KINDS.values()))
"""Keys of a sink's settings that name its place."""

_SERVERS = ("url", "endpoint", "region")
"""Keys of a sink's settings that name what has the place."""


@dataclass(frozen=True)
class WritingQuery:
    """A query that writes a table.

    Attributes
    ----------
    checkpoint
        URL of its checkpoint: a query of a renamed job keeps it.
    source
        What it reads: a stream or topic at its service, or a landing table.
    partitions
        Partitions of the topic that it reads; None for all.
    may_repeat
        Whether it loses and doubles nothing if it reads again what another query wrote: a landing table knows each record.
    """

    job: str
    query: str
    checkpoint: str
    source: str
    partitions: tuple[int, ...] | None
    may_repeat: bool

    def reads(self, partition: int) -> bool:
        """Tell whether it reads a partition."""
        return self.partitions is None or partition in self.partitions


def output_writer_changes(
    deployed: Mapping[str, Document], new: Mapping[str, Document]
) -> Iterator[tuple[str, WritingQuery, WritingQuery]]:
    """Yield the tables and other outputs whose writer changes to another query, with the first and the other.

    The other would write from the same records, on a checkpoint of its own: without the position of the first. The records are the
    same also where one query has them from the stream, or from another table in which the stream landed.

    Jobs that share a topic write one table from different partitions. One that takes some of another's partitions may read
    them again if the table leaves out what it has; it may not begin behind what the other has not read.
    Two writers that the new file has side by side are not compared: the checks of the file decide about them.

    Parameters
    ----------
    deployed, new
        Launch documents by job.
    """
    before, after = _writers_by_output(deployed), _writers_by_output(new)
    changes = {}
    for key, writers in after.items():
        owners = before.get(key, {})
        for checkpoint, writer in writers.items():
            if checkpoint in owners:
                continue
            left = (
                owner
                for owner in owners.values()
                if _takes_over(owner, writers.get(owner.checkpoint), writer)
            )
            if (owner := next(left, None)) is not None:
                # By its landing table and by a stream behind it, a change is found twice.
                changes[key[0], checkpoint, owner.checkpoint] = key[0], owner, writer
    yield from changes.values()


def _takes_over(owner: WritingQuery, remains: WritingQuery | None, writer: WritingQuery) -> bool:
    if remains is None and owner.partitions == writer.partitions:
        return True
    return not writer.may_repeat and any(
        owner.reads(each) and writer.reads(each) and not (remains and remains.reads(each))
        for each in writer.partitions or owner.partitions or ()
    )


def output_names_and_checkpoints_url(document: Document) -> tuple[tuple[str, ...], str]:
    """Return the names of what a job writes, such as its tables, and the place of its checkpoints."""
    return tuple(dict.fromkeys(key[0] for key, _ in _outputs_of_job("", document, {}))), checkpoints_url(
        document
    )


def _writers_by_output(documents: Mapping[str, Document]) -> dict[tuple[str, str], dict[str, WritingQuery]]:
    landed = _streams_by_table_and_route(documents)
    owners = grouped(
        output for job, document in documents.items() for output in _outputs_of_job(job, document, landed)
    )
    return {key: {writer.checkpoint: writer for writer in writers} for key, writers in owners.items()}


def _streams_by_table_and_route(documents: Mapping[str, Document]) -> dict[tuple[str, str | None], list[str]]:
    """Return the streams that land in each table, by route and for all routes (None)."""
    return grouped(
        ((query["table"], route), _records_of_leg(document, leg))
        for document in documents.values()
        for query in document["settings"]["queries"]
        for leg in (query.get("routes", ()) if query.get("table") else ())
        for route in {None, leg.get("name")}
    )


def _outputs_of_job(
    job: str, document: Document, landed: Mapping[tuple[str, str | None], list[str]]
) -> Iterator[tuple[tuple[str, str], WritingQuery]]:
    """Yield output and source of all that a job's queries write, with the writer; a landing table is each of its streams, too."""
    for query in document["settings"]["queries"]:
        name = str(query.get("name"))
        for leg in query.get("routes") or (query,):
            sink = leg.get("sink") or {}
            place = next((sink[key] for key in _PLACES if key in sink), None)
            server = next((sink[key] for key in _SERVERS if key in sink), None) or _cluster(document, sink)
            source = leg.get("source") or {"name": query.get("source_table")}
            reading = source.get("reading") or {}
            parts = reading.get("partitions")
            read = _records_of_leg(document, {**leg, "source": source})
            behind = landed.get((str(query.get("source_table")), query.get("route")), ())
            repeats = bool(query.get("table")) and source.get("start") != "latest"
            writer = WritingQuery(
                job,
                name,
                f"{checkpoints_url(document)}/{name}",
                read,
                None if parts is None else tuple(parts),
                repeats or bool(reading.get("start_offsets")),
            )
            for output, at in ((query.get("table"), None), (place, server)):
                for each in (read, *behind) if output is not None else ():
                    yield (str(output), json.dumps([at, each])), writer


def _records_of_leg(document: Document, leg: Mapping[str, Any]) -> str:
    """Return which records a leg reads, as their service names them: in the file, a stream and a cluster may get other names."""
    source = leg["source"]
    # A topic of the same name on another cluster is another source: a cut-over reads both.
    place = _cluster(document, source) or source.get("region")
    own = leg.get("origin") or source.get("topic") or source.get("stream") or source["name"]
    return json.dumps([place, own, leg.get("changes_of")])


def _cluster(document: Document, end: Mapping[str, Any]) -> Any:
    """Return the cluster of a topic in the settings of a source or a sink; None where there is none."""
    connection = end.get("connection")
    cluster = document["settings"].get("connections", {}).get(connection) or {}
    return cluster.get("cluster") or cluster.get("bootstrap_servers") or connection


def checkpoints_url(document: Document) -> str:
    """Return the URL below which a job's queries have their checkpoints."""
    return str(document["settings"].get("checkpoints", ""))


def query_checkpoints(document: Document) -> dict[str, str]:
    """Return the URLs of the checkpoints of a job's queries, by query."""
    return {
        (name := str(query.get("name"))): f"{checkpoints_url(document)}/{name}"
        for query in document["settings"]["queries"]
    }
