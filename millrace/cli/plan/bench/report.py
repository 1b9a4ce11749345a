"""Output of a benchmark: tables for a terminal, a page with charts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from millrace.cli.shared.console import figure_columns, plain_table, word_columns
from millrace.cli.shared.html_pages import html_page
from millrace.config import Environment
from millrace.sizing.queries.benchmark_figures import EstimateWithInterval
from millrace.sizing.readable_numbers import count

if TYPE_CHECKING:
    from millrace.benchmark.fit import ModelFit
    from millrace.benchmark.result import BenchmarkOutcome

_HEAD = ("query", "a, s", "κ, s", "b, µs a record", "records/s a core", "missed", "batches")


def summary_tables(outcome: BenchmarkOutcome) -> Iterator[RenderableType]:
    """Yield the output of ``millrace bench``."""
    rows = (_fit_row(query, fit) for query, fit in outcome.fits.items())
    yield plain_table(*word_columns(*_HEAD[:1]), *figure_columns(*_HEAD[1:]), rows=rows)
    yield (
        "[] 95 % interval; missed: median error when the smaller limits predict the largest; the plan uses "
        "the pessimistic ends"
    )
    scaling = outcome.result.scaling
    if scaling is not None:
        levels, most = ", ".join(map(str, scaling.cores)), max(scaling.cores)
        slowdown = 1 + scaling.contention.value * (most - 1) + scaling.coherence.value * most * (most - 1)
        yield (
            f"cores {levels}: each of {most} gives {1 / slowdown:.0%} of one "
            f"alone (contention {scaling.contention.value:.2f} [{scaling.contention.low:.2f}, {scaling.contention.high:.2f}])"
        )
    if len(outcome.fits) > 1:
        yield f"the file has the figures of {outcome.costliest}, the query with the highest cost per record"


def _fit_row(query: str, fit: ModelFit) -> tuple[str, ...]:
    per_record = fit.per_record
    rate = f"{1 / per_record.high:,.0f} to {1 / per_record.low:,.0f}" if per_record.low else "-"
    missed = "-" if fit.held_out_error is None else f"{fit.held_out_error:.1%}"
    wave = "in a" if fit.wave is None else _interval_text(fit.wave, 1, 3)
    return (
        query,
        _interval_text(fit.overhead, 1, 3),
        wave,
        _interval_text(per_record, 1e6, 1),
        rate,
        missed,
        f"{fit.batches} and {fit.warm_up} of warm-up"
        + (f"; {count(fit.left_out, 'run')} of too few left out" if fit.left_out else ""),
    )


def _interval_text(estimate: EstimateWithInterval, factor: float, digits: int) -> str:
    value, low, high = (f"{x * factor:.{digits}f}" for x in (estimate.value, estimate.low, estimate.high))
    return f"{value} [{low}, {high}]"


def benchmark_page(environment: Environment, job: str, outcome: BenchmarkOutcome) -> str:
    """Return the page of a benchmark: each batch's duration against its records, and the fit through them."""
    result = outcome.result
    ran = (
        f"{result.measured_at:%Y-%m-%d %H:%M} UTC on {result.where}, {result.worker}, Spark "
        f"{result.versions.get('spark', '?')}; records of {result.record_bytes:,.0f} bytes."
    )
    rows = [_fit_row(query, fit) for query, fit in outcome.fits.items()]
    return html_page(
        "report",
        f"{environment.project}-{environment.name}: benchmark of {job}",
        {
            "texts": [ran, *(f"Disturbed: {each}" for each in outcome.disturbances)],
            "tables": [{"head": _HEAD, "rows": rows, "caption": f"Cost of each query of {job}"}],
            "curves": [_batch_points_and_fit_line(outcome)],
        },
    )


def _batch_points_and_fit_line(outcome: BenchmarkOutcome) -> dict[str, Any]:
    """Return the batches of each number of partitions and cores as points, and the fit through them as a line."""
    fit = outcome.fits[outcome.costliest]
    batches = [each for each in outcome.result.batches if not each.warm_up]
    most = max(each.records for each in batches)
    points: dict[str, list[list[float]]] = {}
    fits = {}
    for each in batches:
        name = f"{count(each.partitions, 'partition')} on {count(each.cores, 'core')}"
        points.setdefault(name, []).append([each.records, each.seconds])
        at = (most * step / 40 for step in range(41))
        fits[name] = [[records, fit.forecast_seconds(records, each.partitions, each.cores)] for records in at]
    return {
        "question": f"How long does a batch of {outcome.costliest} last by its records, and the fit?",
        "unit": "duration of the batch, s",
        "x": "records in a batch",
        "kind": "points",
        "series": points,
        "fits": fits,
        "limits": {},
    }
