"""CPU time of a Spark session: of its processes, and of its tasks alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import psutil
from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Used:
    """CPU seconds of one process so far.

    Attributes
    ----------
    own
        Its own.
    ended
        What its children had used when they ended, as the kernel adds it to a parent that waited for them.
    """

    own: float
    ended: float


def used(pid: int) -> Mapping[int, Used]:
    """What a process and all below it have used so far, by their ids."""
    found = {}
    first = psutil.Process(pid)
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = Used(times.user + times.system, times.children_user + times.children_system)
    return found


def between(before: Mapping[int, Used], after: Mapping[int, Used]) -> float:
    """CPU seconds that processes used between two looks.

    Workers come and go. What one had used when it ended is added to its parent, the time before the first look included,
    which is taken off again; one whose parent ended first leaves nothing, and then there is nothing to take off.
    """
    own = sum(now.own - (before[pid].own if pid in before else 0.0) for pid, now in after.items())
    ended = sum(now.ended - (before[pid].ended if pid in before else 0.0) for pid, now in after.items())
    gone = sum(then.own + then.ended for pid, then in before.items() if pid not in after)
    return own + max(0.0, ended - gone)


def cpu_since_now(spark: SparkSession) -> Callable[[], float]:
    """Give a function that says what the session's JVM, its Python workers and this process have used since this call."""
    pid = int(spark._jvm.java.lang.ProcessHandle.current().pid())
    before, own = used(pid), time.process_time()
    return lambda: between(before, used(pid)) + time.process_time() - own


def task_seconds(spark: SparkSession) -> float:
    """CPU that tasks have used so far, as Spark has it for each stage."""
    return _sum_of_stages(spark, "executorCpuTime") / 1e9


def core_seconds(spark: SparkSession) -> float:
    """Seconds for which tasks have held a core so far, whether they used it or waited."""
    return sum(_sum_of_stages(spark, each) for each in ("executorRunTime", "executorDeserializeTime")) / 1e3


def _sum_of_stages(spark: SparkSession, figure: str) -> float:
    context = spark._jsc.sc()
    gateway = spark.sparkContext._gateway
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = context.statusStore().stageList(None, False, False, quantiles, None)
    return float(sum(getattr(stages.apply(i), figure)() for i in range(stages.size())))
