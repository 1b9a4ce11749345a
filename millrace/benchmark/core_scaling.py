"""Scaling with cores: throughput at several core levels, and the curve through them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import optimize

from millrace.benchmark.fit import Array
from millrace.benchmark.measurements import BatchPoint
from millrace.sizing.queries.benchmark_figures import EstimateWithInterval, ScalingCurve

_RESAMPLES = 499

_LEVELS_FOR_COHERENCE = 4
"""Minimum number of levels that separate contention and coherence (the sizing model: Amdahl)."""


def fit_scaling_curve(points: Sequence[BatchPoint], *, seed: int = 0) -> ScalingCurve | None:
    """Fit X(c) = γc / (1 + α(c - 1) + βc(c - 1)) to the throughput of full cores.

    Parameters
    ----------
    points
        Batches at several core levels; those at the largest limit count, if their partitions keep all cores busy
        in every wave.
    seed
        Of the resampling, by run.

    Returns
    -------
    ScalingCurve or None
        None with only one level.
    """
    largest = max((each.limit for each in points), default=0)
    levels: dict[int, dict[int, list[float]]] = {}
    for each in points:
        if each.limit == largest and each.partitions % each.cores == 0:
            rates = levels.setdefault(each.cores, {}).setdefault(each.group, [])
            rates.append(each.records / each.duration)
    if len(levels) < 2:
        return None
    cores = sorted(levels)
    runs = {c: [float(np.median(rates)) for rates in levels[c].values()] for c in cores}
    best = _fit_alpha_and_beta(cores, [float(np.median(runs[c])) for c in cores])
    rng = np.random.default_rng(seed)
    drawn = np.stack(
        [
            _fit_alpha_and_beta(cores, [float(np.median(rng.choice(runs[c], len(runs[c])))) for c in cores])
            for _ in range(_RESAMPLES)
        ]
    )
    low, high = np.percentile(drawn, [2.5, 97.5], axis=0)
    alpha, beta = (
        EstimateWithInterval(value=float(v), low=float(min(lo, v)), high=float(max(hi, v)))
        for v, lo, hi in zip(best, low, high, strict=True)
    )
    return ScalingCurve(contention=alpha, coherence=beta, cores=tuple(cores))


def _fit_alpha_and_beta(cores: Sequence[int], rates: Sequence[float]) -> Array:
    """Return α and β, none below zero: c·γ/X(c) = 1 + α(c - 1) + βc(c - 1) is linear in γ, αγ' and βγ'."""
    c = np.asarray(cores, dtype=float)
    time = c / np.asarray(rates, dtype=float)
    columns = [np.ones(len(c)), c - 1]
    if len(c) >= _LEVELS_FOR_COHERENCE:
        columns.append(c * (c - 1))
    design = np.column_stack(columns) / time[:, None]
    solved = optimize.lsq_linear(design, np.ones(len(c)), bounds=(0, np.inf)).x
    coefficients = solved[1:] / solved[0]
    return np.asarray([coefficients[0], coefficients[1] if len(coefficients) > 1 else 0.0], dtype=float)
