"""Back-off for a server that is throttled, busy or unreachable: longer waits each time, up to a limit, then an error."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..record.errors import SinkError

FIRST_SECONDS = 0.1
LONGEST_SECONDS = 20.0
PATIENCE_SECONDS = 180.0
"""Longest time of waits in a row, without a write between them, before the batch fails. The query is then retried
by the job's ``batch_retries``, with longer waits."""

START_SECONDS = 30.0
"""Longest time that a job's start waits for a busy or unreachable server before an error."""


@dataclass
class Backoff:
    """Exponential waits with equal jitter ("Exponential Backoff And Jitter", AWS Architecture Blog).

    Parameters
    ----------
    what
        Operation that waits; named in the error.
    first, longest, patience
        Seconds: the upper limit of the first wait, of any wait, and of all waits in a row.
    """

    what: str
    first: float = FIRST_SECONDS
    longest: float = LONGEST_SECONDS
    patience: float = PATIENCE_SECONDS
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)
    _tries: int = field(default=0, repr=False)
    _since: float | None = field(default=None, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)

    def reset_after_write(self) -> None:
        """Reset the waits after a write."""
        self._tries, self._since = 0, None

    def wait_before_sending_rest(self, sent: int, left: int, reason: str) -> None:
        """Wait if a request left some of its entries undone; any entry that it wrote is progress."""
        if left < sent:
            self.reset_after_write()
        if left:
            self.wait(f"{left} of {sent} {reason}")

    def wait(self, reason: str) -> None:
        """Wait before the next attempt.

        Parameters
        ----------
        reason
            Reason of the wait, from the server.

        Raises
        ------
        SinkError
            The patience has run out.
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
        # At least half of it: a wait of zero would waste an attempt.
        self.sleep(random.uniform(bound / 2, bound))
