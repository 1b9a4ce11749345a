"""Findings about capacity: limits that are hit, hidden backlogs, heavy first batches, empty batches."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from millrace.advisor.findings.model import Change, Evidence, Finding
from millrace.advisor.findings.query_view import BOUND, QueryView, figure_evidence
from millrace.advisor.findings.tasks import (
    MANY,
    StageAcrossBatches,
    changes_to_task_count,
    stages_across_batches,
)
from millrace.advisor.logs.application_history_model import Batch, Flags, Floats
from millrace.advisor.logs.query_observations import observed_trigger_seconds, records_left_behind_by_batch
from millrace.advisor.logs.statistics import Estimate, median_with_interval, slope_with_interval

HIT = 0.8
"""Minimum share of settled batches that leave records behind: from it on the limit is the cause, not chance."""

EQUAL = 6
"""Batches in a row with exactly as many records: arrivals are never so even, but a limit is."""

CLEARED = 1.5
"""Factor on the longest run of batches at the limit that the query has worked off: traffic that comes in waves reaches the limit
in each, and a run that is no longer says where the log ends and nothing about a backlog.
"""

FIRST = 4.0
"""Records of a first batch that should have been limited, as a multiple of the usual."""

COLD = 5.0
"""Seconds that a first batch may take even with few records: classes are loaded and plans are compiled."""

STARTING = 2.0
"""Factor on the seconds since the log began: records that arrive in that time are no backlog. The log begins with Spark, about
half into an application's start.
"""

EMPTY = 0.2
"""Share of empty batches from which on they are reported."""

MORE = 1.5
"""Factor on the cores of a query whose batches grow without a limit: how much arrives does not show."""

_LONGER = 10.0
"""Largest factor for a longer trigger that avoids batches without records."""

ROOM = 1.25
"""A limit is set a quarter above the arrivals: enough to catch up, little enough to keep the latency."""

_MAY_HAVE_MORE = " Its settings allow more cores than it ran with."

_EVEN_SOURCES = ("ratestream", "ratepermicrobatch", "rate per micro")
"""Sources that make records by the clock, for tests: nothing waits there, and equal batches mean nothing."""


def capacity_findings(view: QueryView, cores: int) -> Iterator[Finding]:
    """Yield the findings about a query's limit, its first batch and its empty batches.

    Parameters
    ----------
    cores
        Cores with which every query of the application keeps up (:func:`cores_to_keep_up`); 0 where all keep up.
    """
    if view.has_enough_batches:
        yield from _batch_limit_finding(view, cores)
        yield from _heavy_first_batch_finding(view)
    yield from _empty_batches_finding(view)


def cores_to_keep_up(view: QueryView) -> int:
    """Return the cores with which a query that is at its capacity keeps up, in whole executors; 0 for any other query.

    They are no fewer than it had, which may be enough with more tasks.
    """
    if not view.has_enough_batches or not view.runs_back_to_back:
        return 0
    filled = _cores_that_tasks_fill(view)
    if flags_of_batches_at_limit(view) is not None:
        needed = max(filled * view.arrivals_by_processed * ROOM, filled + 1)
    elif _growth_of_batches(view) is not None:
        needed = filled * MORE
    else:
        return 0
    return max(view.history.cores, view.subject.whole_executors(view.history, math.ceil(needed)))


def _cores_that_tasks_fill(view: QueryView) -> int:
    """Return the cores that the longest stage has tasks for: more tasks come before more cores."""
    longest = _longest_stage(view)
    return view.history.cores if longest is None else min(view.history.cores, longest.partitions)


def _longest_stage(view: QueryView) -> StageAcrossBatches | None:
    def task_time(stage: StageAcrossBatches) -> float:
        return sum(float(each.tasks.run.sum()) for _, each in stage.pairs)

    return max(stages_across_batches(view), key=task_time, default=None)


def flags_of_batches_at_limit(view: QueryView) -> Flags | None:
    """Tell which of enough settled batches ended at their limit; ``None`` where the limit does not end batch after batch."""
    behind = records_left_behind_by_batch(view.settled_batches)
    if behind is not None:
        hit: Flags = behind > 0
        if hit.mean() < HIT:
            return None
    elif _has_rate_source(view.settled_batches[-1]):
        return None
    else:
        records = view.records_per_batch
        hit = np.concatenate([[False], (records[1:] == records[:-1]) & (records[1:] > 0)])
        hit[0] = hit[1]
    # Runs end at batches that took all that waited. The log may have cut the one that it begins with.
    emptied = np.flatnonzero(~hit)
    last = len(hit) - 1 - int(emptied.max(initial=-1))
    longest = int(np.diff(emptied).max(initial=1)) - 1
    return hit if last >= EQUAL and last > CLEARED * longest else None


def _batch_limit_finding(view: QueryView, needed: int) -> Iterator[Finding]:
    begun = view.settled_starts
    records = view.records_per_batch
    hit = flags_of_batches_at_limit(view)
    if hit is None:
        yield from _growing_batches_finding(view, needed)
        return
    behind = records_left_behind_by_batch(view.settled_batches)
    growth = (
        slope_with_interval(begun, behind)
        if behind is not None
        else _growth_of_oldest_record_age(view, begun)
    )
    span = float(begun[-1] - begun[0])
    arriving, processed = view.arriving_and_processed
    limit = math.ceil(max(arriving * ROOM * view.median_interval, float(np.median(records)) * ROOM))
    evidence = (
        figure_evidence("batches that hit the limit", float(hit.mean()) * 100, "%"),
        figure_evidence("records a batch", median_with_interval(records), "records"),
        figure_evidence("arriving", arriving, "records/s"),
        figure_evidence("processed", processed, "records/s"),
        figure_evidence(
            f"{'record age' if behind is None else 'backlog'} {'falls' if growth.high < 0 else 'grows'} by",
            Estimate(-growth.value, -growth.high, -growth.low) if growth.high < 0 else growth,
            "s/s" if behind is None else "records/s",
        ),
        figure_evidence("time in batches", view.busy_share * 100, "%"),
    )
    # The last record waits for as many batches more as the backlog fills.
    aged = growth.value * span * processed if growth.low > 0 else 0.0
    waiting = float(behind[-1]) if behind is not None else aged
    waits = f"{waiting:,.0f} records wait" if waiting >= 1 else "how many records wait is unknown"
    age = waiting / max(processed, 1e-3)
    spread = growth.low / growth.value if growth.value > 0 and growth.low > 0 else 0.0
    saved = Estimate(
        age, age * spread, age * max(1.0, growth.high / growth.value if growth.value > 0 else 1.0)
    )
    now = int(np.median(records))
    batches = [each.id for each, was in zip(view.settled_batches, hit, strict=True) if was]
    if view.runs_back_to_back:
        bound = view.overhead_share.low >= BOUND
        why = ", and more cores shorten only the rest" if bound else ""
        more = _changes_to_more_cores(view, needed)
        higher = view.changes_for("limit", now, limit)
        if arriving * observed_trigger_seconds(view.settled_batches) > now:  # however short batches become
            more = tuple(replace(each, also=each.also + higher[:1]) for each in more)
        yield view.make_finding(
            "at-capacity",
            words=f"{view.query.name} takes {now:,} records a batch, its limit, one batch after the other without rest: it is at "
            f"its capacity, and {waits}. {view.overhead_share.value:.0%} of a batch is overhead{why}."
            f"{'' if more or not view.history.cores else _MAY_HAVE_MORE}",
            evidence=evidence,
            changes=higher + more if bound else more + higher,
            saved=saved,
            batches=batches,
            what="record age",
        )
        return
    # Where the limit cannot be set, as many records are taken more often: in tenths of a second, no shorter than a batch.
    tenths = max(
        1, math.floor(view.median_interval * (now / limit) * 10), math.ceil(view.median_duration.value * 10)
    )
    yield view.make_finding(
        "silent-backlog",
        words=f"{view.query.name} takes {now:,} records a batch, its limit, and rests {1 - view.busy_share:.0%} of its time while "
        f"{waits}: input and processing rate are equal and hide it.",
        evidence=evidence,
        changes=view.changes_for("limit", now, limit) or view.changes_for("trigger", None, tenths / 10),
        saved=saved,
        batches=batches,
        what="record age",
    )


def _has_rate_source(batch: Batch) -> bool:
    return any(mark in each.description.lower() for each in batch.sources for mark in _EVEN_SOURCES)


def _changes_to_more_cores(view: QueryView, cores: int) -> tuple[Change, ...]:
    """Return the changes to so many cores, with full waves of tasks in the longest stage: cores without a task shorten nothing."""
    longest = _longest_stage(view)
    tasks: tuple[Change, ...] = ()
    if longest is not None and longest.partitions < MANY * cores and longest.partitions % cores:
        tasks = changes_to_task_count(view, longest, -(-longest.partitions // cores) * cores, cores)[:1]
    if cores <= view.history.cores:
        return tasks
    return tuple(replace(each, also=tasks) for each in view.changes_for("cores", view.history.cores, cores))


def _growth_of_oldest_record_age(view: QueryView, begun: Floats) -> Estimate:
    """Return the growth of the age of a batch's oldest record, where the core observes arrivals."""
    ages = [
        batch.ended_at - batch.arrivals[0] for batch in view.settled_batches if batch.arrivals is not None
    ]
    if len(ages) < len(view.settled_batches):
        return Estimate(0.0, 0.0, 0.0)
    return slope_with_interval(begun, ages)


def _growth_of_batches(view: QueryView) -> Estimate | None:
    """Return the seconds by which batches grow in a second; ``None`` where they do not keep growing."""
    begun = view.settled_starts
    growth = slope_with_interval(begun, view.batch_durations)
    gained = growth.low * float(begun[-1] - begun[0])
    first = float(np.median(view.batch_durations[: max(3, len(begun) // 4)]))
    return None if growth.low <= 0 or gained < first / 2 else growth


def _growing_batches_finding(view: QueryView, needed: int) -> Iterator[Finding]:
    """Yield a finding for batches without a limit that keep growing: each takes what arrived during the one before."""
    growth = _growth_of_batches(view) if view.runs_back_to_back else None
    if growth is None:
        return
    more = _changes_to_more_cores(view, needed)
    yield view.make_finding(
        "at-capacity",
        words=f"{view.query.name} takes all that arrives, back to back, and every batch is longer than the one before: it is "
        f"beyond its capacity.{'' if more or not view.history.cores else _MAY_HAVE_MORE}",
        evidence=(
            figure_evidence("batch duration grows by", growth, "s/s"),
            figure_evidence("batch duration", view.median_duration, "s"),
            figure_evidence("time in batches", view.busy_share * 100, "%"),
        ),
        changes=more,
        saved=median_with_interval(
            view.seconds_with_tasks * (1 - _cores_that_tasks_fill(view) / max(needed, 1))
        ),
    )


def _heavy_first_batch_finding(view: QueryView) -> Iterator[Finding]:
    """Yield a finding for a first batch that takes all waiting records."""
    first = next((each for each in view.query.batches if each.records), None)
    usual = median_with_interval(view.records_per_batch)
    if first is None or first.id in {each.id for each in view.settled_batches} or _has_rate_source(first):
        return
    heavy = max(view.query.batches[: view.startup_batch_count], key=lambda each: each.records)
    longer = heavy.duration / max(view.median_duration.value, 1e-3)
    if (
        heavy.records < FIRST * usual.high
        or longer < FIRST / 2
        or heavy.duration < max(COLD, 2 * view.median_interval)
    ):
        return
    # Records that arrive during an application's start are no backlog, and the start's waits are not the records' cost.
    came = (
        usual.high / max(view.median_interval, 1e-3) * STARTING * (heavy.begun - _start_time_of_query(view))
    )
    cost = float(np.median(view.seconds_with_tasks)) * heavy.records / max(usual.value, 1.0)
    if heavy.records < came or cost < max(COLD, 2 * view.median_interval):
        return
    speed = heavy.records / heavy.duration
    limit = math.ceil(max(view.median_interval * speed, 2 * usual.value))
    yield view.make_finding(
        "unstable-start",
        words=f"Batch {heavy.id} of {view.query.name} took all that waited, {heavy.records:,} records in {heavy.duration:.1f} s, "
        f"{longer:.0f} times the usual: nothing was committed meanwhile, and a failure in it begins it again.",
        evidence=(
            figure_evidence("records of its first batches", heavy.records, "records"),
            figure_evidence("its duration", heavy.duration, "s"),
            figure_evidence("records a batch later", usual, "records"),
            figure_evidence("batch duration later", view.median_duration, "s"),
        ),
        changes=view.changes_for("limit", None, limit),
        saved=Estimate(
            heavy.duration - limit / speed, heavy.duration - limit / max(speed * 0.5, 1e-3), heavy.duration
        ),
        batches=(heavy.id,),
        what="first batch",
    )


def _start_time_of_query(view: QueryView) -> float:
    """Return when the start began: the application's, or the query's own where the application ran it before."""
    own = view.query.started
    runs = [each.started for each in view.history.queries if each.id == view.query.id]
    if own is None or all(each is None or each >= own for each in runs):
        return view.history.started
    return own


def _empty_batches_finding(view: QueryView) -> Iterator[Finding]:
    ran = view.query.batches
    # With a watermark, a batch without records closes windows and removes state: it is work.
    empty = [each for each in ran if not each.records and not each.state]
    if len(empty) < 3 or len(empty) < EMPTY * len(ran):
        return
    lasted = median_with_interval([each.duration for each in empty])
    share = len(empty) / len(ran)
    longer = min(len(ran) / max(1, len(ran) - len(empty)), _LONGER)
    yield view.make_finding(
        "empty-batches",
        words=f"{len(empty)} of {len(ran)} batches of {view.query.name} held no record and yet planned, wrote offsets and "
        "committed.",
        evidence=(
            Evidence("empty batches", share * 100, "%"),
            figure_evidence("seconds of one", lasted, "s"),
        ),
        changes=view.changes_for("least", None, 1)
        or view.changes_for("trigger", None, math.ceil(view.median_interval * longer)),
        saved=lasted.times(share),
        batches=(each.id for each in empty),
        what="machine time",
    )
