"""Sources and settings in a job's program, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_TRIGGER = ("processingTime", "windowSize")
_LIMIT = ("maxOffsetsPerTrigger", "maxFetchRecordsPerShard", "kinesis.maxFetchRecordsPerShard")

_MICROSECONDS = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_PART = re.compile(
    rf"([+-]?)\s*(?:(\d+)(?:\.(\d{{0,9}}))?|\.(\d{{1,9}}))\s+({'|'.join(_MICROSECONDS)})s?(?:\s+|$)"
)
LONGEST = 1024 * 1024
"""Characters of a program that is read; a longer one was not written by hand."""

_LONGEST_TEXT = 4096
"""Maximum number of characters of a text in a program, as an option or as a part of one."""

_MOST = 2**63
"""Spark counts microseconds in a long."""


@dataclass(frozen=True)
class ProgramSettings:
    """Settings that a program names.

    Attributes
    ----------
    kind
        Kind of its source; ``None`` where unknown.
    name
        A stream's name or ARN, or a topic.
    options
        Options by their names in the program.
    trigger
        Seconds, or ``None``.
    unread
        Names of options whose values are not literal.
    """

    kind: str | None
    name: str | None
    options: Mapping[str, str]
    trigger: float | None
    unread: frozenset[str] = frozenset()

    def first_option(self, *names: str) -> str | None:
        """Return the first of several options that has a value."""
        return _first(self.options, names)


def read(text: str, arguments: Mapping[str, str]) -> ProgramSettings:
    """Read a Python program.

    Parameters
    ----------
    text
        Its source; a text that is not Python gives no settings.
    arguments
        The job's arguments, by name without ``--``: the values of ``args["NAME"]``.

    Examples
    --------
    >>> read('s.readStream.format("kafka").option("subscribe", args["TOPIC"])', {"TOPIC": "orders"}).name
    'orders'
    """
    nothing = ProgramSettings(None, None, {}, None)
    if len(text) > LONGEST:
        return nothing
    try:
        with warnings.catch_warnings(action="ignore"):
            tree = ast.parse(text)
    except (
        SyntaxError,
        ValueError,
        RecursionError,
        MemoryError,
    ):  # CPython's errors for code that is nested too deep
        return nothing
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _text(node.value, known, arguments)
            if value is not None:
                known[node.targets[0].id] = value
    options: dict[str, str] = {}
    formats = []
    unread = set()
    for key, value in _pairs(tree, known, arguments):
        if value is None:
            unread.add(key)
            continue
        options.setdefault(key, value)
        if key in ("format", "connection_type"):
            formats.append(value.lower())
    kind = next((each for each in ("kinesis", "kafka") if any(each in one for one in formats)), None)
    said = ProgramSettings(kind, None, options, None)
    names = {
        "kafka": ("subscribe", "topicName", "subscribePattern", "assign"),
        "kinesis": ("streamARN", "kinesis.streamName", "streamName"),
    }
    name = said.first_option(*names[kind]) if kind else None
    return ProgramSettings(
        kind, name, options, _seconds(said.first_option(*_TRIGGER)), frozenset(unread - set(options))
    )


def unsupported_settings(said: ProgramSettings) -> tuple[str, ...]:
    """Return what cannot be imported of a program's trigger and limit.

    Examples
    --------
    >>> unsupported_settings(read('q.trigger(processingTime="10s")', {}))
    ('its trigger 10s is none that Spark takes: the event log tells it, or the plan computes one',)
    """
    instead = "the event log tells it, or the plan computes one"
    found = []
    trigger, limit = said.first_option(*_TRIGGER), said.first_option(*_LIMIT)
    if trigger is not None and said.trigger is None:
        found.append(f"its trigger {trigger} is none that Spark takes: {instead}")
    elif said.trigger == 0:
        found.append(f"with its trigger {trigger} a batch follows the other at once: {instead}")
    if limit is not None and not limit.isdecimal():
        found.append(f"its limit {limit} is no number: {instead}")
    for what, names, value in (("trigger", _TRIGGER, trigger), ("limit", _LIMIT, limit)):
        unread = _first({each: each for each in said.unread}, names)
        if value is None and unread is not None:
            found.append(f"its {what} ({unread}) is not named in plain words: {instead}")
    return tuple(found)


def _first(options: Mapping[str, str], names: Sequence[str]) -> str | None:
    lowered = {key.lower(): value for key, value in options.items()}
    return next((lowered[each.lower()] for each in names if each.lower() in lowered), None)


def _pairs(
    tree: ast.AST, known: Mapping[str, str], arguments: Mapping[str, str]
) -> Iterator[tuple[str, str | None]]:
    """Yield keys and values of dictionaries, of ``.option(key, value)``, of keywords, and of ``.format(value)``.

    None is a value that is not literal.
    """
    for node in ast.walk(tree):
        found: list[tuple[ast.expr | str | None, ast.expr]] = []
        if isinstance(node, ast.Dict):
            found = list(zip(node.keys, node.values, strict=True))
        elif isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name == "option" and len(node.args) == 2:
                found = [(node.args[0], node.args[1])]
            elif name == "format" and len(node.args) == 1:
                found = [("format", node.args[0])]
            found += [(each.arg, each.value) for each in node.keywords if each.arg]
        for key, value in found:
            said = key if isinstance(key, str) else _text(key, known, arguments) if key is not None else None
            if said is not None:
                yield said, _text(value, known, arguments)


def _text(node: ast.expr, known: Mapping[str, str], arguments: Mapping[str, str]) -> str | None:
    """Return a literal text; None for any other, or one longer than any option (names in names can double its length)."""
    found = _said(node, known, arguments)
    return found if found is None or len(found) <= _LONGEST_TEXT else None


def _said(node: ast.expr, known: Mapping[str, str], arguments: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
        if isinstance(node.value, int) and node.value.bit_length() > _LONGEST_TEXT:
            return None
        return str(node.value)
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return arguments.get(str(node.slice.value))
    if isinstance(node, ast.JoinedStr):
        parts = [
            _text(each.value if isinstance(each, ast.FormattedValue) else each, known, arguments)
            for each in node.values
        ]
        return None if None in parts or len(parts) > _LONGEST_TEXT else "".join(filter(None, parts))
    return None


def _seconds(text: str | None) -> float | None:
    """Read a trigger's interval as Spark does (``SparkIntervalUtils.stringToInterval``); None for an invalid one."""
    rest = (text or "").strip().lower()
    rest = re.sub(r"^interval\s+", "", rest)
    if not rest:
        return None
    micros = 0
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        sign, whole, behind, alone, unit = part.groups()
        if (behind is not None or alone is not None) and unit != "second":
            return None
        fraction = int((behind or alone or "").ljust(9, "0")) // 1000
        each = int(whole or 0) * _MICROSECONDS[unit] + fraction
        micros += -each if sign == "-" else each
        rest = rest[part.end() :]
    return micros // 1000 / 1000 if 0 <= micros < _MOST else None
