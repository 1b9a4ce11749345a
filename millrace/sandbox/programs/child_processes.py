"""Programs that the sandbox starts, with the guarantee that each of them ends.

Every program runs in a process group of its own and leaves a record in
``.millrace/sandbox/processes``. The process that starts one stops it. If that process is
killed, a shell in the program's group notices and ends the group, unless the program
was released to run on; the next sandbox finds released programs by their records and
stops them.
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
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import psutil

from millrace.sandbox.programs.toolchain import state_folder

RUN = Path(os.environ.get("MILLRACE_SANDBOX") or state_folder() / "sandbox").absolute()
"""Data, logs and records of running programs; only one sandbox at a time uses it."""

_RECORDS = RUN / "processes"

_TICK_SECONDS = 0.01
"""Resolution of the kernel's start times of programs."""

_WATCHED = """\
exec 3<&0
(
  trap "" HUP INT TERM
  read -r released <&3 || { kill -TERM 0; sleep 10; kill -KILL 0; }
) &
exec "$@" </dev/null 3<&-
"""
"""Script that becomes the program, beside a shell of its group that waits for the end of the pipe: the kernel closes it when
its holder ends, also after kill -9. It works on Linux and macOS; Linux' own signal at a parent's death would come at the
end of the *thread* that started the program, and macOS has none.
"""


class SandboxError(RuntimeError):
    """A program or a wait on this machine that failed: it did not start, stopped by itself or took too long."""


class StalledError(SandboxError):
    """A wait that ended without its result."""


def start_process_tied_to_parent(
    command: Sequence[str | Path], **options: Any
) -> tuple[subprocess.Popen[bytes], FileIO]:
    """Start a program in a session of its own that ends with this program, however that ends.

    Parameters
    ----------
    command
        The program and its arguments.
    **options
        More of :class:`subprocess.Popen`; its standard input is empty.

    Returns
    -------
    tuple
        The program, and a pipe that must stay open while it runs. A line written to the pipe lets the program run on.
    """
    watched, held = os.pipe()
    try:
        popen = subprocess.Popen(
            ["/bin/sh", "-c", _WATCHED, "sh", *command], stdin=watched, start_new_session=True, **options
        )
    except BaseException:
        os.close(held)
        raise
    finally:
        os.close(watched)
    return popen, FileIO(held, "w")


def free_port() -> int:
    """Return a TCP port on 127.0.0.1 that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class ChildProcess(AbstractContextManager["ChildProcess"]):
    """A running program; a block stops it at its end.

    Attributes
    ----------
    name
        Its name for people: ``localstack``, ``kafka``, ``job-departures``.
    log
        Its standard output and error.
    held
        Pipe from :func:`start_process_tied_to_parent`.
    scratch
        A folder of its own that is deleted after its end.
    """

    name: str
    log: Path
    popen: subprocess.Popen[bytes]
    held: FileIO
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
    ) -> ChildProcess:
        """Return a program that was started in a process group of its own."""
        log.parent.mkdir(parents=True, exist_ok=True)
        _RECORDS.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen, held = start_process_tied_to_parent(
                command, env=dict(environment), cwd=cwd, stdout=output, stderr=subprocess.STDOUT
            )
        process = cls(name=name, log=log, popen=popen, held=held, scratch=scratch)
        record = {
            "name": name,
            "pid": popen.pid,
            "created": _start_seconds_after_boot(psutil.Process(popen.pid)),
            "owner": os.getpid(),
            "owner_created": _start_seconds_after_boot(psutil.Process()),
        }
        process._record_file.write_text(json.dumps(record))
        return process

    @property
    def _record_file(self) -> Path:
        return _RECORDS / f"{self.popen.pid}.json"

    @property
    def is_alive(self) -> bool:
        """True while the program itself runs."""
        return self.popen.poll() is None

    def last_log_lines(self, lines: int = 15) -> str:
        """Read the last lines of the log, for an error message."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def wait_until(self, ready: Callable[[], bool], *, seconds: float, what: str) -> None:
        """Wait for a program to be ready, and stop it where it is not.

        Raises
        ------
        SandboxError
            It ended, or was not ready in time; the message has the end of its log.
        """
        try:
            wait_until(ready, seconds=seconds, what=what, runs=(self,))
        except BaseException:
            self.stop()
            raise

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to the program and all its child processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, number)

    def leave_running(self) -> None:
        """Let the program run on after the end of this one; ``millrace sandbox stop`` finds it by its record."""
        with self.held, suppress(BrokenPipeError):
            self.held.write(b"\n")

    def kill(self) -> None:
        """Kill the program as a power failure would (kill -9 of the group)."""
        self.signal_group(signal.SIGKILL)
        self.popen.wait()
        self.held.close()
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)
        self._record_file.unlink(missing_ok=True)

    def stop(self, grace_seconds: float = 10) -> int:
        """Ask the program to end, kill it after the grace period without a line of its log; return its exit status."""
        if self.is_alive:
            self.signal_group(signal.SIGTERM)
            with suppress(StalledError):
                wait_until(
                    lambda: not self.is_alive,
                    seconds=grace_seconds,
                    what="ended",
                    progress=lambda: f"{self.log.stat().st_size} bytes",
                    poll_seconds=0.02,
                )
        self.kill()
        return self.popen.returncode

    def __exit__(self, *_: object) -> None:
        self.stop()


def wait_until(
    reached: Callable[[], bool],
    *,
    seconds: float,
    what: str,
    progress: Callable[[], str] | None = None,
    runs: Sequence[ChildProcess] = (),
    poll_seconds: float = 0.1,
) -> None:
    """Wait for a condition while the programs that it needs run, longer where the machine is busy.

    Parameters
    ----------
    reached
        The condition, which is polled.
    seconds
        Longest wait; with ``progress``, longest wait without progress. Seconds of a machine with a free core for each program:
        with more of them each second counts less.
    what
        Name of the condition for people, such as ``answering``.
    progress
        Returns the progress, such as ``5 of 7 rows``; called after ``reached``.
    runs
        Programs that must run for it.

    Raises
    ------
    SandboxError
        A program ended; the message has the end of its log.
    StalledError
        The time ran out; the message has the ends of the logs.
    """
    seen, waited, before = "", 0.0, time.monotonic()
    while not reached():
        for run in runs:
            if not run.is_alive:
                raise SandboxError(
                    f"{run.name} ended with status {run.popen.returncode} before {what}{seen}:\n{run.last_log_lines(25)}"
                )
        if progress is not None and (now := f" ({progress()})") != seen:
            seen, waited = now, 0.0
        after = time.monotonic()
        waited, before = waited + (after - before) * _core_share_at_current_load(), after
        if waited > seconds:
            whose = "".join(f"{run.name}: " for run in runs)
            how = "without progress for" if progress else "after"
            logs = "".join(f":\n{run.last_log_lines(25)}" for run in runs)
            raise StalledError(f"{whose}timeout: it is not {what} {how} {seconds:.0f} s{seen}{logs}")
        time.sleep(poll_seconds)


def _core_share_at_current_load() -> float:
    """Return the share of a core that a program has now, by the number of running ones in the last minute."""
    return min(1.0, (os.cpu_count() or 1) / max(1.0, os.getloadavg()[0]))


@contextmanager
def stopping_at_end(process: ChildProcess | None, *, keep: bool) -> Iterator[None]:
    """Stop a program at the end; one to keep is stopped only after a failure or Ctrl-C.

    Parameters
    ----------
    process
        None for a program of somebody else.
    keep
        Leave it running.
    """
    try:
        yield
    except BaseException:
        keep = False
        raise
    finally:
        if process is not None and keep:
            process.leave_running()
        elif process is not None:
            process.stop()


@contextmanager
def locked_sandbox_without_left_programs() -> Iterator[None]:
    """Lock this machine's sandbox, and first stop the programs that an earlier one left.

    Raises
    ------
    SandboxError
        Another sandbox uses the same folder.
    """
    RUN.mkdir(parents=True, exist_ok=True)
    with (RUN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SandboxError(
                f"another sandbox command is running in {RUN}: wait until it ends, or set "
                "MILLRACE_SANDBOX to another folder"
            ) from None
        stop_left_programs()
        yield


def stop_left_programs() -> list[str]:
    """Stop the programs that an ended sandbox left running; return their names.

    A record counts only while a process with that id and start time exists, so that no
    other process with a reused id is ever stopped.
    """
    stopped = []
    for path in sorted(_RECORDS.glob("*.json")):
        record = json.loads(path.read_text())
        if _is_same_process_running(record["owner"], record["owner_created"]):
            continue
        if _is_same_process_running(record["pid"], record["created"]):
            leader = psutil.Process(record["pid"])
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGTERM)
                if psutil.wait_procs([leader], timeout=10)[1]:
                    os.killpg(leader.pid, signal.SIGKILL)
            stopped.append(record["name"])
        path.unlink(missing_ok=True)
    return stopped


def _start_seconds_after_boot(process: psutil.Process) -> float:
    """Return the seconds from the machine's start to the program's, which do not change with the clock."""
    return float(process.create_time() - psutil.boot_time())


def _is_same_process_running(pid: int, created: float) -> bool:
    try:
        process = psutil.Process(pid)
        same = abs(_start_seconds_after_boot(process) - created) < _TICK_SECONDS
        return same and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
