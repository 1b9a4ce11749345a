"""Statistics of the benchmark programs."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from tests.performance import batch_time_growth
from tests.performance.batch_time_growth import Outcome, first_line, growth_of, run
from tests.performance.batch_time_parts import Parts, split
from tests.performance.cpu_time import Used, between, used
from tests.performance.growth_all_cases import CASES
from tests.performance.growth_cases_of_sources import Case
from tests.performance.growth_session import Step
from tests.performance.target_comparison import Target, screen

# Of user and of system time, a hundredth each can be lost where the kernel counts in ticks.
_BURN = "import time\nwhile time.process_time() < 0.52: pass"
_PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {_BURN!r}], check=True)
print("done", flush=True)
sys.stdin.read()
"""


def test_cpu_of_a_worker_that_ended_is_counted() -> None:
    """Spark ends Python workers in the middle of a run."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"
        assert between({}, used(parent.pid)) >= 0.5
        parent.communicate()


def test_cpu_of_a_worker_is_counted_once_and_is_never_less_than_none() -> None:
    daemon, worker = Used(1.0, 0.0), Used(20.0, 0.0)
    before = {1: daemon, 2: worker}
    assert between(before, {1: Used(1.5, 0.0), 2: Used(22.0, 0.0)}) == 2.5
    assert between(before, {1: Used(1.5, 23.0)}) == 3.5  # it ended after 3 s more, and its parent knows
    assert between(before, {1: Used(1.5, 0.0)}) == 0.5  # its parent does not: once this was -19.5
    assert between(before, {1: daemon, 2: worker, 3: Used(4.0, 1.0)}) == 5.0


def test_a_verdict_is_of_the_rounds_ratios_and_doubts_what_its_interval_contradicts() -> None:
    target = Target("rate", "landing", "same_columns", at_least=0.9)
    rates = [
        (95.0, 100.0),
        (46.0, 50.0),
        (80.0, 100.0),
    ]  # 0.95, 0.92, 0.8: the machine was slow for the second
    rounds = [{"landing": {"rate": ours}, "same_columns": {"rate": other}} for ours, other in rates]
    found = target.ratio(rounds)
    assert found == (0.92, 0.8, 0.95)
    assert target.verdict(found) == "(met)"
    assert target.verdict(found._replace(median=0.89)) == "(MISSED)"
    assert target.verdict(found._replace(low=0.9)) == "met"
    assert (
        Target("small", "a", "b", at_most=1.15).verdict(found._replace(median=1.3, low=1.2, high=1.4))
        == "MISSED"
    )
    assert Target("rate", "landing", "tutorial", at_least=3).ratio(rounds) is None
    told = screen({"3.5.7": rounds, "4.1.1": rounds[:1]})
    assert len(told) < 25
    assert "0.92 [0.80, 0.95] (met)" in told[1]
    assert "0.95 [0.95, 0.95] met" in told[1]
    assert "not measured" in told[3]


@pytest.mark.parametrize(
    ("stages", "parts"),
    [
        ([], (9.0, 0.0, 0.0, 0.0)),  # nothing ran
        ([(2.0, 8.0)], (2.0, 0.0, 6.0, 1.0)),  # a plain append
        ([(1.0, 3.0), (4.0, 8.0)], (2.0, 2.0, 4.0, 1.0)),  # a look-up before it
        ([(1.0, 3.0), (2.0, 4.0), (4.0, 8.0)], (1.0, 3.0, 4.0, 1.0)),  # two at a time count once
        ([(3.0, 8.0), (1.0, 5.0)], (1.0, 2.0, 5.0, 1.0)),  # one that continues while it is written
        ([(-1.0, 10.0)], (0.0, 0.0, 9.0, 0.0)),  # clocks that differ by a little
    ],
)
def test_a_batch_is_divided_by_the_stages_that_ran(
    stages: list[tuple[float, float]], parts: tuple[float, ...]
) -> None:
    found = split(stages, 0.0, 9.0)
    assert found == Parts(*parts)
    assert found.whole == 9.0


class Tiny(Case):
    """Fails in its largest size; told apart by what it does, not by how long it takes."""

    name: ClassVar[str] = "tiny"
    unit: ClassVar[str] = "nothing"
    sizes: ClassVar[tuple[int, ...]] = (1, 10, 100)

    done: ClassVar[list[tuple[str, int]]] = []
    added: ClassVar[int] = 7

    def prepare(self) -> None:
        self.done.append(("prepare", self.size))

    def batch(self) -> Step:
        def write(what: str) -> Callable[[], None]:
            def written() -> None:
                if self.size == 100:
                    raise ValueError("too large\nby far")
                self.done.append((what, self.size))

            return written

        return Step(write("ours"), write("plain"), lambda: self.added)


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> type[Tiny]:
    def timed(spark: Any, write: Callable[[], object]) -> Parts:
        write()
        return Parts(0.5, 0.0, 1.0, 0.5)

    monkeypatch.setattr(batch_time_growth, "timed", timed)
    Tiny.done.clear()
    return Tiny


def test_a_size_that_fails_is_told_and_the_others_go_on(tiny: type[Tiny]) -> None:
    found, failed = run(_NoBench(), tiny, rounds=3)
    assert failed == {100: "ValueError: too large"}
    assert {size: len(outcomes) for size, outcomes in found.items()} == {1: 3, 10: 3}
    ours = [size for what, size in tiny.done if what == "ours"]
    assert ours.count(1) == ours.count(10) == 3 + batch_time_growth.WARM_UP


def test_a_batch_that_adds_nothing_is_no_measurement(
    tiny: type[Tiny], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tiny, "added", 0)
    found, failed = run(_NoBench(10), tiny, 1)
    assert not found
    assert set(failed.values()) == {"RuntimeError: 0 rows were added"}


def test_sizes_above_the_largest_are_left_out_but_for_the_smallest(tiny: type[Tiny]) -> None:
    assert set(run(_NoBench(10), tiny, 1)[0]) == {1, 10}
    assert set(run(_NoBench(0), tiny, 1)[0]) == {1}


def test_growth_is_that_of_rounds_and_a_failure_misses() -> None:
    def outcome(seconds: float) -> Outcome:
        return Outcome(Parts(seconds, 0, 0, 0), Parts(0.1, 0, 0, 0))

    found = {1: [outcome(1.0), outcome(2.0)], 5: [outcome(1.1), outcome(2.2)]}
    assert "5 against 1: 1.10 [1.10, 1.10] times, within" in growth_of(found, {}, None)
    assert "MISSED" in growth_of({1: found[1], 5: [outcome(3.0), outcome(6.0)]}, {}, None)
    assert "MISSED, a size failed" in growth_of(found, {9: "ValueError"}, None)


def test_what_has_a_task_each_is_held_against_as_many_tasks() -> None:
    def outcome(seconds: float) -> Outcome:
        return Outcome(Parts(seconds, 0, 0, 0), Parts(0.1, 0, 0, 0))

    found = {1: [outcome(1.0), outcome(1.0)], 5: [outcome(3.0), outcome(3.0)]}
    assert growth_of(found, {}, 2.5).endswith(
        "2.00 s more, within the 2.50 s of as many tasks that do nothing"
    )
    assert growth_of(found, {}, 1.5).endswith(
        "2.00 s more, MISSED: the 1.50 s of as many tasks that do nothing"
    )


def test_an_error_is_told_by_its_innermost_cause() -> None:
    text = (
        "An error occurred while calling o1.x.\n: a.B: outer\n\tat x\nCaused by: java.lang.E: inner\n\tat y"
    )
    assert first_line(RuntimeError(text)) == "RuntimeError: java.lang.E: inner"


def test_every_case_can_be_asked_for_by_its_name() -> None:
    names = [kind.name for kind in CASES]
    assert len(set(names)) == len(names)
    given = batch_time_growth.parser().parse_args(["--only", *names, "--rounds", "2", "--largest", "1000"])
    assert given.only == names
    with pytest.raises(SystemExit):
        batch_time_growth.parser().parse_args(["--only", "no such case"])


@dataclass(frozen=True)
class _NoBench:
    """In the place of a bench: these cases need no session."""

    largest: int | None = None
    spark: Any = None
