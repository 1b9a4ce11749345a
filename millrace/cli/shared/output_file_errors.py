"""Errors of writing to a path that the user gives, as the error of a wrong option."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.config.document.problems import wrong_option_error


@contextmanager
def reporting_write_errors_as_wrong_option(option: str, file: Path) -> Iterator[None]:
    """Report a file that cannot be written like any other value that is not allowed.

    Parameters
    ----------
    option
        Option with which the user named it.
    file
        File that the block writes.

    Raises
    ------
    ConfigurationError
        Replaces an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise wrong_option_error(
            option, str(file), f"a file that you have permission to write ({reason})"
        ) from error
