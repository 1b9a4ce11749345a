"""Percentiles from summaries agree with numpy on all values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.metrics.arrival_times import RANKS, SHARES, ArrivalTimes
from millrace.etl.metrics.percentile_sketch import PercentileSketch


def of(values: list[float]) -> PercentileSketch:
    return PercentileSketch(tuple(sorted((v, 1.0) for v in values)), max(values))


def rank_of(value: float, values: np.ndarray) -> tuple[float, float]:
    """Share of values below, and share of values not above."""
    return float((values < value).mean()), float((values <= value).mean())


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=150), st.floats(0, 1))
def test_a_quantile_of_all_values_lies_at_its_rank(values: list[float], q: float) -> None:
    result = of(values).quantile(q)
    assert min(values) <= result <= max(values)
    below, not_above = rank_of(result, np.array(values))
    one = 1 / len(values)
    assert below - one <= q <= not_above + one


def test_capped_leaves_nothing_above() -> None:
    capped = of([1.0, 2.0, 50.0]).with_values_capped_at(10.0)
    assert capped.quantile(0.99) == capped.most == 10.0
    assert capped.quantile(0.1) == 1.0


def test_points_and_shares_belong_together() -> None:
    with pytest.raises(ValueError, match="argument 2"):
        ArrivalTimes(10, 0, 0, (1,)).age_sketch(1.0)


def test_points_stand_for_all_records_and_are_finest_where_the_oldest_are() -> None:
    assert sum(SHARES) == pytest.approx(1)
    assert list(RANKS) == sorted(RANKS)
    # p95 and p99 of the age are ranks 0.05 and 0.01 of the arrival.
    assert sum(rank < 0.05 for rank in RANKS) == 5


def test_ages_of_arrivals() -> None:
    arrived = np.arange(1_000_000, 1_100_000)  # ms: 100 s of one record a millisecond
    observed = {
        "millrace_arrivals": {
            "rows": len(arrived),
            "oldest": int(arrived.min()),
            "youngest": int(arrived.max()),
            "points": [int(p) for p in np.quantile(arrived, RANKS, method="inverted_cdf")],
        }
    }
    arrivals = ArrivalTimes.from_observed_metrics(observed)
    assert arrivals is not None
    ages = arrivals.age_sketch(committed=1_110.0)
    exact = 1_110.0 - arrived / 1000
    assert sum(weight for _, weight in ages.points) == pytest.approx(100_000)
    assert ages.quantile(1) == pytest.approx(exact.max())
    for q, off in ((0.5, 2.6), (0.95, 0.6), (0.99, 0.6)):
        assert ages.quantile(q) == pytest.approx(np.quantile(exact, q), abs=off)  # 1 % of ranks is 1 s


def test_a_clock_that_is_ahead_makes_no_record_younger_than_nothing() -> None:
    arrivals = ArrivalTimes(3, 5_000, 9_000, tuple([9_000] * len(RANKS)))
    assert arrivals.age_sketch(committed=4.0).quantile(1) == 0.0


def test_nothing_observed_is_no_arrivals() -> None:
    nothing = {"rows": 0, "oldest": None, "youngest": None, "points": None}
    assert ArrivalTimes.from_observed_metrics({}) is None
    assert ArrivalTimes.from_observed_metrics({"millrace_arrivals": nothing}) is None
