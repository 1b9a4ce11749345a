"""Background work ends with its block, and its exceptions are raised there."""

from __future__ import annotations

from threading import Event

import pytest

from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records import producer
from millrace.sandbox.records.producer import BackgroundThread


def fails(_: Event) -> None:
    raise ZeroDivisionError


def until_stopped(stop: Event) -> None:
    stop.wait(30)


def test_it_ends_with_the_block() -> None:
    with BackgroundThread(until_stopped, "sending") as sending:
        assert not sending.done
        sending.raise_error_of_work()
    assert sending.done


def test_what_it_raises_is_raised_at_the_end_of_the_block_and_by_who_asks() -> None:
    sending = BackgroundThread(fails, "sending")
    with pytest.raises(ZeroDivisionError), sending:
        pass
    with pytest.raises(ZeroDivisionError):
        sending.raise_error_of_work()


def test_what_the_block_raises_counts_and_the_work_ends() -> None:
    with pytest.raises(KeyError), BackgroundThread(until_stopped, "sending") as sending:
        raise KeyError
    assert sending.done


def test_work_that_does_not_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer, "_JOIN_SECONDS", 0.05)
    goes_on = Event()

    def deaf(_: Event) -> None:
        goes_on.wait(30)

    sending = BackgroundThread(deaf, "sending")
    with pytest.raises(SandboxError, match="sending did not stop"):
        sending.stop()
    goes_on.set()
