"""Findings that change cores: by all work that ran, by what arrives, and by the cores that were there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.logs.application_history_model import Executor
from tests.unit.advisor.healthy_query_history import START, batch, history, job, kinds, stage

ROOT = Path(__file__).parents[3]
JOB = AdvisedJob("job orders", 1000.0)


def wide(seconds: float, tasks: int = 8, records: int = 1000, every: float = 2.0, **more):
    """Batches of equal tasks."""

    def made(number, begun):
        at = stage(begun + 0.05, [seconds + 0.002 * (number % 3)] * tasks, [records // tasks] * tasks)
        left = more["left"](number) if "left" in more else 0
        return batch(number, begun, [job(number, [at])], records, left=left)

    return history(made, every=every, cores=2, executors=4)


def ran(*spans: tuple[float, float | None], cores: int = 2) -> tuple[Executor, ...]:
    """Executors by the seconds from which and until which they ran."""
    return tuple(
        Executor(str(n), cores, START + begun, None if ended is None else START + ended)
        for n, (begun, ended) in enumerate(spans)
    )


@pytest.mark.parametrize(
    ("executors", "cores"),
    [
        pytest.param(ran((0, None), (0, None), *[(0, 4)] * 6), 4, id="six leave early"),
        pytest.param(ran((0, None), (0, 20), (19.5, None)), 4, id="one is lost, and noticed late"),
        pytest.param(ran((30, None), (30.5, None)), 4, id="a slow start"),
        pytest.param(ran((0, 40), (0, 40)), 4, id="all leave at the end"),
        pytest.param((), 0, id="none is named"),
    ],
)
def test_cores_are_those_that_were_there_for_most_of_the_time(executors, cores):
    assert replace(history(), executors=executors).cores == cores


def test_executors_that_left_are_not_idle_in_later_batches():
    made = replace(wide(0.8), executors=ran((0, None), (0, None), *[(0, 4)] * 6))
    assert kinds(advise(made, JOB)) == [], "eight tasks of 0.8 s take four cores, and 16 were there for 4 s"
