"""Ends a run whose lease is lost, whatever its queries and its supervisor wait for.

Spark's ``StreamingQuery.stop`` interrupts the thread of a query and waits for its end: with
``spark.sql.streaming.stopTimeout`` at its default, 0, without end (``StreamExecution``, Spark 3.5 to 4). A thread that is in
Python, or in a client that takes no notice, continues with its batch. And who would call it may itself wait for a
service that does not answer. So a thread of its own, which needs nobody, ends the process.
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
"""So long after the loss the queries may take to end: with what :func:`kill` takes, less than :data:`etl.job.lease.MARGIN_SECONDS`,
after which another run may begin."""

TOLD_SECONDS = 0.5
"""An engine's JVM hands on what Python has written, and needs a moment for it."""

HALT_SECONDS = 1.0
"""So long a JVM may take to begin its end; one that stands still takes longer, and is killed."""

STATUS = 1


def check(lease: Lease | None) -> None:
    """Let nobody continue whose lease is gone: a JVM that stood still for a while may be behind its successor.

    Raises
    ------
    LeaseLostError
        It is lost.
    """
    lost = None if lease is None else lease.lost()
    if lost is not None:
        raise LeaseLostError(f"this run lost the lease on its checkpoints, so it ends: {lost}")


class Fence:
    """Watches a lease; once it is lost, and its queries continue, ends the process.

    Parameters
    ----------
    lease
        Held.
    tell
        Says why, before the end.
    kill
        Ends the process.
    seconds
        That queries are given to end by themselves.
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

    def take_down(self) -> None:
        """The queries have ended: nobody writes any more."""
        self._down.set()

    def _watch(self) -> None:
        while not self._down.wait(POLL_SECONDS):
            try:
                check(self._lease)
            except LeaseLostError as error:
                if not self._down.wait(self._seconds):
                    # Who cannot tell it must end anyway.
                    with suppress(OSError, ValueError):
                        self._tell(error)
                    self._kill()
                return


def jvm_process(spark: SparkSession) -> int:
    """Id of the process of the session's JVM."""
    jvm: Any = spark._jvm
    return int(jvm.java.lang.ProcessHandle.current().pid())


def killer(spark: SparkSession) -> Callable[[], None]:
    """What ends this process and the session's JVM at once, without the hooks of a shutdown, which wait for batches."""
    jvm: Any = spark._jvm
    return partial(kill, partial(jvm.java.lang.Runtime.getRuntime().halt, STATUS), jvm_process(spark))


def kill(halt: Callable[[], Any], beside: int) -> None:
    """End the JVM, and then this process.

    Parameters
    ----------
    halt
        Asks the JVM to end; its answer never comes.
    beside
        Id of the JVM's process, for a JVM that cannot be asked. As the first process of a container it takes no signal;
        without Python, which the batch comes back to, it then commits nothing, and ends.
    """

    def ask() -> None:
        with suppress(Py4JError, OSError):
            halt()

    time.sleep(TOLD_SECONDS)
    # Py4J writes a stack for each call that the end of the JVM cuts off.
    logging.disable()
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(HALT_SECONDS)
    with suppress(OSError):
        os.kill(beside, signal.SIGKILL)
    os._exit(STATUS)
