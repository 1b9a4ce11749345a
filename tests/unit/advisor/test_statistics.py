"""The advisor's statistics with NumPy agree with SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from millrace.advisor.forecasts.query_twin import _fit_fixed_and_per_record, _least_squares_sums
from millrace.advisor.logs.statistics import slope_with_interval

SEEDS = range(30)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("ties", [False, True])
def test_the_slope_is_theils_and_its_interval_sens(seed: int, ties: bool) -> None:
    draw = np.random.default_rng(seed)
    at = draw.uniform(0, 10, draw.integers(4, 60))
    values = 2 * at + draw.standard_normal(len(at)) * 5
    if ties:
        at, values = at.round(), values.round(-1)
    expected = stats.theilslopes(values, at, alpha=0.95)
    found = slope_with_interval(at, values)
    assert found.value == pytest.approx(expected.slope)
    assert (found.low, found.high) == pytest.approx((expected.low_slope, expected.high_slope))


@given(
    fixed=st.floats(-1, 1),
    per_record=st.floats(-0.01, 0.01),
    noise=st.floats(0, 0.2),
    seed=st.integers(0, 1000),
)
def test_a_line_without_negative_parts_is_the_best_of_them(
    fixed: float, per_record: float, noise: float, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    records = draw.uniform(10, 1000, 40)
    times = fixed + per_record * records + noise * draw.standard_normal(40)
    found = _fit_fixed_and_per_record(_least_squares_sums(records, times, np.ones(40)))
    terms = np.column_stack([np.ones(40), records / 1000])
    _, off = optimize.nnls(terms, times)
    assert min(found) >= 0
    assert np.linalg.norm(terms @ [found[0], found[1] * 1000] - times) == pytest.approx(
        off, rel=1e-6, abs=1e-9
    )
