"""HTML page of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.cli.shared.charts import POINTS, keep_peaks, line_chart
from millrace.cli.shared.html_pages import Badge, Cell, Page
from millrace.cli.shared.verdict import Verdict
from millrace.config import Environment
from millrace.sizing import Plan
from millrace.sizing.text_format import dollars, duration_text, format_number

if TYPE_CHECKING:
    from millrace.sizing.simulation import JobResult


def simulation_page(
    environment: Environment, plan: Plan, found: Mapping[str, JobResult], verdict: Verdict
) -> Page:
    """Return the page of a simulation: its verdict, and for each job traffic, record ages, executors and cost over time."""
    import numpy as np

    from millrace.sizing.simulation.self_check import WITHIN

    page = Page(f"{environment.project}-{environment.name}: simulation")
    page.verdict(verdict)
    for name, result in found.items():
        page.add_heading(f"Job {name}")
        page.text(
            f"{duration_text(result.seconds)}, {result.mean_executors:.2f} executors on average, "
            f"{dollars(result.usd)}. Ages are those of records at their commit, weighted by records."
        )
        rows: list[list[Cell]] = []
        times = np.linspace(0.0, result.seconds, POINTS)
        for each, query in result.queries.items():
            sla = plan.jobs[name].queries[each].latency_seconds.value
            ages = [
                duration_text(age)
                for age in (*(query.ages.percentile(p) for p in (50, 95, 99)), query.ages.oldest)
            ]
            told = "kept" if query.in_time(sla, result.seconds) >= WITHIN else "missed"
            rows.append(
                [
                    each,
                    *(ages if len(query.ends) else "-" * 4),
                    duration_text(sla),
                    Badge(told),
                    format_number(query.waiting),
                ]
            )
        page.table(
            ["query", "p50", "p95", "p99", "max", "SLA", "", "waiting at the end"],
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
        page.chart(line_chart("records per second", traffic), f"How many records a second come to {name}?")
        oldest = {each: keep_peaks(q.ends, q.oldest) for each, q in result.queries.items() if len(q.ends)}
        slas = {each: plan.jobs[name].queries[each].latency_seconds.value for each in result.queries}
        page.chart(
            line_chart("oldest record, s; dashed: SLA", oldest, rules=slas),
            f"Are the records of {name} in time?",
        )
        waiting = {each: over(q.waiting_at(times)) for each, q in result.queries.items()}
        page.chart(line_chart("records", waiting), f"How many records wait for {name}?")
        executors = {"executors": over(result.executors_at(times))}
        page.chart(line_chart("executors", executors, step=True), f"How many executors does {name} have?")
        spent = {"workers": over(result.dollars_spent_until(times))}
        page.chart(line_chart("US dollars", spent), f"What has {name} cost so far?")
    return page
