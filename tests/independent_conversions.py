"""Independent conversions of parsed values to column values, to judge the product's decoders."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable
from ctypes import c_float
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, localcontext
from math import isinf
from typing import Any
from zoneinfo import ZoneInfo

Judge = Callable[[Any], Any]
"""Makes the value of a column of what a parser read; raises an error for what the type cannot hold."""


class Number(str):
    """A number of JSON or CSV, in its sender's own characters."""


def raised(value: Any) -> Any:
    raise ValueError(value)


def whole(bits: int) -> Judge:
    def judge(value: Any) -> int:
        found = int(value) if isinstance(value, Number) else raised(value)
        return found if -(1 << bits - 1) <= found < 1 << bits - 1 else raised(value)

    return judge


def decimal(precision: int, scale: int) -> Judge:
    """A number, or a text that is one."""

    def judge(value: Any) -> Decimal:
        found = Decimal(value) if isinstance(value, str) and "_" not in value else raised(value)
        with localcontext(prec=2000):
            rounded = found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
        return rounded if abs(rounded) < 10 ** (precision - scale) else raised(value)

    return judge


def double(value: Any) -> float:
    found = float(value) if isinstance(value, Number) else raised(value)
    return raised(value) if isinf(found) else found


def single(value: Any) -> float:
    found = c_float(double(value)).value
    return raised(value) if isinf(found) else found


def data(value: Any) -> bytes:
    """Base64 with its padding; line breaks between its groups do not count."""
    return b64decode("".join(value.split()), validate=True) if type(value) is str else raised(value)


def flag(value: Any) -> bool:
    return value if isinstance(value, bool) else raised(value)


def day(value: Any) -> date:
    """``YYYY-MM-DD``, and a time behind it that is one."""
    if type(value) is not str or not re.match(r"\d{4}-\d\d-\d\d", value):
        raise ValueError(value)
    datetime.fromisoformat(value)
    return date.fromisoformat(value[:10])


def moment(digits: int = 0) -> Judge:
    def judge(value: Any) -> datetime:
        if isinstance(value, Number):
            return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(value) * 10**6 // 10**digits)
        if digits and type(value) is str and value.isdigit():
            return judge(Number(value))
        if type(value) is not str or not re.match(r"\d{4}-\d\d-\d\d", value):
            raise ValueError(value)
        text, _, zone = value.partition(" ")
        if zone[:1].isalpha():
            return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        found = datetime.fromisoformat(value)
        return (found.replace(tzinfo=UTC) if found.tzinfo is None else found).astimezone(UTC)

    return judge


def local(value: Any) -> datetime:
    """A time without a zone."""
    found = datetime.fromisoformat(value) if type(value) is str and "-" in value else raised(value)
    return raised(value) if found.tzinfo else found


def every(judge: Judge) -> Judge:
    """Items of a list, or values of an object."""

    def judged(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: judge(each) for name, each in value.items()}
        return list(map(judge, value)) if isinstance(value, list) else raised(value)

    return judged


def listed(judge: Judge) -> Judge:
    return lambda value: every(judge)(value) if isinstance(value, list) else raised(value)


def mapped(judge: Judge) -> Judge:
    return lambda value: every(judge)(value) if isinstance(value, dict) else raised(value)


def struct(**judges: Judge) -> Judge:
    def judge(value: Any) -> dict[str, Any]:
        given = value if isinstance(value, dict) else raised(value)
        return {n: None if given.get(n) is None else judge(given[n]) for n, judge in judges.items()}

    return judge


def written(value: Any) -> str:
    """A text, or JSON without blanks in its sender's own characters."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_part, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_part(each)}" for name, each in value.items()) + "}"
    return json.dumps(value)


def _part(value: Any) -> str:
    plain = isinstance(value, str) and not isinstance(value, Number)
    return json.dumps(value, ensure_ascii=False) if plain else written(value)
