"""Advice on one application: findings from its history, and notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from millrace.advisor.findings import capacity, overhead, reads_and_writes, state_growth_and_failures, tasks
from millrace.advisor.findings.advised_cores import advised_cores
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Advice, Finding, Kind, Value
from millrace.advisor.findings.query_view import LEAST, QueryView
from millrace.advisor.findings.uneven_run_speed import describe_disturbances
from millrace.advisor.logs.application_history_model import History
from millrace.config.engines.versions import LINES

_BY_COUNTING: frozenset[Kind] = frozenset(
    {
        *("silent-backlog", "at-capacity", "missing-cache", "rows-counted-twice", "needless-cache"),
        *("retried-tasks", "small-files", "empty-batches", "growing-state"),
        *("failed-query", "restarted-query"),
    }
)
"""Kinds that rest on numbers of records, reads and failures, which are valid on a disturbed machine too."""

NOBODY = AdvisedJob()
"""A job of which only the log is known."""


def advise(history: History, subject: AdvisedJob = NOBODY) -> Advice:
    """Return the findings about an application.

    Parameters
    ----------
    subject
        The job, for the names of its settings and the cost of its time.

    Returns
    -------
    Advice
        Findings by their value, dollars a month first, then seconds. For a disturbed run, those that rest on times are
        left out.
    """
    if history.engine == "spark" and subject.engine:
        history = replace(history, engine=subject.engine)  # the log no longer has the settings that name it
    views = tuple(QueryView(history, query, subject) for query in history.queries)
    notes: list[str] = []
    # Queries of one application share its cores: each is judged by the cores of all, after the changes of all.
    needed = max(map(capacity.cores_to_keep_up, views), default=0)
    findings = [each for view in views for each in capacity.capacity_findings(view, needed)]
    cores, idle = advised_cores(views, needed, findings)
    for view in views:
        findings += chain(
            overhead.overhead_findings(view),
            tasks.task_findings(view, cores),
            reads_and_writes.read_and_write_findings(view, cores),
            state_growth_and_failures.state_findings(view),
        )
        if not view.has_enough_batches:
            notes.append(
                f"{view.query.name} has {len(view.settled_batches)} settled batches with records: its durations are judged "
                f"from {LEAST} on"
            )
    findings += [] if idle is None else [idle]
    counted = sum(each.counted for each in history.executors)
    said = (
        (
            not any(each.batches for each in history.queries),
            "nothing was judged: the log has no micro-batch of a streaming query",
        ),
        (
            history.tasks_without_job,
            f"the start of some jobs is not in the log: {history.tasks_without_job} of their tasks are counted to no batch",
        ),
        (history.unread, f"{history.unread} lines could not be parsed and were skipped"),
        (
            history.ended_at,
            f"the log was not read to its end: {history.ended_at}; later batches are not judged",
        ),
        (history.lost, "older parts of the log are missing: deleted, compacted or cut off"),
        (
            history.spark_version
            and not history.spark_version.startswith(tuple(f"{line}." for line in LINES)),
            f"Spark {history.spark_version} is none of the lines whose logs are supported ({', '.join(LINES)}): figures may be missing",
        ),
        (
            counted,
            f"the log does not tell the cores of {counted} of {len(history.executors)} executors: as many were taken as ran "
            "tasks at once",
        ),
        (
            views and not history.cores and not counted,
            "the log has no executor and no task: cores are not judged",
        ),
        (history.cut_off, "the log ends in the middle: the application still runs, or was killed"),
    )
    notes += [words for holds, words in said if holds]
    moved = describe_disturbances(views)
    if moved is not None:
        undisturbed = [each for each in findings if each.kind not in _BY_COUNTING]
        findings = [each for each in findings if each.kind in _BY_COUNTING]
        if undisturbed:
            kinds = ", ".join(dict.fromkeys(each.kind for each in undisturbed))
            notes.append(f"left out, because they depend on times of a disturbed run: {kinds}")
    ranked = sorted(findings, key=lambda each: each.worth, reverse=True)
    consistent = tuple(_with_one_value_by_key(ranked, notes))
    return Advice(history, consistent, moved, tuple(notes))


def _with_one_value_by_key(ranked: Sequence[Finding], notes: list[str]) -> Iterator[Finding]:
    """Yield the findings without changes that set a key to another value than the first change of a finding before."""
    first: dict[tuple[str, str], tuple[Value, Kind]] = {}
    for finding in ranked:
        changes = []
        for change in finding.changes:
            sets = [each for each in (change, *change.also) if each.kind != "code"]
            taken = [each for each in sets if first.get((each.where, each.key), (each.new,))[0] != each.new]
            if not taken:
                changes.append(change)
            notes += [
                f"{finding.kind}: {each.key} is not set to {each.new}, because {by} sets it to {value}"
                for each in taken
                for value, by in [first[each.where, each.key]]
            ]
        left = finding.with_changes(changes)
        for each in (left.changes[0], *left.changes[0].also) if left.changes else ():
            first.setdefault((each.where, each.key), (each.new, finding.kind))
        yield left
