"""Lets a batch end while the JVM shuts down."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

_PREFIX = "DelayedShutdownHook-for-"
"""How Guava names the hooks of its exiting executors (``MoreExecutors.getExitingExecutorService``)."""


def keep_pools(spark: SparkSession) -> int:
    """Take away the hooks by which Iceberg's pools end as soon as a shutdown begins.

    An engine's SIGTERM begins the JVM's shutdown, which waits for the batch at hand (:mod:`etl.supervise`). All hooks run
    at once, and those of Iceberg's pools refuse from then on what the batch asks of them: it fails, and comes again. The
    pools' threads are daemons, so that without the hooks they end with the JVM all the same.

    Parameters
    ----------
    spark
        The job's session.

    Returns
    -------
    int
        How many hooks were taken away; none where there is no Iceberg, or where Java does not let us see them
        (Spark opens ``java.lang`` to its drivers).
    """
    jvm: Any = spark._jvm
    try:
        pools = jvm.org.apache.iceberg.util.ThreadPools
        # Made now, so that their hooks are there to be taken.
        pools.getWorkerPool()
        pools.getDeleteWorkerPool()
        held = jvm.java.lang.Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks")
        held.setAccessible(True)
        hooks = [
            hook for hook in held.get(None).keySet().toArray() if str(hook.getName()).startswith(_PREFIX)
        ]
        runtime = jvm.java.lang.Runtime.getRuntime()
        return sum(bool(runtime.removeShutdownHook(hook)) for hook in hooks)
    except (Py4JError, TypeError):
        # A package that is not there is called in vain.
        return 0
