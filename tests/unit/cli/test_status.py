"""``millrace status`` of all jobs at once."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from millrace.cli.watch import status
from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.jobs import state_machine
from millrace.lifecycle.jobs.state_machine import ExecutionResult
from tests.unit.cli.test_command_output import millrace


@pytest.fixture
def deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment ``local``, of whose two jobs one was never deployed."""

    def execute(_aws: object, job: str, _verb: str, *, progress: Callable[[str], None]) -> ExecutionResult:
        if job == "flights":
            raise NotDeployedError("stack flights-local-job-flights is not there")
        return ExecutionResult(job, True, "status", "running since noon", {"state": "running"})

    monkeypatch.setattr(status, "connect_to_account", lambda _: None)
    monkeypatch.setattr(state_machine, "execute_verb", execute)


@pytest.mark.usefixtures("deployed")
def test_every_job_has_a_line_whatever_another_ones_is() -> None:
    done = millrace("status", "--env", "local")
    assert done.stdout == "departures: status: running since noon\n"
    assert done.stderr == "flights: not-deployed: stack flights-local-job-flights is not there\n"
    assert done.returncode == 1


@pytest.mark.usefixtures("deployed")
def test_a_script_gets_one_object() -> None:
    done = millrace("status", "--env", "local", "--json")
    result = json.loads(done.stdout)
    assert result["departures"] == {"state": "running"}
    assert result["flights"]["outcome"] == "not-deployed"


@pytest.mark.usefixtures("deployed")
def test_watching_shows_each_round_until_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    rounds: list[float] = []

    def sleep(seconds: float) -> None:
        rounds.append(seconds)
        if len(rounds) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(status.time, "sleep", sleep)
    lines = millrace("status", "--env", "local", "--watch", "--every", "5").stdout.splitlines()
    assert [line.partition(" ")[2] for line in lines] == [
        "departures: status: running since noon",
        "flights: not-deployed: stack flights-local-job-flights is not there",
    ] * 2
    assert rounds == [5, 5]
    rounds.clear()
    looks = [
        json.loads(line) for line in millrace("status", "--env", "local", "-w", "--json").stdout.splitlines()
    ]
    assert [look["jobs"]["flights"]["outcome"] for look in looks] == ["not-deployed"] * 2
