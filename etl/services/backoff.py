"""Waiting for a server that is throttled, busy or away: longer each time, within a limit, then loudly."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..record.errors import SinkError

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 20.0
PATIENCE_SECONDS = 180.0
"""Waits in a row, without anything written between them, after which the batch fails. The query is then tried
again as its job's ``batch_retries`` says, with longer waits."""

START_SECONDS = 30.0
"""How long a job's start waits for a server that is busy or away, before it says so."""


@dataclass
class Backoff:
    """Exponential waits with full jitter ("Exponential Backoff And Jitter", AWS Architecture Blog).

    Parameters
    ----------
    what
        Is waited for; named in the error.
    first, longest, patience
        Seconds: the bound of the first wait, the bound of any, and of all in a row.
    """

    what: str
    first: float = FIRST_SECONDS
    longest: float = LONGEST_SECONDS
    patience: float = PATIENCE_SECONDS
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _tries: int = field(default=0, repr=False)
    _since: float | None = field(default=None, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def progress(self) -> None:
        """Something was written: the next wait is a first one again."""
        self._tries, self._since = 0, None

    def wait_for_rest(self, asked: int, left: int, reason: str) -> None:
        """Wait where a request left some of its entries undone; whatever it took is progress."""
        if left < asked:
            self.progress()
        if left:
            self.wait(f"{left} of {asked} {reason}")

    def wait(self, reason: str) -> None:
        """Wait before the next try.

        Parameters
        ----------
        reason
            Why it is needed, as the server said.

        Raises
        ------
        SinkError
            The patience is at an end.
        """
        now = self.clock()
        if self._since is None:
            self._since = now
        waited = now - self._since
        if waited >= self.patience:
            raise SinkError(
                f"{self.what}: nothing could be written for {waited:.0f} s, in {self._tries} tries: {reason}"
            )
        bound = min(self.longest, self.first * 2.0**self._tries)
        self._tries += 1
        # Half of it at least: a wait of nothing would spend a try for nothing.
        self.sleep(random.uniform(bound / 2, bound))
