"""Whatever ends a demo, everything that it started ends with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest


def wait_for(log, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, {1, 130}), (signal.SIGTERM, {143})])
def test_servers_end_with_the_demo(tmp_path, number, status):
    log = tmp_path / "demo.log"
    with log.open("wb") as output:
        demo = subprocess.Popen(
            [sys.executable, "-m", "millrace", "demo", "--records", "few"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MILLRACE_SANDBOX": str(tmp_path / "sandbox")},
        )
    wait_for(log, "deploy environment local", demo)
    started = psutil.Process(demo.pid).children(recursive=True)
    assert len(started) >= 2  # LocalStack and Kafka at least
    demo.send_signal(number)
    assert demo.wait(60) in status, log.read_text()
    assert not psutil.wait_procs(started, timeout=10)[1]
    assert "Traceback" not in log.read_text()
    assert not list((tmp_path / "sandbox" / "processes").iterdir())


def test_a_job_that_ends_by_itself_fails_the_demo_with_the_reason(tmp_path):
    """An environment without the example's jobs is refused before anything is deployed."""
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "demo", "--records", "few", "--env", "minimal"],
        capture_output=True,
        text=True,
        env={**os.environ, "MILLRACE_SANDBOX": str(tmp_path / "sandbox")},
        check=False,
    )
    assert done.returncode == 2
    assert "departures" in done.stderr
    assert "Traceback" not in done.stderr
