"""CPU that a Spark session has used: of its processes, and of its tasks alone."""

from __future__ import annotations

from contextlib import suppress

import psutil
from pyspark.sql import SparkSession


def cpu_seconds(spark: SparkSession) -> float:
    """CPU that the session's JVM and its Python workers have used so far."""
    jvm = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))
    total = 0.0
    for process in (jvm, *jvm.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def task_seconds(spark: SparkSession) -> float:
    """CPU that tasks have used so far, as Spark has it for each stage."""
    context = spark._jsc.sc()
    gateway = spark.sparkContext._gateway
    quantiles = gateway.new_array(gateway.jvm.double, 0)
    stages = context.statusStore().stageList(None, False, False, quantiles, None)
    return sum(stages.apply(i).executorCpuTime() for i in range(stages.size())) / 1e9
