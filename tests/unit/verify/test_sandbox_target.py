"""A verification on this machine leaves no process running."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from millrace.sandbox.kill_and_restart_jobs import DrillError
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from millrace.sizing import plan
from millrace.verify import sandbox_target
from millrace.verify.sandbox_target import open_sandbox_target
from tests.unit.verify.conftest import Make


def test_no_driver_outlives_the_servers_after_a_failure(
    make: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    copy = make("minimal", account=localstack.ACCOUNT)
    stack = LocalStack("http://127.0.0.1:1", "us-east-1", None)
    monkeypatch.setattr(localstack, "running_localstack", lambda _: nullcontext(stack))
    monkeypatch.setattr(sandbox_target, "locked_sandbox_without_left_programs", nullcontext)
    monkeypatch.setattr(sandbox_target, "delete_local_catalog", lambda: None)
    driver = ChildProcess.start("driver", ["sleep", "120"], environment={}, log=tmp_path / "log")

    def fail() -> None:
        with open_sandbox_target(copy, plan(copy.environment)) as place:
            place.by_job["glue"] = [LocalJob(driver, tmp_path)]
            raise DrillError("its stacks are not read")

    with pytest.raises(DrillError, match="its stacks are not read"):
        fail()
    assert not driver.is_alive
