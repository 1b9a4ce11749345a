"""Wait for processes to end, of which some are orphans by then."""

from __future__ import annotations

import time
from collections.abc import Iterable

import psutil


def still_running(processes: Iterable[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return those that run after so many seconds; at once when none does.

    An orphan that has ended stays in the list of processes until process 1, which inherits
    it, clears it away: in a container that may be never, so a zombie counts as ended.
    """
    until = time.monotonic() + seconds
    left = list(processes)
    while (left := [process for process in left if _runs(process)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
