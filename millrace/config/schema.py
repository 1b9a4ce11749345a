"""The JSON Schema by which editors complete and check environment files."""

from __future__ import annotations

import json
from typing import Any

from millrace.config.load import EXTENDS
from millrace.config.model import Environment

SCHEMA_FILE = "environments/schema.json"
"""Where ``millrace schema --write`` puts it, below the project."""


def json_schema() -> dict[str, Any]:
    """Return the schema of an environment file.

    Returns
    -------
    dict
        JSON Schema 2020-12. ``name`` is not in it, as the file's name is the name;
        ``extends`` is. Nothing is required at the top: a file may leave to its base
        what it does not say itself, and ``millrace validate`` judges the two together.
    """
    schema = Environment.model_json_schema()
    del schema["properties"]["name"]
    schema.pop("required")
    extends = {
        "type": "string",
        "description": "Another file of this folder that this one is laid over: mappings merge key by key, "
        "lists and single values replace.",
        "examples": ["base"],
    }
    properties = {EXTENDS: extends, **schema.pop("properties")}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Millrace environment",
        **{key: value for key, value in schema.items() if key != "title"},
        "properties": properties,
    }


def schema_text() -> str:
    """Return the schema as it stands in its file."""
    return json.dumps(json_schema(), indent=2, sort_keys=False) + "\n"
