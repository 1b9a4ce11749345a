"""Looks beside the queries: for the file of a checkpoint that one may have failed on, and at what one reads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from etl.errors import DamageError

Examine = Callable[[BaseException], None]
"""Looks at a checkpoint after a failure; raises :class:`etl.errors.DamageError` where a file of it is cut short."""


def examined(examine: Examine, error: BaseException) -> BaseException:
    """Say which file of a checkpoint is damaged where Spark says only that it failed.

    Parameters
    ----------
    examine
        Looks at it.
    error
        That the query ended with.

    Returns
    -------
    BaseException
        What was found, or the error as it was.
    """
    try:
        examine(error)
    except DamageError as found:
        return found
    except OSError:
        return error  # who cannot be asked now was perhaps the reason
    return error


@dataclass
class Examination:
    """One look, in a thread of its own: a state has thousands of files, and a stop or another query does not wait for it.

    Parameters
    ----------
    examine, error
        As for :func:`examined`.
    """

    examine: Examine
    error: BaseException
    _thread: threading.Thread = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look, name="examination", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        self.error = examined(self.examine, self.error)

    @property
    def goes_on(self) -> bool:
        """Whether it is not known yet."""
        return self._thread.is_alive()


@dataclass
class Look:
    """One look at what a query reads, in a thread of its own: brokers that do not answer hold nobody up.

    Parameters
    ----------
    check
        Looks, and raises what it finds.
    """

    check: Callable[[], None]
    error: Exception | None = field(default=None, init=False)
    _thread: threading.Thread = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._thread = threading.Thread(target=self._look, name="look", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        try:
            self.check()
        except Exception as error:
            self.error = error

    @property
    def goes_on(self) -> bool:
        """Whether it is not known yet."""
        return self._thread.is_alive()
