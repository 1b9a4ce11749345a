"""Difference between the rows that a table has and those that it must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Difference:
    """Difference between a table and its known rows: missing rows, duplicated rows, and other rows.

    Attributes
    ----------
    what
        The table, for people.
    wanted
        Number of rows that must exist.
    """

    what: str
    wanted: int
    lost: int
    doubled: int
    others: int

    @classmethod
    def of(cls, what: str, wanted: Counter[Any], found: Counter[Any]) -> Difference:
        """Compare multisets of rows."""
        doubled = sum(n - wanted[row] for row, n in found.items() if n > wanted[row] > 0)
        others = sum(n for row, n in found.items() if row not in wanted)
        return cls(what, wanted.total(), (wanted - found).total(), doubled, others)

    @property
    def exact(self) -> bool:
        """True if rows were expected, and each exists once."""
        return self.wanted > 0 and not (self.lost or self.doubled or self.others)

    def __str__(self) -> str:
        """Return the figures as text."""
        return f"{self.lost} lost, {self.doubled} doubled, {self.others} others"

    @classmethod
    def total(cls, parts: Iterable[Difference]) -> Difference:
        """Return the sum of several differences."""
        columns = zip(*((part.wanted, part.lost, part.doubled, part.others) for part in parts), strict=True)
        return cls("all", *map(sum, columns))
