"""Changes of deployed tables, as lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.sandbox.start_rehearsal import Rehearsal


def altered_tables(found: Rehearsal) -> list[str]:
    """Say which tables the next start alters, a line for each change."""
    return [f"table {table}: {change}" for table, changes in found.altered.items() for change in changes]


def refused_queries(found: Rehearsal) -> list[str]:
    """Say which queries would not start, a line for each."""
    return [f"job {each.job}, query {each.query}: {each.why}" for each in found.refused]
