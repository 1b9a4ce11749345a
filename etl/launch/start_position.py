"""Where a query without a checkpoint begins: a source's ``start``, and moments as sources count them."""

from __future__ import annotations

from datetime import UTC, datetime

from ..record.errors import StartError


def moment_of(start: str) -> datetime | None:
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
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise StartError(f"start {start!r}: earliest, latest, or a moment such as 2026-01-31T00:00:00Z")
    return moment.astimezone(UTC)


def milliseconds(moment: datetime) -> str:
    """Milliseconds of the epoch, as Kafka and Kinesis count them."""
    return str(round(moment.timestamp() * 1000))
