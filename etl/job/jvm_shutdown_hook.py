"""Shutdown hook that lets a batch end before the JVM does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

HOOK_PRIORITY = 100
"""Before Spark's own shutdown hook, which stops the context (priorities: Hadoop's file systems 10, Spark 40)."""

HOOK_SECONDS = 1800
"""Longest wait of a shutdown for a batch: the longest grace period of EMR Serverless."""

_PREFIX = "DelayedShutdownHook-for-"
"""Prefix of the hooks of Guava's exiting executors (``MoreExecutors.getExitingExecutorService``)."""

_POOLS = ("getWorkerPool", "getDeleteWorkerPool")
"""Methods of Iceberg's ``ThreadPools``."""


class _PythonRunnable:
    """A ``java.lang.Runnable`` in Python."""

    class Java:
        implements = ("java.lang.Runnable",)

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action

    def run(self) -> None:
        self._action()


def add_jvm_shutdown_hook(spark: SparkSession, action: Callable[[], None]) -> Any:
    """Run an action before the JVM ends (an engine's SIGTERM goes to the JVM, not to Python).

    Parameters
    ----------
    action
        Called in a thread of the shutdown, which waits for it for at most :data:`HOOK_SECONDS`.

    Returns
    -------
    object
        The hook, for :func:`remove_jvm_shutdown_hook`.
    """
    gateway: Any = spark.sparkContext._gateway
    ensure_callback_server_started(gateway)  # type: ignore[no-untyped-call]
    # The JVM keeps the Thread, so the same object can be removed again.
    hook = gateway.jvm.java.lang.Thread(_PythonRunnable(action))
    manager = gateway.jvm.org.apache.hadoop.util.ShutdownHookManager.get()
    seconds = gateway.jvm.java.util.concurrent.TimeUnit.SECONDS
    manager.addShutdownHook(hook, HOOK_PRIORITY, HOOK_SECONDS, seconds)
    return hook


def remove_jvm_shutdown_hook(spark: SparkSession, hook: Any) -> None:
    """Remove a hook that :func:`add_jvm_shutdown_hook` added."""
    gateway: Any = spark.sparkContext._gateway
    try:
        gateway.jvm.org.apache.hadoop.util.ShutdownHookManager.get().removeShutdownHook(hook)
    except Py4JError:
        # The JVM is shutting down and refuses changes: this code runs because of the hook.
        return


def remove_iceberg_pool_shutdown_hooks(spark: SparkSession) -> int:
    """Remove the hooks with which Iceberg's pools end as soon as a shutdown starts.

    An engine's SIGTERM starts the JVM's shutdown, which waits for the current batch (:mod:`etl.job.supervise`). All hooks run
    at once, and after their hooks Iceberg's pools refuse the batch's tasks: it fails and is repeated. The
    pools' threads are daemons, so without the hooks they still end with the JVM.

    Returns
    -------
    int
        Number of hooks removed; 0 without Iceberg, or if Java does not grant access to them
        (Spark opens ``java.lang`` to its drivers).
    """
    jvm: Any = spark._jvm
    made = 0
    for name in _POOLS:
        try:
            # Create it now, so that its hook exists and can be removed.
            getattr(jvm.org.apache.iceberg.util.ThreadPools, name)()
        except (Py4JError, TypeError):
            # The package is missing, or this Iceberg does not have the pool.
            continue
        made += 1
    if not made:
        return 0
    try:
        field = jvm.java.lang.Class.forName("java.lang.ApplicationShutdownHooks").getDeclaredField("hooks")
        field.setAccessible(True)
        hooks = [
            hook for hook in field.get(None).keySet().toArray() if str(hook.getName()).startswith(_PREFIX)
        ]
        runtime = jvm.java.lang.Runtime.getRuntime()
        return sum(bool(runtime.removeShutdownHook(hook)) for hook in hooks)
    except Py4JError:
        return 0
