"""HTML page of a simulation: its document, with a job's curves over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from millrace.cli.shared.html_pages import POINTS, html_page, page_curve
from millrace.sizing.simulation import JobResult


def simulation_page(title: str, document: Mapping[str, Any], results: Mapping[str, JobResult]) -> str:
    """Return the page of a simulation; curves take the place of the document's lists of batches."""
    jobs = {
        name: {
            **job,
            "queries": {query: {**figures, "batches": None} for query, figures in job["queries"].items()},
            "executors": None,
            "curves": _job_curves(name, job, results[name]),
        }
        for name, job in document["jobs"].items()
    }
    return html_page("simulate", title, {**document, "jobs": jobs})


def _job_curves(name: str, job: Mapping[str, Any], result: JobResult) -> list[dict[str, Any]]:
    times = np.linspace(0.0, result.seconds, POINTS)
    traffic = {
        each: np.gradient(np.interp(times, query.arrivals.times, query.arrivals.totals), times)
        for each, query in result.queries.items()
    }
    ends = {each: query.ends for each, query in result.queries.items()}
    oldest = {each: query.oldest_age_by_batch for each, query in result.queries.items()}
    waiting = {each: query.waiting_at(times) for each, query in result.queries.items()}
    sla = {each: job["queries"][each]["sla"] for each in result.queries}
    executors, spent = (
        {"executors": result.executors_at(times)},
        {"workers": result.dollars_spent_until(times)},
    )
    return [
        page_curve(f"How many records a second come to {name}?", "records per second", times, traffic),
        page_curve(
            f"Are the records of {name} in time?", "oldest record, s; dashed: SLA", ends, oldest, limits=sla
        ),
        page_curve(f"How many records wait for {name}?", "records", times, waiting),
        page_curve(f"How many executors does {name} have?", "executors", times, executors, kind="step"),
        page_curve(f"What has {name} cost so far?", "US dollars", times, spent),
    ]
