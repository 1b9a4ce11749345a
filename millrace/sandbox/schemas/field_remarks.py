"""Remarks on the values of a field: numbers and texts that are times, and money."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructType,
)

MONEY = DecimalType(18, 2)
"""Type of numbers that are all written with two digits after the point: a binary fraction would not hold them exactly."""

_OTHER_TIME = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(Z|[+-]\d\d:?\d\d)?|\d{8}T\d{4}(\d\d)?(\.\d+)?(Z|[+-]\d\d:?\d\d)?"
)
"""ISO 8601 without seconds or without hyphens, which no decoder reads as a time."""

_EPOCHS = {
    "seconds": ("timestamp_seconds", 1),
    "milliseconds": ("timestamp_millis", 10**3),
    "microseconds": ("timestamp_micros", 10**6),
}
"""Units of a time as a number since 1970, each with Spark's function and how many are a second."""

_ID = re.compile(r"(^|[_.])(id|ID|Id)$|[a-z](Id|ID)$")
"""Names of numbers that identify something, which no time does."""

_FIRST_EPOCH, _LAST_EPOCH = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (2000, 2100))
_WIDEST_SAMPLE = int(timedelta(days=20 * 365).total_seconds())
"""Seconds between the first and the last time of one sample; numbers that are further apart are ids."""


def remarks_on_field(name: str, kind: DataType, values: Iterable[Any]) -> Iterator[str]:
    """Yield what a reader should know of a field and of those inside it: numbers and texts that are times, and money."""
    known = [each for each in values if each is not None]
    if isinstance(kind, StructType):
        for f in kind.fields:
            yield from remarks_on_field(f"{name}.{f.name}", f.dataType, [each.get(f.name) for each in known])
    elif kind == MONEY:
        yield f"{name}: two digits in every sample; a third would be rounded away, so write DOUBLE if one can come"
    elif isinstance(kind, ArrayType):
        yield from remarks_on_field(f"{name}[]", kind.elementType, [one for each in known for one in each])
    elif isinstance(kind, IntegerType | LongType | DoubleType) and not _ID.search(name):
        numbers = [float(each) for each in known]
        for unit, (function, second) in _EPOCHS.items():
            least, most = min(numbers, default=0.0), max(numbers, default=0.0)
            if (
                _FIRST_EPOCH * second <= least
                and most < _LAST_EPOCH * second
                and most - least < _WIDEST_SAMPLE * second
            ):
                shown = datetime.fromtimestamp(least // second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                if isinstance(kind, DoubleType):  # only timestamp_seconds takes a fraction
                    call = f"timestamp_seconds({name}{f' / {second}' * (second > 1)})"
                else:
                    call = f"{function}({name})"
                yield f"{name}: epoch {unit}, such as {shown}; {call} in a transform makes a TIMESTAMP of it"
    elif (
        isinstance(kind, StringType)
        and known
        and all(isinstance(e, str) and _OTHER_TIME.fullmatch(e) for e in known)
    ):
        yield f"{name}: a time in a form of ISO 8601 that is no TIMESTAMP here; to_timestamp({name}, FORMAT) in a transform reads it"
