"""Trigger of the queries that read a stream, its interval read as Spark reads it (``SparkIntervalUtils.stringToInterval``), and the format of its payloads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal

from pydantic import ValidationError

from millrace.advisor.existing.reader_options import INSTEAD
from millrace.advisor.programs.library_functions import single_texts
from millrace.advisor.programs.possible_values import PayloadCall, Unknown, Values, known_value
from millrace.advisor.programs.program_stream_model import (
    DECODERS,
    PAYLOAD_COLUMNS,
    TRIGGER,
    Query,
    column_without_casts,
    parts_of_list,
)
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


def shortest_trigger(queries: Sequence[Query]) -> tuple[float | None, bool, list[str]]:
    """Return the trigger of queries in seconds, the shortest of several.

    A query without one begins a batch when the one before has ended.

    Returns
    -------
    float or None
        The trigger; None without one.
    bool
        Whether all runs end when they have read what was there.
    list of str
        Notes.
    """
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
    return shortest or None, ends, told


_WITHOUT_HEADER = re.compile(r"substr(?:ing)?\((.*)\)", re.IGNORECASE | re.DOTALL)
_FRAMINGS = {"6": "confluent", "19": "glue"}
"""Framings of Avro by the first byte after their headers, counted from 1."""

_PAYLOADS = {
    kind: re.compile(rf"{column}|\$json\$.*", re.IGNORECASE) for kind, column in PAYLOAD_COLUMNS.items()
}
"""Columns with the payload by the kind of a source, also in what Glue reads."""

_BESIDE_PAYLOAD = re.compile(r"\b(key|headers|partitionKey)\b", re.IGNORECASE)


def _framing(call: PayloadCall, payload: re.Pattern[str]) -> str | None:
    """Return the framing of what a call decodes: empty for the payload itself, None where that may be no payload."""
    if payload.fullmatch(call.column):
        return ""
    cut = _WITHOUT_HEADER.fullmatch(call.column)
    column, start, *_ = [*parts_of_list(cut[1] if cut else ""), ""]
    is_payload = call.kind == "avro" and payload.fullmatch(column_without_casts(column))
    return _FRAMINGS.get(start.strip()) if is_payload else None


_KEYS_OF_OPTIONS = {
    ("avro", "registry"): "registry",
    ("avro", "subject"): "subject",
    ("csv", "delimiter"): "delimiter",
    ("csv", "nullvalue"): "null",
    ("csv", "quote"): "quote",
    ("csv", "sep"): "delimiter",
    ("protobuf", "message"): "message",
}
"""Keys of formats by the options of Spark's decoders in lower case (its "CSV Files": "Data Source Option"), and of Glue's readers."""

_FUNCTION = re.compile(r"(\w+)\(")

_QUESTIONS = {
    "message": "full name of the message, such as shop.Order",
    "registry": "URL of the Confluent registry; or remove it and subject, and name a folder with its schemas as writers",
    "subject": "subject in the registry, such as orders-value",
    "writers": "folder with the writers' schemas, each in UUID.avsc, from Glue's registry",
}


def payload_format(
    calls: Iterable[PayloadCall], reader: Mapping[str, Values], kind: str
) -> tuple[str | dict[str, str] | None, list[str]]:
    """Return the format of a stream's payloads for the environment file, and notes on options that have no key.

    The format is open where it has no single one; None where nothing tells it.

    Parameters
    ----------
    calls
        Calls of the program that decode them.
    reader
        Options of the stream's reader: Glue's has the format as ``classification``.
    kind
        Kind of the source.
    """
    classification = reader.get("classification", ())
    of_reader = single_texts({name: reader[name] for name in ("delimiter",) if reader.get(name)})
    given = [
        PayloadCall(
            each.value.lower() if isinstance(each.value, str) else "not known",
            each.line,
            of_reader,
            PAYLOAD_COLUMNS[kind],
        )
        for each in classification
    ] or sorted(set(calls), key=lambda call: (call.kind, call.line, str(call)))
    framings = {each: _framing(each, _PAYLOADS[kind]) for each in given}
    again = [each for each in given if DECODERS.search(each.column)]
    told = [each for each in given if framings[each] is not None] or [
        each for each in given if each not in again and not _BESIDE_PAYLOAD.search(each.column)
    ]
    unclear = {each: _FUNCTION.match(each.column) for each in told if framings[each] is None}
    notes = [
        f"line {each.line} decodes a part of the payload again ({each.kind}): the schema of the land query is that of the payload"
        for each in again
    ]
    ways = {(each.kind, framings[each]) for each in told}
    if len(ways) > 1 or any(unclear.values()) or not {name for name, _ in ways} <= KINDS.keys():
        texts = [
            f"line {each.line}: {each.kind}{f' of what {of[1]}() gives' if (of := unclear.get(each)) else ''}"
            for each in told
        ]
        question = f"{', or '.join(dict.fromkeys(texts))}; write the format here, one of {', '.join(KINDS)}"
        return placeholder_for_question(question), notes
    if not ways:
        return None, notes
    [(name, framing)] = ways
    keys, of_options = _keys_and_notes_of_options(told)
    notes += of_options + [
        f"line {each.line} decodes a column of which the program does not tell whether it is the payload: {name} is taken as its format"
        for each in unclear
    ]
    if name == "avro" and keys:  # with a registry, Databricks' function reads its header itself
        framing = "confluent"
    if framing:
        open_keys = ("registry", "subject") if framing == "confluent" else ("writers",)
        keys = {"framing": framing, **dict.fromkeys(open_keys), **keys}
    made = {
        key: value or placeholder_for_question(_QUESTIONS.get(key, f"{key} of the program"))
        for key, value in keys.items()
    }
    return {"kind": name, **made} if made else name, notes


def _keys_and_notes_of_options(calls: Iterable[PayloadCall]) -> tuple[dict[str, str | None], list[str]]:
    keys, notes = dict[str, str | None](), list[str]()
    for call in calls:
        for name, value in call.settings:
            key = _KEYS_OF_OPTIONS.get((call.kind, name.lower()))
            try:
                if key is not None and value is not None:
                    KINDS[call.kind].model_validate({"kind": call.kind, key: value})
            except ValidationError:
                key = None
            if key is not None:
                keys[key] = value if keys.get(key, value) == value else None
            elif (name.lower(), str(value).lower()) != ("mode", "permissive"):
                notes.append(
                    f"line {call.line}: format {call.kind} has no key for its {name}: payloads may be read otherwise, or be dead letters"
                )
    return keys, notes


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
