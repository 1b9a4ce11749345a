"""Errors that a person can act on, and descriptions of errors of Spark, Java and Python."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException

from ..launch.errors import StartError as StartError

MOST_LINES = 10
LONGEST_LINE = 1000

JVM_ERRORS = (Py4JJavaError, CapturedException)
"""PySpark's errors for an exception of the JVM."""

OWN_REPETITION = "millrace: a record "
"""Begins the message of each task that the core fails on purpose, so that it writes the batch another way."""

_FRAME = re.compile(r"\s+at \S+\(|\s*\.\.\. \d+ more|Driver stacktrace:")


class RestartQueryError(Exception):
    """Signal that a query must be started again with other limits; nothing has failed."""


class LossError(Exception):
    """Loss, or possible loss, of unread records of a source; the message names the source and the positions."""


class LeaseLostError(Exception):
    """Loss of the lease: another run may write the job's checkpoints now, so this one must stop writing them."""


class ConflictError(Exception):
    """Conflict with another writer that has added rows to a table since the look-up; nothing was committed."""


class NoAnswerError(Exception):
    """Missing answer of a service to a request about a source."""


class AccountsError(Exception):
    """Missing or unbalanced accounts of a batch; its data are committed completely or not at all."""


def java_error(error: BaseException) -> Any:
    """Return the JVM's exception behind an error of PySpark; None for an error of Python."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def java_causes(error: BaseException) -> Iterator[Any]:
    """Yield the JVM's exception behind an error of PySpark, and its causes; nothing for an error of Python."""
    origin = java_error(error)
    while origin is not None:
        yield origin
        origin = origin.getCause()


def full_error_text(error: BaseException) -> str:
    """Return all messages of an error and of its causes in the JVM, uncut: a task's message is among them."""
    return "\n".join([str(error), *(str(cause.toString()) for cause in java_causes(error))])


def is_interruption(error: BaseException | None) -> bool:
    """Check for the interruption of a thread; Spark recognises Java's own exceptions for it, but not those of every client."""
    return error is not None and any(
        word in full_error_text(error) for word in ("Interrupt", "interrupted", "Aborted")
    )


def describe_error(error: BaseException) -> str:
    """Return the messages of an error and of its causes, one or a few lines each, without the JVM's stack.

    Parameters
    ----------
    error
        Error of Python or, through PySpark, of the JVM.

    Returns
    -------
    str
        At most ``MOST_LINES`` lines, the outermost error first. If there are more, those in
        the middle are left out, because the first line names the step and the last the reason.
    """
    messages: list[str] = []
    python: BaseException | None = error
    while python is not None:
        for java in java_causes(python):
            name = str(java.getClass().getSimpleName())
            messages.append(f"{name}: {java.getMessage() or '(no message)'}")
        if java_error(python) is not None:
            break  # Python's causes below repeat it
        messages.append(str(python).strip() or type(python).__name__)
        python = python.__cause__
    lines = [line.rstrip() for m in messages for line in m.splitlines() if line.strip()]
    # Spark repeats a cause's message in its wrapper's message.
    told = list(dict.fromkeys(line[:LONGEST_LINE] for line in lines if not _FRAME.match(line)))
    if len(told) > MOST_LINES:
        first = MOST_LINES // 2
        told = [*told[:first], "...", *told[first + 1 - MOST_LINES :]]
    return "\n".join(told)


class SinkError(Exception):
    """Refusal of a sink's server, at once or for longer than the core waits; the batch is not committed."""
