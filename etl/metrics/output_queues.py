"""Between the batches and the outputs: a bounded queue and one daemon thread for each output.

Whoever puts something in never waits. An output that hangs, fails or is too slow loses what
finds no room, and how much that was is counted; the others, and the stream, do not notice.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")

ROOM = 1000
"""Things that wait for an output at most: of a few hundred bytes each."""

_STEP = 0.2


class Pipe(Generic[Item]):
    """Carries things to one output, several at a time.

    Parameters
    ----------
    write
        The output: takes what has come since the last time, may wait, may raise ``OSError`` or
        ``ValueError`` (a file that was closed); what it was given is then counted as dropped.
    room
        Things that wait at most.
    gather_seconds
        How long things are gathered before they are written together.
    urgent
        Whether a thing, and what was gathered before it, is written at once.
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
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, item: Item) -> None:
        """Hand something over; returns at once, always."""
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            self._drop(1)

    def take_dropped(self) -> int:
        """Return how many things were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped

    def finish(self) -> None:
        """Begin to write what waits, without gathering more; returns at once."""
        self._closing.set()

    def close(self, timeout: float) -> bool:
        """Let what waits be written, for so many seconds; return whether all of it was."""
        self.finish()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _drop(self, number: int) -> None:
        with self._lock:
            self._dropped += number

    def _run(self) -> None:
        while items := self._next():
            try:
                self._write(items)
            except (OSError, ValueError):
                self._drop(len(items))

    def _next(self) -> list[Item]:
        """Wait for something and gather what follows it; nothing comes back only at the end."""
        items: list[Item] = []
        until = float("inf")
        while len(items) < self._room:
            left = 0.0 if self._closing.is_set() else until - time.monotonic()
            try:
                # In short steps: nobody puts something in to say that it was the last.
                items.append(
                    self._queue.get(timeout=min(_STEP, left)) if left > 0 else self._queue.get_nowait()
                )
                wait = 0.0 if self._urgent(items[-1]) else self._gather_seconds
                until = min(until, time.monotonic() + wait)
            except queue.Empty:
                if left <= 0:
                    break
        return items
