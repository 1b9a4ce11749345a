"""Durations and sizes with their unit: ``60s``, ``512KiB``."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ByteSize, PlainSerializer, WithJsonSchema

_DURATION = re.compile(r"^(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>ms|s|m|h|d)$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LONGEST_SIZE = 24
"""Most characters of a size; below it, the float that is used to read it cannot overflow."""

_SIZE = re.compile(r"^[0-9]+(?:\.[0-9]+)?\s?(?:B|KB|MB|GB|TB|KiB|MiB|GiB|TiB)$")


def parse_duration(value: Any) -> timedelta:
    """Read a duration that names its unit.

    Parameters
    ----------
    value
        ``"250ms"``, ``"60s"``, ``"5m"``, ``"24h"`` or ``"7d"``; a ``timedelta`` passes.

    Returns
    -------
    timedelta
        Longer than zero.

    Raises
    ------
    ValueError
        A number without a unit, an unknown unit, zero, or millions of years.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.match(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("write a number with its unit: ms, s, m, h or d, such as 60s or 24h")
    try:
        duration = timedelta(seconds=float(match["number"]) * _SECONDS[match["unit"]])
    except OverflowError as error:
        raise ValueError("a shorter duration, such as 60s or 24h") from error
    if duration <= timedelta(0):
        raise ValueError("a duration longer than zero, such as 60s or 24h")
    return duration


def format_duration(value: timedelta) -> str:
    """Return a duration in the largest unit that gives a whole number: ``90s``, ``24h``."""
    seconds = value.total_seconds()
    for unit in ("d", "h", "m", "s"):
        if seconds >= _SECONDS[unit] and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{round(seconds * 1000)}ms"


def require_size_unit(value: Any) -> Any:
    """Refuse a size without a unit; pydantic's ``ByteSize`` would read it as bytes."""
    if isinstance(value, ByteSize):
        return value
    if not isinstance(value, str) or not _SIZE.match(value):
        raise ValueError("write a number with its unit: B, KB, KiB, MB, MiB, GB or GiB, such as 512KiB")
    if len(value) > _LONGEST_SIZE:
        raise ValueError("a size of fewer digits, such as 512KiB")
    return value


def require_at_least_one_byte(value: ByteSize) -> ByteSize:
    """Refuse a size below one byte, such as ``0B`` or ``0.4B``."""
    if value < 1:
        raise ValueError("a size larger than zero, such as 512KiB")
    return value


def normalized_start_position(value: Any) -> str:
    """Read the start of a query without a checkpoint.

    Parameters
    ----------
    value
        ``"earliest"``, ``"latest"`` or a time in ISO 8601 with its zone.

    Returns
    -------
    str
        The word, or the time in UTC, such as ``2026-01-31T00:00:00Z``.

    Raises
    ------
    ValueError
        Anything else, or a time without a zone.
    """
    if value in ("earliest", "latest"):
        return str(value)
    with suppress(TypeError, ValueError, OverflowError):  # in UTC before the year 1, or after 9999
        if (moment := datetime.fromisoformat(value)).tzinfo is not None:
            return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    raise ValueError("earliest, latest, or a time with its zone, such as 2026-01-31T00:00:00Z")


Start = Annotated[
    str,
    BeforeValidator(normalized_start_position),
    WithJsonSchema(
        {
            "anyOf": [{"enum": ["earliest", "latest"]}, {"type": "string", "format": "date-time"}],
            "examples": ["earliest", "latest", "2026-01-31T00:00:00Z"],
        }
    ),
]
"""Start of a query without a checkpoint."""

Duration = Annotated[
    timedelta,
    BeforeValidator(parse_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": _DURATION.pattern.replace("?P<number>", "").replace("?P<unit>", ""),
            "examples": ["60s", "24h"],
        }
    ),
]
"""A ``timedelta``, written with its unit."""

Size = Annotated[
    ByteSize,
    BeforeValidator(require_size_unit),
    AfterValidator(require_at_least_one_byte),
    WithJsonSchema({"type": "string", "pattern": _SIZE.pattern, "examples": ["512KiB"]}),
]
"""Number of bytes, written with its unit."""
