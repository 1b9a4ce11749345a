"""Trigger of the queries that read a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from millrace.advisor.existing.reader_options import INSTEAD
from millrace.advisor.programs.parse_trigger_interval import trigger_interval_seconds
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
