"""Dashboards in two formats: CloudWatch's and Grafana's."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

from .dashboard_sections import ChartLine, Panel, Section

_PERIOD = 60
_WIDTH, _HEIGHT, _COLUMNS = 8, 6, 3

MOST_ALARMS = 100
"""Maximum number of alarms of an alarm widget ("Dashboard body structure and syntax", CloudWatch API reference)."""

MOST_WIDGETS = 500
"""Maximum number of widgets of a dashboard (the same page as the next)."""

MOST_METRICS = 2500
"""Maximum number of metrics of all widgets of a dashboard together (CloudWatch quotas)."""


def split_into_dashboards(sections: Sequence[Section], alarms: int) -> list[tuple[Section, ...]]:
    """Split the sections into as many dashboards as necessary, in their order.

    Parameters
    ----------
    sections
        From :func:`infra.dashboard_sections.dashboard_sections`.
    alarms
        Number of alarms, for which each dashboard keeps room.
    """
    pages: list[tuple[Section, ...]] = [()]
    full = (MOST_METRICS, MOST_WIDGETS - math.ceil(alarms / MOST_ALARMS))
    room = full
    for section in sections:
        needed = (sum(len(panel.series) for panel in section.panels), 1 + len(section.panels))
        if pages[-1] and (needed[0] > room[0] or needed[1] > room[1]):
            pages.append(())
            room = full
        pages[-1] += (section,)
        room = (room[0] - needed[0], room[1] - needed[1])
    return pages


def cloudwatch_dashboard_body(
    sections: tuple[Section, ...], region: str, alarm_arns: tuple[str, ...]
) -> dict[str, Any]:
    """Write the sections as the body of a CloudWatch dashboard.

    Parameters
    ----------
    sections
        From :func:`infra.dashboard_sections.dashboard_sections`.
    region
        Region of the metrics.
    alarm_arns
        Alarms whose states are shown at the top.
    """
    widgets: list[dict[str, Any]] = [
        {
            "type": "alarm",
            "x": 0,
            "y": number * _HEIGHT,
            "width": _WIDTH * _COLUMNS,
            "height": _HEIGHT,
            "properties": {
                "title": "Alarms" if number == 0 else f"Alarms, {first + 1} and on",
                "alarms": list(alarm_arns[first : first + MOST_ALARMS]),
                "sortBy": "stateUpdatedTimestamp",
            },
        }
        for number, first in enumerate(range(0, len(alarm_arns), MOST_ALARMS))
    ]
    for title, top, panels in _placed_sections(sections, len(widgets) * _HEIGHT):
        widgets.append(
            {
                "type": "text",
                "x": 0,
                "y": top,
                "width": _WIDTH * _COLUMNS,
                "height": 1,
                "properties": {"markdown": f"## {title}"},
            }
        )
        widgets += [
            {
                "type": "metric",
                "x": x,
                "y": y,
                "width": _WIDTH,
                "height": _HEIGHT,
                "properties": {
                    "title": panel.title,
                    "region": region,
                    "view": "timeSeries",
                    "period": _PERIOD,
                    "metrics": _rows_with_dots_for_repeats(
                        [_cloudwatch_metric_row(series) for series in panel.series]
                    ),
                    "annotations": {
                        "horizontal": [{"label": each.label, "value": each.value} for each in panel.limits]
                    },
                    "yAxis": {"left": {"min": 0}},
                },
            }
            for panel, x, y in panels
        ]
    return {"widgets": widgets}


def _placed_sections(
    sections: Sequence[Section], top: int
) -> Iterator[tuple[str, int, list[tuple[Panel, int, int]]]]:
    """Yield title and row of each section's heading, and its panels below it, each with column and row."""
    for section in sections:
        yield (
            section.title,
            top,
            [
                (panel, number % _COLUMNS * _WIDTH, top + 1 + number // _COLUMNS * _HEIGHT)
                for number, panel in enumerate(section.panels)
            ],
        )
        top += 1 + -(-len(section.panels) // _COLUMNS) * _HEIGHT


def _cloudwatch_metric_row(series: ChartLine) -> list[Any]:
    if series.summed_over is not None:
        return [{"expression": _sum_expression(series), "label": series.label}]
    dimensions = [part for pair in series.dimensions.items() for part in pair]
    return [
        series.namespace,
        series.metric,
        *dimensions,
        {"label": series.label, "stat": series.statistic},
    ]


def _rows_with_dots_for_repeats(rows: Sequence[list[Any]]) -> list[list[Any]]:
    """Write "." for what a row has in common with the row before: a template has 1 MB, and most rows differ in one value."""
    before: Sequence[list[Any]] = [[], *rows]
    return [
        [
            "." if part == last and isinstance(part, str) else part
            for part, last in zip_longest(row, above[: len(row)])
        ]
        for row, above in zip(rows, before, strict=False)
    ]


def _sum_expression(series: ChartLine) -> str:
    """Return the sum over a dimension, as metric math ("CloudWatch search expression syntax", CloudWatch user guide)."""
    quoted = {
        name: f'"{name}"' if " " in name else name for name in (*series.dimensions, series.summed_over or "")
    }
    schema = ",".join(quoted.values())
    dimensions = " ".join(f'{quoted[name]}="{value}"' for name, value in series.dimensions.items())
    search = f'{{{series.namespace},{schema}}} MetricName="{series.metric}" {dimensions}'
    return f"SUM(SEARCH('{search}', '{series.statistic}', {_PERIOD}))"


def grafana_dashboard(sections: tuple[Section, ...], *, title: str, uid: str, region: str) -> dict[str, Any]:
    """Write the sections as a Grafana dashboard over a CloudWatch data source.

    Parameters
    ----------
    sections
        From :func:`infra.dashboard_sections.dashboard_sections`.
    title, uid
        Title and uid of the dashboard; an import with the same uid replaces it.
    region
        Region of the metrics.

    Returns
    -------
    dict
        JSON model of Grafana 10 and later (schema 39); the data source is a variable.
    """
    panels: list[dict[str, Any]] = []
    for heading, top, placed in _placed_sections(sections, 0):
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": heading,
                "collapsed": False,
                "panels": [],
                "gridPos": {"x": 0, "y": top, "w": _WIDTH * _COLUMNS, "h": 1},
            }
        )
        for panel, x, y in placed:
            position = {"x": x, "y": y, "w": _WIDTH, "h": _HEIGHT}
            panels.append(_grafana_panel(panel, len(panels) + 1, position, region))
    source = {
        "name": "cloudwatch",
        "label": "CloudWatch",
        "type": "datasource",
        "query": "cloudwatch",
        "current": {},
        "hide": 0,
    }
    return {
        "uid": uid,
        "title": title,
        "tags": ["millrace"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "utc",
        "templating": {"list": [source]},
        "panels": panels,
    }


def _grafana_panel(panel: Panel, number: int, position: dict[str, int], region: str) -> dict[str, Any]:
    source = {"type": "cloudwatch", "uid": "${cloudwatch}"}
    levels = sorted({limit.value for limit in panel.limits})
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": "; ".join(f"{limit.label}: {limit.value:g}" for limit in panel.limits),
        "datasource": source,
        "gridPos": position,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": 0,
                "custom": {"thresholdsStyle": {"mode": "line" if levels else "off"}},
                "thresholds": {
                    "mode": "absolute",
                    "steps": [
                        {"color": "green", "value": None},
                        *({"color": "red", "value": level} for level in levels),
                    ],
                },
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}},
        "targets": [
            {
                "refId": f"Q{index}",
                "datasource": source,
                "queryMode": "Metrics",
                "metricQueryType": 0,
                # Grafana's editor "Code" takes an expression.
                "metricEditorMode": 0 if series.summed_over is None else 1,
                **({} if series.summed_over is None else {"expression": _sum_expression(series)}),
                "namespace": series.namespace,
                "metricName": series.metric,
                "dimensions": dict(series.dimensions),
                "matchExact": True,
                "statistic": series.statistic,
                "period": str(_PERIOD),
                "region": region,
                "label": series.label,
            }
            for index, series in enumerate(panel.series)
        ],
    }
