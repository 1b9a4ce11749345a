"""A demo that is interrupted or killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.running_processes import still_running

pytestmark = [pytest.mark.faults, pytest.mark.slow]


def wait_for(log, text: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 90
    while text not in log.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.2)


@contextmanager
def demo(log: Path, sandbox: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A demo, which ends with the test whatever the test finds."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "millrace", "demo", "--records", "few"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MILLRACE_SANDBOX": str(sandbox)},
            # A shell that runs the tests in the background has them ignore Ctrl-C, and so would the demo.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()  # by which it stops its servers
            process.wait(30)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, {1, 130}), (signal.SIGTERM, {143})])
def test_servers_end_with_the_demo(tmp_path, number, status):
    log = tmp_path / "demo.log"
    with demo(log, tmp_path / "sandbox") as running:
        wait_for(log, "deploying to LocalStack", running)
        started = psutil.Process(running.pid).children(recursive=True)
        assert len(started) >= 2  # LocalStack and Kafka at least
        running.send_signal(number)
        assert running.wait(60) in status, log.read_text()
        assert not still_running(started, 10)
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
