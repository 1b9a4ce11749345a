"""Numbers as people read them: with nouns and units, and only significant digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

_LARGE = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_SIZES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_TIMES = (("day", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_NAMED = 3
"""Most names that are written out; more are counted."""


def count(number: float, noun: str) -> str:
    """Return a number with its noun: ``1 shard``, ``2.5 shards``, ``3 queries``, ``4 batches``."""
    return f"{number:,.12g} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """Return the plural of a regular English noun."""
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"


def format_number(number: float) -> str:
    """Return a number with three digits or without decimals, and with ``million`` and so on if it is large.

    Examples
    --------
    >>> format_number(1_234_567), format_number(12_345.6), format_number(0.25), format_number(999_999.9)
    ('1.23 million', '12,346', '0.25', '1 million')
    """
    for unit, name in _LARGE:
        if round(abs(number)) >= unit:
            return f"{_three_digits(number / unit)} {name}"
    return f"{number:,.0f}" if abs(number) >= 100 or number == round(number) else f"{number:.3g}"


def rate_text(number: float) -> str:
    """Return a number of records, or of records a second, without decimals from 100 on; a small one is not 0.

    Examples
    --------
    >>> rate_text(1_234_567.8), rate_text(82.5), rate_text(0.0123)
    ('1,234,568', '82.5', '0.0123')
    """
    return f"{number:,.0f}" if number >= 100 else format_number(number)


def format_bytes(number: float) -> str:
    """Return a number of bytes with its unit.

    Examples
    --------
    >>> format_bytes(512), format_bytes(13_314_398_617), format_bytes(1024**2 - 1)
    ('512 B', '12.4 GiB', '1 MiB')
    """
    place = 0
    while place < len(_SIZES) - 1 and round(number, 1 if place else 0) >= 1000:
        number, place = number / 1024, place + 1
    return f"{_three_digits(number)} {_SIZES[place]}"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units.

    Examples
    --------
    >>> duration_text(200), duration_text(0.25), duration_text(4.25), duration_text(7260), duration_text(float("inf"))
    ('3 min 20 s', '250 ms', '4.2 s', '2 h 1 min', 'forever')
    """
    if math.isinf(seconds):
        return "forever"
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms" if seconds else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s".replace(".0 s", " s")
    whole = round(seconds)
    for (unit, each), (lesser, part) in zip(_TIMES, (*_TIMES[1:], ("", 1)), strict=True):
        if whole >= each:
            first = count(whole // each, unit) if unit == "day" else f"{whole // each} {unit}"
            rest = whole % each // part if lesser else 0
            return f"{first} {rest} {lesser}" if rest else first
    return "0 s"


def dollars(usd: float, *, assumed: bool = False) -> str:
    """Return US dollars; without cents from 100 on.

    Examples
    --------
    >>> dollars(1234.4), dollars(12.4), dollars(99.999), dollars(7, assumed=True)
    ('$1,234', '$12.40', '$100', '~$7.00')
    """
    mark = "~" if assumed else ""
    return f"{mark}${usd:,.0f}" if round(usd, 2) >= 100 else f"{mark}${usd:,.2f}"


def percent(share: float) -> str:
    """Return a share in percent; a share below 1 is never rounded to 100%, and one above 0 never to 0%.

    Examples
    --------
    >>> percent(0.3412), percent(0.99996), percent(1.0), percent(0.0004)
    ('34%', '99.9%', '100%', '<0.1%')
    """
    if 0 < share < 0.001:
        return "<0.1%"
    if share < 0.01 or 0.99 <= share < 1:
        return f"{math.floor(share * 1000) / 10:g}%"
    return f"{share:.0%}"


def join_names(all_of_them: Sequence[str]) -> str:
    """Return names for a sentence: ``a``, ``a and b``, ``a, b, c and 9 more``."""
    shown = list(dict.fromkeys(all_of_them))
    if len(shown) > _NAMED + 1:
        shown = [*shown[:_NAMED], f"{len(shown) - _NAMED} more"]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1]))) if shown else ""


def _three_digits(number: float) -> str:
    """Return three digits, without trailing zeros."""
    return f"{number:.0f}" if abs(number) >= 100 else f"{number:.3g}"
