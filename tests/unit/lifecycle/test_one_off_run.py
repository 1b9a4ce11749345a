"""One-off runs of a job are started by its state machine and watched on its engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.jobs import state_machine
from millrace.lifecycle.jobs.state_machine import ExecutionResult

ASKED = (("--backfill", "q"), ("--replace", ""))


@pytest.mark.parametrize("engine", ["glue", "emr"])
def test_the_state_machine_starts_it_and_its_engine_is_asked_for_its_end(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    verbs: list[tuple[str, Sequence[tuple[str, str]]]] = []
    states = ["RUNNING", "SUCCEEDED" if engine == "glue" else "SUCCESS"]

    class Engine:
        """Everything that a caller who may start no run may ask."""

        def describe_stacks(self, **_: Any) -> dict[str, Any]:
            result = [{"OutputKey": "ApplicationId", "OutputValue": "00f1"}] if engine == "emr" else []
            return {"Stacks": [{"Outputs": result}]}

        def get_job_run(self, **given: Any) -> dict[str, Any]:
            if engine == "emr":
                assert given == {"applicationId": "00f1", "jobRunId": "r1"}
                return {"jobRun": {"state": states.pop(0)}}
            assert given == {"JobName": aws.names.job("clicks"), "RunId": "r1"}
            return {"JobRun": {"JobRunState": states.pop(0)}}

    def execute(
        _aws: DeployedEnvironment, job: str, verb: Any, *, arguments: Any = (), **_: Any
    ) -> ExecutionResult:
        verbs.append((verb, arguments))
        return ExecutionResult(job, True, verb, "", {"desired_state": "running", "run": "r1"})

    monkeypatch.setattr(state_machine, "execute_verb", execute)
    here = DeployedEnvironment(aws.names, lambda _: Engine())
    ended = state_machine.run_job_once(here, "clicks", ASKED, progress=lambda _: None, poll_seconds=0)
    assert ended.succeeded
    assert verbs == [("status", ()), ("stop", ()), ("once", ASKED), ("start", ())]
