"""Remedies take few plans, as each is a whole search."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.config import Environment, load
from millrace.config.document.problems import ConfigurationError, Finding, Problem
from millrace.sizing import plan
from millrace.sizing.alternatives.remedies import findings_with_remedies
from tests.unit.sizing.conftest import DERIVE, Loader, text
from tests.unit.sizing.plan_relations import several


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


@pytest.mark.parametrize("rates", [(3000,), (3000, 8000)], ids=["a query", "queries that share cores"])
@pytest.mark.parametrize("key", ["cores", "max_workers"])
def test_the_least_that_is_said_is_accepted_and_one_less_is_not(key: str, rates: tuple[int, ...]) -> None:
    """Other shards than those of the refused plan take fewer cores: the number comes from plans."""
    speed = {"records_per_second_per_core": 1000, "batch_overhead": "2s", "basis": "measured"}
    streams = {f"s{n}": {"records_per_second": rate, "record_size": "400B"} for n, rate in enumerate(rates)}

    def refused(number: int) -> list[Problem]:
        job = {"engine": "glue", "latency": "20s", "rate": speed, "worker": "G.025X", key: number}
        try:
            plan(Environment.model_validate(several(job, **streams)))
        except ConfigurationError as error:
            return list(error.problems)
        return []

    [problem] = refused(2)
    assert problem.key == f"jobs.job.{key}"
    said = int(problem.allowed.removeprefix("at least ").partition(":")[0])
    assert f"{key}: " not in (problem.hint or "")
    assert not refused(said)
    assert refused(said - 1)


def test_no_direct_query_is_advised_where_none_can_be(from_text: Loader) -> None:
    """A direct query reads a Kafka topic."""
    with pytest.raises(ConfigurationError) as caught:
        plan(from_text(text(rate="5000", sla="60s", job="worker: G.1X\n    cores: 8", more=DERIVE)))
    [problem] = caught.value.problems
    assert "split: 2 such jobs" in (problem.hint or "")
    assert "direct" not in (problem.hint or "")
