"""Start of a query without a checkpoint: a source's ``start``, and times as sources count them."""

from __future__ import annotations

from datetime import UTC, datetime

from .errors import StartError


def start_time(start: str) -> datetime | None:
    """Parse a query's start.

    Parameters
    ----------
    start
        ``earliest``, ``latest`` or a time in ISO 8601 with its zone.

    Returns
    -------
    datetime or None
        The time, in UTC; None for the two words.

    Raises
    ------
    StartError
        Any other text.
    """
    if start in ("earliest", "latest"):
        return None
    moment = parse_time(start)
    if moment is None:
        raise StartError(f"start {start!r}: must be earliest, latest, or a time such as 2026-01-31T00:00:00Z")
    return moment


def parse_time(text: str) -> datetime | None:
    """Parse a time in ISO 8601 with its zone; return it in UTC, or None for any other text."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.astimezone(UTC)


def epoch_milliseconds_text(at: datetime) -> str:
    """Return milliseconds since the epoch, as Kafka and Kinesis count them."""
    return str(round(at.timestamp() * 1000))
