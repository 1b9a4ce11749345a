"""HTML page of advice: findings, batches that ran, what-if forecasts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from millrace.cli.shared.charts import POINTS, bars, interval_chart, keep_peaks, line_chart
from millrace.cli.shared.html_pages import Badge, Cell, Link, Page, format_number
from millrace.cli.shared.verdict import Verdict
from millrace.cli.watch.advise_options import backlog_of, forecast_cells
from millrace.cli.watch.advise_verdict import severity

if TYPE_CHECKING:
    from millrace.advisor.application_history import Batch, History, Query
    from millrace.advisor.findings import Advice, Change, Finding
    from millrace.advisor.forecast_figures import Forecast
    from millrace.advisor.what_if import ApplicationTwin, Key, WhatIfChange

PARTS = ("latestOffset", "getBatch", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
"""Parts of a batch in their order, with Spark's names."""

_ROWS = 300
"""Most rows in a table of batches: those of findings, and the last ones."""

_LINKS = 24
"""Most batches that a finding links to; the others are counted."""

_DRAWS = 19
"""Refitted twins for a curve: the lowest and the highest of 19 enclose 90 % (18 of 20 gaps lie between them)."""

_MINUTE = 60.0


@dataclass(frozen=True)
class _Run:
    """A run of a query on the page.

    Attributes
    ----------
    place
        Its number among all runs of the log, from 1.
    title
        The query's name, with the number of the run if the query has several.
    batches
        Those in its table.
    """

    query: Query
    place: int
    title: str
    batches: Sequence[Batch]

    def anchor(self, batch: int) -> str:
        """Return the HTML id of a batch; it is unique even if runs have the same name."""
        return f"batch-{re.sub(r'[^A-Za-z0-9_-]', '-', self.query.name)}-{self.place}-{batch}"


def advice_page(
    advice: Advice, verdict: Verdict, twin: ApplicationTwin | None = None, forecasts: Sequence[Forecast] = ()
) -> Page:
    """Return the page of advice.

    Parameters
    ----------
    advice
        Findings with the history that they are from.
    twin
        Source of latency, backlog and what-if curves; without it, or without its queries, the page has none.
    forecasts
        Forecasts that were asked for.
    """
    history = advice.history
    page = Page(f"{history.name or history.app_id or 'An application'}: advice")
    page.verdict(verdict)
    page.text(f"From {datetime.fromtimestamp(history.started, UTC):%Y-%m-%d %H:%M} UTC on.")
    runs = _runs(history, advice.findings)
    _findings(page, advice, runs)
    for note in (*advice.notes, *(twin.notes if twin is not None else ())):
        page.text(f"Note: {note}")
    if len(forecasts) > 1:
        _forecasts(page, forecasts)
    if twin is not None and twin.queries:
        _curves(page, twin)
    for run in runs.values():
        if run.query.batches:
            _query(page, run, twin)
            _batches(page, run)
    return page


def _runs(history: History, findings: Sequence[Finding]) -> dict[str, _Run]:
    """Return all runs by their ids, with titles and the batches to show."""
    found: dict[str, _Run] = {}
    for place, query in enumerate(history.queries, 1):
        same = [each.run_id for each in history.queries if each.name == query.name]
        title = query.name
        if len(same) > 1:
            title += f", run {same.index(query.run_id) + 1} of {len(same)}"
        found[query.run_id] = _Run(query, place, title, _shown(query, findings))
    return found


def _shown(query: Query, findings: Sequence[Finding]) -> list[Batch]:
    """Return the batches for the table: those that findings name, and the last ones."""
    named = [b for each in findings if each.run in (None, query.run_id) for b in each.batches[:_LINKS]]
    wanted = set(named) | {each.id for each in query.batches[-_ROWS:]}
    return [each for each in query.batches if each.id in wanted]


def _findings(page: Page, advice: Advice, runs: Mapping[str, _Run]) -> None:
    page.add_heading("Findings")
    if not advice.findings:
        page.text("No change is recommended.")
        return
    rows: list[list[Cell]] = [
        [
            Link(f"{place}. {each.kind}", f"finding-{place}"),
            Badge(severity(each)),
            "all" if each.run is None else runs[each.run].title,
            f"{format_number(each.effect.likely)} {each.effect.unit}",
            f"{format_number(each.effect.low)} to {format_number(each.effect.high)} {each.effect.unit}",
            each.effect.what,
            "-" if each.dollars_a_month is None else f"${each.dollars_a_month:,.2f}",
        ]
        for place, each in enumerate(advice.findings, 1)
    ]
    head = ["finding", "", "query", "gain", "95 % interval", "of", "a month"]
    page.table(head, rows, "Recommended changes, largest savings first")
    for place, each in enumerate(advice.findings, 1):
        page.add_heading(f"{place}. {each.kind}", below=True, anchor=f"finding-{place}")
        page.text(each.words)
        figures = [
            [e.name, f"{format_number(e.value)} {e.unit}".strip(), _between(e.low, e.high)]
            for e in each.evidence
        ]
        page.table(["evidence", "value", "95 % interval"], figures, f"Evidence of {place}. {each.kind}")
        if each.changes:
            page.table(
                ["where", "key", "now", "change to"],
                [_change(one) for one in each.changes],
                f"Changes for {place}. {each.kind}, best first",
                words=True,
            )
        owner = next(iter(runs.values()), None) if each.run is None else runs[each.run]
        if owner is None:
            continue
        there = {batch.id for batch in owner.batches}
        found = [batch for batch in each.batches if batch in there][:_LINKS]
        if found:
            more = f" and {len(each.batches) - len(found)} more" if len(each.batches) > len(found) else ""
            page.links(f"Batches{more}:", [Link(str(batch), owner.anchor(batch)) for batch in found])


def _change(change: Change) -> list[str]:
    return [
        change.where,
        change.key,
        "not set" if change.old is None else str(change.old),
        "take it away" if change.new is None else str(change.new),
    ]


def _between(low: float | None, high: float | None) -> str:
    return (
        "-"
        if low is None or high is None or low == high
        else f"{format_number(low)} to {format_number(high)}"
    )


def _forecasts(page: Page, forecasts: Sequence[Forecast]) -> None:
    from millrace.advisor.forecast_figures import FIGURES

    page.add_heading("What if")
    rows = []
    for each in forecasts:
        dollars = "-" if each.dollars_month is None else f"${each.dollars_month:,.2f}"
        for name, query in each.queries.items():
            rows.append(
                [str(each), name, str(each.workers), dollars, backlog_of(query), *forecast_cells(query)]
            )
    columns = [
        "what if",
        "query",
        "machines",
        "a month",
        "backlog",
        *(f"{each}, s" for each in FIGURES.values()),
    ]
    page.table(columns, rows, "Predicted values with 95 % intervals")


def _curves(page: Page, twin: ApplicationTwin) -> None:
    page.add_heading("Effect of one change")
    page.text(
        "The same traffic under other conditions, simulated with the costs measured in this log; the "
        "bands contain 90 % of simulations fitted to resampled batches."
    )
    for key, words, values in _asked(twin):
        points, waits = [], []
        for value in values:
            played = twin.what_if(_changes(key, value), _DRAWS)
            at = _value(key, value, twin)
            for name, query in played.queries.items():
                duration, oldest = query.figures["duration"], query.figures["oldest"]
                points.append((at, duration.value, duration.low, duration.high, name))
                waits.append((at, oldest.value, oldest.low, oldest.high, name))
        page.chart(
            interval_chart("seconds", points, x=words), f"How long does a batch last by {words}? The median"
        )
        page.chart(interval_chart("seconds", waits, x=words), f"How old do records get by {words}? p95")


def _asked(twin: ApplicationTwin) -> list[tuple[Key, str, list[float]]]:
    cores = sorted({max(1, round(twin.cores * factor)) for factor in (0.5, 1, 2, 4)})
    found: list[tuple[Key, str, list[float]]] = [
        ("cores", "cores", [float(each) for each in cores]),
        ("traffic", "traffic", [0.5, 1.0, 1.5, 2.0]),
    ]
    triggers = [each.trigger for each in twin.queries.values() if each.trigger > 0]
    if triggers:
        found.append(("trigger", "trigger, s", [triggers[0] * factor for factor in (0.5, 1.0, 2.0, 4.0)]))
    limits = [each.limit for each in twin.queries.values() if each.limit is not None]
    if limits:
        found.append(("limit", "limit of a batch", [math.ceil(limits[0] * f) for f in (0.5, 1.0, 2.0, 4.0)]))
    return found


def _changes(key: Key, value: float) -> tuple[WhatIfChange, ...]:
    from millrace.advisor.what_if import WhatIfChange

    return (WhatIfChange(key, value),)


def _value(key: Key, value: float, twin: ApplicationTwin) -> str:
    text = format_number(value)
    return (
        f"{text} (now)"
        if key == "cores" and value == twin.cores
        else f"{text}×"
        if key == "traffic"
        else text
    )


def _query(page: Page, run: _Run, twin: ApplicationTwin | None) -> None:
    import numpy as np

    query = run.query
    page.add_heading(f"Query {run.title}")
    begin = query.batches[0].begun
    at = np.array([each.begun - begin for each in query.batches])
    lasted = np.array([each.duration for each in query.batches])
    rows = np.array([each.rows for each in query.batches], float)
    gaps = np.diff(at, prepend=at[0] - lasted[0])

    def over(values: Any, times: Any = at) -> list[tuple[float, float]]:
        return keep_peaks(times, np.asarray(values, float), per=_MINUTE)

    name, x = run.title, "minutes"
    rates = {
        "input rate": over(rows / np.maximum(gaps, 1e-3)),
        "process rate": over(rows / np.maximum(lasted, 1e-3)),
    }
    page.chart(
        line_chart("rows per second", rates, x=x), f"{name}: does it keep up? Input rate and process rate"
    )
    page.chart(
        line_chart("rows", {"input rows": over(rows)}, x=x), f"{name}: how many input rows has a batch?"
    )
    page.chart(
        line_chart("seconds", {"batch duration": over(lasted)}, x=x),
        f"{name}: how long do batches last? Batch duration",
    )
    step = max(1, -(-len(at) // (POINTS // len(PARTS))))
    parts = {
        part: [
            (t / _MINUTE, each.parts.get(part, 0.0))
            for t, each in list(zip(at.tolist(), query.batches, strict=True))[::step]
        ]
        for part in PARTS
        if any(each.parts.get(part) for each in query.batches)
    }
    if parts:
        page.chart(bars("seconds", parts, x=x), f"{name}: what takes the time of a batch?")
    _latency(page, run, twin, begin)
    _tasks(page, run, over)
    if any(each.state for each in query.batches):
        kept = np.array([sum(one.rows for one in each.state) for each in query.batches], float)
        page.chart(
            line_chart("rows", {"rows in state": over(kept)}, x=x), f"{name}: does state grow? Rows kept"
        )


def _latency(page: Page, run: _Run, twin: ApplicationTwin | None, begin: float) -> None:
    """Add the age of the oldest record at its commit, and the backlog."""
    import numpy as np

    query = run.query
    fitted = twin.queries.get(query.name) if twin is not None else None
    if fitted is not None and fitted.run_id == query.run_id:
        first = query.batches[-1].ended - float(fitted.ended[-1])  # start of its first batch
        taken = np.concatenate(([0.0], np.cumsum(fitted.records)[:-1]))
        ages = [
            ended - fitted.arrivals.moment(done + 1)
            for ended, done in zip(fitted.ended.tolist(), taken.tolist(), strict=True)
        ]
        points = keep_peaks(fitted.ended + (first - begin), np.array(ages), per=_MINUTE)
        title = f"{run.title}: how late are records? Latency, age of a batch's oldest at its commit"
        page.chart(line_chart("seconds", {"oldest record": points}, x="minutes"), title)
    behind = [
        (each.begun - begin, float(each.records_behind))
        for each in query.batches
        if each.records_behind is not None
    ]
    if behind:
        times, left = np.array(behind).T
        points = keep_peaks(times, left, per=_MINUTE)
        page.chart(
            line_chart("records", {"left behind": points}, x="minutes"),
            f"{run.title}: does a backlog grow? Records that a batch left",
        )


def _tasks(page: Page, run: _Run, over: Callable[..., list[tuple[float, float]]]) -> None:
    """Add percentiles of the tasks in each batch's longest stage."""
    import numpy as np

    query = run.query
    begin = query.batches[0].begun
    at, found = [], []
    for batch in query.batches:
        tables = [stage.tasks.duration for stage in batch.stages]
        if tables:
            longest = max(tables, key=lambda each: float(each.sum()))
            at.append(batch.begun - begin)
            found.append([*np.percentile(longest, [50, 95]), longest.max()])
    if not found:
        return
    times, table = np.array(at), np.array(found, float)
    curves = {label: over(table[:, place], times) for place, label in enumerate(("p50", "p95", "max"))}
    page.chart(
        line_chart("seconds", curves, x="minutes"),
        f"{run.title}: how long do tasks take? Those of the longest stage",
    )
    skew = table[:, 2] / np.maximum(table[:, 0], 1e-3)
    page.chart(
        line_chart("times", {"largest over median": over(skew, times)}, x="minutes"),
        f"{run.title}: is work spread evenly? The longest task over the median one",
    )


def _batches(page: Page, run: _Run) -> None:
    shown, all_of_them = run.batches, len(run.query.batches)
    rows = [
        [
            str(each.id),
            f"{datetime.fromtimestamp(each.begun, UTC):%H:%M:%S}",
            f"{each.records:,}",
            f"{each.duration:.2f}",
            *(f"{each.parts[part]:.3f}" if part in each.parts else "-" for part in PARTS),
            str(sum(len(job.stages) for job in each.jobs)),
        ]
        for each in shown
    ]
    of = "" if len(shown) == all_of_them else f", {len(shown)} of {all_of_them:,}"
    page.table(
        ["batch", "begun, UTC", "records", "seconds", *PARTS, "stages"],
        rows,
        f"Batches of {run.title}{of}",
        ids=[run.anchor(each.id) for each in shown],
    )
