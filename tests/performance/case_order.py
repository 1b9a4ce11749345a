"""The order of cases within rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")


def in_turn(cases: Sequence[Case], number: int) -> list[Case]:
    """All cases, in each round from another one on, so that none is always the first or after the same one's garbage.

    Examples
    --------
    >>> in_turn(["a", "b", "c"], 4)
    ['b', 'c', 'a']
    """
    first = number % len(cases)
    return [*cases[first:], *cases[:first]]
