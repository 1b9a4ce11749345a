"""Bounded runs of a job: the seconds of their stages, those that are billed, and the plan's figures of them."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.config.model import Job
from millrace.sizing.plan_model import Figure, FigureInput, RunPlan, T, pinned_figure
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import CoreSpread

_BILLED = ("bounded.billed_start_seconds", "bounded.least_billed_seconds")


def run_period_figure(name: str, job: Job, seconds: T, why: str) -> Figure[T]:
    """Return the time from one run to the next, pinned or chosen."""
    if "run_every" in job.model_fields_set:
        return pinned_figure(seconds, "s", why, ("jobs", name, "run_every"))
    return Figure(
        seconds,
        "s",
        f"{why}: the period of the least cost that keeps the SLA",
        assumed=True,
        inputs=lambda: (FigureInput("run", str(job.run), path=("jobs", name, "run")),),
    )


def run_stage_seconds(
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Sequence[SourcePartitions],
    *,
    peak: bool = False,
) -> list[float]:
    """Return the seconds in which a run lands, and then derives, what arrived at the average rate or at the peak.

    Of each, all queries work together, or in turn if that is less.
    """
    found, overhead = [], service_limits()["spark.repartition.overhead"]
    for lands in (True, False):
        shared, alone, fixed = 0.0, 0.0, 0.0
        for demand, spread, source in zip(demands, spreads, sources, strict=True):
            if demand.lands == lands:
                work = demand.work
                records = work.rate * (
                    work.most_arrival_seconds if peak else demand.average * work.planned_trigger_seconds
                )
                shared = max(shared, spread.batch_seconds(work, records))
                read = source if lands else SourcePartitions.of_equal(spread.cores)
                alone += spread.batch_seconds_alone(work, records, read, overhead) - work.overhead
                fixed = max(fixed, work.overhead)
        found.append(min(shared, fixed + alone))
    return found


def billed_run_seconds(stages: Sequence[float]) -> float:
    """Return the seconds that are billed for a run with these seconds of its stages."""
    begin, least = (service_limits()[limit] for limit in _BILLED)
    return max(least, round(begin + sum(stages), 1))


def run_plan_or_none(
    name: str,
    job: Job,
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Sequence[SourcePartitions],
) -> RunPlan | None:
    """Return the runs of a job; None if it runs all the time.

    Parameters
    ----------
    demands, spreads, sources
        Of its queries.
    """
    if job.run_every is None:
        return None
    known = service_limits()
    begin = known[_BILLED[0]]
    # A batch takes a time in proportion to its records, so runs of any traffic with this average take as long together.
    to_land, to_derive = run_stage_seconds(demands, spreads, sources)
    at_peak, derived_at_peak = run_stage_seconds(demands, spreads, sources, peak=True)
    batches = tuple(f"{demand.number_key_prefix}.batch_seconds" for demand in demands)
    return RunPlan(
        every_seconds=run_period_figure(
            name,
            job,
            int(job.run_every.total_seconds()),
            "from the start of one run to the start of the next",
        ),
        start_seconds=Figure(
            known["bounded.start_seconds"],
            "s",
            "the slowest start, which the SLA must leave",
            assumed=True,
            inputs=lambda: (known.as_input("bounded.start_seconds"),),
        ),
        seconds=Figure(
            billed_run_seconds((to_land, to_derive)),
            "s",
            f"billed for a run at the average rate: {begin:g} s to start and end, {to_land:,.1f} s to land, {to_derive:,.1f} s to derive",
            assumed=True,
            formula="max(least billed, billed start + slowest landing batch + slowest deriving batch)",
            inputs=lambda: (*batches, *(known.as_input(limit) for limit in _BILLED)),
        ),
        longest_seconds=Figure(
            round(begin + at_peak + derived_at_peak, 1),
            "s",
            f"a run at the peak: {begin:g} s to start and end, {at_peak:,.1f} s to land, {derived_at_peak:,.1f} s to derive",
            assumed=True,
            formula="billed start + slowest landing batch + slowest deriving batch",
            inputs=lambda: (*batches, known.as_input(_BILLED[0])),
        ),
    )
