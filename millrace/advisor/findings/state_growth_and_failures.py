"""Findings about state that grows, and about queries that ended with an error."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from millrace.advisor.findings.model import Evidence, Finding
from millrace.advisor.findings.query_view import QueryView, figure_evidence
from millrace.advisor.logs.statistics import Estimate, slope_with_interval

DAY = 86400.0

GROWN = 0.2
"""Minimum growth of state in the second half of a run, as a share of its size."""

FORGOTTEN = 0.5
"""Share of the new rows that must be removed again for state to have a bound."""


def state_findings(view: QueryView) -> Iterator[Finding]:
    """Yield the findings about a query's state, and about its failure."""
    if view.query.failure is not None:
        runs = [each.run_id for each in view.history.queries if each.id == view.query.id]
        again = view.query.run_id != runs[-1]
        yield view.make_finding(
            "restarted-query" if again else "failed-query",
            words=f"{view.query.name} ended with an error: {view.query.failure}{'; it was started again' if again else ''}",
            evidence=tuple(Evidence("last batch that was done", each.id) for each in view.query.batches[-1:]),
            changes=view.subject.code_changes(f"query {view.query.name}", "what failed", "no such error"),
            saved=Estimate(0.0, 0.0, 0.0),
            batches=(),
        )
    if view.has_enough_batches:
        operators = {len(batch.state) for batch in view.settled_batches}
        if len(operators) == 1:
            for place in range(operators.pop()):
                yield from _growing_state_finding(view, place)


def _growing_state_finding(view: QueryView, place: int) -> Iterator[Finding]:
    half = view.settled_batches[len(view.settled_batches) // 2 :]
    begun = np.array([each.begun for each in half])
    rows = np.array([each.state[place].rows for each in half], float)
    growth = slope_with_interval(begun, rows)
    removed = float(sum(each.state[place].removed for each in half[1:]))
    more = float(rows[-1] - rows[0])
    if growth.low <= 0 or more < GROWN * rows[0] or removed > FORGOTTEN * (more + removed):
        return
    every = view.settled_batches
    memory = np.array([each.state[place].memory for each in every], float)
    memory_growth = slope_with_interval([each.begun for each in every], memory)
    operator = half[-1].state[place]
    # The batches themselves show the cost of a row of state: their time over its rows.
    cost = slope_with_interval([each.state[place].rows for each in every], view.batch_durations)
    low, likely, high = (max(0.0, each) for each in (cost.low, cost.value, cost.high))
    a_day = growth.times(DAY)
    mark = "its watermark does not bound it" if half[-1].has_watermark else "it has no watermark"
    yield view.make_finding(
        "growing-state",
        words=f"The state of {operator.name or 'an operator'} in {view.query.name} grows by {a_day.value:,.0f} rows a day and forgets "
        f"next to none: {mark}.",
        evidence=(
            Evidence("rows kept", float(rows[-1]), "rows"),
            figure_evidence("rows more in a day", a_day, "rows"),
            Evidence("rows forgotten in the second half", removed, "rows"),
            Evidence("memory more in a day", memory_growth.value * DAY, "B"),
            figure_evidence("batch duration", view.median_duration, "s"),
        ),
        changes=view.subject.code_changes(
            f"query {view.query.name}", "withWatermark", "a watermark on the time that bounds the key"
        ),
        saved=Estimate(likely, low, high if np.isfinite(high) else likely).times(a_day.value),
        batches=(each.id for each in half),
        what="batch duration after a day",
    )
