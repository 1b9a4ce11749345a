"""JSON Schema with which editors complete and check environment files."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from millrace.config.load import EXTENDS
from millrace.config.model import Environment
from millrace.config.units import format_duration

SCHEMA_FILE = "environments/schema.json"
"""File of ``millrace schema --write``, relative to the project."""


def json_schema() -> dict[str, Any]:
    """Return the schema of an environment file.

    Returns
    -------
    dict
        JSON Schema 2020-12, without ``name``, because the file's name is the name, and with
        ``extends``. Nothing is required at the top, because a base file may contain it;
        ``millrace validate`` checks the two together.
        Null is allowed everywhere; it removes the value of the base.
    """
    schema = Environment.model_json_schema()
    del schema["properties"]["name"]
    schema.pop("required")
    extends = {
        "type": "string",
        "description": "Another file of this folder, which this file extends: mappings are merged key by key, "
        "lists and single values replace its values, null removes them.",
        "examples": ["base"],
    }
    for model in (schema, *schema["$defs"].values()):
        for key in model["properties"].values():
            _complete_schema_key(key, model)
        model["properties"] = {
            key: _schema_of_kind_or_null(kind) for key, kind in model["properties"].items()
        }
    properties = {EXTENDS: extends, **schema.pop("properties")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Millrace environment",
        **{key: value for key, value in schema.items() if key != "title"},
        "properties": properties,
    }


def _complete_schema_key(key: dict[str, Any], model: dict[str, Any]) -> None:
    """Add to a key what pydantic leaves out, in the form that a person writes in the file."""
    if "const" in key:  # a kind: its description is that of its model
        key.setdefault("description", model["description"].partition("\n")[0])
    default = key.get("default")
    if isinstance(default, dict) and any("$ref" in option for option in [key, *key.get("anyOf", [])]):
        key["default"] = {}  # its keys have defaults of their own
    elif isinstance(default, str) and re.match("P[0-9T]", default):
        key["default"] = format_duration(TypeAdapter(timedelta).validate_python(default))


_BESIDE = ("title", "description", "default", "examples")


def _schema_of_kind_or_null(kind: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a value or null; the same for a mapping's values."""
    inner = {
        holder: {key: _schema_of_kind_or_null(each) for key, each in kind[holder].items()}
        for holder in ("patternProperties",)
        if holder in kind
    }
    if isinstance(kind.get("additionalProperties"), dict):
        inner["additionalProperties"] = _schema_of_kind_or_null(kind["additionalProperties"])
    kind = {**kind, **inner}
    null = {"type": "null"}
    for union in ("anyOf", "oneOf"):
        if union in kind:
            return kind if null in kind[union] else {**kind, union: [*kind[union], null]}
    if isinstance(kind.get("type"), str) and not {"const", "enum"} & kind.keys():
        return {**kind, "type": [kind["type"], "null"]}
    beside = {key: kind[key] for key in _BESIDE if key in kind}
    return {**beside, "anyOf": [{key: each for key, each in kind.items() if key not in beside}, null]}


@cache
def schema_text() -> str:
    """Return the schema as text of its file."""
    return json.dumps(json_schema(), indent=2, sort_keys=False) + "\n"
