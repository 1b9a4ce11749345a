"""Fence of the lease: kills a run whose lease is lost, even if its queries or its supervisor are blocked.

Spark's ``StreamingQuery.stop`` interrupts the thread of a query and waits for its end: with
``spark.sql.streaming.stopTimeout`` at its default, 0, without limit (``StreamExecution``, Spark 3.5 to 4). A thread that is in
Python, or in a client that ignores the interrupt, continues with its batch. The caller of ``stop`` may itself wait for a
service that does not answer. So a separate thread, which depends on nothing else, ends the process.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ..record.errors import LeaseLostError
from .lease import Lease

POLL_SECONDS = 0.2

END_SECONDS = 3.0
"""Time for the queries to end after the loss: with the time of :func:`kill_jvm_and_this_process`, less than :data:`etl.job.lease.MARGIN_SECONDS`,
after which another run may start."""

TOLD_SECONDS = 0.5
"""Time that an engine's JVM needs to pass on Python's output."""

HALT_SECONDS = 1.0
"""Time for a JVM to start its shutdown; a blocked JVM takes longer and is killed."""

STATUS = 1


def raise_if_lease_lost(lease: Lease | None) -> None:
    """Raise if the lease is lost: after a long pause of the JVM, its successor may already run.

    Raises
    ------
    LeaseLostError
        The lease is lost.
    """
    lost = None if lease is None else lease.loss_reason()
    if lost is not None:
        raise LeaseLostError(
            f"this run ends, because another process has taken over the lease on its checkpoints: {lost}"
        )


class LeaseFence:
    """Watcher of a lease that ends the process if queries continue after the loss.

    Parameters
    ----------
    lease
        A lease that is held.
    tell
        Reports the reason before the end.
    kill
        Ends the process.
    seconds
        Time for the queries to end on their own.
    """

    def __init__(
        self,
        lease: Lease,
        tell: Callable[[LeaseLostError], None],
        kill: Callable[[], None],
        seconds: float = END_SECONDS,
    ) -> None:
        self._lease, self._tell, self._kill, self._seconds = lease, tell, kill, seconds
        self._down = threading.Event()
        threading.Thread(target=self._watch, name="fence", daemon=True).start()

    def stop_watching(self) -> None:
        """Stop watching: the queries have ended, and nothing writes any more."""
        self._down.set()

    def _watch(self) -> None:
        while not self._down.wait(POLL_SECONDS):
            try:
                raise_if_lease_lost(self._lease)
            except LeaseLostError as error:
                if not self._down.wait(self._seconds):
                    # The process must end even if it cannot report.
                    with suppress(OSError, ValueError):
                        self._tell(error)
                    self._kill()
                return


def jvm_process_id(spark: SparkSession) -> int:
    """Return the process id of the session's JVM."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def process_killer(spark: SparkSession) -> Callable[[], None]:
    """Return a function that ends this process and the session's JVM at once, without shutdown hooks, which wait for batches."""
    jvm: Any = spark._jvm
    return partial(
        kill_jvm_and_this_process,
        partial(jvm.java.lang.Runtime.getRuntime().halt, STATUS),
        jvm_process_id(spark),
    )


def kill_jvm_and_this_process(halt: Callable[[], Any], jvm_process_id: int) -> None:
    """End the JVM, and then this process.

    Parameters
    ----------
    halt
        Asks the JVM to end; the call never returns.
    jvm_process_id
        Process id of the JVM, for a JVM that does not respond. As the first process of a container it gets no signal;
        but when its batch returns to Python, which has ended, it commits nothing and ends.
    """

    def halt_jvm() -> None:
        with suppress(Py4JError, OSError):
            halt()

    time.sleep(TOLD_SECONDS)
    # Py4J logs a stack trace for each call that the JVM's end interrupts.
    logging.disable()
    asking = threading.Thread(target=halt_jvm, daemon=True)
    asking.start()
    asking.join(HALT_SECONDS)
    with suppress(OSError):
        os.kill(jvm_process_id, signal.SIGKILL)
    os._exit(STATUS)
