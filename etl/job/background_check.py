"""Looks at a query's sources in a thread of its own: brokers that do not answer hold nobody up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class BackgroundCheck:
    """One check in a thread of its own: brokers that do not answer hold nobody up.

    Parameters
    ----------
    check
        Raises what it finds.
    """

    check: Callable[[], None]
    error: Exception | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._run, name="background-check", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.check()
        except Exception as error:
            self.error = error

    @property
    def goes_on(self) -> bool:
        """Whether it is not known yet."""
        return self._thread.is_alive()
