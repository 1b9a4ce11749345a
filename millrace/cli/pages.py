"""Pages with charts that need no network: Vega-Lite, its program within the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millrace.config import ConfigurationError
from millrace.config.problems import Problem

if TYPE_CHECKING:
    from millrace.config import Environment
    from millrace.sizing import Plan
    from millrace.sizing.simulation import JobResult

_POINTS = 600
"""Of one curve: more cannot be told apart on a screen."""

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1d2733; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; margin: .8rem 0; font-variant-numeric: tabular-nums; }
td, th { padding: .25rem .8rem .25rem 0; text-align: right; border-bottom: 1px solid #dde3ea; }
td:first-child, th:first-child { text-align: left; } .note { color: #5a6673; }
@media (prefers-color-scheme: dark) { body { background: #fff; } }
"""


class Page:
    """A page under construction: text, tables and charts from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        self._charts: list[dict[str, Any]] = []

    def heading(self, text: str) -> None:
        """Begin a section."""
        self._parts.append(f"<h2>{escape(text)}</h2>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f'<p class="note">{escape(text)}</p>')

    def table(self, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Add a table."""
        cells = "".join(f"<th>{escape(each)}</th>" for each in head)
        body = "".join("<tr>" + "".join(f"<td>{escape(each)}</td>" for each in row) + "</tr>" for row in rows)
        self._parts.append(f"<table><tr>{cells}</tr>{body}</table>")

    def chart(self, chart: Any) -> None:
        """Add an Altair chart."""
        self._parts.append(f'<div id="chart{len(self._charts)}"></div>')
        self._charts.append(chart.to_dict())

    def html(self) -> str:
        """Return the page."""
        import json

        import vl_convert as vlc

        # What stands in a script must not end it.
        specs = json.dumps(self._charts).replace("<", "\\u003c")
        program = vlc.javascript_bundle(
            f"const specs = {specs};\n"
            "specs.forEach((spec, i) => vegaEmbed('#chart' + i, spec, {actions: false, renderer: 'svg'}));"
        )
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self._title)}</title>'
            f"<style>{_STYLE}</style></head><body>{''.join(self._parts)}"
            f'<script type="module">{program}</script></body></html>\n'
        )


def write_page(file: Path, page: Page) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        It cannot be written there.
    """
    try:
        with file.open("a", encoding="utf-8"):
            pass  # before the work, not after it
        file.write_text(page.html(), encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError(
            [Problem("command line", 0, "--html", str(file), f"a file that can be written: {reason}")]
        ) from error


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
        times = np.linspace(0.0, result.seconds, _POINTS)
        for each, query in result.queries.items():
            sla = plan.jobs[name].queries[each].latency_seconds.value
            ages = [f"{query.ages.percentile(p):,.1f} s" for p in (50, 95, 99)]
            rows.append([each, *ages, f"{query.ages.most:,.1f} s", f"{sla:g} s", f"{query.waiting:,.0f}"])
        page.table(["query", "p50", "p95", "p99", "max", "SLA", "waiting at the end"], rows)
        hours = times / 3600
        traffic = {
            each: np.gradient(np.interp(times, q.arrivals.times, q.arrivals.totals), times)
            for each, q in result.queries.items()
        }
        page.chart(_lines("records per second, arriving", hours, traffic))
        oldest = {each: _thin(q.ends, q.oldest) for each, q in result.queries.items() if len(q.ends)}
        slas = {each: plan.jobs[name].queries[each].latency_seconds.value for each in result.queries}
        page.chart(_points("age of the oldest record of a batch, s", oldest, slas))
        waiting = {each: q.waiting_at(times) for each, q in result.queries.items()}
        page.chart(_lines("records waiting", hours, waiting))
        page.chart(_lines("executors", hours, {"executors": result.executors_at(times)}, step=True))
        page.chart(_lines("US dollars so far", hours, {"workers": result.usd_until(times)}))
    return page


def _thin(times: Any, values: Any) -> list[tuple[float, float]]:
    """Keep the largest of each group of neighbours, so that no peak is lost."""
    import numpy as np

    group = max(1, -(-len(times) // _POINTS))
    found = []
    for begin in range(0, len(times), group):
        place = begin + int(np.argmax(values[begin : begin + group]))
        found.append((float(times[place]) / 3600, float(values[place])))
    return found


def _lines(title: str, hours: Any, curves: Mapping[str, Any], *, step: bool = False) -> Any:
    import altair as alt

    rows = [
        {"hours": round(float(hour), 5), "value": round(float(value), 4), "of": name}
        for name, values in curves.items()
        for hour, value in zip(hours, values, strict=True)
    ]
    return (
        alt.Chart({"values": rows})
        .mark_line(interpolate="step-after" if step else "linear")
        .encode(
            x=alt.X("hours:Q", title="hours"),
            y=alt.Y("value:Q", title=title),
            color=alt.Color("of:N", title=None),
        )
        .properties(width=820, height=180)
    )


def _points(title: str, curves: Mapping[str, list[tuple[float, float]]], slas: Mapping[str, float]) -> Any:
    import altair as alt

    rows = [
        {"hours": round(hour, 5), "value": round(value, 4), "of": name}
        for name, values in curves.items()
        for hour, value in values
    ]
    rules = [{"value": sla, "of": name} for name, sla in slas.items()]
    base = (
        alt.Chart({"values": rows})
        .mark_line()
        .encode(
            x=alt.X("hours:Q", title="hours"),
            y=alt.Y("value:Q", title=title),
            color=alt.Color("of:N", title=None),
        )
    )
    rule = (
        alt.Chart({"values": rules})
        .mark_rule(strokeDash=[4, 4])
        .encode(y="value:Q", color=alt.Color("of:N", title=None))
    )
    return (base + rule).properties(width=820, height=180)
