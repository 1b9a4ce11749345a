"""A run that loses its lease ends, even while it is blocked."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import pytest

from millrace.etl.job.kill_when_lease_lost import STATUS, LeaseFence
from millrace.etl.record.errors import LeaseLostError

WHY = "another run has taken it"


class Lent:
    """A lease that is taken away when a test says so."""

    def __init__(self) -> None:
        self.why: str | None = None

    def acquire(self) -> None:
        pass

    def loss_reason(self) -> str | None:
        return self.why

    def release(self) -> None:
        pass


@pytest.mark.faults
@pytest.mark.parametrize("tells", [True, False])
def test_a_process_that_does_not_end_after_the_loss_is_ended(tells: bool) -> None:
    """Also where it cannot be told: standard output is the JVM's."""
    lease, told, killed = Lent(), list[str](), threading.Event()

    def tell(error: LeaseLostError) -> None:
        told.append(str(error))
        if not tells:
            raise BrokenPipeError

    LeaseFence(lease, tell, killed.set, seconds=0.01)
    lease.why = WHY
    assert killed.wait(30)
    assert told == [
        f"this run ends, because another process has taken over the lease on its checkpoints: {WHY}"
    ]


def test_a_process_whose_queries_have_ended_is_left_alone() -> None:
    lease, done = Lent(), list[Any]()
    before = {*threading.enumerate()}
    fence = LeaseFence(lease, done.append, lambda: done.append("killed"), seconds=30)
    (thread,) = {*threading.enumerate()} - before
    lease.why = WHY
    fence.stop_watching()
    thread.join(30)
    assert not thread.is_alive()
    assert done == []


@pytest.mark.faults
def test_a_jvm_that_stands_still_is_killed_and_python_with_it() -> None:
    """Its place is taken by a program that ends only by a signal; what it inherited is open as long as it lives."""
    code = (
        "import subprocess, threading; from millrace.etl.job import kill_when_lease_lost as fence; fence.TOLD_SECONDS = fence.HALT_SECONDS = 0.1\n"
        "jvm = subprocess.Popen(['sleep', '600'])\n"
        "fence.kill_jvm_and_this_process(threading.Event().wait, jvm.pid)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert b"ImportError" not in ended.stderr
    assert ended.returncode == STATUS
