"""Time of a batch by part, taken from the stages that Spark ran."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass, fields
from itertools import pairwise
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Parts:
    """Seconds of a batch.

    Attributes
    ----------
    planning
        Before the writing stage, while no task runs: plans, Iceberg's choice of files, code, checkpoints.
    lookup
        Before it, while tasks run: all that a plain append has no stage for.
    write
        The stage that ends last: tasks that decode and write.
    commit
        After it: Iceberg's commit, and the batch's accounts.
    """

    planning: float
    lookup: float
    write: float
    commit: float

    @property
    def whole(self) -> float:
        """All of it, by the clock."""
        return sum(astuple(self))


NAMES = tuple(field.name for field in fields(Parts))


def timed(spark: SparkSession, write: Callable[[], object]) -> Parts:
    """Write a batch and take its time apart.

    Parameters
    ----------
    spark
        In which nothing else runs.
    write
        Returns when the batch is committed.
    """
    first, begun = _next_stage(spark), time.time()
    write()
    ended = time.time()
    # What Spark knows of its stages comes by a queue.
    spark._jsc.sc().listenerBus().waitUntilEmpty()
    return split(list(_stages(spark, first, _next_stage(spark))), begun, ended)


def split(stages: list[tuple[float, float]], begun: float, ended: float) -> Parts:
    """Divide a span of time by the stages that ran in it.

    Parameters
    ----------
    stages
        First task's start and end of each, in seconds since 1970.
    begun, ended
        Of the batch.

    Examples
    --------
    >>> split([(3.0, 4.0), (3.5, 5.0), (6.0, 8.0)], 0.0, 9.0)
    Parts(planning=4.0, lookup=2.0, write=2.0, commit=1.0)
    """
    if not stages:
        return Parts(ended - begun, 0.0, 0.0, 0.0)
    write = max(stages, key=lambda stage: stage[1])
    # Clocks of the JVM and of Python agree to a millisecond.
    start, end = (min(max(moment, begun), ended) for moment in write)
    lookup = sum(
        b - a
        for a, b in pairwise(sorted({begun, start, *(m for s in stages for m in s if begun < m < start)}))
        if any(s[0] <= a and b <= s[1] for s in stages if s is not write)
    )
    return Parts(start - begun - lookup, lookup, end - start, ended - end)


def _next_stage(spark: SparkSession) -> int:
    return int(spark._jsc.sc().dagScheduler().nextStageId())


def _stages(spark: SparkSession, first: int, end: int) -> Iterator[tuple[float, float]]:
    store = spark._jsc.sc().statusStore()
    for number in range(first, end):
        try:
            stage = store.lastStageAttempt(number)
        except Py4JJavaError:  # one that never ran, as its shuffle was there
            continue
        begun, ended = stage.firstTaskLaunchedTime(), stage.completionTime()
        if begun.isDefined() and ended.isDefined():
            yield _seconds(begun), _seconds(ended)


def _seconds(moment: Any) -> float:
    return float(moment.get().getTime()) / 1000
