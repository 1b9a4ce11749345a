"""The entry script: exit status of each failure, and release of the lease."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.etl import main as entry_script
from millrace.etl.job import entry_point as main
from millrace.etl.launch import entry_script_arguments
from millrace.etl.record.errors import AccountsError, NoAnswerError, SinkError, StartError
from millrace.etl.repair import one_off_commands

ARGUMENTS = ["--launch-document", "s3://artifacts/shop.json"]
READ = main._read_launch_document


class Session:
    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Lease:
    def __init__(self) -> None:
        self.given_back = 0
        self.acquired = False

    def acquire(self) -> None:
        self.acquired = True

    def loss_reason(self) -> str | None:
        return None

    def release(self) -> None:
        self.given_back += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    job = SimpleNamespace(job="shop", queries=(), batch_retries=0, run_every_seconds=None)
    monkeypatch.setattr(main.spark_redaction_settings, "redacting_session", lambda: made)
    monkeypatch.setattr(main, "_read_launch_document", lambda *_: "{}")
    monkeypatch.setattr(entry_script_arguments, "read_settings_of_document", lambda *_: job)
    return made


@pytest.mark.faults
@pytest.mark.parametrize("while_built", [True, False])
@pytest.mark.parametrize(
    "error", [SinkError("topic away"), OSError("disk"), AccountsError("odd"), NoAnswerError("nobody")]
)
def test_a_replay_into_a_sink_that_is_away_is_told_as_a_failure(
    session: Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    while_built: bool,
) -> None:
    def replay(*_: Any) -> int:
        raise error

    monkeypatch.setattr(one_off_commands, "make_replayer", replay if while_built else lambda *_: replay)
    assert main.main([*ARGUMENTS, "--replay", "orders"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["query"], told["error"]) == ("failed", "orders", str(error))
    assert told["error_class"] == type(error).__name__
    assert session.stopped


def test_a_replay_that_must_not_start_ends_with_status_2(
    session: Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def replayer(*_: Any) -> None:
        raise StartError("--replay orders: the job has no such query")

    monkeypatch.setattr(one_off_commands, "make_replayer", replayer)
    assert main.main([*ARGUMENTS, "--replay", "orders"]) == 2
    assert capsys.readouterr().err == "error: --replay orders: the job has no such query\n"
    assert session.stopped


@pytest.fixture
def started(session: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], Lease]:
    """A job whose queries are built, and supervised, as a test says."""
    lease = Lease()

    def begin(build: Any, supervise: Any) -> Lease:
        nothing: Any = SimpleNamespace(close=lambda: None, start=lambda: None, stop=lambda: None)
        monkeypatch.setattr(main, "NonBlockingConsole", lambda _: io.StringIO())
        monkeypatch.setattr(main, "SparkGauges", lambda _: SimpleNamespace(write=None))
        monkeypatch.setattr(main, "start_metrics_monitor", lambda *_: nothing)
        monkeypatch.setattr(main, "_open_lease", lambda *_: lease)
        monkeypatch.setattr(main, "build_queries", build)
        monkeypatch.setattr(main.maintenance_schedule, "maintenance_tasks", lambda *_: ())
        monkeypatch.setattr(main, "MaintenanceThread", lambda *_: nothing)
        monkeypatch.setattr(main.signal, "signal", lambda *_: None)
        supervisor = SimpleNamespace(run_to_exit_status=supervise, request_stop=lambda: None)
        monkeypatch.setattr(main, "Supervisor", lambda *_, **__: supervisor)
        return lease

    return begin


def test_who_supervises_queries_gives_the_lease_back_and_nobody_else(
    started: Callable[[Any, Any], Lease], session: Session
) -> None:
    """What ends a supervisor may leave a query behind, which writes on."""

    def breaks(_queries: Any) -> int:
        raise ZeroDivisionError

    lease = started(lambda *_: (), breaks)
    with pytest.raises(ZeroDivisionError):
        main.main(ARGUMENTS)
    assert lease.given_back == 0
    started(lambda *_: (), lambda _queries: 0)
    assert main.main(ARGUMENTS) == 0
    assert lease.given_back == 0
    assert session.stopped


@pytest.mark.parametrize(("error", "status"), [(StartError("no table"), 2), (OSError("disk"), 1)])
def test_a_start_that_fails_gives_the_lease_back(
    started: Callable[[Any, Any], Lease], error: Exception, status: int
) -> None:
    def build(*_: Any) -> None:
        raise error

    lease = started(build, lambda _queries: 0)
    assert main.main(ARGUMENTS) == status
    assert lease.given_back == 1


def named(content: bytes, ending: str) -> str:
    """A name as the CDK gives it."""
    return hashlib.sha256(hashlib.sha256(content).hexdigest().encode()).hexdigest() + ending


def test_an_archive_that_was_exchanged_runs_nothing(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in ("millrace/__init__.py", "millrace/etl/__init__.py", "millrace/etl/job/__init__.py"):
            archive.writestr(name, "print('loaded')\n")
        archive.writestr("millrace/etl/job/entry_point.py", "def main(_):\n    print('ran')\n    return 0\n")
    content = buffer.getvalue()

    def run(name: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / name).write_bytes(content)
        command = [sys.executable, entry_script.__file__, *ARGUMENTS]
        path = {"PYTHONPATH": str(tmp_path / name)}
        return subprocess.run(command, env=path, capture_output=True, text=True, check=False)

    done = run(named(content, ".zip"))
    assert (done.returncode, done.stderr, done.stdout.splitlines()[-1]) == (0, "", "ran")
    forged = named(content + b"0", ".zip")
    done = run(forged)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {tmp_path / forged}: not what was deployed, by the digest in its name\n"


@pytest.mark.parametrize("forged", [None, "document", "archive"])
def test_a_document_or_an_archive_that_was_exchanged_starts_nothing(
    started: Callable[[Any, Any], Lease],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    forged: str | None,
) -> None:
    """An archive of another name is one that the engine has renamed: its object is read."""
    archive = f"s3://artifacts/{named(b'code', '.zip')}"
    document = json.dumps({"archive": archive})
    url = f"s3://artifacts/{named(document.encode(), '.json')}"
    stored = {url: document.encode(), archive: b"code"}
    if forged is not None:
        stored[url if forged == "document" else archive] += b" "
    monkeypatch.setattr(main, "_read_launch_document", READ)
    monkeypatch.setattr(main.hadoop_files, "read_text", lambda _, each: stored[each].decode())
    monkeypatch.setattr(main.hadoop_files, "read_bytes", lambda _, each: stored[each])
    lease = started(lambda *_: (), lambda _queries: 0)
    assert main.main(["--launch-document", url]) == (0 if forged is None else 2)
    if forged is not None:
        where = url if forged == "document" else archive
        assert f"{where}: not what was deployed" in capsys.readouterr().err
    assert lease.acquired is (forged is None)
