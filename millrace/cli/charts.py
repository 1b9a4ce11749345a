"""Curves and points over time, as charts of a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

POINTS = 600
"""Of one curve: more cannot be told apart on a screen."""

Points = Sequence[tuple[float, float]]


def thin(times: Any, values: Any, *, per: float = 3600.0) -> list[tuple[float, float]]:
    """Keep the largest of each group of neighbours, so that no peak is lost; times are divided by ``per``."""
    import numpy as np

    group = max(1, -(-len(times) // POINTS))
    found = []
    for begin in range(0, len(times), group):
        place = begin + int(np.argmax(values[begin : begin + group]))
        found.append((float(times[place]) / per, float(values[place])))
    return found


def lines(
    title: str,
    curves: Mapping[str, Points],
    *,
    x: str = "hours",
    step: bool = False,
    rules: Mapping[str, float] | None = None,
    height: int = 180,
) -> Any:
    """Return curves over time, with a dashed rule across for each bound.

    Parameters
    ----------
    title
        Of the axis.
    curves
        By name.
    x
        Title of the other axis.
    step
        Whether a value holds until the next.
    rules
        Bounds by name.
    height
        In pixels; the width is the page's.
    """
    import altair as alt

    rows = [
        {"x": round(at, 5), "value": round(value, 4), "of": name}
        for name, points in curves.items()
        for at, value in points
    ]
    color = alt.Color("of:N", title=None, sort=list(dict.fromkeys([*curves, *(rules or {})])))
    base = (
        alt.Chart({"values": rows})
        .mark_line(interpolate="step-after" if step else "linear")
        .encode(x=alt.X("x:Q", title=x), y=alt.Y("value:Q", title=title), color=color)
    )
    if not rules:
        return base.properties(height=height)
    bounds = [{"value": value, "of": name} for name, value in rules.items()]
    rule = (
        alt.Chart({"values": bounds})
        .mark_rule(strokeDash=[4, 4])
        .encode(y=alt.Y("value:Q", title=title), color=color)
    )
    return (base + rule).properties(height=height)
