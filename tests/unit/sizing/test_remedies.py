"""Remedies take few plans, as each is a whole search."""

from __future__ import annotations

from dataclasses import replace

from millrace.config import Environment, load
from millrace.config.document.problems import Finding
from millrace.sizing.alternatives.remedies import findings_with_remedies


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
