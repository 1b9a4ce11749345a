"""Times as Python has them, where Spark has more."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND + 1
_LAST = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MICROSECOND - 1


def moment_of(micros: int) -> datetime:
    """The moment of so many microseconds since 1970; of the years that Python lacks, the nearest but one that it has.

    Examples
    --------
    >>> moment_of(2**63 - 1)
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999998, tzinfo=datetime.timezone.utc)
    """
    return _EPOCH + min(max(micros, _FIRST), _LAST) * _MICROSECOND
