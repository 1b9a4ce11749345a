"""Programs that the sandbox starts, and the promise that each of them ends.

Every program runs in a process group of its own and leaves a record in
``.millrace/sandbox/processes``. Whoever starts one stops it; what a killed
sandbox left behind is found by its record and stopped by the next.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from millrace.sandbox.toolchain import STATE

RUN = Path(os.environ.get("MILLRACE_SANDBOX") or STATE / "sandbox").absolute()
"""Data, logs and records of running programs; one sandbox at a time works in it."""

_RECORDS = RUN / "processes"

_TICK_SECONDS = 0.01
"""In which the kernel counts when programs start."""


class SandboxError(RuntimeError):
    """Something on this machine did not start, stopped by itself or took too long."""


def free_port() -> int:
    """Ask the kernel for a TCP port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass(frozen=True)
class Process:
    """A running program.

    Attributes
    ----------
    name
        As people know it: ``localstack``, ``kafka``, ``job-departures``.
    log
        Its standard output and error.
    scratch
        A folder of its own that goes when it has ended.
    """

    name: str
    log: Path
    popen: subprocess.Popen[bytes]
    scratch: Path | None = None

    @classmethod
    def start(
        cls,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str],
        log: Path,
        cwd: Path | None = None,
        scratch: Path | None = None,
    ) -> Process:
        """Start a program in a process group of its own."""
        log.parent.mkdir(parents=True, exist_ok=True)
        _RECORDS.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                command,
                env=dict(environment),
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        process = cls(name=name, log=log, popen=popen, scratch=scratch)
        record = {
            "name": name,
            "pid": popen.pid,
            "created": _created(psutil.Process(popen.pid)),
            "owner": os.getpid(),
            "owner_created": _created(psutil.Process()),
        }
        process._record.write_text(json.dumps(record))
        return process

    @property
    def _record(self) -> Path:
        return _RECORDS / f"{self.popen.pid}.json"

    @property
    def alive(self) -> bool:
        """Whether the program itself still runs."""
        return self.popen.poll() is None

    def tail(self, lines: int = 15) -> str:
        """Read the last lines of the log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait for a program to be ready.

        Raises
        ------
        SandboxError
            It ended, or was not ready in time; holds the end of its log.
        """
        deadline = time.monotonic() + seconds
        while not ready():
            if not self.alive:
                raise SandboxError(
                    f"{self.name} ended with status {self.popen.returncode} before {what}:\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                raise SandboxError(f"{self.name}: not {what} after {seconds:.0f} s:\n{self.tail()}")
            time.sleep(0.1)

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def kill(self) -> None:
        """End the program as a power cut would (kill -9 of the group)."""
        self.signal_group(signal.SIGKILL)
        self.popen.wait()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self._record.unlink(missing_ok=True)

    def stop(self, grace_seconds: float = 10) -> int:
        """Ask the program to end, insist after the grace period; return its exit status."""
        if self.alive:
            self.signal_group(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.popen.wait(grace_seconds)
        self.kill()
        return self.popen.returncode

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


@contextmanager
def ended(process: Process | None, *, keep: bool) -> Iterator[None]:
    """Stop a program at the end; one that is to be kept where it ends by a failure or Ctrl-C only.

    Parameters
    ----------
    process
        None where it is somebody else's.
    keep
        Leave it running.
    """
    try:
        yield
    except BaseException:
        keep = False
        raise
    finally:
        if process is not None and not keep:
            process.stop()


@contextmanager
def only_one() -> Iterator[None]:
    """Hold this machine's sandbox, and begin by stopping what an earlier one left.

    Raises
    ------
    SandboxError
        Another one is at work in the same folder.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"another sandbox is at work in {RUN}: wait for it, or set MILLRACE_SANDBOX to another folder"
            ) from None
        stop_left_behind()
        yield


def stop_left_behind() -> list[str]:
    """Stop what a sandbox that has ended left running; return the names.

    A record counts only while a process of that id and start time exists, so that
    no foreign process that inherited the number is ever touched.
    """
    stopped = []
    for path in sorted(_RECORDS.glob("*.json")):
        record = json.loads(path.read_text())
        if _lives(record["owner"], record["owner_created"]):
            continue
        if _lives(record["pid"], record["created"]):
            leader = psutil.Process(record["pid"])
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGTERM)
            if psutil.wait_procs([leader], timeout=10)[1]:
                os.killpg(leader.pid, signal.SIGKILL)
            stopped.append(record["name"])
        path.unlink(missing_ok=True)
    return stopped


def _created(process: psutil.Process) -> float:
    """Seconds from the machine's start to the program's, which stay what they are when its clock is set."""
    return float(process.create_time() - psutil.boot_time())


def _lives(pid: int, created: float) -> bool:
    try:
        process = psutil.Process(pid)
        same = abs(_created(process) - created) < _TICK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
