"""Findings agree with each other: about cores and tasks, and with the seconds that a batch has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Advice, Change
from millrace.advisor.forecasts.what_if import WhatIfChange, twin_of_application
from millrace.advisor.logs.application_history_model import Batch, Executor, History, TaskAttempts
from tests.run import examples
from tests.unit.advisor import event_logs_with_known_costs
from tests.unit.advisor.event_logs_with_known_costs import BEGIN, Truth
from tests.unit.advisor.healthy_query_history import batch, history, job, kinds, stage

RESET = ("java.io.IOException", "reset")
OF_A_BATCH = {"batch duration", "machine time", "first batch"}
IN_WHOLE_SECONDS = {"slow-checkpoint", "trigger-too-short", "overhead-bound", "growing-state"}
"""Kinds whose gain has a part that no log scales: a storage's own time, a trigger of whole seconds, a day."""


def on_executors(made: History, count: int, cores: int, **properties: str) -> History:
    """Such a history on YARN, whose executors have so many cores."""
    executors = tuple(Executor(str(n), cores, made.started, None) for n in range(count))
    return replace(made, executors=executors, properties={"spark.master": "yarn", **properties})


def equal_tasks(tasks: int, seconds: float, slots: int, every: float = 10.0, **more: Any) -> History:
    """Batches of equal tasks that run in waves on so many slots."""

    def made(number: int, begun: float) -> Batch:
        launched = [seconds * (n // slots) for n in range(tasks)]
        at = stage(begun + 0.05, [seconds] * tasks, [100] * tasks, launched=launched, **more)
        return batch(number, begun, [job(number, [at])], 100 * tasks)

    return history(made, every=every)


def failing(attempts: Sequence[Sequence[float]]) -> History:
    """Batches in which each partition's attempts follow each other, and only the last succeeds."""

    def made(number: int, begun: float) -> Batch:
        rows = [
            (sum(of[:n]), of[n], index, n < len(of) - 1)
            for index, of in enumerate(attempts)
            for n in range(len(of))
        ]
        launched, times, index, failed = (list(each) for each in zip(*rows, strict=True))
        at = stage(
            begun + 0.05, times, [0 if each else 100 for each in failed], launched=launched, index=index,
            failed=failed, failures={RESET: sum(failed)}, partitions=len(attempts),
        )  # fmt: skip
        return batch(number, begun, [job(number, [at])], 100 * len(attempts))

    return history(made, every=10.0)


@pytest.mark.parametrize(
    ("attempts", "executors", "seconds"),
    [
        pytest.param([[0.8, 0.8]] * 64, 16, 0.8, id="all at once"),
        pytest.param([[0.8, 0.8, 0.8, 0.8], *[[0.8]] * 3], 1, 2.4, id="one in turn"),
        pytest.param([[0.5, 1.0], *[[3.0]] * 7], 2, 0.0, id="beside a longer task"),
    ],
)
def test_failed_attempts_cost_the_seconds_by_which_a_batch_is_longer(attempts, executors, seconds):
    advice = advise(on_executors(failing(attempts), executors, 4))
    [finding] = [each for each in advice.findings if each.kind == "retried-tasks"]
    assert finding.effect.likely == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("files", "cores", "change"),
    [
        pytest.param([30_000] * 64, 64, "repartition(1)", id="one file, whose work stays on all cores"),
        pytest.param([8 * 2**20] * 16, 16, "repartition(8)", id="as many as are large enough"),
        pytest.param([8 * 2**20] * 16, 2, "coalesce(2)", id="no core is left without work"),
    ],
)
def test_fewer_files_leave_the_work_before_them_parallel(files, cores, change):
    made = equal_tasks(len(files), 0.5, cores, bytes_written=files)
    [finding] = [each for each in advise(on_executors(made, 1, cores)).findings if each.kind == "small-files"]
    assert finding.best_change is not None
    assert finding.best_change.new == change
    assert finding.effect.likely == 0, "a shuffle is added, and no log tells what a file costs"


def test_tasks_are_advised_for_the_cores_that_are_kept():
    """Eight tasks of 0.9 s in 10 s: one executor of ten carries them, and forty tasks are for nobody."""
    [finding] = advise(on_executors(equal_tasks(8, 0.9, 40), 10, 4)).findings
    assert finding.kind == "idle-cores"
    few = advise(on_executors(equal_tasks(2, 3.0, 40), 10, 4))
    told = {each.kind: each.best_change.new for each in few.findings if each.best_change}
    assert told == {"idle-cores": 1, "too-few-partitions": 4}


def test_cores_are_kept_for_tasks_that_cannot_be_divided():
    """Five tasks of 6 s are 30 core-seconds in 10 s, which four cores carry only as 12 s."""
    [finding] = [
        each
        for each in advise(on_executors(equal_tasks(5, 6.0, 20), 20, 1)).findings
        if each.kind == "idle-cores"
    ]
    assert finding.best_change is not None
    assert finding.best_change.new == 5


@pytest.mark.parametrize(("tasks", "cores", "new"), [(4, 12, 12), (20, 12, 24), (24, 12, None)])
def test_tasks_fill_the_executors_that_are_added(tasks, cores, new):
    """Twice of what is processed arrives: ten cores carry it, which are three executors of four."""

    def behind(number: int, begun: float) -> Batch:
        launched = [1.95 / math.ceil(tasks / 4) * (n // 4) for n in range(tasks)]
        times = [1.95 / math.ceil(tasks / 4)] * tasks
        at = stage(begun + 0.03, times, [1200 // tasks] * tasks, launched=launched)
        return batch(number, begun, [job(number, [at])], 1200, left=1200 * (number + 1))

    [finding] = [
        each for each in advise(on_executors(history(behind), 1, 4)).findings if each.kind == "at-capacity"
    ]
    assert finding.best_change is not None
    assert finding.best_change.new == cores // 4
    assert [each.new for each in finding.best_change.also] == ([] if new is None else [new])


def in_turn(made: History, runs: int, last: int | None = None) -> History:
    """The same query, so many times in one application; of its last run only so many batches."""
    [query] = made.queries
    span = made.ended - made.started
    parts = []
    for run in range(runs):
        batches = tuple(moved(each, run * span) for each in query.batches)
        parts.append(replace(query, run_id=str(run), batches=batches[: last if run == runs - 1 else None]))
    return replace(made, queries=tuple(parts), ended=made.started + runs * span)


def moved(each: Batch, seconds: float) -> Batch:
    return of_times(each, lambda at: at + seconds, lambda lasted: lasted)


def of_times(each: Batch, moment: Any, duration: Any) -> Batch:
    """The batch with its moments and its durations changed."""

    def tasks(table: TaskAttempts) -> TaskAttempts:
        columns = {name: table.table[name] for name in table.table.dtype.names or ()}
        columns |= {name: moment(columns[name]) for name in ("launched", "finished")}
        columns |= {name: duration(columns[name]) for name in ("run", "cpu", "gc")}
        return TaskAttempts.from_columns(**columns)

    jobs = tuple(
        replace(job, stages=tuple(replace(stage, tasks=tasks(stage.tasks)) for stage in job.stages))
        for job in each.jobs
    )
    parts = {name: duration(seconds) for name, seconds in each.parts.items()}
    return replace(each, begun=moment(each.begun), duration=duration(each.duration), parts=parts, jobs=jobs)


@pytest.mark.parametrize("last", [None, 3])
def test_runs_of_a_query_that_follow_each_other_need_its_cores_once(last):
    """A last run of three batches says nothing about times, and does not hide the others."""
    one = on_executors(equal_tasks(32, 3.0, 32), 8, 4)
    changes = [advise(each).findings[0].best_change for each in (one, in_turn(one, 3, last))]
    assert changes[0] is not None
    assert changes[0] == changes[1]


def test_queries_that_run_at_once_need_cores_at_once():
    one = on_executors(equal_tasks(32, 3.0, 32), 8, 4)
    [query] = one.queries
    both = replace(one, queries=(query, replace(query, name="other", id="other", run_id="other")))
    assert kinds(advise(one)) == ["idle-cores"]
    assert kinds(advise(both)) == [], "20 of 32 cores, and a quarter more"


def test_one_key_gets_one_value():
    """Two stages behind a shuffle want other numbers of tasks, and one setting gives both."""

    def made(number: int, begun: float) -> Batch:
        stages = [
            stage(
                begun + at, [seconds] * count, [0] * count, place, scans=(), shuffle_records_read=[100] * count,
                launched=[seconds * (n // 8) for n in range(count)],
            )
            for place, (at, seconds, count) in enumerate([(0.05, 1.0, 10), (3.0, 1.2, 3)])
        ]  # fmt: skip
        return batch(number, begun, [job(number, stages)], 1000)

    advice = advise(history(made, every=5.0, cores=8))
    assert set(kinds(advice)) == {"queued-partitions", "too-few-partitions"}
    assert len(values_by_key(advice)) == 1
    assert any("is not set to" in each for each in advice.notes)


def values_by_key(advice: Advice) -> dict[tuple[str, str], set[Any]]:
    """The values that the first changes of all findings set, by what they set."""
    values: dict[tuple[str, str], set[Any]] = {}
    for finding in advice.findings:
        for change in best_changes(finding.best_change):
            if change.kind != "code":
                values.setdefault((change.where, change.key), set()).add(change.new)
    assert all(len(each) == 1 for each in values.values()), values
    return values


def best_changes(change: Change | None) -> tuple[Change, ...]:
    return () if change is None else (change, *change.also)


@st.composite
def truths(draw: st.DrawFn) -> tuple[Truth, int]:
    """A query on one to six executors: idle or behind, with few, many, even or hot partitions; and their cores."""
    each, executors = draw(st.sampled_from([1, 2, 4])), draw(st.integers(1, 6))
    cores, partitions = each * executors, draw(st.integers(1, 40))
    trigger, rate = draw(st.sampled_from([0.0, 5.0, 10.0])), draw(st.sampled_from([300.0, 3000.0]))
    busy = draw(st.floats(0.05, 1.4))
    limit = draw(st.sampled_from([None, 0.6, 3.0]))
    truth = Truth(
        cores=cores,
        partitions=partitions,
        overhead=draw(st.floats(0.3, 2.0)),
        wave=draw(st.sampled_from([0.01, 0.1])),
        per_record=busy * cores / rate,
        rate=rate,
        swing=0.1,
        trigger=trigger,
        limit=None if limit is None else int(limit * rate * (trigger or 5.0)),
        hot=draw(st.sampled_from([0.0, 0.0, 0.5])),
        seconds=250.0,
        sigma=0.05,
        seed=draw(st.integers(0, 9)),
    )
    return truth, each


def logged(truth: Truth, each: int) -> History:
    return on_executors(event_logs_with_known_costs.history([truth]), truth.cores // each, each)


@pytest.mark.parametrize("offsets", [True, False])
@pytest.mark.parametrize(("rate", "kind"), [(3000.0, None), (3900.0, None), (4300.0, "silent-backlog")])
def test_the_batch_at_which_a_log_ends_decides_nothing(rate, kind, offsets):
    """Of 4,000 a second that the limit lets through: what waits grows from wave to wave, or it does not."""
    truth = Truth(rate=rate, limit=40_000, seconds=500.0, swing=0.2, offsets=offsets)
    made = event_logs_with_known_costs.history([truth])
    [query] = made.queries
    behind = [each.records_behind or 0 for each in query.batches]
    assert not offsets or (max(behind[-10:]) > 1.1 * max(behind[-20:-10])) is (kind is not None)
    for last in range(35, len(query.batches) + 1):
        cut = replace(made, queries=(replace(query, batches=query.batches[:last]),))
        assert [each for each in kinds(advise(cut)) if each == "silent-backlog"] == [kind] * (
            kind is not None
        ), last


def lasting(made: History, factor: float) -> History:
    """The same log of a machine on which all takes so many times as long."""

    def moment(at: Any) -> Any:
        return BEGIN + (at - BEGIN) * factor

    queries = tuple(
        replace(
            query, batches=tuple(of_times(one, moment, lambda each: each * factor) for one in query.batches)
        )
        for query in made.queries
    )
    return replace(made, queries=queries, ended=moment(made.ended))


@settings(max_examples=examples(60))
@given(truths())
def test_no_gain_is_longer_than_the_batches_that_show_it(drawn):
    made = logged(*drawn)
    [query] = made.queries
    for finding in advise(made).findings:
        shown = [each for each in query.batches if each.id in finding.batches]
        if finding.effect.what in OF_A_BATCH and shown:
            assert finding.effect.high <= np.median([each.duration for each in shown]) + 1e-6
            assert finding.effect.low <= finding.effect.likely <= finding.effect.high


@settings(max_examples=examples(40))
@given(truths(), st.sampled_from([2.0, 5.0]))
def test_a_log_that_takes_longer_has_gains_that_are_longer(drawn, factor):
    made = logged(*drawn)
    short, long = (
        {
            (each.kind, each.words if each.kind == "x" else ""): each
            for each in advise(log).findings
            if each.kind not in IN_WHOLE_SECONDS
        }
        for log in (made, lasting(made, factor))
    )
    both = [key for key in short if key in long]
    for key in both:
        assert long[key].effect.likely == pytest.approx(short[key].effect.likely * factor, rel=0.02, abs=0.02)
    assert both == [key for key in long if key in short], "and their order stays"


def changed(truth: Truth, each: int, advice: Advice) -> tuple[Truth, tuple[WhatIfChange, ...]]:
    """The query with the first changes of all findings that a setting reaches, and what a simulation is asked for them."""
    conditions: dict[str, Any] = {}
    for (_, key), [new] in values_by_key(advice).items():
        if key.endswith("executor.instances"):
            conditions["cores"] = new * each
        elif key == "trigger(processingTime)":
            conditions["trigger"] = float(new.removesuffix(" seconds"))
        elif key != "checkpointLocation":
            conditions[{"minPartitions": "partitions", "maxOffsetsPerTrigger": "limit"}[key]] = new
    asked = tuple(WhatIfChange(key, value) for key, value in conditions.items())  # type: ignore[arg-type]
    if conditions.get("partitions", 0) > truth.partitions:
        conditions["hot"] = 0.0  # the reader splits the largest range
    if "trigger" in conditions:
        conditions["limit"] = None  # one that no batch reached is in no log
    return replace(truth, **conditions), asked


def duration_and_records_behind(batches: Sequence[Batch]) -> tuple[float, int]:
    return float(np.median([each.duration for each in batches])), batches[-1].records_behind or 0


@settings(max_examples=examples(80))
@given(truths())
def test_all_changes_together_are_consistent_and_leave_no_query_behind(drawn):
    """Judged by such a query with the changes, and by the simulation of its log where that tells costs apart."""
    truth, each = drawn
    # What a task costs without its records, the gain of twice the tasks does not count.
    truth = replace(truth, wave=0.01) if truth.hot else truth
    made = logged(truth, each)
    advice = advise(made, AdvisedJob("job orders", 1000.0))
    after, asked = changed(truth, each, advice)
    told = kinds(advice), list(map(str, asked))
    if after.partitions != truth.partitions:
        assert after.partitions % after.cores == 0, "the last wave is full"
    if not asked:
        return
    shorter = "idle-cores" not in kinds(advice) and {each.key for each in asked} <= {"cores", "partitions"}
    runs = (made.queries[0], event_logs_with_known_costs.run(after)[0])
    (took, left), (takes, leaves) = (duration_and_records_behind(each.batches) for each in runs)
    assert leaves <= left + 2 * truth.rate * max(takes, truth.trigger), told
    assert takes <= took * 1.05 or not shorter, told
    twin = twin_of_application(made)
    query = twin.queries.get(truth.name)
    if query is not None and query.told:
        before, then = (twin.forecast_what_if(these, 1).queries[truth.name] for these in ((), asked))
        assert then.grows.value <= max(before.grows.value, 0.0) + 0.05 * before.arriving, told
        assert then.figures["duration"].value <= before.figures["duration"].value * 1.05 or not shorter, told
