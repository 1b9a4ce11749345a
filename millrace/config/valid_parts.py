"""Valid parts of a file with mistakes, and the findings on them that do not only follow from these mistakes."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Set
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from millrace.config.document import explain_validation_errors
from millrace.config.document.problems import MISSING, Finding, Path
from millrace.config.model import Environment

_SECTIONS = (
    "kafka",
    "streams",
    "jobs",
    "tables",
    "network",
    "storage",
    "governance",
    "observability",
    "history",
    "tags",
)
"""Keys whose values are mappings: each is read by itself where the file has mistakes."""

_STAND_IN = "stand_in_"
"""Begin of a table's name that a file lacks."""

_STAND_INS: dict[str | int, Any] = {
    "clients": ["10.0.0.0/8"],
    "records_per_second": 1,
    "record_size": "1KiB",
    "traffic": {"records_per_second": 1, "record_size": "1KiB"},
    "records_per_second_per_core": 1,
    "rate": {"records_per_second_per_core": 1},
    "table": f"{_STAND_IN}{{place}}",
}
"""Replacements for broken values that no check reads, so that the rest of their section is checked."""


@cache
def section_adapter(key: str) -> TypeAdapter[Any]:
    """Return the reader of a section of the file."""
    return TypeAdapter(Environment.model_fields[key].annotation)


def environment_of_valid_parts(plain: dict[str, Any]) -> tuple[Environment, Set[str]]:
    """Return an environment of the valid parts of a file, for the checks, and the names of all other parts."""
    removed: list[Path] = []
    sections = {
        key: None
        if key == "history" and key not in plain
        else _read_without_broken_parts(key, plain.get(key, {}), removed)
        for key in _SECTIONS
    }
    texts = {key: plain[key] for key in ("project", "region", "account") if isinstance(plain.get(key), str)}
    parts = {"project": "", **texts, **sections, "name": plain["name"]}
    broken = {name for path in removed for name in _names_in(path[-1:], value_at(plain, *path))}
    return Environment.model_construct(**parts), broken


def _read_without_broken_parts(section: str, data: Any, removed: list[Path]) -> Any:
    """Read a section without its broken parts: a broken value is removed, then everything that needs it.

    The rest is only checked, never planned or deployed.
    """
    adapter, kind = section_adapter(section), Environment.model_fields[section].annotation
    if not isinstance(data, dict):
        data = {}
    data = json.loads(json.dumps(data))
    while True:
        text = json.dumps(data)
        try:
            return adapter.validate_json(text, strict=True)
        except ValidationError as error:
            for each in error.errors(include_url=False):
                path = explain_validation_errors.path_in_file(each["loc"], kind)
                holder = value_at(data, *path[:-1])  # None if another mistake has removed it
                if isinstance(holder, dict) and each["type"] == "missing" and path[-1] in _STAND_INS:
                    made = copy.deepcopy(_STAND_INS[path[-1]])
                    if isinstance(made, str):
                        made = made.format(place=re.sub(r"\W", "_", "_".join(map(str, path))))
                    holder[path[-1]] = made
                else:
                    path = path[:-1] if each["type"] == "missing" else path
                    removed.append((section, *path))
                    _remove_key(data, path)
        if json.dumps(data) == text:
            if not data:
                return None  # a section that cannot exist without the missing key
            data = {}


def _names_in(key: Path, part: Any) -> Iterator[str]:
    """Yield the names that a part of a file declares, its own among them: keys of members, and names of tables."""
    yield from map(str, key)
    if isinstance(part, dict):
        for name, value in part.items():
            yield from _names_in((name,), value)
    elif key in (("table",), ("dead_letters",)):
        yield str(part)


def _remove_key(data: Any, path: Path) -> None:
    if not path:
        data.clear()
        return
    holder = value_at(data, *path[:-1])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    elif isinstance(holder, list) and isinstance(path[-1], int) and path[-1] < len(holder):
        del holder[path[-1]]


def value_at(data: Any, *path: str | int) -> Any:
    """Return the value at a path of a document; None where there is none."""
    for step in path:
        if isinstance(data, dict):
            data = data.get(str(step))
        elif isinstance(data, list) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            return None
    return data


def without_consequential_findings(
    later: Iterator[Finding], earlier: list[Finding], known: Set[str] = frozenset()
) -> Iterator[Finding]:
    """Drop findings that only follow from a mistake that is reported already.

    Parameters
    ----------
    known
        Names of parts that are themselves broken, so that what refers to them is not told that they are missing.
    """
    reported = {finding.path for finding in earlier if finding.value != MISSING or len(finding.path) > 1}
    for finding in later:
        is_known = finding.value in known or _STAND_IN in finding.allowed
        if not is_known and not any(_follows(finding, path) for path in reported):
            yield finding


def _follows(finding: Finding, path: Path) -> bool:
    """Return whether a finding is at or below a path, or is of a key beside it that needs it."""
    below, beside = finding.path[: len(path)] == path, finding.path[:-1] == path[:-1]
    return below or (beside and str(path[-1]) in finding.allowed.split())
