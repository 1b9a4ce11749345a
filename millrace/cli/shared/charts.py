"""Charts of a page: curves and points over time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from millrace.cli.shared.style import BREACH

POINTS = 600
"""Most points of a curve; a screen cannot show more."""

Points = Sequence[tuple[float, float]]


def keep_peaks(times: Any, values: Any, *, per: float = 3600.0) -> list[tuple[float, float]]:
    """Keep the largest value of each group of neighbours, so that no peak is lost; times are divided by ``per``."""
    import numpy as np

    group = max(1, -(-len(times) // POINTS))
    found = []
    for begin in range(0, len(times), group):
        place = begin + int(np.argmax(values[begin : begin + group]))
        found.append((float(times[place]) / per, float(values[place])))
    return found


def line_chart(
    title: str,
    curves: Mapping[str, Points],
    *,
    x: str = "hours",
    step: bool = False,
    rules: Mapping[str, float] | None = None,
    height: int = 180,
) -> Any:
    """Return curves over time, with a dashed line for each limit, and red triangles where a curve is above its own limit.

    Parameters
    ----------
    curves
        Points by name.
    x
        Title of the x axis.
    step
        Whether a value holds until the next.
    rules
        Limits by name.
    height
        In pixels; the page decides the width.
    """
    import altair as alt

    rows: list[dict[str, Any]] = [
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
    beyond = [row for row in rows if row["value"] > rules.get(str(row["of"]), math.inf)]
    if not beyond:
        return (base + rule).properties(height=height)
    late = (
        alt.Chart({"values": [{**row, "late": f"beyond the bound of {row['of']}"} for row in beyond]})
        .mark_point(shape="triangle-up", filled=True, size=45, color=BREACH, opacity=1)
        .encode(
            x=alt.X("x:Q", title=x),
            y=alt.Y("value:Q", title=title),
            shape=alt.Shape("late:N", title=None, scale=alt.Scale(range=["triangle-up"])),
        )
    )
    return (base + rule + late).properties(height=height)


def bars(title: str, parts: Mapping[str, Points], *, x: str) -> Any:
    """Return stacked bars of named parts, in the order of the parts."""
    import altair as alt

    rows = [
        {"x": round(at, 5), "value": round(value, 4), "of": name, "place": place}
        for place, (name, points) in enumerate(parts.items())
        for at, value in points
    ]
    return (
        alt.Chart({"values": rows})
        .mark_bar(width=alt.expr(f"max(1, 0.8 * width / {1 + max(map(len, parts.values()), default=0)})"))
        .encode(
            x=alt.X("x:Q", title=x, scale=alt.Scale(nice=False, padding=4)),
            y=alt.Y("value:Q", title=title),
            color=alt.Color("of:N", title=None, sort=list(parts)),
            order=alt.Order("place:Q"),
        )
        .properties(height=200)
    )


def interval_chart(title: str, points: Sequence[tuple[str, float, float, float, str]], *, x: str) -> Any:
    """Return estimates with their intervals, side by side.

    Parameters
    ----------
    points
        Position on the x axis, estimate, low and high end, name of the curve.
    x
        Title of the x axis.
    """
    import altair as alt

    rows = [
        {"x": at, "value": round(v, 4), "low": round(low, 4), "high": round(high, 4), "of": name}
        for at, v, low, high, name in points
    ]
    order = list(dict.fromkeys(at for at, *_ in points))
    at = alt.X("x:O", title=x, sort=order, axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("of:N")
    color = alt.Color("of:N", title=None)
    spread = (
        alt.Chart({"values": rows})
        .mark_rule(strokeWidth=2)
        .encode(x=at, xOffset=offset, y=alt.Y("low:Q", title=title), y2="high:Q", color=color)
    )
    middle = (
        alt.Chart({"values": rows})
        .mark_point(filled=True, size=80, opacity=1)
        .encode(x=at, xOffset=offset, y=alt.Y("value:Q", title=title), color=color)
    )
    return (middle + spread).properties(height=200)
