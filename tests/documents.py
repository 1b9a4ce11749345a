"""Settings turned back into what launch documents hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from millrace.etl.launch.engine import Engine


def plain(value: Any) -> Any:
    """Turn dataclasses, mappings and tuples back into what JSON holds.

    A route without a name is the query's own keys; what has no keys but its kind is a name alone.
    """
    if isinstance(value, Engine) and len(dataclasses.fields(value)) == 1:
        return value.kind
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _flat({field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)})
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


def _flat(held: dict[str, Any]) -> dict[str, Any]:
    routes = held.get("routes")
    if routes is None or routes[0]["name"] is not None:
        return held
    [route] = routes
    assert route["origin"] is None
    own = {key: value for key, value in route.items() if key not in ("name", "origin")}
    return {key: value for key, value in held.items() if key != "routes"} | own
