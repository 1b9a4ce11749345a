"""Owners of tables: the query that writes a table from a source, by the checkpoint that it continues from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Document = Mapping[str, Any]

_PLACES = ("table", "topic", "stream", "index", "path")
"""Keys of a sink's settings that name its place."""


@dataclass(frozen=True)
class WritingQuery:
    """A query that writes a table.

    Attributes
    ----------
    checkpoints
        URL below which the job's queries have their checkpoints: a renamed job keeps it.
    """

    job: str
    query: str
    checkpoints: str


@dataclass(frozen=True)
class OutputWriterChange:
    """A table, or another output, that another job would write from the same records, on a checkpoint of its own."""

    output: str
    owner: WritingQuery
    new: WritingQuery


def output_writer_changes(
    deployed: Mapping[str, Document], new: Mapping[str, Document]
) -> Iterator[OutputWriterChange]:
    """Yield the outputs whose writer changes to another job, which would begin without the position of the first.

    Jobs that share a topic write one table from different partitions: each list of partitions has an owner of its own.
    Two writers that the new file has side by side are not compared: the checks of the file decide about them.

    Parameters
    ----------
    deployed, new
        Launch documents by job.
    """
    before, after = _writers_by_output(deployed), _writers_by_output(new)
    for key, writers in after.items():
        owners = before.get(key, {})
        left = [owner for checkpoints, owner in owners.items() if checkpoints not in writers]
        for checkpoints, writer in writers.items():
            if left and checkpoints not in owners:
                yield OutputWriterChange(key[0], left[0], writer)


def output_names_and_checkpoints_url(document: Document) -> tuple[tuple[str, ...], str]:
    """Return the names of what a job writes, such as its tables, and the place of its checkpoints."""
    return tuple(dict.fromkeys(key[0] for key, _ in _outputs_of_job("", document))), checkpoints_url(document)


def _writers_by_output(documents: Mapping[str, Document]) -> dict[tuple[str, str], dict[str, WritingQuery]]:
    owners: dict[tuple[str, str], dict[str, WritingQuery]] = {}
    for job, document in documents.items():
        for key, writer in _outputs_of_job(job, document):
            owners.setdefault(key, {})[writer.checkpoints] = writer
    return owners


def _outputs_of_job(job: str, document: Document) -> Iterator[tuple[tuple[str, str], WritingQuery]]:
    """Yield output and source of all that a job's queries write, with the writer."""
    for query in document["settings"]["queries"]:
        writer = WritingQuery(job, str(query.get("name")), checkpoints_url(document))
        for leg in query.get("routes") or (query,):
            sink = leg.get("sink") or {}
            place = next((sink[key] for key in _PLACES if key in sink), None)
            source = leg.get("source") or {"name": query.get("source_table")}
            # A topic of the same name on another cluster is another source: a cut-over reads both.
            values = [source.get(key) for key in ("connection", "topic", "stream", "name")]
            parts = (source.get("reading") or {}).get("partitions")
            for output in (query.get("table"), place):
                if output is not None:
                    yield (str(output), json.dumps([*values, parts])), writer


def checkpoints_url(document: Document) -> str:
    """Return the URL below which a job's queries have their checkpoints."""
    return str(document["settings"].get("checkpoints", ""))
