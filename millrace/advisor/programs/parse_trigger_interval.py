"""Interval of a trigger, read as Spark reads it (``SparkIntervalUtils.stringToInterval``)."""

from __future__ import annotations

import re

_MICROSECONDS = {
    "week": 7 * 86_400_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1000,
    "microsecond": 1,
}
_PART = re.compile(
    rf"([+-]?)\s*(?:(\d+)(?:\.(\d{{0,9}}))?|\.(\d{{1,9}}))\s+({'|'.join(_MICROSECONDS)})s?(?:\s+|$)"
)

_MOST = 2**63
"""Spark counts microseconds in a long."""


def trigger_interval_seconds(text: str | None) -> float | None:
    """Return the seconds of an interval; None for an invalid one."""
    rest = (text or "").strip().lower()
    rest = re.sub(r"^interval\s+", "", rest)
    if not rest:
        return None
    micros = 0
    while rest:
        part = _PART.match(rest)
        if part is None:
            return None
        sign, whole, behind, alone, unit = part.groups()
        if (behind is not None or alone is not None) and unit != "second":
            return None
        fraction = int((behind or alone or "").ljust(9, "0")) // 1000
        each = int(whole or 0) * _MICROSECONDS[unit] + fraction
        micros += -each if sign == "-" else each
        rest = rest[part.end() :]
    return micros // 1000 / 1000 if 0 <= micros < _MOST else None
