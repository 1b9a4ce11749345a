"""Findings about a query's tasks: skew, waves, too few, too many, and those that failed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from millrace.advisor.findings import count_kafka_range_tasks
from millrace.advisor.findings.advised_job_keys_and_cost import SHUFFLE
from millrace.advisor.findings.model import Change, Evidence, Finding
from millrace.advisor.findings.query_view import LEAST, QueryView, figure_evidence
from millrace.advisor.findings.task_cost import TaskCost, fit_task_cost, longest_by_chance
from millrace.advisor.logs.application_history_model import Batch, Flags, Floats, Stage
from millrace.advisor.logs.statistics import Estimate, makespan_of_list_scheduling, median_with_interval
from millrace.config.base import grouped

OWN_REPETITION = "millrace: a record "
"""Message of tasks that the core fails on purpose, to write a batch another way; no user can change them."""

SKEWED = 2.0
"""Least ratio of a skewed task's duration, and of its records, to the median of the others: no even split of records gives
twice, and twice doubles a stage.
"""

WORTH = 0.1
"""Share of a batch that a change must be expected to save: nobody makes a change for less than a tenth."""

SECONDS = 0.2
"""Seconds of a batch that a change must save: nobody makes a change for less."""

SHORT_TASK = 0.1
"""Shortest task in seconds by Spark's own guide, a tenth of a second: launching one takes a hundredth."""

MANY = 4
"""Tasks for each core from which on there are more than balance needs: Spark's guide asks for two to three."""

_DEFAULT = "200"
"""Default number of tasks after a shuffle (Spark SQL, performance tuning)."""

_FIXED = (
    " State has as many partitions as when its checkpoint was made: another number takes a new checkpoint."
)


@dataclass(frozen=True)
class StageAcrossBatches:
    """The same stage of all batches.

    Attributes
    ----------
    pairs
        Each batch and its stage.
    partitions
        Number of its tasks.
    """

    pairs: tuple[tuple[Batch, Stage], ...]
    partitions: int

    @property
    def task_seconds(self) -> Floats:
        """Seconds of all its tasks that succeeded."""
        return np.concatenate([stage.tasks.successful.durations for _, stage in self.pairs])

    @property
    def reads_shuffle(self) -> bool:
        """True if it reads a shuffle, so that the session sets its tasks; else its source does."""
        return any(stage.tasks.shuffle_records_read.any() for _, stage in self.pairs)

    @property
    def is_count_adaptive(self) -> bool:
        """True if Spark itself chose how many tasks read its shuffle."""
        return any(stage.adaptive for _, stage in self.pairs)

    @property
    def is_stateful(self) -> bool:
        """True if its batches keep state, whose partitions are fixed when the checkpoint is made."""
        return self.reads_shuffle and any(batch.state for batch, _ in self.pairs)


def task_findings(view: QueryView, cores: int) -> Iterator[Finding]:
    """Yield the findings about how tasks share a query's work.

    Parameters
    ----------
    cores
        Task slots that the other findings leave the application with: the advised number of tasks is for these.
    """
    yield from _failed_tasks_finding(view)
    if not view.has_enough_batches or view.history.cores < 1:
        return
    judges = [_skew_finding, _wave_finding, _too_few_tasks_finding, _too_many_tasks_finding]
    if cores > view.history.cores:  # the change to more cores has the tasks for them
        judges = [_skew_finding, _too_many_tasks_finding]
    for stage in stages_across_batches(view):
        # A stage has one main problem; the others follow from it.
        finding = next(filter(None, (judge(view, stage, cores) for judge in judges)), None)
        if finding is not None:
            yield replace(finding, words=finding.words + _FIXED) if stage.is_stateful else finding


def stages_across_batches(view: QueryView) -> list[StageAcrossBatches]:
    """Group the stages of all batches that do the same: the same place in the order, as many tasks."""
    same = grouped(
        ((place, stage.partitions), (batch, stage))
        for batch in view.settled_batches
        for place, stage in enumerate(sorted(batch.stages, key=lambda each: (each.id, each.attempt)))
    )
    return [StageAcrossBatches(tuple(pairs), key[1]) for key, pairs in same.items() if len(pairs) >= LEAST]


def _saved_seconds_and_shares(
    stage: StageAcrossBatches, seconds: Callable[[Stage], float]
) -> tuple[Floats, Floats]:
    """Return the seconds that each batch would save, and their share of it."""
    lost = np.array([max(0.0, seconds(each)) for _, each in stage.pairs])
    return lost, lost / np.array([max(batch.duration, 1e-3) for batch, _ in stage.pairs])


def _is_worth_a_finding(lost: Floats, share: Floats) -> bool:
    return median_with_interval(share).low >= WORTH and median_with_interval(lost).low >= SECONDS


def _records_of_tasks(stage: Stage) -> Floats:
    tasks = stage.tasks.successful
    return np.asarray(tasks.records_read + tasks.shuffle_records_read, float)


def _duration_and_record_skew(stage: Stage) -> tuple[float, float]:
    """Return the longest task's duration and its records, each as a multiple of the others' median."""
    durations, records = stage.tasks.successful.durations, _records_of_tasks(stage)
    if len(durations) < 2:
        return 1.0, 1.0
    longest = int(np.argmax(durations))
    others = np.delete(durations, longest)
    rest = np.delete(records, longest)
    return (
        float(durations[longest] / max(float(np.median(others)), 1e-3)),
        float(records[longest] / max(float(np.median(rest)), 1.0)),
    )


def _skew_finding(view: QueryView, stage: StageAcrossBatches, cores: int) -> Finding | None:
    def seconds_saved_without_skew(each: Stage) -> float:
        durations = each.tasks.successful.durations
        if not len(durations):
            return 0.0
        return float(durations.max() - durations.sum() / min(cores, len(durations)))

    lost, share = _saved_seconds_and_shares(stage, seconds_saved_without_skew)
    spread = np.array([_duration_and_record_skew(each) for _, each in stage.pairs])
    times, records = median_with_interval(spread[:, 0]), median_with_interval(spread[:, 1])
    if times.low < SKEWED or records.low < SKEWED or not _is_worth_a_finding(lost, share):
        return None
    pooled = stage.task_seconds
    done = (each.tasks.successful for _, each in stage.pairs)
    longest = (int(each.index[int(np.argmax(each.durations))]) for each in done if len(each))
    heaviest, often = Counter(longest).most_common(1)[0]
    return view.make_finding(
        "skewed-tasks",
        words=f"One task of {stage.partitions} in {view.query.name} has {records.value:.1f} times the records of the others and "
        f"lasts {times.value:.1f} times as long; the other cores wait for it.",
        evidence=(
            figure_evidence("longest task to the others' median", times, "times"),
            figure_evidence("its records to the others' median", records, "times"),
            *(
                Evidence(f"task time p{each}", float(np.percentile(pooled, each)), "s")
                for each in (50, 75, 95, 99)
            ),
            Evidence("task time max", float(pooled.max()), "s"),
            Evidence(
                f"batches in which partition {heaviest} is the longest", often, f"of {len(stage.pairs)}"
            ),
        ),
        changes=view.changes_for("spread", None, "salt the heavy key")
        if stage.reads_shuffle
        else view.changes_for("partitions", stage.partitions, -(-stage.partitions * 2 // cores) * cores),
        saved=median_with_interval(lost),
        batches=_ids_of_slowed_batches(stage, lost),
    )


def _ids_of_slowed_batches(stage: StageAcrossBatches, lost: Floats) -> tuple[int, ...]:
    return tuple(batch.id for (batch, _), each in zip(stage.pairs, lost, strict=True) if each >= SECONDS)


def _wave_finding(view: QueryView, stage: StageAcrossBatches, cores: int) -> Finding | None:
    """Return a finding for more tasks than cores that are no multiple of them: the last wave leaves cores idle."""
    tasks, had = stage.partitions, view.history.cores
    if not had < tasks < MANY * had or tasks % had == 0 or tasks % cores == 0:
        return None

    def seconds_saved_with_full_waves(each: Stage) -> float:
        durations = each.tasks.successful.durations
        return makespan_of_list_scheduling(durations, cores) - float(durations.sum()) / cores

    lost, share = _saved_seconds_and_shares(stage, seconds_saved_with_full_waves)
    if not _is_worth_a_finding(lost, share):
        return None
    waves = -(-tasks // had)
    queued = median_with_interval(
        [float((each.tasks.launched - each.tasks.launched.min()).max()) for _, each in stage.pairs]
    )
    return view.make_finding(
        "queued-partitions",
        words=f"{tasks} tasks of {view.query.name} run on {had} cores in {waves} waves, and the last wave leaves "
        f"{waves * had - tasks} of them idle.",
        evidence=(
            Evidence("tasks", tasks),
            Evidence("cores", had),
            figure_evidence("the last one waits", queued, "s"),
            figure_evidence("task time", median_with_interval(stage.task_seconds), "s"),
        ),
        changes=changes_to_task_count(view, stage, -(-tasks // cores) * cores, cores),
        saved=median_with_interval(lost),
        batches=_ids_of_slowed_batches(stage, lost),
    )


def _too_few_tasks_finding(view: QueryView, stage: StageAcrossBatches, cores: int) -> Finding | None:
    tasks = stage.partitions
    if tasks >= min(cores, view.history.cores):
        return None
    longest = median_with_interval(
        [float(each.tasks.successful.durations.max(initial=0)) for _, each in stage.pairs]
    )
    if longest.low < SECONDS:
        return None
    cost = _task_cost(stage)
    if cost.fixed.low <= 0:  # unknown: a launch is short, and costs no more than a task should last
        cost = replace(cost, fixed=Estimate(0.0, 0.0, SHORT_TASK))
    uneven = longest_by_chance(cores) - longest_by_chance(tasks)
    saved = cost.gain(longest, lambda seconds, fixed: fixed + (seconds - fixed) * tasks / cores, uneven)
    if saved.low < max(SECONDS, WORTH * view.median_duration.value):
        return None
    return view.make_finding(
        "too-few-partitions",
        words=f"{tasks} task{'s' * (tasks > 1)} of {view.query.name} carr{'y' if tasks > 1 else 'ies'} the work that {cores} cores could "
        "share.",
        evidence=(
            Evidence("tasks", tasks),
            Evidence("cores", view.history.cores),
            figure_evidence("task time", median_with_interval(stage.task_seconds), "s"),
        ),
        changes=changes_to_task_count(view, stage, cores, cores),
        saved=saved,
        batches=(batch.id for batch, _ in stage.pairs),
    )


def _too_many_tasks_finding(view: QueryView, stage: StageAcrossBatches, cores: int) -> Finding | None:
    tasks = stage.partitions
    if tasks < MANY * max(cores, view.history.cores):
        return None
    durations = median_with_interval(
        [float(np.median(each.tasks.successful.durations)) for _, each in stage.pairs]
    )
    if durations.high >= SHORT_TASK:
        return None
    changes = changes_to_task_count(view, stage, cores, cores)
    left = max(changes[0].new, cores) if changes and isinstance(changes[0].new, int) else cores
    cost = _task_cost(stage)
    if cost.fixed.low <= 0:
        return None
    elapsed = median_with_interval([each.tasks.elapsed_seconds for _, each in stage.pairs])
    part = (1 - left / tasks) / max(durations.value, 1e-4)
    saved = cost.gain(elapsed, lambda seconds, fixed: seconds * (1 - part * fixed), longest_by_chance(left))
    if saved.low < max(SECONDS, WORTH * view.median_duration.value):
        return None
    return view.make_finding(
        "too-many-partitions",
        words=f"{tasks} tasks of {view.query.name} last {durations.value * 1000:.0f} ms each, {cost.fixed.value * 1000:.0f} ms of "
        f"it without a record, and {cores} cores need no more than {cores}.",
        evidence=(
            Evidence("tasks", tasks),
            Evidence("cores", view.history.cores),
            figure_evidence("task time", durations, "s"),
            figure_evidence("task time without records", cost.fixed, "s"),
            figure_evidence(
                "records of a task",
                median_with_interval([float(_records_of_tasks(each).mean()) for _, each in stage.pairs]),
                "records",
            ),
        ),
        changes=changes,
        saved=saved,
        batches=(batch.id for batch, _ in stage.pairs),
    )


def _task_cost(stage: StageAcrossBatches) -> TaskCost:
    records = np.concatenate([_records_of_tasks(each) for _, each in stage.pairs])
    return fit_task_cost(records, stage.task_seconds)


def changes_to_task_count(
    view: QueryView, stage: StageAcrossBatches, tasks: int, cores: int
) -> tuple[Change, ...]:
    """Return the changes that give a stage so many tasks."""
    place = view.subject.where
    name = f"query {view.query.name}" + (f" of {place}" if place else "")
    if stage.reads_shuffle:
        return _shuffle_partition_changes(view, stage, tasks, name)
    sizes = count_kafka_range_tasks.partition_records_of_batches([batch for batch, _ in stage.pairs])
    if sizes is None:
        return view.changes_for("partitions", stage.partitions, tasks)
    if tasks > stage.partitions:
        least = count_kafka_range_tasks.smallest_min_partitions(sizes, tasks, cores, MANY * cores)
        if least is None:
            return view.subject.code_changes(name, "after the source", f"repartition({tasks})")
        return view.changes_for("partitions", stage.partitions, least)
    # A reader has at least one task for each partition of the topic: tasks can be joined only after it.
    own = int(np.median([len(each) for each in sizes]))
    split = (
        view.changes_for("partitions", stage.partitions, max(own, tasks)) if own < stage.partitions else ()
    )
    joined = view.subject.code_changes(name, "after the source", f"coalesce({tasks})") if tasks < own else ()
    return split + joined


def _shuffle_partition_changes(
    view: QueryView, stage: StageAcrossBatches, tasks: int, name: str
) -> tuple[Change, ...]:
    """Return the changes that give a stage behind a shuffle so many tasks, by what decided its number."""
    # A log without its first part has no settings; in any other, a missing setting has Spark's default.
    said = view.history.properties.get(SHUFFLE, _DEFAULT) if view.history.properties else None
    most = int(said) if said is not None and said.isdecimal() else None
    read = median_with_interval(
        [float(each.tasks.successful.shuffle_bytes_read.sum()) for _, each in stage.pairs]
    ).value
    if stage.is_count_adaptive and read > 0 and (most is None or tasks <= most):
        # Spark merges a shuffle's partitions up to so many bytes; it would merge another number of them again.
        return view.changes_for("merged", None, f"{max(1, math.ceil(read / tasks))}b")
    if not stage.is_count_adaptive and not stage.is_stateful and most not in (None, stage.partitions):
        return view.subject.code_changes(name, f"repartition, or {SHUFFLE} where the program sets it", tasks)
    return view.changes_for("shuffle", stage.partitions, tasks)


def _failed_tasks_finding(view: QueryView) -> Iterator[Finding]:
    """Yield a finding for tasks that failed and were repeated."""
    failures: Counter[tuple[str, str]] = Counter()
    batches, wasted, attempts = [], [], 0
    for batch in view.query.batches:
        failed = 0.0
        stages = [s for s in batch.stages if not any(OWN_REPETITION in text for _, text in s.failures)]
        for stage in stages:
            attempts += len(stage.tasks)
            failed += _seconds_for_failed_attempts(stage, view.history.cores)
            failures.update(stage.failures)
        if any(stage.tasks.failed.any() for stage in stages):
            batches.append(batch.id)
            wasted.append(failed)
    count = sum(failures.values())
    if count < 3 or len(batches) < 2:
        return  # a single lost executor or reset connection in a long run is what retries are for
    (error, message), most = failures.most_common(1)[0]
    again = len(batches) / len(view.query.batches)
    spent = median_with_interval(wasted)
    place = view.subject.where or "the job's program"
    lost = error == "ExecutorLostFailure"
    yield view.make_finding(
        "retried-tasks",
        words=f"{count} task attempts of {view.query.name} failed and were run again, {most} of them with {error}: "
        f"{message or 'no message'}",
        evidence=(
            Evidence("failed task attempts", count, f"of {attempts}"),
            Evidence("batches with a failed task", again * 100, "%"),
            figure_evidence("seconds of failed attempts in such a batch", spent, "s"),
            *(Evidence(f"{each[0]}: {each[1]}", number, "times") for each, number in failures.most_common(3)),
        ),
        changes=view.subject.code_changes(
            f"query {view.query.name} of {place}",
            "the executors" if lost else "what the tasks call",
            "none that is removed or lost while it runs tasks"
            if lost
            else f"nothing that raises {message or error}",
        ),
        saved=spent.times(again),
        batches=batches,
    )


def _seconds_for_failed_attempts(stage: Stage, cores: int) -> float:
    """Return the seconds by which failed attempts lengthen a stage: parallel ones at once, those of one partition in turn."""

    def shortest_schedule(which: Flags) -> float:
        durations = stage.tasks.durations[which]
        _, place = np.unique(stage.tasks.index[which], return_inverse=True)
        in_turn = np.bincount(place, durations).max(initial=0.0)
        return max(float(durations.sum()) / max(cores, 1), float(in_turn))

    ended = ~stage.tasks.killed
    return shortest_schedule(ended) - shortest_schedule(ended & ~stage.tasks.failed)
