"""Trigger of the queries that read a stream, its interval read as Spark reads it (``SparkIntervalUtils.stringToInterval``), and the format of its payloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import NamedTuple

from millrace.advisor.existing.reader_options import INSTEAD
from millrace.advisor.programs.possible_values import PayloadCall, Unknown, Values, known_value
from millrace.advisor.programs.program_stream_model import TRIGGER, Query
from millrace.config.document.placeholders_left_by_import import placeholder_for_question
from millrace.config.formats import KINDS

_NO_MICRO_BATCHES = "it runs without micro-batches; the imported job has some"
_BOUNDED = (
    "a run ends when it has read what was there, by a schedule of its own: `run_every`, where the SLA leaves time for it; set it to that "
    "schedule"
)
_OTHER_TRIGGERS = {
    "once": _BOUNDED,
    "availablenow": _BOUNDED,
    "continuous": _NO_MICRO_BATCHES,
    "realtime": _NO_MICRO_BATCHES,
}


class StreamTrigger(NamedTuple):
    """Trigger of a stream's queries.

    Attributes
    ----------
    seconds
        The shortest of several; None without one.
    ends
        Whether all runs end when they have read what was there.
    """

    seconds: float | None
    ends: bool
    notes: tuple[str, ...]


def shortest_trigger(queries: Sequence[Query]) -> StreamTrigger:
    """Return the trigger of queries, the shortest of several; a query without one begins a batch when the one before has ended."""
    triggers: dict[str, float | None] = {}
    places: dict[str, str] = {}
    notes: dict[str, str] = {}
    for query in queries:
        for each in query.options.get(TRIGGER, known_value(None, query.line)):
            line = f"line {each.line or query.line}"
            name = each.value.origin if isinstance(each.value, Unknown) else str(each.value or "none").strip()
            seconds = 0.0 if each.value is None else trigger_interval_seconds(name)
            if isinstance(each.value, Unknown):
                note = f"{line}: its trigger is {name}: {INSTEAD}"
            elif name in _OTHER_TRIGGERS:
                note = f"{line}: with its trigger {name} {_OTHER_TRIGGERS[name]}"
            elif each.value is None:
                note = f"{line}: without a trigger a batch follows the other at once: {INSTEAD}"
            elif seconds is None:
                note = f"its trigger {name} is none that Spark takes: {INSTEAD}"
            else:
                note = f"with its trigger {name} a batch follows the other at once: {INSTEAD}"
            triggers[name], notes[name] = seconds, note
            places.setdefault(name, f"{name} ({line})")
    shortest = min((each for each in triggers.values() if each is not None), default=None)
    told = [notes[name] for name, seconds in triggers.items() if not shortest and seconds == shortest]
    if len(triggers) > 1:
        told.insert(0, f"its triggers are {', '.join(places.values())}: the shortest is taken")
    ends = bool(triggers) and all(_OTHER_TRIGGERS.get(each) is _BOUNDED for each in triggers)
    return StreamTrigger(shortest or None, ends, tuple(told))


_CONFLUENT = re.compile(r"\bsubstr(ing)?\((?:[^()]|\([^()]*\))*?\b6\b", re.IGNORECASE)
"""Removal of the first five bytes: the header of Confluent's serializers."""


def payload_format(
    calls: Iterable[PayloadCall], classification: Values, program: str
) -> str | dict[str, str] | None:
    """Return the format of a stream's payloads for the environment file, open where it has no single one; None where nothing tells it.

    Parameters
    ----------
    calls
        Calls of the program that decode them.
    classification
        What Glue's reader is told.
    program
        Its source.
    """
    told = [
        PayloadCall(each.value.lower() if isinstance(each.value, str) else "not known", each.line)
        for each in classification
    ] or sorted(set(calls))
    kinds = {each.kind for each in told}
    if len(kinds) > 1 or not kinds <= KINDS.keys():
        names = ", or ".join(f"line {each.line}: {each.kind}" for each in told)
        return placeholder_for_question(f"{names}; write the format here, one of {', '.join(KINDS)}")
    if not kinds:
        return None
    [kind] = kinds
    keys = {key: value for each in told for key, value in each.settings}
    if kind == "avro" and not classification and _CONFLUENT.search(program):
        keys = {"framing": "confluent", "registry": None, "subject": None}
    made = {key: value or placeholder_for_question(_KEYS_OF_FORMATS[key]) for key, value in keys.items()}
    return {"kind": kind, **made} if made else kind


_KEYS_OF_FORMATS = {
    "message": "full name of the message, such as shop.Order",
    "registry": "URL of the Confluent registry; or remove it and subject, and name a folder with its schemas as writers",
    "subject": "subject in the registry, such as orders-value",
}


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
    rf"([+-]?)\s*(\d+|(?:\d+\.\d{{0,9}}|\.\d{{1,9}})(?=\s+second))\s+({'|'.join(_MICROSECONDS)})s?(?:\s+|$)"
)

_MOST = 2**63
"""Spark counts microseconds in a long."""


def trigger_interval_seconds(text: str) -> float | None:
    """Return the seconds of an interval; None for an invalid one."""
    rest = " ".join(text.lower().split()).removeprefix("interval ")
    if not re.fullmatch(f"(?:{_PART.pattern})+", rest):
        return None
    micros = sum(
        int(f"{sign}1") * int(Decimal(number) * _MICROSECONDS[unit])
        for sign, number, unit in _PART.findall(rest)
    )
    return micros // 1000 / 1000 if 0 <= micros < _MOST else None
