"""Files that a command writes where its user says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.config import ConfigurationError
from millrace.config.problems import Problem


@contextmanager
def report_write_errors(option: str, file: Path) -> Iterator[None]:
    """Tell of a file that cannot be written as of any other value that is not allowed.

    Parameters
    ----------
    option
        By which the user named it.
    file
        What is written within.

    Raises
    ------
    ConfigurationError
        In place of an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            [Problem("command line", 0, option, str(file), f"a file that can be written: {reason}")]
        ) from error
