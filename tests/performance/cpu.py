"""CPU that a Spark session has used: of its processes, and of its tasks alone."""

from __future__ import annotations

from contextlib import suppress

import psutil
from pyspark.sql import SparkSession


def cpu_seconds(spark: SparkSession) -> float:
    """CPU that the session's JVM and its Python workers have used so far."""
    return tree_seconds(int(spark._jvm.java.lang.ProcessHandle.current().pid()))


def tree_seconds(pid: int) -> float:
    """CPU that a process and all that it ever started have used, also those that are at their end."""
    first = psutil.Process(pid)
    total = 0.0
    for process in (first, *first.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            # A parent keeps what its children had used when they ended: workers come and go within a run.
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def task_seconds(spark: SparkSession) -> float:
    """CPU that tasks have used so far, as Spark has it for each stage."""
    context = spark._jsc.sc()
    gateway = spark.sparkContext._gateway
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = context.statusStore().stageList(None, False, False, quantiles, None)
    return sum(stages.apply(i).executorCpuTime() for i in range(stages.size())) / 1e9
