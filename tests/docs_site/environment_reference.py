"""Generates the reference of the environment file from its JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from millrace.config.environment_json_schema import json_schema

Schema = Mapping[str, Any]

BEGINNING = """\
# Keys of the environment file

Each table is one mapping of the file. A key with a star has to be written; of every other key the default counts.
Durations are written with a unit (`250ms`, `60s`, `5m`, `24h`, `7d`), sizes too (`512KiB`, `1GiB`).
`millrace validate` finds what is wrong with a file, all of it at once; `environments/schema.json` brings the same to an editor.
"""


def environment_page() -> str:
    """Write the page: a table for each model of the schema, in the order in which the file leads to them."""
    schema = json_schema()
    models = {"": schema, **schema["$defs"]}
    parts = [BEGINNING, _table(schema)]
    for name in _in_order(models):
        model = models[name]
        text = model["description"].partition("\n")[0]
        parts.append(f"## {_title(name, model)} {{#{name.lower()}}}\n\n{text}\n\n{_table(model)}")
    return "\n".join(parts)


def _in_order(models: Mapping[str, Schema]) -> list[str]:
    """Names of the models by the first way that leads to them, the file's own mapping left out."""
    result: dict[str, None] = {}
    waiting = [""]
    while waiting:
        name = waiting.pop(0)
        if name in result:
            continue
        result[name] = None
        # What a mapping holds follows it before its neighbours do.
        waiting = [*dict.fromkeys(_references(models[name].get("properties", {}))), *waiting]
    return [name for name in result if name]


def _references(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield node["$ref"].rsplit("/", 1)[1]
        for key, value in node.items():
            if key != "mapping":
                yield from _references(value)
    elif isinstance(node, list):
        for value in node:
            yield from _references(value)


def _title(name: str, model: Schema) -> str:
    """The model's name in words, and the kind by which the file asks for it."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).capitalize()
    kinds = [
        f"`{key}: {option['const']}`"
        for key, result in model["properties"].items()
        for option in (result, *result.get("anyOf", ()))
        if "const" in option
    ]
    return f"{words}: {kinds[0]}" if kinds else words


def _table(model: Schema) -> str:
    rows = ["| key | meaning | value | default |", "|---|---|---|---|"]
    required = set(model.get("required", ()))
    for name, key in model["properties"].items():
        star = " \\*" if name in required else ""
        rows.append(
            f"| `{name}`{star} | {_cell(key['description'])} | {_cell(_value(key))} | {_cell(_default(key))} |"
        )
    return "\n".join(rows) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _default(key: Schema) -> str:
    default = key.get("default")
    if default is None or default in ("", [], {}):
        return ""
    return f"`{default}`" if isinstance(default, str) else f"`{json.dumps(default)}`"


def _value(key: Schema) -> str:
    """What may be written: a type with its bounds, the words that are allowed, or a link to the mapping."""
    text = _kind(key)
    examples = [_example(each) for each in key.get("examples", ())]
    shown = ", ".join(f"`{each}`" for each in examples[:2] if each not in text)
    return f"{text}, such as {shown}" if shown else text


def _example(example: Any) -> str:
    return example if isinstance(example, str) else json.dumps(example)


def _kind(key: Schema) -> str:
    if "$ref" in key:
        name = key["$ref"].rsplit("/", 1)[1]
        return f"[mapping](#{name.lower()})"
    if "const" in key:
        return f"`{key['const']}`"
    if "enum" in key:
        return ", ".join(f"`{each}`" for each in key["enum"])
    options = [each for each in (*key.get("anyOf", ()), *key.get("oneOf", ())) if each.get("type") != "null"]
    if options:
        return " or ".join(dict.fromkeys(_option(each) for each in options))
    types = key.get("type", ())  # null removes what a base has, everywhere
    match next((each for each in ([types] if isinstance(types, str) else types) if each != "null"), None):
        case "array":
            return f"list of {_kind(key['items'])}" if "items" in key else "list"
        case "object":
            inner = [*key.get("patternProperties", {}).values()] or [key.get("additionalProperties", {})]
            return f"names, each with {_kind(inner[0])}" if inner[0] else "mapping"
        case "integer" | "number" as numeric:
            return _bounded("whole number" if numeric == "integer" else "number", key)
        case "boolean":
            return "`true`, `false`"
    if key.get("pattern", "").endswith("(ms|s|m|h|d)$"):
        return "duration"
    return "size" if "KiB" in key.get("pattern", "") else "text"


def _option(option: Schema) -> str:
    """One of several mappings, called by the kind by which the file asks for it."""
    if "$ref" not in option:
        return _kind(option)
    name = option["$ref"].rsplit("/", 1)[1]
    return f"[{re.sub(r'(?<=[a-z])(?=[A-Z])', ' ', name).lower()}](#{name.lower()})"


def _bounded(name: str, key: Schema) -> str:
    low, high = key.get("minimum", key.get("exclusiveMinimum")), key.get("maximum")
    if low is not None and high is not None:
        return f"{name}, {low:g} to {high:g}"
    if low is not None:
        return f"{name}, {low:g} or more"
    return f"{name}, at most {high:g}" if high is not None else name
