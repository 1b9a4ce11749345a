"""Bounded queue and daemon thread for each output, between the batches and the outputs.

A producer never waits. An output that hangs, fails or is too slow loses the items that
do not fit, and they are counted; the other outputs and the stream are not affected.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

ROOM = 1000
"""Most items that wait for an output; each has a few hundred bytes."""

_STEP = 0.2


class BackgroundWriter(Generic[Item]):
    """Queue to one output, which gets several items at a time.

    Parameters
    ----------
    write
        Writes the items that arrived since the last call. It may block and may raise ``OSError`` or
        ``ValueError`` (a closed file); its items are then counted as dropped.
    room
        Most items that wait.
    gather_seconds
        Seconds in which items are gathered before they are written together.
    urgent
        Returns True for an item that is written at once, with those gathered before it.
    """

    def __init__(
        self,
        name: str,
        write: Callable[[Sequence[Item]], None],
        *,
        room: int = ROOM,
        gather_seconds: float = 0.0,
        urgent: Callable[[Item], bool] = lambda _item: False,
    ) -> None:
        self._write = write
        self._gather_seconds = gather_seconds
        self._urgent = urgent
        self._room = room
        self._queue: queue.Queue[Item] = queue.Queue(room)
        self._closing = threading.Event()
        self._lock = threading.Lock()
        self._dropped = 0
        self._thread = threading.Thread(target=self._write_until_closed, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Add an item; always returns at once."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._count_dropped(1)

    def take_dropped_count(self) -> int:
        """Return the number of items dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def start_final_writes(self) -> None:
        """Start to write the waiting items, without gathering more; returns at once."""
        self._closing.set()

    def close(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds until the waiting items are written; return True if all are."""
        self.start_final_writes()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _count_dropped(self, number: int) -> None:
        with self._lock:
            self._dropped += number

    def _write_until_closed(self) -> None:
        while items := self._wait_for_items():
            try:
                self._write(items)
            except (OSError, ValueError):
                self._count_dropped(len(items))

    def _wait_for_items(self) -> list[Item]:
        """Wait for an item and gather those that follow; an empty list means the end."""
        items: list[Item] = []
        until = float("inf")
        while len(items) < self._room:
            left = 0.0 if self._closing.is_set() else until - time.monotonic()
            try:
                # In short steps, because no item marks the end.
                items.append(
                    self._queue.get(timeout=min(_STEP, left)) if left > 0 else self._queue.get_nowait()
                )
                wait = 0.0 if self._urgent(items[-1]) else self._gather_seconds
                until = min(until, time.monotonic() + wait)
            except queue.Empty:
                if left <= 0:
                    break
        return items
