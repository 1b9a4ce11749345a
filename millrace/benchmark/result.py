"""Result file of a benchmark, to which an environment refers, from its measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from millrace.benchmark.core_scaling import fit_scaling_curve
from millrace.benchmark.fit import ModelFit, fit_model
from millrace.benchmark.measurements import Measurements, Run
from millrace.benchmark.settled_batches import Disturbance, FitError, count_warmup_batches, settled_points
from millrace.sizing.queries.benchmark_figures import BatchRun, BenchmarkResult

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
