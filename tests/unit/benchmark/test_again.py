"""Few settings whose repetitions disagree are measured once more, whole; many are not."""

from __future__ import annotations

from millrace.benchmark.again import disturbed, replaced, schedule_again
from millrace.benchmark.measurements import Measurements
from millrace.benchmark.schedule import WARM_UP, schedule
from tests.unit.benchmark.made import session

QUERIES = ("a", "b")
RUNS = schedule((500, 2000, 8000), (1, 2))


def slowed(whole: Measurements, *cells: tuple[int, int]) -> Measurements:
    """The last repetition of some settings, from a session in which all last ones are slow."""
    slow = {(run.query, run.number): run for run in session(2, slow_repetition=1.6).runs}
    runs = tuple(
        slow[run.query, run.number] if (run.limit, run.partitions) in cells else run for run in whole.runs
    )
    return whole.model_copy(update={"runs": runs})


def test_a_setting_that_disagrees_is_planned_again_with_all_its_repetitions() -> None:
    found = disturbed(slowed(session(2), (2000, 1)), QUERIES)
    assert {(each.limit, each.partitions) for each in found} == {(2000, 1)}
    again = schedule_again(RUNS, found)
    assert [(run.number, run.limit, run.partitions, run.repetition) for run in again[1:]] == [
        (1, 2000, 1, 0),
        (2, 2000, 1, 1),
        (3, 2000, 1, 2),
    ]
    assert again[0].repetition == WARM_UP


def test_nothing_is_planned_where_all_agree_or_the_machine_is_busy() -> None:
    assert schedule_again(RUNS, disturbed(session(2), QUERIES)) == ()
    busy = slowed(session(2), (2000, 1), (8000, 1))
    assert len(disturbed(busy, QUERIES)) == 4
    assert schedule_again(RUNS, disturbed(busy, QUERIES)) == ()


def test_what_was_measured_again_takes_the_place_of_the_whole_setting() -> None:
    whole = slowed(session(2), (2000, 1))
    anew = session(2, limits=(2000,))
    once_more = anew.model_copy(update={"runs": tuple(run for run in anew.runs if run.partitions == 1)})
    mended = replaced(whole, once_more)
    assert disturbed(mended, QUERIES) == []
    assert len(mended.runs) == len(whole.runs)
    assert mended.settings["measured_again"] == "2000 over 1"
    # Numbers tell runs apart, those of the first time among them.
    numbers = [run.number for run in mended.of("a")]
    assert len(set(numbers)) == len(numbers)
    old = {(run.query, run.number) for run in whole.runs if (run.limit, run.partitions) == (2000, 1)}
    assert not old & {(run.query, run.number) for run in mended.runs}


def test_what_disagrees_once_more_is_evidence_still() -> None:
    whole = slowed(session(2), (2000, 1))
    again = slowed(session(2), (2000, 1))
    runs = tuple(run for run in again.runs if (run.limit, run.partitions) == (2000, 1))
    assert disturbed(replaced(whole, again.model_copy(update={"runs": runs})), QUERIES)
