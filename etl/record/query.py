"""A query that is ready to be started: what the core's rooms hand to one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import DataFrame

BatchHandler = Callable[[DataFrame, int], None]


@dataclass(frozen=True)
class Query:
    """A query ready to be started.

    Attributes
    ----------
    reopen
        Opens the source again, with limits for what it is then, when the handler asks for that by
        :class:`etl.record.errors.RestartQueryError`.
    check
        Looks at the source now and then, also while no batch comes; raises :class:`etl.record.errors.LossError` where
        records would be left unread, and :class:`etl.record.errors.NoAnswerError` where it cannot tell.
    """

    name: str
    rows: DataFrame
    handle: BatchHandler
    checkpoint: str
    trigger_seconds: float
    reopen: Callable[[], DataFrame] | None = None
    output_mode: Literal["append", "update"] = "append"
    check: Callable[[], None] | None = None
