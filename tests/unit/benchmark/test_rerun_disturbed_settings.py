"""A few settings whose repetitions disagree are measured again; if many disagree, none is."""

from __future__ import annotations

import pytest

from millrace.benchmark.measurements import Disturbance, Measurements
from millrace.benchmark.run_schedule import (
    WARM_UP,
    disturbances_of_all_queries,
    replace_disturbed_settings,
    schedule_disturbed_runs_again,
    schedule_runs,
)
from tests.unit.benchmark.synthetic_measurements import session

QUERIES = ("a", "b")
RUNS = schedule_runs((500, 2000, 8000), (1, 2))


def slowed(whole: Measurements, *cells: tuple[int, int]) -> Measurements:
    """The last repetition of some settings, from a session in which all last ones are slow."""
    slow = {(run.query, run.number): run for run in session(2, slow_repetition=1.6).runs}
    runs = tuple(
        slow[run.query, run.number] if (run.limit, run.partitions) in cells else run for run in whole.runs
    )
    return whole.model_copy(update={"runs": runs})


def test_a_setting_that_disagrees_is_planned_again_with_all_its_repetitions() -> None:
    result = disturbances_of_all_queries(slowed(session(2), (2000, 1)), QUERIES)
    assert {(each.limit, each.partitions) for each in result} == {(2000, 1)}
    again = schedule_disturbed_runs_again(RUNS, result)
    planned = [(run.limit, run.partitions, run.repetition) for run in again[1:]]
    # The largest that agrees is measured beside it.
    assert sorted(planned) == [(limit, count, n) for limit, count in ((2000, 1), (8000, 2)) for n in range(3)]
    assert [run.number for run in again] == list(range(7))
    assert again[0].repetition == WARM_UP


def test_nothing_is_planned_where_all_agree_or_the_machine_is_busy() -> None:
    assert schedule_disturbed_runs_again(RUNS, disturbances_of_all_queries(session(2), QUERIES)) == ()
    busy = slowed(session(2), (2000, 1), (8000, 1))
    assert len(disturbances_of_all_queries(busy, QUERIES)) == 4
    assert schedule_disturbed_runs_again(RUNS, disturbances_of_all_queries(busy, QUERIES)) == ()


def measured_again(found: list[Disturbance], whole: Measurements) -> Measurements:
    """What the schedule of the second time came to, where the machine was as in a session."""
    cells = {
        (run.limit, run.partitions)
        for run in schedule_disturbed_runs_again(RUNS, found)
        if run.repetition != WARM_UP
    }
    return whole.model_copy(
        update={"runs": tuple(run for run in whole.runs if (run.limit, run.partitions) in cells)}
    )


def test_what_was_measured_again_takes_the_place_of_the_whole_setting() -> None:
    whole = slowed(session(2), (2000, 1))
    result = disturbances_of_all_queries(whole, QUERIES)
    mended = replace_disturbed_settings(whole, measured_again(result, session(2)), result)
    assert disturbances_of_all_queries(mended, QUERIES) == []
    assert mended.settings["measured_again"] == "2000 over 1"
    assert mended.settings["measured_again_beside"] == "8000 over 2"
    runs = [(run.limit, run.partitions, run.repetition) for run in mended.runs_of_query("a")]
    assert len(set(runs)) == len(runs) == len([*whole.runs_of_query("a")]) + 3
    assert sorted(n for limit, count, n in runs if (limit, count) == (8000, 2)) == [*range(6)]
    # Numbers tell runs apart, those of the first time among them.
    numbers = [run.number for run in mended.runs_of_query("a")]
    assert len(set(numbers)) == len(numbers)
    old = {(run.query, run.number) for run in whole.runs if (run.limit, run.partitions) == (2000, 1)}
    assert not old & {(run.query, run.number) for run in mended.runs}


def test_what_disagrees_once_more_is_evidence_still() -> None:
    whole = slowed(session(2), (2000, 1))
    result = disturbances_of_all_queries(whole, QUERIES)
    assert disturbances_of_all_queries(
        replace_disturbed_settings(whole, measured_again(result, whole), result), QUERIES
    )


@pytest.mark.parametrize("repetitions", [2, 3])
@pytest.mark.parametrize(("before", "after"), [(1.0, 1.6), (1.6, 1.0)])
def test_a_machine_that_has_become_quicker_or_slower_meanwhile_is_told(
    before: float, after: float, repetitions: int
) -> None:
    """The load begins, or ends, in the last repetition of a setting, and all of the second time is like that one."""
    first, second = (last_only(session(2), 3 - repetitions, stretched=factor) for factor in (before, after))
    late = {(run.query, run.number): run for run in second.runs}
    whole = first.model_copy(
        update={
            "runs": tuple(
                late[run.query, run.number]
                if (run.limit, run.partitions, run.repetition) == (2000, 1, 2)
                else run
                for run in first.runs
            )
        }
    )
    result = disturbances_of_all_queries(whole, QUERIES)
    assert {(each.limit, each.partitions) for each in result} == {(2000, 1)}
    mended = replace_disturbed_settings(whole, measured_again(result, second), result)
    (told,) = {(each.limit, each.partitions) for each in disturbances_of_all_queries(mended, QUERIES)}
    assert told == (8000, 2)
    still = replace_disturbed_settings(whole, measured_again(result, first), result)
    assert disturbances_of_all_queries(still, QUERIES) == []


def last_only(whole: Measurements, first: int, *, stretched: float) -> Measurements:
    """The repetitions from one on, on a machine whose tasks take so many times as long."""
    return whole.model_copy(
        update={
            "runs": tuple(
                run.model_copy(
                    update={
                        "batches": tuple(
                            batch.model_copy(
                                update={
                                    "tasks": tuple(
                                        tuple(task * stretched for task in stage) for stage in batch.tasks
                                    )
                                }
                            )
                            for batch in run.batches
                        )
                    }
                )
                for run in whole.runs
                if run.repetition >= first
            )
        }
    )
