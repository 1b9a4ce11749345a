"""Curves of a page: a question, a unit, and points that ``page/charts.js`` draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

POINTS = 600
"""Most points of a curve; a screen cannot show more."""


def page_curve(
    question: str,
    unit: str,
    times: Any,
    series: Mapping[str, Any],
    *,
    kind: Literal["line", "step", "bars"] = "line",
    limits: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return a curve over time, thinned so that no peak is lost; bars keep every n-th moment, where they stack.

    Parameters
    ----------
    question
        Its title.
    unit
        Title of the y axis.
    times
        Seconds, of all series or by their name.
    series
        A value for each moment, by name; a value that is not finite is left out.
    kind
        ``step``: a value holds until the next. ``bars``: series are stacked.
    limits
        Limit of a series, by its name: a dashed line, and red triangles above it.
    """
    drawn = {}
    for name, values in series.items():
        own = times[name] if isinstance(times, Mapping) else times
        pairs = np.column_stack((own, np.asarray(values, float)))
        pairs = pairs[np.isfinite(pairs[:, 1])]
        step = max(1, -(-len(pairs) // (POINTS // len(series) if kind == "bars" else POINTS)))
        firsts = range(0, len(pairs), step)
        peaks = firsts if kind == "bars" else [at + int(np.argmax(pairs[at : at + step, 1])) for at in firsts]
        drawn[name] = [[float(f"{x:.6g}"), float(f"{y:.4g}")] for x, y in pairs[list(peaks)].tolist()]
    return {
        "question": question,
        "unit": unit,
        "x": "time",
        "kind": kind,
        "series": drawn,
        "limits": limits or {},
    }
