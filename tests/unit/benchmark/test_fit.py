"""The fit finds the costs of a synthetic machine, with intervals that cover them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.benchmark import fit as fitting
from millrace.benchmark.fit import fit_model
from millrace.benchmark.measurements import FitError
from tests.unit.benchmark.synthetic_measurements import points


def test_known_costs_come_out_and_lie_within_their_intervals() -> None:
    result = fit_model(points(overhead=0.3, wave=0.02, per_record=20e-6))
    assert result.wave is not None
    for estimate, truth in ((result.overhead, 0.3), (result.wave, 0.02), (result.per_record, 20e-6)):
        assert estimate.low <= estimate.value <= estimate.high
        assert estimate.low <= truth <= estimate.high
    assert result.per_record.value == pytest.approx(20e-6, rel=0.05)
    assert result.batches == 216
    assert not result.robust
    assert not result.disturbed


def test_one_partition_keeps_the_wave_in_the_overhead() -> None:
    result = fit_model(points(overhead=0.3, wave=0.1, cells=((1000, 1), (8000, 1), (64000, 1))))
    assert result.wave is None
    assert result.overhead.value == pytest.approx(0.4, rel=0.1)
    assert result.unevenness is None


def test_uneven_tasks_are_told_by_their_deviation() -> None:
    result = fit_model(points(uneven=0.25, batches=40)).unevenness
    assert result is not None
    assert result.low <= 0.25 <= result.high
    assert result.value == pytest.approx(0.25, rel=0.1)


def test_nothing_costs_less_than_nothing() -> None:
    result = fit_model(points(overhead=0.0, wave=0.0, noise=0.2))
    assert result.wave is not None
    assert min(result.overhead.low, result.wave.low, result.per_record.low) >= 0


def test_one_limit_tells_nothing() -> None:
    with pytest.raises(FitError, match="at least two limits"):
        fit_model(points(cells=((1000, 1), (1000, 2))))


@pytest.mark.slow
def test_far_off_batches_do_not_carry_the_fit_away() -> None:
    spoiled = points(noise=0.02)
    rng = np.random.default_rng(1)
    for i in rng.choice(len(spoiled), size=20, replace=False):
        one = spoiled[i]
        spoiled[i] = type(one)(**{**one.__dict__, "duration": one.duration * 8})
    result = fit_model(spoiled)
    assert result.robust
    assert result.per_record.value == pytest.approx(20e-6, rel=0.1)
    assert result.overhead.value == pytest.approx(0.3, rel=0.15)


def test_the_largest_limit_is_foretold_by_the_others() -> None:
    held = fit_model(points(noise=0.01, drift=0.005)).held_out_error
    assert held is not None
    assert held < 0.03
    bent = [
        type(p)(**{**p.__dict__, "duration": p.duration * 2}) if p.limit == 64000 else p
        for p in points(noise=0.01, drift=0.005)
    ]
    missed = fit_model(bent).held_out_error
    assert missed is not None
    assert missed == pytest.approx(0.5, abs=0.05)


@pytest.mark.slow
def test_repetitions_that_disagree_are_evidence_against_the_run() -> None:
    made = points(drift=0.0)
    last = max(p.group for p in made)
    slow = [type(p)(**{**p.__dict__, "work": p.work * 1.4}) if p.group == last else p for p in made]
    (result,) = fit_model(slow).disturbed
    assert result.limit == 64000
    assert result.partitions == 4
    assert result.moved == pytest.approx(0.4, abs=0.01)
    assert "40% apart" in str(result)


@settings(max_examples=8)
@given(
    overhead=st.floats(0.05, 3),
    per_record=st.floats(2e-6, 2e-4),
    wave=st.floats(0.0, 0.2),
    seed=st.integers(0, 10_000),
)
def test_predictions_are_near_whatever_the_costs(
    overhead: float, per_record: float, wave: float, seed: int
) -> None:
    fitting_points = points(overhead=overhead, wave=wave, per_record=per_record, seed=seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "RESAMPLES", 20)
        result = fit_model(fitting_points)
    exact = overhead + 2 * (wave + per_record * 30_000 / 4)
    assert result.forecast_seconds(30_000, 4, 2) == pytest.approx(exact, rel=0.12)
