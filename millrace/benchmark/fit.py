"""Fit of the model's parameters to batches: a, κ and b of D = a + ceil(P/c)·(κ + b·n/P), with intervals.

A batch has two measured values: its duration D, and the sum W of its tasks' times, which is P·κ′ + b·n with the part κ′ of
a wave's cost inside the tasks. Both are fitted together: D of small batches shows almost nothing about b, since nearly all
of it is fixed, and W shows b clearly. The method is least squares with weights 1/D² and 1/W² (errors are relative), and no
cost may be negative. With outliers, Tukey's biweight replaces the squares. Intervals come from resampling complete runs, as
the batches of one run are alike; a benchmark has few sessions, so the percentiles are expanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

from millrace.benchmark.measurements import SHORTEST, BatchPoint, Disturbance, FitError, find_disturbances
from millrace.config.base import grouped
from millrace.sizing.queries.benchmark_figures import EstimateWithInterval

Array = npt.NDArray[np.float64]

RESAMPLES = 999

_FAR = 5.0
"""Distance of an outlier, in normal-consistent median deviations (of 10⁶ normal batches, one is farther)."""

_FEW_OUTLIERS = 0.01
"""Share of outliers up to which least squares are used."""

_LEAST_SPREAD = 0.005
"""Minimum spread of relative errors: Spark writes times in milliseconds, and smaller differences mean nothing."""

_BIWEIGHT = 4.685
"""Relative errors, in median deviations, from which on a batch counts nothing: the efficiency is 95 % for normal errors
(A. Beaton and J. Tukey, *The Fitting of Power Series*, Technometrics 16, 1974).
"""

_REWEIGHTED = 4
"""Rounds of reweighting; later ones change nothing in the first three digits."""


@dataclass(frozen=True)
class ModelFit:
    """Costs of a query by the model.

    Attributes
    ----------
    overhead
        a, seconds; it contains κ where only one partition was measured.
    wave
        κ, seconds; None where it cannot be separated from a.
    per_record
        b, core-seconds for a record.
    unevenness
        Standard deviation of the logarithm of a task's time, within its stage; None where no batch had several
        partitions.
    held_out_error
        Median of |forecast - measured| / measured for the largest limit, by a fit without it; None with fewer than three
        limits.
    robust
        Whether the biweight was used because of outliers.
    warm_up
        Number of batches that were cut.
    batches
        Number of batches that were used.
    left_out
        Number of runs with too few batches.
    disturbed
        Evidence against the measurements; with any, they should decide nothing.
    """

    overhead: EstimateWithInterval
    wave: EstimateWithInterval | None
    per_record: EstimateWithInterval
    unevenness: EstimateWithInterval | None
    held_out_error: float | None
    robust: bool
    warm_up: int
    batches: int
    left_out: int
    disturbed: tuple[Disturbance, ...]

    def forecast_seconds(self, records: float, partitions: int, cores: int) -> float:
        """Return D, the forecast duration of a batch in seconds."""
        wave = self.wave.value if self.wave else 0.0
        waves = -(-partitions // cores)
        return self.overhead.value + waves * (wave + self.per_record.value * records / partitions)


def fit_model(
    points: Sequence[BatchPoint],
    warm_up: int = 0,
    short: Sequence[BatchPoint] = (),
    left_out: int = 0,
    *,
    seed: int = 0,
) -> ModelFit:
    """Fit the model to one query's batches.

    Parameters
    ----------
    points
        From :func:`millrace.benchmark.measurements.settled_points`; at least two limits.
    warm_up
        Number of batches that were cut, for the result.
    short, left_out
        Batches of runs that have too few, for the search for disturbances, and the number of these runs.

    Raises
    ------
    FitError
        There is only one limit: fixed costs cannot be separated from growing ones.
    """
    if len({each.limit for each in points}) < 2:
        raise FitError(
            "all runs had the same limit of records per batch, but at least two limits are needed to "
            "tell fixed cost from work per record; measure more with --levels"
        )
    # Where every batch was one wave, the wave's cost cannot be separated from the fixed cost.
    waves = len({each.waves for each in points}) > 1
    design, durations = _design_matrix(points, waves=waves), _measured_times(points)
    plain = _fit_parameters(design, durations)
    robust = _outlier_share(design @ plain, durations) > _FEW_OUTLIERS
    solved = _fit_parameters(design, durations, robust=robust)
    best = _model_parameters(solved, waves=waves)
    spread = _bootstrap_parameters(points, waves=waves, robust=robust, seed=seed)
    low, high = np.percentile(
        spread, _interval_percentiles_for_few_runs(len({each.group for each in points}), len(solved)), axis=0
    )
    estimates = [
        EstimateWithInterval(value=value, low=min(below, value), high=max(above, value))
        for value, below, above in zip(best, low, high, strict=True)
    ]
    return ModelFit(
        overhead=estimates[0],
        wave=estimates[1] if waves else None,
        per_record=estimates[-1],
        unevenness=_task_spread(points, seed),
        held_out_error=_held_out_error(points, robust=robust),
        robust=robust,
        warm_up=warm_up,
        batches=len(points),
        left_out=left_out,
        disturbed=tuple(find_disturbances([*points, *short])),
    )


def _interval_percentiles_for_few_runs(runs: int, parameters: int) -> tuple[float, float]:
    """Return the percentiles of the resamples that make a 95 % interval with few runs.

    The bootstrap of few units is too narrow; its percentiles are widened by Student's t
    (T. Hesterberg, *What Teachers Should Know About the Bootstrap*, The American Statistician 69, 2015, 3.3).
    """
    free = max(1, runs - parameters)
    tail = float(stats.norm.cdf(np.sqrt(runs / free) * stats.t.ppf(0.025, free)))
    return 100 * tail, 100 * (1 - tail)


def _design_matrix(points: Sequence[BatchPoint], *, waves: bool) -> Array:
    """Return columns of a, of a wave's cost outside (where separable) and inside its tasks, and of b.

    There is a row for each D, then one for each W.
    """
    count = len(points)
    one, nothing = np.ones(count), np.zeros(count)
    turns = np.asarray([each.waves for each in points], dtype=float)
    partitions = np.asarray([each.partitions for each in points], dtype=float)
    records = np.asarray([each.records for each in points], dtype=float)
    of_durations = np.column_stack([one, turns, turns, turns * records / partitions])
    of_tasks = np.column_stack([nothing, nothing, partitions, records])
    design = np.vstack([of_durations, of_tasks])
    return design if waves else np.delete(design, 1, axis=1)


def _measured_times(points: Sequence[BatchPoint]) -> Array:
    """Return the durations, then the times of all tasks."""
    return np.asarray(
        [*(each.duration for each in points), *(max(each.work, SHORTEST) for each in points)], dtype=float
    )


def _model_parameters(solved: Array, *, waves: bool) -> Array:
    """Return a, κ and b; without several numbers of waves, a contains the part of κ outside the tasks."""
    if waves:
        overhead, outside, within, per_record = solved
        return np.asarray([overhead, outside + within, per_record])
    overhead, within, per_record = solved
    return np.asarray([overhead + within, per_record])


def _fit_parameters(design: Array, durations: Array, *, robust: bool = False) -> Array:
    """Minimise relative errors, no parameter below zero; robust: reweighted by Tukey's biweight.

    Errors are first relative to the measured values, and then to the fitted ones: otherwise a batch that was slow by chance
    would count less than one that was quick by chance, and every cost would be too small.
    """
    scale = np.abs(design).max(axis=0)
    solved, _ = optimize.nnls(design / scale / durations[:, None], np.ones(len(durations)))
    for _ in range(_REWEIGHTED if robust else 1):
        foretold = np.maximum(design / scale @ solved, SHORTEST)
        target = durations / foretold
        weighted = design / scale / foretold[:, None]
        roots = np.sqrt(_biweights(target - 1)) if robust else np.ones(len(durations))
        solved, _ = optimize.nnls(weighted * roots[:, None], target * roots)
    return np.asarray(solved / scale, dtype=float)


def _biweights(errors: Array) -> Array:
    """Return the biweights of relative errors, with separate scales for durations and tasks' times."""
    halves = np.split(errors, 2)
    scales = [max(float(stats.median_abs_deviation(half, scale="normal")), _LEAST_SPREAD) for half in halves]
    far = (
        np.abs(np.concatenate([half / scale for half, scale in zip(halves, scales, strict=True)])) / _BIWEIGHT
    )
    return np.asarray(np.square(1 - np.square(np.minimum(far, 1))), dtype=float)


def _outlier_share(foretold: Array, durations: Array) -> float:
    """Return the share of batches whose duration, or whose tasks' time, is far from the others' relative errors."""
    far = []
    for half in np.split(durations / np.maximum(foretold, SHORTEST) - 1, 2):
        scale = max(float(stats.median_abs_deviation(half, scale="normal")), _LEAST_SPREAD)
        far.append(np.abs(half - np.median(half)) > _FAR * scale)
    return float(np.mean(np.logical_or(*far)))


def _bootstrap_parameters(points: Sequence[BatchPoint], *, waves: bool, robust: bool, seed: int) -> Array:
    """Return the parameters of resampled runs; a draw without two limits, or without waves where necessary, is repeated."""
    runs = [
        (_design_matrix(run, waves=waves), _measured_times(run), run[0].limit, run[0].waves)
        for run in grouped((each.group, each) for each in points).values()
    ]
    rng = np.random.default_rng(seed)
    results: list[Array] = []
    while len(results) < RESAMPLES:
        drawn = [runs[i] for i in rng.integers(len(runs), size=len(runs))]
        if len({run[2] for run in drawn}) < 2 or (waves and len({run[3] for run in drawn}) < 2):
            continue
        design = np.concatenate([run[0] for run in drawn])
        durations = np.concatenate([run[1] for run in drawn])
        results.append(_model_parameters(_fit_parameters(design, durations, robust=robust), waves=waves))
    return np.stack(results)


def _task_spread(points: Sequence[BatchPoint], seed: int) -> EstimateWithInterval | None:
    """Return the spread pooled within stages (the mean of each is subtracted), with an interval over resampled runs."""
    by_run = grouped(
        (each.group, (float(np.square(each.deviations).sum()), len(each.deviations) - 1))
        for each in points
        if len(each.deviations) > 1
    )
    if not by_run:
        return None
    sums = np.asarray([np.sum(run, axis=0) for run in by_run.values()], dtype=float)
    drawn = np.random.default_rng(seed).integers(len(sums), size=(RESAMPLES, len(sums)))
    resampled = sums[drawn].sum(axis=1)
    spread = np.sqrt(resampled[:, 0] / resampled[:, 1])
    value = float(np.sqrt(sums[:, 0].sum() / sums[:, 1].sum()))
    low, high = np.percentile(spread, _interval_percentiles_for_few_runs(len(sums), 1))
    return EstimateWithInterval(value=value, low=min(low, value), high=max(high, value))


def _held_out_error(points: Sequence[BatchPoint], *, robust: bool) -> float | None:
    """Fit without the largest limit, forecast it, and return the median of the relative errors."""
    sizes = sorted({each.limit for each in points})
    if len(sizes) < 3:
        return None
    seen = [each for each in points if each.limit < sizes[-1]]
    unseen = [each for each in points if each.limit == sizes[-1]]
    known = len({each.waves for each in seen}) > 1
    values = _fit_parameters(_design_matrix(seen, waves=known), _measured_times(seen), robust=robust)
    actual = np.asarray([each.duration for each in unseen], dtype=float)
    errors = np.abs((_design_matrix(unseen, waves=known) @ values)[: len(unseen)] - actual) / actual
    return float(np.median(errors))
