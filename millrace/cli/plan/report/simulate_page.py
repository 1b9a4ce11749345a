"""HTML page of a simulation: its document, with a job's curves over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from millrace.cli.shared.html_pages import html_page
from millrace.cli.shared.page_curves import POINTS, curve

if TYPE_CHECKING:
    from millrace.sizing.simulation import JobResult


def simulation_page(title: str, document: Mapping[str, Any], results: Mapping[str, JobResult]) -> str:
    """Return the page of a simulation; curves take the place of the document's lists of batches."""
    jobs = {}
    for name, job in document["jobs"].items():
        queries = {query: {**figures, "batches": None} for query, figures in job["queries"].items()}
        jobs[name] = {
            **job,
            "queries": queries,
            "executors": None,
            "curves": _curves(name, job, results[name]),
        }
    return html_page("simulate", title, {**document, "jobs": jobs})


def _curves(name: str, job: Mapping[str, Any], result: JobResult) -> list[dict[str, Any]]:
    import numpy as np

    times = np.linspace(0.0, result.seconds, POINTS)
    traffic, waiting = {}, {}
    oldest = curve(f"Are the records of {name} in time?", "oldest record, s; dashed: SLA", (), {})
    for each, query in result.queries.items():
        traffic[each] = np.gradient(np.interp(times, query.arrivals.times, query.arrivals.totals), times)
        waiting[each] = query.waiting_at(times)
        sla = {each: job["queries"][each]["sla"]}
        one = curve("", "", query.ends, {each: query.oldest}, limits=sla)
        oldest["series"] |= one["series"]
        oldest["limits"] |= sla
    executors, spent = result.executors_at(times), result.dollars_spent_until(times)
    return [
        curve(f"How many records a second come to {name}?", "records per second", times, traffic),
        oldest,
        curve(f"How many records wait for {name}?", "records", times, waiting),
        curve(
            f"How many executors does {name} have?", "executors", times, {"executors": executors}, kind="step"
        ),
        curve(f"What has {name} cost so far?", "US dollars", times, {"workers": spent}),
    ]
