"""Cut-over from an imported job to a new one: the steps, and a new start position in its file.

Between the first import and the cut-over people write transforms and derive queries into the file. So a later import
of the same job changes the start position only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.constructor import SafeConstructor
from ruamel.yaml.error import YAMLError

from millrace.advisor.existing.environment_of_imported_job import (
    find_values_to_fill_in,
    name_without_run_id,
)
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.config.document.edit_yaml_text import EditError, remove_key, set_value
from millrace.config.document.placeholders_left_by_import import is_placeholder
from millrace.config.document.problems import Path, dotted_path
from millrace.config.valid_parts import value_at

_IDENTIFY = "in Spark SQL ALTER TABLE old ADD COLUMNS (_id STRING), then UPDATE old SET _id = to_json(struct(KEY, ...))"


class StartPositionError(ValueError):
    """A file into which a start position cannot be written; the message says what to write by hand."""


@dataclass(frozen=True)
class StartPosition:
    """Start position of the new job.

    Attributes
    ----------
    path
        Of the query in the file.
    key
        ``kafka.start_offsets`` or ``start``.
    before, after
        Value in the file before (None: nothing) and after.
    """

    path: tuple[str, ...]
    key: str
    before: Any
    after: Any


_HEADING = "# What runs today as {source}, written down by `millrace import`: every number of it is pinned."


def import_comment(source: str) -> str:
    """Return the first line of a file that was imported from a job."""
    return _HEADING.format(source=source)


def is_imported_from(text: str, source: str) -> bool:
    """Check that a file was imported from this job, also after edits; any run of an EMR application is the same job."""
    first = text.partition("\n")[0].rstrip()
    before, _, behind = map(re.escape, _HEADING.partition("{source}"))  # noqa: RUF027 - the place in the heading
    match = re.fullmatch(f"{before}(.+){behind}", first)
    return match is not None and name_without_run_id(match[1]) == name_without_run_id(source)


def text_with_start_position(text: str, imported: Mapping[str, Any]) -> tuple[str, StartPosition]:
    """Write the start position of a job into its file, for each of its streams.

    Parameters
    ----------
    imported
        What :func:`millrace.advisor.existing.environment_of_imported_job.environment_document` makes of the job today.

    Returns
    -------
    tuple
        The new text, and what changed in it for the first stream.

    Raises
    ------
    StartPositionError
        The query has another name now, its offsets are no longer known, or they have a form in the file that is not edited.
    """
    [(job, settings)] = imported["jobs"].items()
    changed: list[StartPosition] = []
    for name, query in settings["queries"].items():
        if query["kind"] == "land":
            text, one = _text_with_query_start(text, ("jobs", job, "queries", name), query)
            changed.append(one)
    return text, changed[0]


def _text_with_query_start(
    text: str, path: tuple[str, ...], query: Mapping[str, Any]
) -> tuple[str, StartPosition]:
    node = _query_section(text, path)
    offsets = query.get("kafka", {}).get("start_offsets")
    kafka = node.get("kafka")
    had = kafka.get("start_offsets") if isinstance(kafka, Mapping) else None
    if offsets is None and had is not None:
        raise StartPositionError(
            f"--logs is missing: {'.'.join(path)} has kafka.start_offsets, which only the event log of the "
            "last run can replace"
        )
    key, value, before = (
        ("start", query["start"], node.get("start"))
        if offsets is None
        else ("kafka.start_offsets", dict(offsets), had)
    )
    try:
        text = set_value(text, (*path, *key.split(".")), value)
        if offsets is not None and "start" in node:
            text = remove_key(text, (*path, "start"))
    except EditError as error:
        raise StartPositionError(
            f"{key}: {value} cannot be written below {'.'.join(path)} ({error}); write it by hand"
        ) from None
    return text, StartPosition(path, key, before, value)


class _TimesAsTextConstructor(SafeConstructor):
    """Constructor that keeps a time as text, as in every environment that is loaded; YAML makes a date of it."""


_TimesAsTextConstructor.add_constructor("tag:yaml.org,2002:timestamp", SafeConstructor.construct_yaml_str)


def load_yaml_times_as_text(text: str) -> Any:
    """Return what an environment file holds, its times as text; None if it is no YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Constructor = _TimesAsTextConstructor
    try:
        return yaml.load(text)
    except YAMLError:
        return None


def only_stream_name(text: str) -> str | None:
    """Return the name of the one stream of an imported file; None if it has several."""
    streams = value_at(load_yaml_times_as_text(text), "streams")
    return str(next(iter(streams))) if isinstance(streams, Mapping) and len(streams) == 1 else None


def text_with_placeholders_filled_in(
    text: str, imported: Mapping[str, Any]
) -> tuple[str, dict[Path, Any], dict[Path, str]]:
    """Write into an imported file what was open in it and is known now.

    Parameters
    ----------
    imported
        What :func:`millrace.advisor.existing.environment_of_imported_job.environment_document` makes of the job today.

    Returns
    -------
    tuple
        The new text, the values that were written, and the lines that are still open, by path.
    """
    filled: dict[Path, Any] = {}
    document = load_yaml_times_as_text(text)
    for path, _ in _open_lines(text):
        value = value_at(imported, *path)
        if value is None or is_placeholder(value):
            continue
        filled[path] = value
        # With IAM, a cluster has an ARN; a schema may be of another format than JSON.
        beside = (*path[:-1], {"authentication": "arn", "schema": "format"}.get(str(path[-1]), ""))
        other = value_at(imported, *beside)
        if other is not None and value_at(document, *beside) is None:
            filled[beside] = other
    for path, value in filled.items():
        try:
            text = set_value(text, path, value)
        except EditError as error:
            raise StartPositionError(
                f"{dotted_path(path)}: {value} cannot be written ({error}); write it by hand"
            ) from None
    left = dict(_open_lines(text))
    return text, {path: value for path, value in filled.items() if path not in left}, left


def _open_lines(text: str) -> Iterator[tuple[Path, str]]:
    document = load_yaml_times_as_text(text)
    return find_values_to_fill_in(document if isinstance(document, Mapping) else {})


def _query_section(text: str, path: tuple[str, ...]) -> Mapping[str, Any]:
    section = value_at(load_yaml_times_as_text(text), *path)
    if not isinstance(section, Mapping):
        raise StartPositionError(f"a file that still has the key {'.'.join(path)}")
    return section


def cut_over_steps(running: RunningJob, imported: Mapping[str, Any], env: str, *, exact: bool) -> list[str]:
    """Return the steps from the old job to the new one.

    With offsets of a Kafka topic the cut-over is exact: the new job starts at the old one's last offsets. Otherwise records
    are divided by their arrival or, where the old rows do not have it, by their business key.
    """
    name = next(iter(imported["jobs"]))
    query = next(iter(imported["jobs"][name]["queries"].values()))
    old = running.where
    start = f"`millrace start --env {env} {name}`"
    deploy = (
        f"write the transforms, test them in the sandbox, then `millrace deploy --env {env} --stopped`: all of it is there "
        f"to be looked at, and {name} does not run"
    )
    if exact:
        return [
            deploy,
            f"stop {old} after a batch, not in the middle of one, and give the same `millrace import` its final event log (--logs): "
            f"the offsets at which its last batch ended take the place of those in environments/{env}.yaml (kafka.start_offsets). "
            "From a log that is older than the stop, what came between would be read twice",
            f"`millrace deploy --env {env}`, which brings these offsets and leaves {name} stopped",
            f"{start}: its first start begins at these offsets, so no record is lost and none is read twice; later starts continue "
            "from its checkpoint",
            "compare: `millrace audit`, and the row counts of both outputs around the change",
            f"keep {old} stopped, not deleted, until retention has passed",
        ]
    moment = query["start"]
    return [
        f"{deploy}; of a derive query that replaces by a business key, the table comes later, see below",
        f"let {old} run on past {moment} by more than its slowest batch, its backlog and the disorder of its producers' times, "
        f"then stop it: all that arrived before {moment} is then in its output",
        f"{start} at {moment} or later, before or after the stop, but not earlier: a start that lies ahead is none, Kinesis "
        f"refuses it and of a topic the latest records would be read. It lands what arrived from {moment} on, however late it starts",
        f"what {old} wrote of records that arrived at {moment} or later, {name} has, too. Where its rows tell when they arrived: "
        f"delete those from {moment} on, and where times are the producers' own, take only _arrived_at >= {moment} from {name}",
        f"where they do not, they carry no identity. With {old} stopped, give them the one that a sink with state.key compares: "
        f"{_IDENTIFY}, in the order of state.key; then deploy a derive query with state.key into that table (storage.database names its database): it puts its "
        "rows in their place. Without _id every one of them would be there twice",
        f"compare one hour before and one after {moment} by business key: each key once",
        f"keep {old} stopped, not deleted, until retention has passed",
    ]
