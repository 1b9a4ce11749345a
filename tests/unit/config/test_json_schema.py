"""The JSON Schema describes each key and its default."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from millrace.config.environment_json_schema import json_schema

SCHEMA = json_schema()
VALIDATOR = Draft202012Validator(SCHEMA)
KEYS: dict[str, dict[str, Any]] = {
    f"{name}.{key}": found
    for name, model in {"Environment": SCHEMA, **SCHEMA["$defs"]}.items()
    for key, found in model.get("properties", {}).items()
}


def test_there_are_keys() -> None:
    assert len(KEYS) > 300
    assert "Upkeep.file_size" in KEYS


@pytest.mark.parametrize("name", KEYS)
def test_a_key_says_what_it_means(name: str) -> None:
    assert KEYS[name].get("description", "").strip()


@pytest.mark.parametrize("name", [name for name, key in KEYS.items() if "default" in key])
def test_a_default_is_what_one_could_write(name: str) -> None:
    """An editor inserts it."""
    key = KEYS[name]
    assert VALIDATOR.evolve(schema={**key, "$defs": SCHEMA["$defs"]}).is_valid(key["default"])
