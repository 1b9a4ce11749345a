"""Work in a thread for as long as a block lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

JOIN_SECONDS = 120.0


@contextmanager
def meanwhile(work: Callable[[threading.Event], None], name: str) -> Iterator[None]:
    """Do ``work`` while the block runs; what it raises is raised at the block's end.

    Parameters
    ----------
    work
        Ends soon after its event is set.
    name
        The thread's.
    """
    stop = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(stop)
        except BaseException as error:  # raised again in the main thread
            failures.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(timeout=JOIN_SECONDS)
    if failures:
        raise failures[0]
    assert not thread.is_alive(), f"{name} has not ended"
