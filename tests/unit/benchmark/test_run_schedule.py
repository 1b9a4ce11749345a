"""The schedule of a benchmark: its limits, repetitions and order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.benchmark.measurements import LEAST, count_warmup_batches
from millrace.benchmark.run_schedule import WARM_UP, log_spaced_limits, schedule_runs
from millrace.sandbox.benchmark import records_needed_by_partition


def test_limits_rise_by_powers() -> None:
    assert log_spaced_limits(1000, 64000, 4) == (1000, 4000, 16000, 64000)


@given(
    st.lists(st.integers(1, 10**6), min_size=2, max_size=6, unique=True).map(sorted),
    st.sets(st.integers(1, 8), max_size=3),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_every_cell_is_measured_so_often_in_an_order_that_is_not_sorted_by_design(
    sizes: list[int], counts: set[int], repetitions: int, seed: int
) -> None:
    runs = schedule_runs(sizes, sorted(counts), repetitions=repetitions, seed=seed)
    assert runs[0].repetition == WARM_UP
    assert [run.number for run in runs] == list(range(len(runs)))
    cells = [(run.limit, run.partitions) for run in runs[1:]]
    assert {cell: cells.count(cell) for cell in cells} == dict.fromkeys(set(cells), repetitions)
    assert {(size, 1) for size in sizes} <= set(cells)
    assert runs == schedule_runs(sizes, sorted(counts), repetitions=repetitions, seed=seed)


def test_the_order_is_another_in_each_repetition() -> None:
    runs = schedule_runs(log_spaced_limits(1000, 32000, 6), (1, 2, 4), repetitions=3, seed=0)
    blocks = [[(r.limit, r.partitions) for r in runs if r.repetition == n] for n in range(3)]
    assert blocks[0] != blocks[1] != blocks[2]
    assert sorted(blocks[0]) == sorted(blocks[1]) == sorted(blocks[2])


def test_partitions_hold_enough_for_every_run() -> None:
    runs = schedule_runs((100, 1000), (1, 4), batches=12)
    held = records_needed_by_partition(runs)
    for run in runs:
        assert sum(held[p] for p in range(run.partitions)) >= run.limit * run.batches
    assert held[0] > held[3]


@pytest.mark.parametrize("slow", [0, 2, 5])
def test_warm_up_is_cut_where_it_ends(slow: int) -> None:
    rng = np.random.default_rng(slow)
    made = np.r_[3.0, np.full(slow, 1.5), np.ones(20 - slow)] * rng.lognormal(0, 0.03, 21)
    assert count_warmup_batches(list(made)) == slow + 1


def test_a_run_that_gets_slower_keeps_its_beginning() -> None:
    assert count_warmup_batches([2.0, *[1.0] * 8, *[1.5] * 8]) == 1


def test_ten_batches_are_left() -> None:
    assert count_warmup_batches([3.0] * 6 + [1.0] * 6) == 12 - LEAST
    assert count_warmup_batches([1.0, 2.0]) == 0
