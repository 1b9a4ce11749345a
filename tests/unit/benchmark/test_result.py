"""The result file of a benchmark, from its measurements."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.benchmark.fit import fit_model
from millrace.benchmark.measurements import BatchPoint, FitError, Measurements, settled_points
from millrace.benchmark.result import fit_all_queries, fit_scaling_curve
from millrace.sizing.queries.benchmark_figures import read_result
from tests.unit.benchmark.synthetic_measurements import A, B, session


def test_the_costliest_query_is_what_the_plan_counts_with(tmp_path: Path) -> None:
    results = fit_all_queries(
        [session(2, alpha=0.2), session(1)],
        ("a", "b"),
        record_bytes=300,
        where="sandbox",
        worker="a core",
        architecture="x86_64",
    )
    assert results.costliest == "b"
    assert not results.disturbances
    result = results.result
    assert result.core_seconds_per_record.low <= 2 * B <= result.core_seconds_per_record.high
    assert result.overhead_seconds.value == pytest.approx(A, rel=0.1)
    assert result.wave_seconds is not None
    assert result.unevenness is not None
    assert result.held_out_error < 0.05
    # Of one core, though two were measured as well: what the second brings is the curve's.
    assert result.scaling is not None
    assert result.scaling.cores == (1, 2)
    assert {batch.cores for batch in result.batches} == {1, 2}
    assert sum(batch.warm_up for batch in result.batches) == 3 * len(result.batches) // 14
    file = tmp_path / "flights.json"
    file.write_text(result.model_dump_json())
    assert read_result(file) == result


def test_repetitions_apart_are_evidence() -> None:
    result = fit_all_queries(
        [session(1, slow_repetition=1.5)],
        ("a",),
        record_bytes=300,
        where="sandbox",
        worker="a core",
        architecture="x86_64",
    )
    assert len(result.disturbances) == 6
    assert result.result.scaling is None


def test_two_limits_leave_none_to_hold_out() -> None:
    with pytest.raises(FitError, match="three limits"):
        fit_all_queries(
            [session(1, limits=(500, 2000))],
            ("a",),
            record_bytes=300,
            where="sandbox",
            worker="a core",
            architecture="x86_64",
        )


def full(cores: int, rate: float, group: int) -> BatchPoint:
    return BatchPoint(10_000, cores, cores, 10_000 / rate, 1.0, (0.0,), group, 10_000)


def test_contention_comes_out_of_two_levels_and_coherence_out_of_four() -> None:
    def at(cores: int, alpha: float, beta: float) -> float:
        return 5000 * cores / (1 + alpha * (cores - 1) + beta * cores * (cores - 1))

    two = [full(c, at(c, 0.15, 0.0), 10 * c + n) for c in (1, 2) for n in range(3)]
    result = fit_scaling_curve(two)
    assert result is not None
    assert result.contention.value == pytest.approx(0.15)
    assert result.coherence.value == 0.0
    assert result.work_share_per_core(2) == pytest.approx(1 / 1.15)
    four = [full(c, at(c, 0.05, 0.01), 10 * c + n) for c in (1, 2, 4, 8) for n in range(3)]
    result = fit_scaling_curve(four)
    assert result is not None
    assert (result.contention.value, result.coherence.value) == (pytest.approx(0.05), pytest.approx(0.01))
    assert fit_scaling_curve([each for each in two if each.cores == 2]) is None


def short(measured: Measurements, *, repetitions: set[int]) -> Measurements:
    """The same with nine batches only in the smallest limit's runs over one partition, in some repetitions."""
    runs = (
        run.model_copy(update={"batches": run.batches[-9:]})
        if (run.limit, run.partitions) == (500, 1) and run.repetition in repetitions
        else run
        for run in measured.runs
    )
    return measured.model_copy(update={"runs": tuple(runs)})


def test_a_run_with_too_few_batches_is_left_out_where_another_has_enough() -> None:
    taken = settled_points([short(session(2), repetitions={1})], "a")
    usual = settled_points([session(2)], "a")
    assert len({each.group for each in taken.points}) == len({each.group for each in usual.points}) - 1
    assert (taken.left_out, usual.left_out) == (1, 0)
    assert fit_model(*taken).left_out == 1
    assert not fit_model(*taken).disturbed, "it agrees with the others"
    with pytest.raises(FitError, match="measure more with --batches"):
        settled_points([short(session(2), repetitions={0, 1, 2})], "a")


@pytest.mark.slow
def test_a_disturbance_shows_in_runs_that_are_too_short_for_the_fit() -> None:
    """A run that something slows has fewer batches: what is left of its cell is the quick one, every time."""

    def shortened(left: int) -> Measurements:
        whole = session(2, slow_repetition=3.0, limits=(500, 2000, 8000))
        runs = (
            r.model_copy(update={"batches": r.batches[-left:]}) if r.repetition == 2 else r
            for r in whole.runs
        )
        return whole.model_copy(update={"runs": tuple(runs)})

    for left in (14, 9, 4, 2):
        result = fit_model(*settled_points([shortened(left)], "a"))
        assert len(result.disturbed) == 6
        assert all(each.moved > 1.5 for each in result.disturbed)
        assert result.left_out == (0 if left == 14 else 6)


def test_a_run_that_nothing_can_be_held_against_is_refused() -> None:
    whole = session(2)
    runs = (r.model_copy(update={"batches": r.batches[:1]}) if r.repetition else r for r in whole.runs)
    with pytest.raises(FitError, match=r"have 14, 1, 1 batches.*measure more with --batches"):
        settled_points([whole.model_copy(update={"runs": tuple(runs)})], "a")
