"""View of one query for the findings: its batches as columns, and its resources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, Setting
from millrace.advisor.findings.model import Change, Effect, Evidence, Finding, Kind, Value
from millrace.advisor.logs.application_history_model import Batch, Floats, History, Query
from millrace.advisor.logs.statistics import (
    Estimate,
    count_startup_batches,
    median_with_interval,
    slope_with_interval,
    union_seconds,
)

LEAST = 8
"""Minimum number of settled batches for any statement about a query's times: with fewer, an interval is too wide to act on."""

BACK_TO_BACK = 0.85
"""Share of its time in which a query works, above which it has no rest left: the next trigger is due or past."""

BOUND = 0.5
"""Share of a batch above which overhead, not work, sets its length."""

_SECONDS_OF_A_BATCH = frozenset({"batch duration", "machine time", "first batch"})
"""Figures that a change can shorten by a batch's duration at most; the age of a record, and state after a day, have no such limit."""


@dataclass(frozen=True)
class QueryView:
    """A query with its application and its job.

    Attributes
    ----------
    history
        History of the application.
    subject
        The job.
    """

    history: History
    query: Query
    subject: AdvisedJob

    @cached_property
    def startup_batch_count(self) -> int:
        """Number of batches at the start that are start-up."""
        return count_startup_batches([each.duration for each in self.query.batches])

    @cached_property
    def settled_batches(self) -> tuple[Batch, ...]:
        """Settled batches that held records."""
        return tuple(each for each in self.query.batches[self.startup_batch_count :] if each.records)

    @cached_property
    def settled_starts(self) -> Floats:
        """Epoch seconds at which the settled batches began."""
        return np.array([each.begun for each in self.settled_batches])

    @cached_property
    def batch_durations(self) -> Floats:
        """Seconds of the settled batches."""
        return np.array([each.duration for each in self.settled_batches])

    @cached_property
    def records_per_batch(self) -> Floats:
        """Records of the settled batches."""
        return np.array([each.records for each in self.settled_batches], float)

    @cached_property
    def median_duration(self) -> Estimate:
        """Median seconds of a batch."""
        return median_with_interval(self.batch_durations)

    @cached_property
    def start_intervals(self) -> Floats:
        """Seconds from the start of a settled batch to that of the next one."""
        begun = np.array([each.begun for each in self.query.batches[self.startup_batch_count :]])
        return np.diff(begun)

    @cached_property
    def median_interval(self) -> float:
        """Median seconds between two batches."""
        return (
            float(np.median(self.start_intervals))
            if len(self.start_intervals)
            else self.median_duration.value
        )

    @cached_property
    def busy_share(self) -> float:
        """Median share of the time in which a batch ran."""
        if not len(self.start_intervals):
            return 0.0
        lasted = np.array([each.duration for each in self.query.batches[self.startup_batch_count : -1]])
        return float(np.median(np.minimum(1, lasted / np.maximum(self.start_intervals, 1e-3))))

    @property
    def runs_back_to_back(self) -> bool:
        """True for a query without rest between its batches."""
        return self.busy_share >= BACK_TO_BACK

    @cached_property
    def seconds_with_tasks(self) -> Floats:
        """Seconds of each settled batch in which at least one task ran."""
        return np.array([_seconds_with_tasks(each) for each in self.settled_batches])

    @cached_property
    def overhead_seconds(self) -> Floats:
        """Seconds of each settled batch in which no task ran: planning, offsets, checkpoint, commits."""
        return np.maximum(0, self.batch_durations - self.seconds_with_tasks)

    @cached_property
    def overhead_share(self) -> Estimate:
        """Median share of a settled batch in which no task ran."""
        return median_with_interval(self.overhead_seconds / self.batch_durations)

    @cached_property
    def stage_loads(self) -> Floats:
        """Of each stage in the settled batches: its batch's place, its tasks, and the seconds of all and of the longest."""
        return (
            np.array(
                [
                    (place, len(stage.tasks), stage.tasks.durations.sum(), stage.tasks.durations.max())
                    for place, batch in enumerate(self.settled_batches)
                    for stage in batch.stages
                ]
            )
            .reshape(-1, 4)
            .T
        )

    @cached_property
    def arriving_and_processed(self) -> tuple[float, float]:
        """Records that arrive in a second, by the latest positions where a source reports them, and those processed."""
        begun = self.settled_starts
        processed = float(self.records_per_batch[1:].sum() / max(float(begun[-1] - begun[0]), 1e-3))
        latest = [[each.latest for each in batch.sources] for batch in self.settled_batches]
        if any(each is None for every in latest for each in every):
            return processed, processed
        growth = slope_with_interval(
            begun, [sum(sum((each or {}).values()) for each in every) for every in latest]
        )
        return growth.value if growth.value > 0 else processed, processed

    @property
    def arrivals_by_processed(self) -> float:
        """Records that arrive for each one that is processed; at least 1."""
        arriving, processed = self.arriving_and_processed
        return max(arriving / max(processed, 1e-3), 1.0)

    @property
    def has_enough_batches(self) -> bool:
        """True with enough batches for statements about times."""
        return len(self.settled_batches) >= LEAST

    def part_seconds(self, *names: str) -> Floats:
        """Return the seconds of some parts of each settled batch."""
        return np.array([sum(each.parts.get(name, 0.0) for name in names) for each in self.settled_batches])

    def changes_for(self, setting: Setting, old: Value, new: Value) -> tuple[Change, ...]:
        """Return a change under the names that the job's owner knows."""
        return self.subject.changes_for(self.query, self.history, setting, old, new)

    def make_finding(
        self,
        kind: Kind,
        *,
        words: str,
        evidence: tuple[Evidence, ...],
        changes: tuple[Change, ...],
        saved: Estimate,
        batches: Iterable[int] | None = None,
        what: str = "batch duration",
    ) -> Finding:
        """Make a finding whose effect is seconds of every batch: at most as long as the batches in which it shows.

        Parameters
        ----------
        batches
            Numbers of the batches in which it shows; left out, of all settled ones.
        """
        ids = tuple(each.id for each in self.settled_batches) if batches is None else tuple(batches)
        shown = set(ids)
        lasted = [each.duration for each in self.query.batches if each.id in shown]
        most = float(np.median(lasted)) if lasted and what in _SECONDS_OF_A_BATCH else np.inf
        effect = Effect(
            what, "s", *(min(max(0.0, each), most) for each in (saved.low, saved.value, saved.high))
        )
        return Finding(kind, self.query.name, words, evidence, ids, changes, effect, run=self.query.run_id)


def _seconds_with_tasks(batch: Batch) -> float:
    tables = [stage.tasks for stage in batch.stages]
    if not tables:
        return 0.0
    begins = np.concatenate([each.launched for each in tables])
    ends = np.concatenate([each.finished for each in tables])
    return union_seconds(np.maximum(begins, batch.begun), np.minimum(ends, batch.ended_at + 1))


def figure_evidence(name: str, value: Estimate | float, unit: str = "") -> Evidence:
    """Write an estimate, or a plain figure, as evidence."""
    if isinstance(value, Estimate):
        return Evidence(name, value.value, unit, value.low, value.high)
    return Evidence(name, float(value), unit)
