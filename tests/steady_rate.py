"""Records at a steady rate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from threading import Event as Flag

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend


def yield_at_rate(events: Iterable[RecordToSend], *, per_second: float, stop: Flag) -> Iterator[RecordToSend]:
    """Yield events at a steady rate, until ``stop`` is set."""
    started = time.monotonic()
    for count, event in enumerate(events):
        if stop.wait(max(0.0, started + count / per_second - time.monotonic())):
            return
        yield event
