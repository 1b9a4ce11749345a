"""Lets a job do its chores whenever a file asks for them; the entry script begins with importing it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from etl import chores, upkeep
from etl.accounts import Reporter
from etl.chores import Chore
from etl.settings import JobSettings

ASKS = "MILLRACE_ASKS_FOR_CHORES"
"""Names the file; it goes when all chores are done."""


@dataclass(frozen=True)
class Asked:
    """All chores of a job, one after the other."""

    chores: Sequence[Chore]
    name: str = "all"
    every: timedelta = timedelta(milliseconds=200)

    def __call__(self, spark: SparkSession) -> None:
        """Do them where they are asked for."""
        asks = Path(os.environ[ASKS])
        if asks.exists():
            for chore in self.chores:
                chore(spark)
            asks.unlink()


_of = chores.of


def _asked(job: JobSettings, report: Reporter) -> tuple[Chore, ...]:
    return (Asked(_of(job, report)),)


chores.of = _asked
chores.Chores = partial(chores.Chores, first=timedelta(0))  # type: ignore[misc,assignment]  # at once
upkeep.FEWEST_SNAPSHOTS = 2
