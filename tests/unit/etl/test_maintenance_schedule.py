"""Maintenance chores run a first time after a delay, then at their intervals."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from millrace.etl.job import maintenance_schedule
from millrace.etl.job.maintenance_schedule import MaintenanceThread
from millrace.etl.record.batch_accounts import EventReporter


@dataclass
class Clock:
    """Goes on by what is waited, and ends the schedule after an hour."""

    now: float = 5_000.0
    until: float = 5_000.0 + 3_600

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        assert seconds >= 0
        self.now += seconds
        return self.now > self.until

    def is_set(self) -> bool:
        return self.now > self.until


@dataclass
class Chore:
    task_name: str
    every: timedelta
    clock: Clock
    done_at: list[float] = field(default_factory=list)
    takes: float = 0.0

    def __call__(self, spark: Any) -> None:
        self.done_at.append(self.clock.now - 5_000)
        self.clock.now += self.takes
        if self.task_name == "fails":
            raise OSError("away")


def test_each_chore_is_done_when_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(maintenance_schedule, "time", clock)
    often, seldom = (
        Chore("often", timedelta(minutes=15), clock, takes=60.0),
        Chore("fails", timedelta(hours=1), clock),
    )
    told = io.StringIO()
    schedule = MaintenanceThread(
        None, [often, seldom], EventReporter("job", told), first=timedelta(minutes=20)
    )  # type: ignore[arg-type]
    schedule._stop = clock  # type: ignore[assignment]
    schedule._run_chores_until_stopped()
    assert often.done_at == [900.0, 1860.0, 2820.0]  # a quarter of an hour after the end of the one before
    assert seldom.done_at == [1200.0]  # the first time as soon as all, then an hour later
    assert '"chore_failed"' in told.getvalue()


def test_bounded_runs_do_a_chore_in_the_run_that_is_nearest_to_its_interval(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, files = Clock(), dict[str, str]()
    monkeypatch.setattr(maintenance_schedule, "time", clock)
    monkeypatch.setattr(maintenance_schedule.hadoop_files, "read_text", lambda _, url: files[url])
    monkeypatch.setattr(
        maintenance_schedule.hadoop_files, "write_text", lambda _, url, text: files.update({url: text})
    )
    hourly, always = Chore("hourly", timedelta(hours=1), clock), Chore("always", timedelta(minutes=1), clock)
    files["url"] = "damaged"
    late = [0, 3, -2, 1, 4, -3, 2, 0, 1, -1, 2, 3, 0]  # seconds by which a run starts beside its schedule
    for number, seconds in enumerate(late):
        clock.now = 5_000.0 + 600 * number + seconds
        # A run has no state but the file.
        schedule = MaintenanceThread(None, [hourly, always], EventReporter("job", io.StringIO()))  # type: ignore[arg-type]
        schedule.run_due_chores("url", timedelta(minutes=10), threading.Event())
    assert [round(at / 600) for at in hourly.done_at] == [0, 6, 12]
    assert len(always.done_at) == len(late)
    stopping = threading.Event()
    stopping.set()
    schedule.run_due_chores("url", timedelta(minutes=10), stopping)
    assert len(always.done_at) == len(late), "a stop waits for no chore"
