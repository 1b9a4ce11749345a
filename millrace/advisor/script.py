"""What a job's program says of its sources, read from its text: nothing of it is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_SECONDS = {"second": 1.0, "minute": 60.0, "hour": 3600.0, "milli": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(milli|second|minute|hour|s|m)\w*")


@dataclass(frozen=True)
class Said:
    """What a program says.

    Attributes
    ----------
    kind
        Of its source; ``None`` where nothing shows it.
    name
        A stream's name or ARN, or a topic.
    options
        Options by the names that the program gives them.
    trigger
        Seconds, or ``None``.
    """

    kind: str | None
    name: str | None
    options: Mapping[str, str]
    trigger: float | None

    def option(self, *names: str) -> str | None:
        """Return the first of several options that is said."""
        lowered = {key.lower(): value for key, value in self.options.items()}
        return next((lowered[each.lower()] for each in names if each.lower() in lowered), None)


def read(text: str, arguments: Mapping[str, str]) -> Said:
    """Read a Python program.

    Parameters
    ----------
    text
        Its source; what is no Python tells nothing.
    arguments
        The job's, by name without ``--``: what ``args["NAME"]`` stands for.

    Examples
    --------
    >>> read('s.readStream.format("kafka").option("subscribe", args["TOPIC"])', {"TOPIC": "orders"}).name
    'orders'
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return Said(None, None, {}, None)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            value = _text(node.value, known, arguments)
            if value is not None:
                known[node.targets[0].id] = value
    options: dict[str, str] = {}
    formats = []
    for key, value in _pairs(tree, known, arguments):
        options.setdefault(key, value)
        if key in ("format", "connection_type"):
            formats.append(value.lower())
    kind = next((each for each in ("kinesis", "kafka") if any(each in one for one in formats)), None)
    said = Said(kind, None, options, None)
    names = {
        "kafka": ("subscribe", "topicName", "subscribePattern", "assign"),
        "kinesis": ("streamARN", "kinesis.streamName", "streamName"),
    }
    name = said.option(*names[kind]) if kind else None
    return Said(kind, name, options, _seconds(said.option("processingTime", "windowSize")))


def _pairs(
    tree: ast.AST, known: Mapping[str, str], arguments: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Keys and values of dictionaries, of ``.option(key, value)``, of keywords, and of ``.format(value)``."""
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
            text = _text(value, known, arguments)
            if said is not None and text is not None:
                yield said, text


def _text(node: ast.expr, known: Mapping[str, str], arguments: Mapping[str, str]) -> str | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float):
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
        return None if None in parts else "".join(filter(None, parts))
    return None


def _seconds(text: str | None) -> float | None:
    found = _DURATION.fullmatch(text.strip()) if text else None
    return float(found[1]) * _SECONDS[found[2]] if found else None
