"""State machines of jobs with bounded runs, executed by LocalStack: their triggers start runs, and an expected end starts none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.integration.lifecycle.conftest import Done, Machines
from tests.integration.lifecycle.engine_responses import BOUNDED_CASES, BOUNDED_JOBS, EARLY

pytestmark = pytest.mark.parametrize("job", BOUNDED_JOBS)

_START = {"on-glue": "glue:startJobRun", "on-emr": "emrserverless:startJobRun"}
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


def execute(machines: Machines, job: str, name: str) -> Done:
    (case,) = (case for case in BOUNDED_CASES if (case.job, case.name) == (job, name))
    done = machines.run(case)
    assert done.status == "SUCCEEDED", (done.error, done.cause, done.path)
    return done


@pytest.mark.parametrize(
    ("name", "outcome", "starts"),
    [
        ("ended", "not-due", 0),
        ("ended-after-its-period", "running", 1),
        ("ended-badly", "running", 1),
        ("due", "running", 1),
        ("due-beside-a-run", "already-running", 0),
        ("shorter-than-a-look", "running", 1),
    ],
)
def test_a_run_starts_when_it_is_due_and_never_beside_another(
    bounded_machines: Machines, job: str, name: str, outcome: str, starts: int
) -> None:
    done = execute(bounded_machines, job, name)
    assert done.output["outcome"] == outcome
    assert len(done.calls.get(_START[job], ())) == starts


def test_status_tells_the_last_run_and_the_next(bounded_machines: Machines, job: str) -> None:
    message = execute(bounded_machines, job, "status").output["message"]
    began, due = (datetime.fromisoformat(each) for each in _TIME.findall(message))
    assert due - began == timedelta(minutes=10)
    assert timedelta(minutes=EARLY) <= datetime.now(UTC) - began < timedelta(minutes=EARLY + 10)
    assert (
        execute(bounded_machines, job, "status-before-any").output["message"]
        == "desired state: running; no run"
    )
