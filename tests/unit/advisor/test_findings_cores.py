"""Findings that change cores: by all work that ran, by what arrives, and by the cores that were there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, advised_environment_job
from millrace.advisor.findings.model import Advice
from millrace.advisor.forecasts.forecast_scores import changes_to_simulate_by_finding
from millrace.advisor.logs.application_history_model import Executor, History
from millrace.cli.watch.advise_verdict import severity_of_finding
from millrace.cli.watch.advised_changes_with_forecasts import _one_change_per_key
from millrace.config import load
from millrace.sizing import plan
from millrace.sizing.environment_with_plan_choices import environment_with_choices
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


def of_environment(made: History, cores: int | None, job_name: str = "ground") -> Advice:
    """Advice on such a log of environment prod's job ``ground``, which needs four cores at its peak."""
    [query] = made.queries
    environment = load("prod", root=ROOT)
    environment = environment_with_choices(environment, "jobs", "cores", {job_name: cores})
    named = replace(made, queries=(replace(query, name="land-clicks"),))
    return advise(named, advised_environment_job(environment, plan(environment), job_name))


def test_work_that_a_program_starts_from_its_own_threads_needs_cores_too():
    """Each batch has a light job of its own; a job without properties has the work: 7 core-seconds of the 16 in 2 s."""
    made = wide(0.05, tasks=1)

    def with_threads(seconds: float) -> Advice:
        others = [job(100 + n, [stage(START + 2 * n + 0.1, [seconds] * 8, [0] * 8)]) for n in range(24)]
        return advise(replace(made, jobs=tuple(others)), JOB)

    assert kinds(advise(made, JOB)) == ["idle-cores"]
    assert kinds(with_threads(0.92)) == [], "3.5 cores, and a quarter more, are five of eight"
    [finding] = with_threads(0.4).findings
    [_, used] = finding.evidence
    assert used.value == pytest.approx((8 * 0.4 + 0.05) * 0.95 / 2, rel=0.05)
    assert finding.best_change is not None
    assert finding.best_change.new == 2


def test_cores_are_judged_by_what_arrives_and_not_by_what_a_limit_lets_through():
    """Two of three batches leave records behind: 500 a second are processed of the 1,000 that arrive."""
    made = wide(0.4, left=lambda n: 1000 * (n + 1) if n % 3 else 0)
    assert kinds(advise(wide(0.4), JOB)) == ["idle-cores"], "1.7 cores carry what is processed"
    assert kinds(advise(made, JOB)) == [], "and 3.4 what arrives: with a quarter more that is three executors"


def test_no_cores_are_cut_beside_a_query_that_falls_behind():
    made = wide(0.1, left=lambda n: 1000 * (n + 1))
    assert kinds(advise(made, JOB)) == ["silent-backlog"]
    assert kinds(advise(wide(0.1), JOB)) == ["idle-cores"]


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


def test_with_an_environment_cores_are_cut_to_what_its_plan_needs():
    made = wide(0.1, every=20.0)
    [finding] = of_environment(made, 8).findings
    change = finding.best_change
    assert finding.kind == "idle-cores"
    assert change is not None
    assert (change.key, change.old, change.new) == ("jobs.ground.cores", 8, 4)
    environment = load("prod", root=ROOT)
    kept = environment_with_choices(environment, "jobs", "cores", {"ground": change.new})
    assert plan(kept).jobs["ground"].cores.value == 4
    assert of_environment(made, None).findings == (), "the plan gives four cores, which its peak needs"


def full(number, begun, tasks: int = 4, left: int = 500):
    """Back to back on four cores, and half of what comes waits."""
    at = stage(begun + 0.03, [1.85] * tasks, [1000 // tasks] * tasks)
    return batch(number, begun, [job(number, [at])], 1000, left=left * (number + 1))


def on_four(**more) -> History:
    return replace(history(lambda n, begun: full(n, begun, **more)), executors=ran((0, None), (0, None)))


@pytest.mark.parametrize(("cores", "change"), [(12, None), (6, ("jobs.ground.cores", 6, 8))])
def test_more_cores_are_never_fewer_than_the_file_has(cores, change):
    """The run had four cores, and eight would carry what arrives; the file has more or fewer."""
    [finding] = [each for each in of_environment(on_four(), cores).findings if each.kind == "at-capacity"]
    assert ("settings allow more cores than it ran with" in finding.words) == (change is None)
    told = [(each.key, each.old, each.new) for each in finding.changes if each.key.endswith("cores")]
    assert told == ([] if change is None else [change])


def growing(number, begun):
    lasts = 0.5 * 1.12**number
    at = stage(START + lasts / 0.12, [lasts] * 4, [250] * 4)
    return batch(number, START + lasts / 0.12, [job(number, [at])])


@pytest.mark.parametrize("made", [on_four(), replace(history(growing), executors=on_four().executors)])
def test_cores_beyond_the_tasks_come_with_as_many_tasks(made):
    """Four tasks run on four cores: more cores alone shorten nothing."""
    [finding] = [each for each in advise(made, JOB).findings if each.kind == "at-capacity"]
    cores = finding.changes[0]
    [tasks] = cores.also
    assert (tasks.key, tasks.new) == ("minPartitions", cores.new)


def test_tasks_that_cores_need_are_simulated_and_written_with_them():
    [finding] = [each for each in of_environment(on_four(), 4).findings if each.kind == "at-capacity"]
    written = [(each.key, each.new) for each in _one_change_per_key([finding], ())]
    assert written == [("jobs.ground.cores", 8), ("streams.clicks.shards", 8)]
    [simulated] = changes_to_simulate_by_finding([finding], ["land-clicks"]).values()
    assert list(map(str, simulated)) == ["cores=8", "land-clicks.partitions=8"]


def test_cores_that_the_tasks_already_fill_come_alone():
    [finding] = [each for each in advise(on_four(tasks=16), JOB).findings if each.kind == "at-capacity"]
    assert finding.changes[0].also == ()


@pytest.mark.parametrize(
    ("left", "severity"),
    [
        pytest.param(lambda n: 500 * (n + 1), "breach", id="it grows"),
        pytest.param(lambda _: 5000, "warning", id="it stays"),
        pytest.param(lambda n: 20_000 - 500 * n, "warning", id="it is worked off"),
    ],
)
@pytest.mark.parametrize("seconds", [0.4, 1.85])
def test_a_backlog_is_a_breach_only_while_it_grows(left, severity, seconds):
    def limited(number, begun):
        at = stage(begun + 0.03, [seconds] * 2, [500] * 2)
        return batch(number, begun, [job(number, [at])], left=left(number))

    [finding] = advise(history(limited)).findings
    assert finding.kind in {"silent-backlog", "at-capacity"}
    assert severity_of_finding(finding) == severity
