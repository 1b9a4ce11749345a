"""Launch-document queries with default settings, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_READ = ("source", "format", "schema", "decompress_up_to", "redact", "rules")
_ROUTE = {"land": _READ, "direct": (*_READ, "enrich", "transform", "sink")}

DERIVE_DEFAULTS = {"latest_order": None, "history": False, "rows_per_batch": 1_000_000, "tasks": 1}


def with_route(query: Mapping[str, Any]) -> dict[str, Any]:
    """Put the keys of a query's only route, which stand among its own, into that route; other queries stay."""
    mine = _ROUTE.get(query["kind"], ())
    if "routes" in query or not mine:
        return {**DERIVE_DEFAULTS, **query} if query["kind"] == "derive" else dict(query)
    route = {"name": None, "origin": None, "changes_of": None, **{key: query[key] for key in mine}}
    return {**{key: value for key, value in query.items() if key not in mine}, "routes": [route]}
