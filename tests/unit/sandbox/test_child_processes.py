"""Programs that the sandbox starts end with it, after failures and after a kill."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress

import psutil
import pytest

from millrace.sandbox import environment_trial
from millrace.sandbox.programs import child_processes as processes
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.child_processes import (
    ChildProcess,
    SandboxError,
    locked_sandbox_without_left_programs,
    stop_left_programs,
    stopping_at_end,
    wait_until,
)
from tests.http_servers import Handler, served
from tests.running_processes import still_running

FOREVER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); print('up', flush=True); time.sleep(60)"


@pytest.fixture(autouse=True)
def records(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_RECORDS", tmp_path / "processes")
    return tmp_path / "processes"


def start(tmp_path, code: str) -> ChildProcess:
    return ChildProcess.start(
        "p", [sys.executable, "-c", code], environment=os.environ, log=tmp_path / "p.log"
    )


def group(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def up(process: ChildProcess) -> None:
    process.wait_until(lambda: "up" in process.log.read_text(), seconds=10, what="up")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_children_end_with_their_parent(tmp_path, records, end):
    process = start(tmp_path, FOREVER)
    up(process)
    members = group(process.popen.pid)
    assert len(members) == 3  # with the shell that watches
    getattr(process, end)()
    assert not still_running(members, 5)
    assert not list(records.iterdir())


def test_what_it_scribbled_goes_with_it(tmp_path):
    scratch = tmp_path / "scratch"
    code = f"import pathlib, time; p = pathlib.Path({str(scratch)!r}); p.mkdir(); (p / 'f').touch(); print('up', flush=True); time.sleep(60)"
    process = ChildProcess.start(
        "p", [sys.executable, "-c", code], environment=os.environ, log=tmp_path / "p.log", scratch=scratch
    )
    up(process)
    assert (scratch / "f").exists()
    process.kill()
    assert not scratch.exists()


def test_stops_after_a_failure(tmp_path):
    process = start(tmp_path, FOREVER)
    up(process)
    with pytest.raises(ZeroDivisionError), process:
        raise ZeroDivisionError
    assert not process.is_alive


def test_a_program_that_ends_early_is_told_with_its_log(tmp_path):
    process = start(tmp_path, "print('no space left'); raise SystemExit(3)")
    with pytest.raises(SandboxError, match=r"(?s)status 3 before ready.*no space left"):
        process.wait_until(lambda: False, seconds=10, what="ready")
    process.stop()


def test_a_program_that_hangs_is_told(tmp_path):
    with (
        start(tmp_path, "import time; time.sleep(60)") as process,
        pytest.raises(SandboxError, match="not ready after 0 s"),
    ):
        process.wait_until(lambda: False, seconds=0.2, what="ready")


def test_what_makes_no_progress_is_told_with_how_far_it_came(tmp_path):
    looks = itertools.count()

    def progress() -> str:
        return f"{min(next(looks), 2)} of 5 rows"

    with (
        start(tmp_path, "import time; time.sleep(60)") as process,
        pytest.raises(
            SandboxError, match=r"p: timeout: it is not landed without progress for 0 s \(2 of 5 rows\)"
        ),
    ):
        wait_until(
            lambda: False, seconds=0.3, what="landed", progress=progress, runs=(process,), poll_seconds=0.01
        )


def test_what_moves_has_time(tmp_path):
    begun, seen = time.monotonic(), []

    def reached() -> bool:
        seen.append(len(seen))
        return len(seen) == 30

    wait_until(reached, seconds=0.1, what="landed", progress=lambda: str(len(seen)), poll_seconds=0.01)
    assert time.monotonic() - begun > 0.1


def test_a_busy_machine_gives_each_program_more_time(monkeypatch):
    cores = os.cpu_count() or 1
    monkeypatch.setattr(os, "getloadavg", lambda: (4.0 * cores, 0.0, 0.0))
    begun = time.monotonic()
    with pytest.raises(SandboxError, match="not there after 0 s"):
        wait_until(lambda: False, seconds=0.1, what="there", poll_seconds=0.01)
    assert time.monotonic() - begun >= 0.4


@pytest.mark.parametrize(("lines", "status"), [(12, 0), (0, -9)])
def test_a_program_that_still_writes_may_end_its_work(tmp_path, lines, status):
    work = f"trap 'for n in $(seq {lines}); do echo $n; sleep 0.1; done; [ {lines} = 0 ] && sleep 60; exit 0' TERM"
    script = f"{work}; touch {tmp_path}/ready; while :; do sleep 0.02; done"
    process = ChildProcess.start("p", ["/bin/sh", "-c", script], environment=os.environ, log=tmp_path / "log")
    process.wait_until((tmp_path / "ready").exists, seconds=10, what="ready")
    assert process.stop(grace_seconds=0.5) == status


def test_left_behind_is_stopped_and_strangers_are_not(tmp_path, records):
    ours, stranger = start(tmp_path, FOREVER), start(tmp_path, FOREVER)
    up(ours)
    record = records / f"{stranger.popen.pid}.json"
    content = json.loads(record.read_text())
    record.write_text(json.dumps({**content, "created": content["created"] - 100}))  # the number was reused
    assert stop_left_programs() == []  # whoever started them still lives
    for path in records.iterdir():
        path.write_text(json.dumps({**json.loads(path.read_text()), "owner_created": -1}))
    assert stop_left_programs() == ["p"]
    ours.popen.wait(5)
    time.sleep(0.1)
    assert stranger.is_alive
    for process in (ours, stranger):
        process.kill()


def test_what_is_left_behind_is_known_after_the_clock_was_set(tmp_path, monkeypatch):
    process = start(tmp_path, FOREVER)
    up(process)
    for path in (tmp_path / "processes").iterdir():
        path.write_text(json.dumps({**json.loads(path.read_text()), "owner_created": -1}))
    # What the kernel says of both follows the clock.
    later = psutil.boot_time() + 3600
    created = psutil.Process.create_time
    monkeypatch.setattr(psutil, "boot_time", lambda: later)
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: created(self) + 3600)
    assert stop_left_programs() == ["p"]
    assert not process.is_alive
    process.kill()


@pytest.mark.parametrize("error", [None, KeyboardInterrupt()])
def test_what_is_to_be_kept_is_stopped_where_what_it_is_for_fails(tmp_path, error):
    process = start(tmp_path, FOREVER)
    up(process)
    with suppress(KeyboardInterrupt), stopping_at_end(process, keep=True):
        if error:
            raise error
    assert process.is_alive == (error is None)
    process.kill()


OWNER = """
import os, sys, time
from pathlib import Path
from millrace.sandbox.programs import child_processes as processes
from millrace.sandbox.programs.child_processes import ChildProcess
folder = Path(sys.argv[1])
processes._RECORDS = folder / "processes"
started = ChildProcess.start("p", [sys.executable, "-c", sys.argv[2]], environment=os.environ, log=folder / "p.log")
started.wait_until(lambda: "up" in started.log.read_text(), seconds=30, what="up")
if sys.argv[3] == "release":
    started.leave_running()
print(started.popen.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("what", ["release", "hold"])
def test_what_is_not_released_ends_with_whoever_started_it_however_that_ends(tmp_path, what):
    command = [sys.executable, "-c", OWNER, str(tmp_path), FOREVER, what]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        leader = psutil.Process(int(owner.stdout.readline()))
        child = next(p for p in leader.children() if "python" in p.name())
        owner.kill()
    left = still_running([leader, child], 5 if what == "hold" else 0.5)
    assert set(left) == (set() if what == "hold" else {leader, child})
    assert stop_left_programs() == ([] if what == "hold" else ["p"])


def test_one_sandbox_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "RUN", tmp_path)
    with (
        locked_sandbox_without_left_programs(),
        pytest.raises(SandboxError, match="another sandbox command is running"),
        locked_sandbox_without_left_programs(),
    ):
        pass
    with locked_sandbox_without_left_programs():  # free again
        pass


def test_a_second_demo_leaves_the_first_ones_files_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "RUN", tmp_path)
    monkeypatch.setattr(environment_trial, "RUN", tmp_path)
    monkeypatch.setattr(environment_trial, "EVENT_LOGS", tmp_path / "event-logs")
    for folder in (tmp_path / "jobs", tmp_path / "event-logs"):
        folder.mkdir()
    with (
        locked_sandbox_without_left_programs(),
        pytest.raises(SandboxError, match="another sandbox command is running"),
    ):
        environment_trial.run_trial("local", ["flights"], {}, seconds=0, say=lambda _: None)
    assert {path.name for path in tmp_path.iterdir()} >= {"jobs", "event-logs"}


def test_a_server_of_this_machine_is_asked_past_a_proxy(monkeypatch):
    monkeypatch.setattr(os, "environ", {"http_proxy": "http://127.0.0.1:9", "NO_PROXY": "example.org"})
    # The first request of a process decides which proxies all of its requests take.
    monkeypatch.setattr(urllib.request, "_opener", None)
    with served(Well) as address:
        assert localstack.localstack_answers(address)
    assert os.environ["no_proxy"] == os.environ["NO_PROXY"] == "example.org,localhost,127.0.0.1"


class Well(Handler):
    def do_GET(self):
        self.reply(200, b"{}")
