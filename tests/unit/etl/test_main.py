"""The entry script: what a failure comes to, and who gives the lease back."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.etl.job import command as main
from millrace.etl.launch import launch_document
from millrace.etl.record.errors import AccountsError, NoAnswerError, SinkError, StartError
from millrace.etl.repair import commands

ARGUMENTS = ["--launch-document", "s3://artifacts/shop.json"]


class Session:
    def __init__(self) -> None:
        self.stopped = False

    def stop(self) -> None:
        self.stopped = True


class Lease:
    def __init__(self) -> None:
        self.given_back = 0

    def acquire(self) -> None:
        pass

    def lost(self) -> str | None:
        return None

    def release(self) -> None:
        self.given_back += 1


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    made = Session()
    job = SimpleNamespace(job="shop", queries=(), batch_retries=0)
    monkeypatch.setattr(main.log_redaction, "redacting_session", lambda: made)
    monkeypatch.setattr(main, "_read", lambda *_: "{}")
    monkeypatch.setattr(launch_document, "read_document", lambda *_: job)
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

    monkeypatch.setattr(commands, "replayer", replay if while_built else lambda *_: replay)
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

    monkeypatch.setattr(commands, "replayer", replayer)
    assert main.main([*ARGUMENTS, "--replay", "orders"]) == 2
    assert capsys.readouterr().err == "error: --replay orders: the job has no such query\n"
    assert session.stopped


@pytest.fixture
def started(session: Session, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any, Any], Lease]:
    """A job whose queries are built, and supervised, as a test says."""
    lease = Lease()

    def begin(build: Any, supervise: Any) -> Lease:
        nothing: Any = SimpleNamespace(close=lambda: None, start=lambda: None, stop=lambda: None)
        monkeypatch.setattr(launch_document, "deployed_name", lambda *_: "shop")
        monkeypatch.setattr(main, "Console", lambda _: io.StringIO())
        monkeypatch.setattr(main, "SparkMetrics", lambda _: SimpleNamespace(write=None))
        monkeypatch.setattr(main, "open_monitor", lambda *_: nothing)
        monkeypatch.setattr(main, "_lease", lambda *_: lease)
        monkeypatch.setattr(main.run, "build", build)
        monkeypatch.setattr(main.maintenance_schedule, "maintenance_tasks", lambda *_: ())
        monkeypatch.setattr(main, "Maintenance", lambda *_: nothing)
        monkeypatch.setattr(main.signal, "signal", lambda *_: None)
        supervisor = SimpleNamespace(run=supervise, stop=lambda: None)
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
