"""Lets a batch end while the JVM shuts down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

HOOK_PRIORITY = 100
"""Before Spark's own shutdown hook, which stops the context (Hadoop's for file systems has 10, Spark's 40)."""

HOOK_SECONDS = 1800
"""Longest that a shutdown waits for a batch: the longest grace period of EMR Serverless."""

_PREFIX = "DelayedShutdownHook-for-"
"""How Guava names the hooks of its exiting executors (``MoreExecutors.getExitingExecutorService``)."""

_POOLS = ("getWorkerPool", "getDeleteWorkerPool")
"""Of Iceberg's ``ThreadPools``."""


class _Hook:
    """A ``java.lang.Runnable`` in Python."""

    class Java:
        implements = ("java.lang.Runnable",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def run(self) -> None:
        self._action()


def add_hook(spark: SparkSession, action: Callable[[], None]) -> Any:
    """Have something done before the JVM ends (an engine's SIGTERM goes there, not to Python).

    Parameters
    ----------
    action
        Called in a thread of the shutdown, which waits for it, for at most :data:`HOOK_SECONDS`.

    Returns
    -------
    object
        For :func:`remove_hook`.
    """
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    # A Thread is held in the JVM, so that the same object can be removed again.
    hook = gateway.jvm.java.lang.Thread(_Hook(action))
    manager = gateway.jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = gateway.jvm.java.util.concurrent.TimeUnit.SECONDS
    manager.addShutdownHook(hook, HOOK_PRIORITY, HOOK_SECONDS, seconds)
    return hook


def remove_hook(spark: SparkSession, hook: Any) -> None:
    """Take back what :func:`add_hook` added."""
    gateway: Any = spark.sparkContext._gateway
    try:
        gateway.jvm.org.apache.hadoop.util.ShutdownHookManager.get().removeShutdownHook(hook)
    except Py4JError:
        # The JVM is shutting down and takes no changes: the hook is what brought us here.
        return


def keep_thread_pools(spark: SparkSession) -> int:
    """Take away the hooks by which Iceberg's pools end as soon as a shutdown begins.

    An engine's SIGTERM begins the JVM's shutdown, which waits for the current batch (:mod:`etl.job.supervise`). All hooks run
    at once, and those of Iceberg's pools refuse from then on what the batch asks of them: it fails, and comes again. The
    pools' threads are daemons, so that without the hooks they end with the JVM anyway.

    Returns
    -------
    int
        How many hooks were taken away; none where there is no Iceberg, or where Java does not let us see them
        (Spark opens ``java.lang`` to its drivers).
    """
    jvm: Any = spark._jvm
    made = 0
    for name in _POOLS:
        try:
            # Made now, so that its hook is there to be taken.
            getattr(jvm.org.apache.iceberg.util.ThreadPools, name)()
        except (Py4JError, TypeError):
            # A package that is not there is called in vain, and so is a pool that this Iceberg does not have.
            continue
        made += 1
    if not made:
        return 0
    try:
        held = jvm.java.lang.Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks")
        held.setAccessible(True)
        hooks = [
            hook for hook in held.get(None).keySet().toArray() if str(hook.getName()).startswith(_PREFIX)
        ]
        runtime = jvm.java.lang.Runtime.getRuntime()
        return sum(bool(runtime.removeShutdownHook(hook)) for hook in hooks)
    except Py4JError:
        return 0
