"""Rows whose task waits until something else has happened beside it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

_CHECKS = 600
"""Most checks of a wait, a tenth of a second each."""


class TaskGate:
    """Gate at which a task waits; it is opened once."""

    def __init__(self, folder: Path) -> None:
        self._begun, self._opened = folder / "begun", folder / "opened"

    def waiting(self, rows: DataFrame, column: str) -> DataFrame:
        """Return the same rows, whose tasks wait at a column."""
        begun, opened = str(self._begun), str(self._opened)

        # Without types: Spark 4.1 would take them for a kind of function.
        def waited(value):  # type: ignore[no-untyped-def]
            Path(begun).touch()
            for _ in range(_CHECKS):
                if Path(opened).exists():
                    break
                time.sleep(0.1)
            return value

        return rows.withColumn(column, F.udf(waited, rows.schema[column].dataType)(column))

    def while_it_waits(self, slow: Callable[[], Any], beside: Callable[[], Any]) -> Any:
        """Start one thing, do another while its task waits, open the gate, and return the result of the first."""
        with ThreadPoolExecutor(1) as thread:
            first = thread.submit(slow)
            try:
                for _ in range(_CHECKS):
                    if self._begun.exists() or first.done():
                        break
                    time.sleep(0.1)
                if self._begun.exists():
                    beside()
            finally:
                self._opened.touch()
            result = first.result()
        assert self._begun.exists(), "no task came to the gate"
        return result
