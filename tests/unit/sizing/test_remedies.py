"""Remedies take few plans, as each is a whole search."""

from __future__ import annotations

from dataclasses import replace

from millrace.config import Environment, load
from millrace.config.document.problems import Finding
from millrace.sizing.alternatives.remedies import findings_with_remedies
from tests.unit.sizing.conftest import Loader, text


def test_where_nothing_helps_each_kind_of_change_takes_one_plan_for_all_findings() -> None:
    environment = load("minimal")
    (job,) = environment.jobs
    finding = Finding(("jobs", job, "cores"), "1", "more")
    planned: list[Environment] = []

    def replan(changed: Environment) -> list[Finding]:
        planned.append(changed)
        return [finding]

    findings = [finding, replace(finding, path=("jobs", job, "max_workers"))]
    assert findings_with_remedies(environment, findings, replan) == findings
    assert 2 <= len(planned) <= 6, "latency, split and what else the file has, largest step alone"


def test_a_change_that_leaves_too_few_cores_for_the_work_is_not_planned(from_text: Loader) -> None:
    environment = from_text(text(job="cores: 3"))
    finding = Finding(("jobs", "clicks", "cores"), "3", "more")
    (found,) = findings_with_remedies(environment, [finding], lambda _: [])
    assert found.hint is not None
    assert "leave cores to the plan" in found.hint
    assert "latency" not in found.hint, "23.5 core-seconds arrive each second, however long a batch is"
