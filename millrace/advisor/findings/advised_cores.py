"""Cores that an application keeps after all changes, and the finding on those that are idle."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from millrace.advisor.findings.capacity import ROOM
from millrace.advisor.findings.model import Effect, Evidence, Finding
from millrace.advisor.findings.query_view import QueryView, figure_evidence
from millrace.advisor.logs.application_history_model import NO_TASKS, Floats
from millrace.advisor.logs.statistics import Estimate, median_with_interval

USUAL = 0.9
"""Share of the batches that fewer cores must carry in time: the busiest tenth may take longer."""


def advised_cores(
    views: tuple[QueryView, ...], needed: int, findings: Sequence[Finding]
) -> tuple[int, Finding | None]:
    """Return the cores that the application has after all changes, and the finding that takes some; ``None`` where none is idle.

    Parameters
    ----------
    findings
        Those about capacity, whose changes are counted.
    """
    if not views:
        return 0, None
    history = views[0].history
    if not any(each.kind in ("at-capacity", "silent-backlog") for each in findings):
        return _cores_without_idle(views)
    # The other change of a query that falls behind takes some of its cores: they are judged once it keeps up.
    more = views[0].subject.changes_for(None, history, "cores", history.cores, needed)
    added = any(each.best_change and replace(each.best_change, also=()) in more for each in findings)
    return needed if added else history.cores, None


def _cores_without_idle(views: tuple[QueryView, ...]) -> tuple[int, Finding | None]:
    """Return the cores without those of executors that the application never needs, and the finding on these.

    Only where there are several: a single one cannot be removed.
    """
    history, subject = views[0].history, views[0].subject
    cores, one = history.cores, history.smallest_executor_cores
    judged = [each for each in views if each.has_enough_batches]
    if cores < 2 * max(one, 1) or {each.query.id for each in judged} < {each.query.id for each in views}:
        return cores, None
    needs = [(view, _at_busiest_tenth(_cores_by_batch(view))) for view in judged]
    others = _at_busiest_tenth(_cores_of_other_jobs(judged))
    # Runs of one query follow each other: only what runs at the same time needs its cores at the same time.
    moments = [[need for need in needs if _runs_at_start_of(need[0], view)] for view in judged]
    busiest = [
        others,
        *(each for _, each in max(moments, key=lambda moment: sum(each.high for _, each in moment))),
    ]
    keep = math.ceil(max(subject.least_cores(), sum(each.high for each in busiest) * ROOM) / one) * one
    while keep < cores and not all(_keeps_its_pace(moment, keep - others.high) for moment in moments):
        keep += one
    changes = subject.changes_for(None, history, "cores", cores, keep)
    if keep > cores - one or keep > cores * 0.7 or not changes:
        return cores, None
    month = subject.dollars_month
    used = Estimate(*(sum(getattr(each, end) for each in busiest) for end in ("value", "low", "high")))
    evidence = (Evidence("cores", cores, "cores"), figure_evidence("needed for the latency", used, "cores"))
    words = f"{cores} cores run what {used.value:.1f} would carry in time: {cores - keep} are not needed."
    effect = Effect("batch duration", "s", 0.0, 0.0, 0.0)
    dollars = None if month is None else month * (cores - keep) / (cores + one)  # the driver stays
    return keep, Finding("idle-cores", None, words, evidence, (), changes, effect, dollars)


def _runs_at_start_of(other: QueryView, view: QueryView) -> bool:
    """Tell whether another query, or the view itself, runs when the view's first batch begins."""
    return other.query.batches[0].begun <= view.query.batches[0].begun < other.query.batches[-1].ended_at


def _keeps_its_pace(together: Sequence[tuple[QueryView, Estimate]], cores: float) -> bool:
    """Tell whether queries that share so many cores end nine of ten batches as early as today, or before the next trigger.

    Tasks are not divided: five equal tasks on four cores take twice the time of one.
    """
    used = sum(need.high for _, need in together)
    return all(_share_of_batches_in_time(view, cores - used + need.high) >= USUAL for view, need in together)


def _share_of_batches_in_time(view: QueryView, cores: float) -> float:
    slots = max(1, math.floor(cores))
    place, tasks, together, longest = view.stage_loads
    # Upper bounds of list scheduling: Graham's (1969), and waves of the longest task.
    bound = np.minimum(together / slots + longest * (1 - 1 / slots), np.ceil(tasks / slots) * longest)
    seconds = np.bincount(place.astype(int), bound, len(view.settled_batches)) * view.arrivals_by_processed
    return float(np.mean(seconds <= np.maximum(view.seconds_with_tasks, _seconds_for_tasks(view)) + 1e-3))


def _seconds_for_tasks(view: QueryView) -> float:
    """Return the seconds between two triggers that overhead leaves to tasks."""
    overhead = median_with_interval(view.overhead_seconds)
    return max(view.median_interval - overhead.value, view.median_interval * 0.1, 1e-3)


def _cores_by_batch(view: QueryView) -> Floats:
    """Return the cores that carry the task time of each batch between two triggers, at the rate at which records arrive."""
    task_time = np.array(
        [sum(float(stage.tasks.run.sum()) for stage in batch.stages) for batch in view.settled_batches]
    )
    return np.asarray(task_time / _seconds_for_tasks(view) * view.arrivals_by_processed)


def _cores_of_other_jobs(views: Sequence[QueryView]) -> Floats:
    """Return the cores of Spark jobs that no batch claims, from batch to batch: a program may start them from its own threads."""
    slowest = max(views, key=lambda view: view.median_interval)
    begun = np.concatenate([each.settled_starts for each in views if each.query.id == slowest.query.id])
    edges = np.unique([*begun, begun.max() + max(slowest.median_interval, 1e-3)])
    tasks = [stage.tasks for job in slowest.history.jobs for stage in job.stages] or [NO_TASKS]
    launched, run = (np.concatenate([getattr(each, name) for each in tasks]) for name in ("launched", "run"))
    return np.asarray(np.histogram(launched, edges, weights=run)[0] / np.diff(edges))


def _at_busiest_tenth(cores: Floats) -> Estimate:
    """Return the median of cores; its upper end is at least what the busiest tenth of the batches takes."""
    middle = median_with_interval(cores)
    return Estimate(middle.value, middle.low, max(middle.high, float(np.percentile(cores, 90))))
