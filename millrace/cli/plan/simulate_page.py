"""A simulation as a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.cli.shared.charts import POINTS, lines, thin
from millrace.cli.shared.pages import Page

if TYPE_CHECKING:
    from millrace.config import Environment
    from millrace.sizing import Plan
    from millrace.sizing.simulation import JobResult


def simulation_page(environment: Environment, plan: Plan, found: Mapping[str, JobResult]) -> Page:
    """Return the page of a simulation: traffic, ages, backlog, executors and dollars of each job, over time."""
    import numpy as np

    page = Page(f"{environment.project}-{environment.name}: simulation")
    for name, result in found.items():
        page.heading(f"Job {name}")
        page.text(
            f"{result.seconds / 3600:g} hours, {result.mean_executors:.2f} executors on average, "
            f"${result.usd:,.2f}. Ages are those of records at their commit, weighted by records."
        )
        rows = []
        times = np.linspace(0.0, result.seconds, POINTS)
        for each, query in result.queries.items():
            sla = plan.jobs[name].queries[each].latency_seconds.value
            ages = [f"{query.ages.percentile(p):,.1f} s" for p in (50, 95, 99)]
            rows.append([each, *ages, f"{query.ages.most:,.1f} s", f"{sla:g} s", f"{query.waiting:,.0f}"])
        page.table(
            ["query", "p50", "p95", "p99", "max", "SLA", "waiting at the end"],
            rows,
            f"Record age of {name}",
        )
        hours = times / 3600

        def over(values: object, hours: object = hours) -> list[tuple[float, float]]:
            return list(zip(np.asarray(hours).tolist(), np.asarray(values).tolist(), strict=True))

        traffic = {
            each: over(np.gradient(np.interp(times, q.arrivals.times, q.arrivals.totals), times))
            for each, q in result.queries.items()
        }
        page.chart(lines("records per second", traffic), f"{name}: arriving records per second")
        oldest = {each: thin(q.ends, q.oldest) for each, q in result.queries.items() if len(q.ends)}
        slas = {each: plan.jobs[name].queries[each].latency_seconds.value for each in result.queries}
        page.chart(
            lines("seconds", oldest, rules=slas), f"{name}: age of the oldest record of a batch, and its SLA"
        )
        waiting = {each: over(q.waiting_at(times)) for each, q in result.queries.items()}
        page.chart(lines("records", waiting), f"{name}: backlog in records")
        executors = {"executors": over(result.executors_at(times))}
        page.chart(lines("executors", executors, step=True), f"{name}: executors")
        page.chart(
            lines("US dollars", {"workers": over(result.usd_until(times))}), f"{name}: US dollars so far"
        )
    return page
