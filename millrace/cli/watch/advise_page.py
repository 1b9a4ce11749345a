"""HTML page of advice: its document, with what ran batch by batch."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import numpy as np

from millrace.advisor.forecasts.forecast_figures import Forecast
from millrace.advisor.forecasts.query_twin import QueryTwin
from millrace.advisor.forecasts.what_if import ApplicationTwin
from millrace.advisor.logs.application_history_model import History, Query
from millrace.cli.shared.html_pages import html_page, page_curve
from millrace.cli.watch.advised_changes_with_forecasts import forecast_head_and_rows

PARTS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Parts of a batch in their order, with Spark's names."""

_ROWS = 300
"""Most rows in a table of batches: those of findings, and the last ones."""


def advice_page(
    document: Mapping[str, Any],
    history: History,
    twin: ApplicationTwin | None = None,
    forecasts: Sequence[Forecast] = (),
) -> str:
    """Return the page of advice.

    Parameters
    ----------
    document
        What ``--json`` prints.
    history
        What ran.
    twin
        Source of the curves of latency; without it, or without its queries, the page has none.
    forecasts
        Forecasts that were asked for.
    """
    head, rows = forecast_head_and_rows(forecasts)
    more = {
        "notes": [*document["notes"], *(twin.notes if twin is not None else ())],
        "what_if": {"head": head, "rows": rows},
        "runs": [
            _query_run_document(history, query, twin, document["findings"]) for query in history.queries
        ],
    }
    return html_page(
        "advise",
        f"{history.name or history.app_id or 'An application'}: advice",
        {**document, **more},
    )


def _query_run_document(
    history: History, query: Query, twin: ApplicationTwin | None, findings: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a run of a query: its curves, and the batches that findings name, with the last ones."""
    same = [each.run_id for each in history.queries if each.name == query.name]
    which = f", run {same.index(query.run_id) + 1} of {len(same)}" if len(same) > 1 else ""
    named = {batch for each in findings if each["run"] in (None, query.run_id) for batch in each["batches"]}
    last = {each.id for each in query.batches[-_ROWS:]}
    shown = [each for each in query.batches if each.id in named | last][-2 * _ROWS :]
    rows = [
        [
            each.id,
            f"{datetime.fromtimestamp(each.begun, UTC):%H:%M:%S}",
            f"{each.records:,}",
            f"{each.duration:.2f}",
            *(f"{each.parts[part]:.3f}" if part in each.parts else "-" for part in PARTS),
            sum(len(job.stages) for job in each.jobs),
        ]
        for each in shown
    ]
    title = f"{query.name}{which}"
    fitted = twin.queries.get(query.name) if twin is not None else None
    return {
        "id": query.run_id,
        "title": title,
        "count": len(query.batches),
        "curves": _batch_curves(query, title, fitted) if query.batches else [],
        "batches": {"head": ["batch", "begun, UTC", "records", "seconds", *PARTS, "stages"], "rows": rows},
    }


def _batch_curves(query: Query, title: str, fitted: QueryTwin | None) -> list[dict[str, Any]]:
    batches = query.batches
    at = np.array([each.begun - batches[0].begun for each in batches])
    lasted = np.maximum([each.duration for each in batches], 1e-3)
    rows = np.array([each.rows for each in batches], float)
    gaps = np.maximum(np.diff(at, prepend=at[0] - lasted[0]), 1e-3)
    tasks = np.full((len(batches), 3), np.nan)  # p50, p95 and maximum of each batch's longest stage
    for place, batch in enumerate(batches):
        if stages := [stage.tasks.durations for stage in batch.stages]:
            longest = max(stages, key=lambda each: float(each.sum()))
            tasks[place] = np.percentile(longest, [50, 95, 100])
    behind = [math.nan if each.records_behind is None else each.records_behind for each in batches]
    state = [sum(one.rows for one in each.state) if each.state else math.nan for each in batches]
    used = [part for part in PARTS if any(each.parts.get(part) for each in batches)]
    parts = {part: [each.parts.get(part, 0.0) for each in batches] for part in used}
    rates = {"input rate": rows / gaps, "process rate": rows / lasted}
    kinds = dict(zip(("p50", "p95", "max"), tasks.T, strict=True))
    skew = {"largest over median": tasks[:, 2] / np.maximum(tasks[:, 0], 1e-3)}
    return [
        page_curve(f"{title}: does it keep up? Input rate and process rate", "rows per second", at, rates),
        page_curve(f"{title}: how many input rows has a batch?", "rows", at, {"input rows": rows}),
        page_curve(
            f"{title}: how long do batches last? Batch duration", "seconds", at, {"batch duration": lasted}
        ),
        page_curve(f"{title}: what takes the time of a batch?", "seconds", at, parts, kind="bars"),
        page_curve(
            f"{title}: does a backlog grow? Records that a batch left", "records", at, {"left behind": behind}
        ),
        page_curve(f"{title}: how long do tasks take? Those of the longest stage", "seconds", at, kinds),
        page_curve(
            f"{title}: is work spread evenly? The longest task over the median one", "times", at, skew
        ),
        page_curve(f"{title}: does state grow? Rows kept", "rows", at, {"rows in state": state}),
        *_latency_curves(query, title, fitted),
    ]


def _latency_curves(query: Query, title: str, fitted: QueryTwin | None) -> list[dict[str, Any]]:
    """Return the age of the oldest record at its commit, if the twin is of this run."""
    if fitted is None or fitted.run_id != query.run_id:
        return []
    first = query.batches[-1].ended_at - float(fitted.ended[-1])  # start of its first batch
    taken = accumulate(fitted.records[:-1], initial=0.0)
    ages = [
        ended - fitted.arrivals.arrival_time(done + 1)
        for ended, done in zip(fitted.ended.tolist(), taken, strict=True)
    ]
    return [
        page_curve(
            f"{title}: how late are records? Latency, age of a batch's oldest at its commit",
            "seconds",
            fitted.ended + (first - query.batches[0].begun),
            {"oldest record": ages},
        )
    ]
