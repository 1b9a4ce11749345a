"""Changes of deployed tables, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.sandbox.start_rehearsal import Rehearsal


def altered_tables(found: Rehearsal) -> list[str]:
    """Return a line for each change of a table by the next start."""
    return [f"table {table}: {change}" for table, changes in found.altered.items() for change in changes]


def refused_queries(found: Rehearsal) -> list[str]:
    """Return a line for each query that would not start."""
    return [f"job {each.job}, query {each.query}: {each.why}" for each in found.refused]
