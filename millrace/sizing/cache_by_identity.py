"""Cache of functions whose arguments never change and have no hash, such as environments and plans."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_LAST = 4
"""Calls that each function remembers: callers ask again at once, for each job and each figure of a page."""


class _KeyByIdentity:
    """An object as a cache key, compared by identity."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _KeyByIdentity) and other.value is self.value


def cached_for_same_objects(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that remembers its last results by the identity of its arguments.

    Without it, time would grow with the square of the environment.
    """

    @lru_cache(maxsize=_LAST)
    def call_with_keyed_arguments(*keys: _KeyByIdentity) -> Any:
        call: Any = function
        return call(*(each.value for each in keys))

    @wraps(function)
    def call_through_cache(*args: P.args, **named: P.kwargs) -> R:
        assert not named, "arguments by position"
        result: R = call_with_keyed_arguments(*map(_KeyByIdentity, args))
        return result

    return call_through_cache
