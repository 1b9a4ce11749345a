"""Bounded runs of a job: how often it runs, and how long a run is billed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.config.model import Job
from millrace.sizing.jobs.demand import QueryDemand
from millrace.sizing.model import Figure, QueryPlan, RunPlan, pinned
from millrace.sizing.prices_and_limits import limits

_BILLED = ("bounded.billed_start_seconds", "bounded.least_billed_seconds")


def plan_run(
    name: str, job: Job, demands: Sequence[QueryDemand], queries: Mapping[str, QueryPlan]
) -> RunPlan | None:
    """Return the runs of a job; None if it runs all the time.

    Parameters
    ----------
    demands, queries
        Demands and numbers of its queries.
    """
    if job.run_every is None:
        return None
    known = limits()
    begin, least = (known[limit] for limit in _BILLED)
    stages = dict.fromkeys((True, False), 0.0)
    for demand in demands:
        took = queries[demand.query].batch_seconds.value
        stages[demand.lands] = max(stages[demand.lands], took)
    return RunPlan(
        every_seconds=pinned(
            int(job.run_every.total_seconds()),
            "s",
            "from the start of one run to the start of the next",
            ("jobs", name, "period"),
        ),
        start_seconds=Figure(
            known["bounded.start_seconds"],
            "s",
            "the slowest start, which the SLA must leave",
            assumed=True,
            inputs=lambda: (known.as_input("bounded.start_seconds"),),
        ),
        seconds=Figure(
            max(least, round(begin + sum(stages.values()), 1)),
            "s",
            f"billed for a run at the peak: {begin:g} s to start and end, {stages[True]:g} s to land, {stages[False]:g} s to derive",
            assumed=True,
            formula="max(least billed, billed start + slowest landing batch + slowest deriving batch)",
            inputs=lambda: (
                *(f"jobs.{name}.queries.{each}.batch_seconds" for each in queries),
                *(known.as_input(limit) for limit in _BILLED),
            ),
        ),
    )
