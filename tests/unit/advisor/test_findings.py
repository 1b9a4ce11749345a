"""Each single fault in a healthy query is found with its batches and a change; a healthy query has no finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.logs.application_history_model import Batch, BatchSource, Query
from millrace.cli.watch.advise_verdict import severity_of_finding
from millrace.etl.commits import duplicate_look_up_bounds
from millrace.etl.formats import base
from tests.unit.advisor.healthy_query_history import (
    START,
    again,
    batch,
    even,
    found,
    history,
    job,
    kinds,
    stage,
    state,
    tiny_tasks,
    twice,
)


def test_nothing_is_found_in_a_healthy_run():
    advice = advise(history())
    assert advice.findings == ()
    assert advice.disturbed is None
    assert advice.notes == ()


def test_a_healthy_run_of_few_batches_says_that_they_are_few():
    advice = advise(history(count=6))
    assert advice.findings == ()
    assert "orders has" in advice.notes[0]


def test_a_limit_that_is_hit_while_the_query_rests_is_a_silent_backlog():
    def limited(number, begun):
        times = [0.4, 0.4]
        return batch(
            number, begun, [job(number, [stage(begun + 0.05, times, [500, 500])])], left=500 * (number + 1)
        )

    finding = found("silent-backlog", limited)
    [change] = finding.changes
    assert (change.key, change.old) == ("maxOffsetsPerTrigger", 1000)
    assert change.new > 1500  # more than arrives
    assert finding.batches[-1] == 23
    grown = next(each for each in finding.evidence if each.name == "backlog grows by")
    assert grown.value == pytest.approx(250)
    assert "rests" in finding.words


def test_a_limit_that_is_hit_without_rest_is_capacity():
    def limited(number, begun):
        times = [1.85, 1.85]
        return batch(
            number, begun, [job(number, [stage(begun + 0.03, times, [500, 500])])], left=500 * (number + 1)
        )

    finding = found("at-capacity", limited)
    assert finding.changes[0].key == "--conf spark.cores.max"
    assert finding.changes[0].new >= 3
    assert finding.dollars_a_month is None  # more cores save nothing


def test_where_a_limit_is_hit_by_batches_of_overhead_it_is_raised_and_the_trigger_stays():
    def slow(left):
        def made(number, begun):
            tasks = stage(begun + 1.3, [0.4, 0.4], [500, 500])
            parts = {"walCommit": 0.4, "commitOffsets": 0.4}
            return batch(number, begun, [job(number, [tasks])], left=left * (number + 1), parts=parts)

        return made

    advice = advise(history(slow(500)))
    assert kinds(advice) == ["at-capacity", "slow-checkpoint"]
    limit, checkpoint = advice.findings
    assert [each.key for each in limit.changes] == ["maxOffsetsPerTrigger", "--conf spark.cores.max"]
    assert "more cores shorten only the rest" in limit.words
    assert [each.key for each in checkpoint.changes] == ["checkpointLocation"]
    # Nothing waits: then it is the trigger that comes too soon.
    assert "trigger(processingTime)" in {
        each.key for finding in advise(history(slow(0))).findings for each in finding.changes
    }


def test_equal_batches_tell_of_a_limit_where_no_source_says_what_is_latest():
    def limited(number, begun):
        source = BatchSource("KinesisV2[orders]", None, None, None, 4000)
        at = stage(begun + 0.05, [0.4, 0.4], [2000, 2000])
        arrived = (begun - 10 - number, begun - 9.0 - number)
        return batch(number, begun, [job(number, [at])], 4000, source=source, arrivals=arrived)

    finding = found("silent-backlog", limited)
    assert next(
        each.value for each in finding.evidence if each.name == "record age grows by"
    ) == pytest.approx(0.5)


def test_a_full_job_whose_backlog_no_source_tells_is_a_warning_without_a_number():
    def limited(number, begun):
        source = BatchSource("KinesisV2[orders]", None, None, None, 4000)
        at = stage(begun + 0.03, [1.85, 1.85], [2000, 2000])
        return batch(number, begun, [job(number, [at])], 4000, source=source)

    finding = found("at-capacity", limited)
    assert "how many records wait is unknown" in finding.words
    assert severity_of_finding(finding) == "warning"


def test_batches_that_grow_without_a_limit_are_beyond_capacity():
    def growing(number, begun):
        lasts = 0.5 * 1.12**number
        return batch(
            number,
            START + lasts / 0.12,
            [job(number, [stage(START + lasts / 0.12, [lasts, lasts], [500, 500])])],
        )

    finding = found("at-capacity", growing)
    assert "longer than the one before" in finding.words


def test_a_first_batch_that_takes_all_that_waited():
    def first(number, begun):
        if number == 0:
            heavy = stage(begun + 0.05 - 20, [20.0, 20.0], [50_000, 50_000])
            return batch(0, begun - 20, [job(0, [heavy])], 100_000)
        return even(number, begun)

    finding = found("unstable-start", first)
    assert finding.batches == (0,)
    assert finding.best_change.key == "maxOffsetsPerTrigger"
    assert 2000 < finding.best_change.new < 100_000


@pytest.mark.parametrize(
    ("records", "up"),
    [
        pytest.param(15_000, 20.0, id="what came while it started"),
        pytest.param(5_000, 1.0, id="a first batch that loads classes"),
    ],
)
def test_a_slow_start_is_not_an_unstable_one(records, up):
    def first(number, begun):
        if number == 0:
            slow = stage(begun - 20, [14.0] * 2, [records // 2] * 2)
            return batch(0, begun - 20, [job(0, [slow])], records)
        return even(number, begun)

    made = history(first)
    assert "unstable-start" not in kinds(advise(replace(made, started=START - 20 - up)))


def test_a_start_again_within_an_application_is_judged_by_itself():
    def first(number, begun):
        if number == 0:
            return batch(0, begun - 20, [job(0, [stage(begun - 20, [7.0] * 2, [30_000] * 2)])], 60_000)
        return even(number, begun)

    made = history(first)
    long_up = replace(made, started=START - 3600)
    assert "unstable-start" not in kinds(advise(long_up))
    [again] = long_up.queries
    before = replace(again, run_id="before", started=START - 3000, batches=())
    assert "unstable-start" in kinds(
        advise(replace(long_up, queries=(before, replace(again, started=START - 22))))
    )


def test_empty_batches():
    def some(number, begun):
        made = even(number, begun)
        nothing = BatchSource(
            "KafkaV2[Subscribe[orders]]", {"orders:0": 1}, {"orders:0": 1}, {"orders:0": 1}, 0
        )
        return again(made, rows=0, sources=(nothing,)) if number % 3 == 0 else made

    assert found("empty-batches", some).best_change.key == "minOffsetsPerTrigger"


def test_batches_without_records_that_close_windows_are_work():
    def some(number, begun):
        made = again(even(number, begun), state=state(100, 10))
        nothing = BatchSource(
            "KafkaV2[Subscribe[orders]]", {"orders:0": 1}, {"orders:0": 1}, {"orders:0": 1}, 0
        )
        return again(made, rows=0, sources=(nothing,)) if number % 3 == 0 else made

    assert "empty-batches" not in kinds(advise(history(some)))


def test_a_trigger_that_is_shorter_than_its_batches():
    def short(number, begun):
        return batch(
            number, begun, [job(number, [stage(begun + 0.2, [0.02, 0.02], [5, 5])])], 10, duration=0.3
        )

    finding = found("trigger-too-short", short, every=0.3, count=40)
    assert finding.best_change.key == "trigger(processingTime)"
    assert finding.best_change.new == "2 seconds"
    assert finding.dollars_a_month is None  # a longer trigger removes no machine


def test_overhead_with_rest_between_batches_is_no_finding():
    def short(number, begun):
        return batch(
            number, begun, [job(number, [stage(begun + 0.2, [0.02, 0.02], [5, 5])])], 10, duration=0.3
        )

    assert kinds(advise(history(short))) == []


def test_a_slow_checkpoint():
    def slow(number, begun):
        at = job(number, [stage(begun + 0.7, [0.3, 0.3], [500, 500])])
        return batch(number, begun, [at], duration=1.8, parts={"walCommit": 0.7, "commitOffsets": 0.7})

    finding = found("slow-checkpoint", slow)
    assert finding.best_change.key == "checkpointLocation"
    assert finding.effect.likely == pytest.approx(1.15)


def test_planning_that_takes_most_of_a_batch():
    def slow(number, begun):
        at = job(number, [stage(begun + 1.4, [0.1, 0.1], [500, 500])])
        return batch(number, begun, [at], duration=1.9, parts={"queryPlanning": 1.2})

    finding = found("overhead-bound", slow)
    assert "queryPlanning" in finding.words
    assert finding.best_change.new == "6 seconds"


def test_a_skewed_task():
    def skewed(number, begun):
        times = [1.2, 0.2, 0.2, 0.2]
        at = stage(begun + 0.05, times, [900, 30, 40, 30])
        return batch(number, begun, [job(number, [at])])

    finding = found("skewed-tasks", skewed, cores=4)
    assert finding.effect.likely == pytest.approx(1.2 - 1.8 / 4)
    assert {"task time p50", "task time p95", "task time max"} <= {each.name for each in finding.evidence}


@pytest.mark.parametrize("killed", [[True, False], [False, True]])
def test_a_skewed_task_of_which_one_of_two_copies_was_killed(killed):
    def skewed(number, begun):
        at = stage(
            begun + 0.05,
            [1.2, 1.2, 0.2, 0.2, 0.2],
            [0 if each else 900 for each in killed] + [30, 40, 30],
            index=[0, 0, 1, 2, 3],
            killed=[*killed, False, False, False],
            partitions=4,
        )
        return batch(number, begun, [job(number, [at])])

    finding = found("skewed-tasks", skewed, cores=4)
    assert finding.effect.likely == pytest.approx(1.2 - 1.8 / 4)


def test_a_slow_task_without_more_records_is_not_skewed():
    def straggling(number, begun):
        at = stage(begun + 0.05, [1.2, 0.2, 0.2, 0.2], [250, 250, 250, 250])
        return batch(number, begun, [job(number, [at])])

    assert "skewed-tasks" not in kinds(advise(history(straggling, cores=4)))


def test_tasks_that_wait_for_a_second_wave():
    def waves(number, begun):
        at = stage(begun + 0.05, [0.6, 0.6, 0.6], [400, 300, 300], launched=[0, 0, 0.6])
        return batch(number, begun, [job(number, [at])])

    finding = found("queued-partitions", waves)
    assert (finding.best_change.key, finding.best_change.old, finding.best_change.new) == (
        "minPartitions",
        3,
        4,
    )
    assert finding.effect.likely == pytest.approx(0.3)


def test_one_task_on_two_cores():
    def one(number, begun):
        return batch(number, begun, [job(number, [stage(begun + 0.05, [1.2], [1000])])])

    finding = found("too-few-partitions", one)
    assert (finding.best_change.new, finding.effect.likely) == (2, pytest.approx(0.6))


def test_a_hundred_tasks_of_nothing():
    assert (
        "new checkpoint"
        in found("too-many-partitions", lambda *at: again(tiny_tasks(*at), state=state(50, 10))).words
    )
    finding = found("too-many-partitions", tiny_tasks)
    assert "new checkpoint" not in finding.words
    assert (finding.best_change.key, finding.best_change.new) == ("--conf spark.sql.shuffle.partitions", 2)


def test_tasks_that_failed_and_ran_anew():
    why = {("java.net.SocketTimeoutException", "Read timed out"): 1}

    def failing(number, begun):
        at = stage(
            begun + 0.05,
            [0.3, 0.4, 0.4],
            [0, 500, 500],
            failed=[True, False, False],
            failures=why,
            partitions=2,
        )
        return batch(number, begun, [job(number, [at])])

    finding = found("retried-tasks", failing)
    assert "SocketTimeoutException: Read timed out" in finding.words
    assert len(finding.batches) == 24


def test_executors_that_are_lost_are_no_fault_of_the_program():
    why = {("ExecutorLostFailure", "Executor decommission finished: scale-in"): 1}

    def failing(number, begun):
        at = stage(begun + 0.05, [0.3, 0.4], [0, 500], failed=[True, False], failures=why)
        return batch(number, begun, [job(number, [at])])

    change = found("retried-tasks", failing).best_change
    assert (change.key, change.new) == ("the executors", "none that is removed or lost while it runs tasks")


@pytest.mark.parametrize("message", [base.UNCERTAIN, duplicate_look_up_bounds.OUTSIDE])
def test_tasks_that_the_core_fails_to_write_a_batch_another_way(message):
    why = {("org.apache.spark.SparkRuntimeException", f"[USER_RAISED_EXCEPTION] {message}"): 1}

    def failing(number, begun):
        at = stage(begun + 0.05, [0.3, 0.4], [0, 500], failed=[True, False], failures=why)
        return batch(number, begun, [job(number, [at])])

    assert "retried-tasks" not in kinds(advise(history(failing)))


def test_one_failed_task_in_a_long_run_is_what_retries_are_for():
    why = {("ExecutorLostFailure", "worker lost"): 1}

    def failing(number, begun):
        if number != 12:
            return even(number, begun)
        at = stage(begun + 0.05, [0.3, 0.4], [0, 500], failed=[True, False], failures=why)
        return batch(number, begun, [job(number, [at])])

    assert kinds(advise(history(failing))) == []


def test_state_that_grows():
    finding = found("growing-state", lambda n, begun: again(even(n, begun), state=state(1000 * (n + 1))))
    assert "no watermark" in finding.words


@pytest.mark.parametrize("rows", [lambda n: 5000 + 0 * n, lambda n: min(n, 8) * 1000])
def test_state_that_is_bounded(rows):
    advice = advise(history(lambda n, begun: again(even(n, begun), state=state(rows(n), 10))))
    assert advice.findings == ()


def test_idle_executors():
    finding = found("idle-cores", even, cores=2, executors=8)
    assert finding.query is None
    assert (finding.best_change.old, finding.best_change.new) == (16, 2)
    assert finding.dollars_a_month == pytest.approx(1000 * 7 / 9), (
        "seven of eight executors go, and the driver stays"
    )


def test_a_query_that_failed():
    made = history()
    [query] = made.queries
    ended = Query("orders", "id", "run", START, "org.apache.kafka: topic is gone", query.batches)
    advice = advise(type(made)(**{**vars(made), "queries": (ended,)}))
    assert kinds(advice) == ["failed-query"]
    assert "topic is gone" in advice.findings[0].words


def test_a_query_that_was_started_again_has_not_failed():
    made = history(count=48)
    [query] = made.queries
    first = replace(query, run_id="first", failure="a broker went away", batches=query.batches[:24])
    again = replace(query, started=query.batches[24].begun, batches=query.batches[24:])
    advice = advise(replace(made, queries=(first, again)))
    assert kinds(advice) == ["restarted-query"]
    assert "ended with an error: a broker went away; it was started again" in advice.findings[0].words
    assert severity_of_finding(advice.findings[0]) == "warning"
    advice = advise(replace(made, queries=(first, replace(again, failure="the topic is gone"))))
    assert sorted(kinds(advice)) == ["failed-query", "restarted-query"]
    assert {severity_of_finding(each) for each in advice.findings if each.kind == "failed-query"} == {
        "breach"
    }


def contended(number: int, begun: float) -> Batch:
    slow = 2.0 if number >= 12 else 1.0
    cpu = [0.36, 0.36]
    at = stage(begun + 0.05, [0.4 * slow] * 2, [500, 500], cpu=cpu)
    return batch(number, begun, [job(number, [at])])


def test_a_run_whose_tasks_waited_for_a_processor_is_disturbed():
    advice = advise(history(contended))
    assert advice.disturbed is not None
    assert "part" in advice.disturbed


def test_batches_of_another_size_are_no_disturbance():
    def sized(number, begun):
        # A tenth of a second of waiting whatever the size, and CPU time by the record.
        records = 200 + 1800 * (number % 3 == 0 or number > 12) + 10 * (number % 4)
        cpu = records / 5000
        at = stage(begun + 0.05, [0.1 + cpu] * 2, [records // 2] * 2, run=[0.1 + cpu] * 2, cpu=[cpu] * 2)
        return batch(number, begun, [job(number, [at])], records)

    assert advise(history(sized)).disturbed is None


def test_of_a_disturbed_run_times_are_not_advised():
    def one(number, begun):
        slow = 2.0 if number >= 12 else 1.0
        at = stage(begun + 0.05, [0.8 * slow], [1000], cpu=[0.72])
        return batch(number, begun, [job(number, [at])])

    advice = advise(history(one))
    assert advice.disturbed
    assert "too-few-partitions" not in kinds(advice)
    assert any("too-few-partitions" in note for note in advice.notes)


def test_the_dearest_comes_first():
    def both(number, begun):
        made = twice(cached=False)(number, begun)
        why = {("java.io.IOException", "reset"): 1}
        bad = stage(begun + 1.0, [0.01], [0], failed=[True], failures=why)
        return batch(number, begun, [*made.jobs, job(99, [bad])], rows=2000)

    advice = advise(history(both), AdvisedJob("job orders", 1000.0))
    worth = [each.dollars_a_month or 0 for each in advice.findings]
    assert worth == sorted(worth, reverse=True)
    assert kinds(advice)[0] == "missing-cache"
