"""Trigger of the queries that read a stream, its interval read as Spark reads it (``SparkIntervalUtils.stringToInterval``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from millrace.advisor.existing.reader_options import INSTEAD
from millrace.advisor.programs.possible_values import Unknown
from millrace.advisor.programs.program_streams import Query
from millrace.advisor.programs.stream_options import TRIGGER

_BOUNDED = (
    "a run ends when it has read what was there, by a schedule of its own: `run_every`, where the SLA leaves time for it; set it to that "
    "schedule"
)
_OTHER_TRIGGERS = {
    "once": _BOUNDED,
    "availablenow": _BOUNDED,
    "continuous": "it runs without micro-batches; the imported job has some",
}


class StreamTrigger(NamedTuple):
    """Trigger of a stream's queries.

    Attributes
    ----------
    seconds
        The shortest of several; None without one.
    ends
        Whether runs end when they have read what was there.
    """

    seconds: float | None
    ends: bool
    notes: tuple[str, ...]


def shortest_trigger(queries: Sequence[Query]) -> StreamTrigger:
    """Return the trigger of queries, the shortest of several."""
    notes: list[str] = []
    triggers: dict[float, str] = {}
    ends = False
    for query in queries:
        for key, meaning in _OTHER_TRIGGERS.items():
            if any(each.value not in (None, False) for each in query.options.get(key, ())):
                notes.append(f"line {query.line}: with its trigger {key} {meaning}")
                ends = meaning is _BOUNDED
                break
        else:
            for each in query.options.get(TRIGGER, ()):
                line = each.line or query.line
                seconds = trigger_interval_seconds(str(each.value))
                if isinstance(each.value, Unknown):
                    notes.append(f"line {line}: its trigger is {each.value.origin}: {INSTEAD}")
                elif seconds:
                    triggers[seconds] = f"{each.value} (line {line})"
                elif seconds == 0:
                    notes.append(
                        f"with its trigger {each.value} a batch follows the other at once: {INSTEAD}"
                    )
                elif each.value is not None:
                    notes.append(f"its trigger {each.value} is none that Spark takes: {INSTEAD}")
    if len(triggers) > 1:
        notes.append(f"its triggers are {', '.join(triggers.values())}: the shortest is taken")
    return StreamTrigger(min(triggers, default=None), ends, tuple(notes))


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
