"""Where a query without a checkpoint begins: a source's ``start``, and moments as sources count them."""

from __future__ import annotations

from datetime import UTC, datetime

from ..record.errors import StartError


def start_time(start: str) -> datetime | None:
    """Read a query's start.

    Parameters
    ----------
    start
        ``earliest``, ``latest`` or a moment in ISO 8601 with its zone.

    Returns
    -------
    datetime or None
        The moment, in UTC; None for the two words.

    Raises
    ------
    StartError
        Anything else.
    """
    if start in ("earliest", "latest"):
        return None
    found = parse_time(start)
    if found is None:
        raise StartError(f"start {start!r}: earliest, latest, or a moment such as 2026-01-31T00:00:00Z")
    return found


def parse_time(text: str) -> datetime | None:
    """A moment in ISO 8601 with its zone, in UTC; None for anything else."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found.astimezone(UTC)


def milliseconds(at: datetime) -> str:
    """Milliseconds of the epoch, as Kafka and Kinesis count them."""
    return str(round(at.timestamp() * 1000))
