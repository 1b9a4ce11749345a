"""Result file of a benchmark, to which an environment refers: the fits of its queries, and the curve through several cores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import optimize

from millrace.benchmark.fit import Array, ModelFit, fit_model
from millrace.benchmark.measurements import (
    BatchPoint,
    Disturbance,
    FitError,
    Measurements,
    Run,
    count_warmup_batches,
    settled_points,
)
from millrace.sizing.queries.benchmark_figures import (
    BatchRun,
    BenchmarkResult,
    EstimateWithInterval,
    ScalingCurve,
)

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


Where = Literal["sandbox", "glue", "emr"]


@dataclass(frozen=True)
class BenchmarkOutcome:
    """Fits of a benchmark, and its result file.

    Attributes
    ----------
    fits
        By query.
    costliest
        The query whose figures the plan uses: the one with the most core-seconds for a record.
    result
        The file.
    """

    fits: Mapping[str, ModelFit]
    costliest: str
    result: BenchmarkResult

    @property
    def disturbances(self) -> tuple[Disturbance, ...]:
        """Evidence against the measurements, of all queries."""
        return tuple(each for result in self.fits.values() for each in result.disturbed)


def fit_all_queries(
    measured: Sequence[Measurements],
    queries: Sequence[str],
    *,
    record_bytes: float,
    where: Where,
    worker: str,
    architecture: Literal["x86_64", "arm64"],
    seed: int = 0,
) -> BenchmarkOutcome:
    """Fit every query, and return the result for the plan.

    Costs are those of the fewest measured cores; the scaling curve has the effect of more cores.

    Parameters
    ----------
    measured
        A session for each core level.
    queries
        The measured queries.
    record_bytes
        Mean size of the payloads.
    where, worker, architecture
        Where they were measured.
    seed
        Of all resampling.

    Raises
    ------
    FitError
        The measurements are not enough for a fit.
    """
    ordered = sorted(measured, key=lambda each: each.cores)
    fits = {query: fit_model(*settled_points(ordered[:1], query), seed=seed) for query in queries}
    costliest = max(fits, key=lambda query: fits[query].per_record.high)
    chosen, first = fits[costliest], ordered[0]
    if chosen.held_out_error is None:
        raise FitError(
            "at least three limits of records per batch are needed, because the largest one only checks the "
            "fit; measure more with --levels"
        )
    every = settled_points(ordered, costliest).points
    result = BenchmarkResult(
        version=1,
        job=first.job,
        measured_at=min(each.begun_at for each in measured),
        where=where,
        worker=worker,
        architecture=architecture,
        machine={"processors": str(first.processors), "system": first.processor},
        versions={"spark": first.spark, "java": first.java, "python": first.python},
        settings={**first.settings, "query": costliest},
        record_bytes=record_bytes,
        overhead_seconds=chosen.overhead,
        core_seconds_per_record=chosen.per_record,
        wave_seconds=chosen.wave,
        unevenness=chosen.unevenness,
        scaling=fit_scaling_curve(every, seed=seed),
        held_out_error=chosen.held_out_error,
        batches=tuple(
            each
            for session in ordered
            for run in session.runs_of_query(costliest)
            for each in _batch_runs(run, session.cores)
        ),
    )
    return BenchmarkOutcome(fits, costliest, result)


def _batch_runs(run: Run, cores: int) -> list[BatchRun]:
    first = count_warmup_batches([batch.duration for batch in run.batches])
    return [
        BatchRun(
            limit=run.limit,
            partitions=run.partitions,
            cores=cores,
            repetition=run.repetition,
            records=batch.records,
            seconds=batch.duration,
            task_seconds=batch.task_seconds,
            warm_up=number < first,
        )
        for number, batch in enumerate(run.batches)
    ]
