"""Findings about overhead: time of a batch without tasks (planning, offsets, checkpoint, commits), and too short triggers."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from millrace.advisor.findings.capacity import flags_of_batches_at_limit
from millrace.advisor.findings.model import Finding
from millrace.advisor.findings.query_view import BOUND, QueryView, figure_evidence
from millrace.advisor.logs.statistics import Estimate, median_with_interval

CHECKPOINT = ("walCommit", "commitOffsets")
PLANNING = ("latestOffset", "getBatch", "queryPlanning")

SLOW_CHECKPOINT = 0.5
"""Limit in seconds for writing offsets and commits: two small files, and S3 takes a tenth of a second for each."""

SLOW_PLANNING = 0.5
"""Limit in seconds for planning and asking for offsets; a plan of usual size takes a tenth."""

SHARE = 0.25
"""Share of a batch from which on a part of its overhead is worth a change."""

WANTED = 0.2
"""Target for overhead's share of the time between triggers."""


def overhead_findings(view: QueryView) -> Iterator[Finding]:
    """Yield the findings about a query's overhead."""
    if not view.has_enough_batches:
        return
    limited = flags_of_batches_at_limit(view) is not None
    # At a limit a longer trigger takes as many records less often: the limit has to be higher.
    parts = [_checkpoint_finding(view, limited=limited), None if limited else _planning_finding(view)]
    yield from filter(None, parts)
    if not limited and not any(parts):
        yield from _short_trigger_finding(view)


def _interval_for_overhead(overhead: float, view: QueryView) -> float:
    """Return the interval at which overhead is a fifth of the time, in whole seconds.

    At most half of the latency, where one is known: a record waits for a trigger and a batch.
    """
    seconds = math.ceil(overhead / WANTED)
    latency = view.subject.latency_limit_seconds(view.query)
    return max(1, seconds if latency is None else min(seconds, math.floor(latency / 2)))


def _checkpoint_finding(view: QueryView, *, limited: bool) -> Finding | None:
    seconds = view.part_seconds(*CHECKPOINT)
    writing = median_with_interval(seconds)
    share = median_with_interval(seconds / view.batch_durations)
    if writing.low < SLOW_CHECKPOINT or share.low < SHARE:
        return None
    changes = view.changes_for("checkpoint", None, "storage that takes a small file in a tenth of a second")
    if view.runs_back_to_back and not limited:
        changes += view.changes_for(
            "trigger", None, _interval_for_overhead(float(np.median(view.overhead_seconds)), view)
        )
    return view.make_finding(
        "slow-checkpoint",
        words=f"{view.query.name} writes offsets and commits for {writing.value:.1f} s in every batch, {share.value:.0%} of it: its "
        "checkpoint lies on slow storage.",
        evidence=(
            figure_evidence("writing offsets and commits", writing, "s"),
            figure_evidence("of the batch", share.times(100), "%"),
            *(
                figure_evidence(each, median_with_interval(view.part_seconds(each)), "s")
                for each in CHECKPOINT
            ),
        ),
        changes=changes,
        saved=Estimate(writing.value - SLOW_CHECKPOINT / 2, writing.low - SLOW_CHECKPOINT / 2, writing.high),
        batches=(
            each.id
            for each, took in zip(view.settled_batches, seconds, strict=True)
            if took >= SLOW_CHECKPOINT
        ),
    )


def _planning_finding(view: QueryView) -> Finding | None:
    seconds = view.part_seconds(*PLANNING)
    planning = median_with_interval(seconds)
    share = median_with_interval(seconds / view.batch_durations)
    if planning.low < SLOW_PLANNING or share.low < BOUND:
        return None
    parts = {name: median_with_interval(view.part_seconds(name)) for name in PLANNING}
    slowest = max(parts, key=lambda name: parts[name].value)
    trigger = _interval_for_overhead(planning.value, view)
    return view.make_finding(
        "overhead-bound",
        words=f"{view.query.name} spends {share.value:.0%} of every batch before its work begins, most of it in {slowest}: with a "
        f"trigger of {trigger:g} s that is a fifth.",
        evidence=tuple(figure_evidence(name, each, "s") for name, each in parts.items()),
        changes=view.changes_for("trigger", None, trigger),
        saved=planning.times(1 - view.median_interval / max(trigger, view.median_interval)),
        what="machine time",
    )


def _short_trigger_finding(view: QueryView) -> Iterator[Finding]:
    """Yield a finding for batches back to back that are mostly overhead."""
    share = view.overhead_share
    if not view.runs_back_to_back or share.low < BOUND:
        return
    overhead = median_with_interval(view.overhead_seconds)
    trigger = _interval_for_overhead(overhead.value, view)
    if trigger <= view.median_interval:
        return
    yield view.make_finding(
        "trigger-too-short",
        words=f"{view.query.name} starts a batch every {view.median_interval:.2g} s, {share.value:.0%} of which is overhead: its trigger is "
        f"shorter than its batches. With one of {trigger:g} s overhead is a fifth.",
        evidence=(
            figure_evidence("batch duration", view.median_duration, "s"),
            figure_evidence("without a task", share.times(100), "%"),
            figure_evidence("records a batch", median_with_interval(view.records_per_batch), "records"),
            figure_evidence("time in batches", view.busy_share * 100, "%"),
        ),
        changes=view.changes_for("trigger", None, trigger),
        saved=overhead.times(1 - view.median_interval / trigger),
        what="machine time",
    )
