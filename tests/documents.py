"""Settings turned back into what launch documents hold."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from millrace.etl.launch.engine import Engine
from millrace.etl.launch.format_kinds import Format
from millrace.etl.launch.settings import DirectRouteSettings


def plain(value: Any) -> Any:
    """Turn dataclasses, mappings and tuples back into what JSON holds; what has no keys but its kind is a name alone."""
    if isinstance(value, Format | Engine) and len(dataclasses.fields(value)) == 1:
        return value.kind
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return value


_OF_A_ROUTE = frozenset(field.name for field in dataclasses.fields(DirectRouteSettings))


def in_one_route(query: Mapping[str, Any]) -> dict[str, Any]:
    """A land or direct query as documents have it: what it says of its records is in a route without a name."""
    if "source" not in query:
        return dict(query)
    own = {key: value for key, value in query.items() if key in _OF_A_ROUTE - {"name", "origin"}}
    others = {key: value for key, value in query.items() if key not in own}
    return {**others, "routes": [{"name": None, "origin": None, **own}]}
