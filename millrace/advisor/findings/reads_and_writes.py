"""Findings about reads and writes: rows read several times, missing or useless caches, small files."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from millrace.advisor.findings.model import Evidence, Finding
from millrace.advisor.findings.query_view import QueryView, figure_evidence
from millrace.advisor.logs.application_history_model import Batch, Floats, SparkJob, Stage
from millrace.advisor.logs.statistics import Estimate, median_with_interval
from millrace.config.base import grouped

USUAL = 0.8
"""Share of the batches in which it must show, as a program does the same in every batch."""

FEWEST = 3
"""Minimum number of batches to conclude that a program always reads its source several times: no time is judged for that."""

TWICE = 1.5
"""Counts of one record from which on it is counted more than once."""

SAME = 0.02
"""Tolerance between what the tasks read and what the batch reports."""

_TABLES = ("BatchScan", "FileScan", "Scan parquet")
"""Spark's names for reading a table beside the stream."""

FILE = 128 * 1024 * 1024
"""Target size of a lake's file in bytes: Parquet readers and Iceberg's own target use it for one task."""

SMALL = FILE // 8
"""Bytes below which reading a file costs more in requests than in bytes."""

FILES = 4
"""Multiple of the files that a batch needs, from which on there are too many."""


def read_and_write_findings(view: QueryView, cores: int) -> Iterator[Finding]:
    """Yield the findings about a query's reads and writes, with so many cores after all changes."""
    missing = _missing_cache_finding(view)
    if missing is not None:
        yield missing
    if not view.has_enough_batches:
        return
    if missing is None:
        yield from _repeated_count_finding(view)
    yield from _needless_cache_finding(view)
    yield from _small_files_finding(view, cores)


def _jobs_and_stages_that_read_source(batch: Batch) -> list[tuple[SparkJob, Stage]]:
    """Return the stages that read the batch's source, one for each action; those that read a cache are left out.

    They are recognised by what they read: each reads the batch's records, where offsets count those, or together they read
    the rows that Spark counted. A connector that counts nothing is recognised by its name.
    """
    read: dict[int, list[tuple[SparkJob, Stage]]] = defaultdict(list)
    seen: set[int] = set()
    for job, stage in _jobs_with_stages(batch):
        action = _action_number(job)
        held = any(each.cached for each in stage.scans)
        table = any(each.name.startswith(_TABLES) for each in stage.scans)
        if held or table or not stage.scans or action in seen:
            continue
        records = int(stage.tasks.successful.records_read.sum())
        if records or any("kinesis" in each.name.lower() for each in stage.scans):
            read[records].append((job, stage))
            seen.add(action)
    uncounted = read.pop(0, [])
    for records, readers in read.items():
        if _are_about_equal(records, batch.records) or _are_about_equal(records * len(readers), batch.rows):
            return readers
    return uncounted


def _jobs_with_stages(batch: Batch) -> Iterator[tuple[SparkJob, Stage]]:
    return ((job, stage) for job in batch.jobs for stage in job.stages)


def _action_number(job: SparkJob) -> int:
    """Return the number of an action: a SQL execution, which may be several jobs, or a job without one."""
    return job.execution if job.execution is not None else -job.id - 1


def _are_about_equal(read: int, expected: int) -> bool:
    return abs(read - expected) <= SAME * expected


def _missing_cache_finding(view: QueryView) -> Finding | None:
    # Start-up batches, too: they are excluded for times, but their counts are the same.
    batches = [each for each in view.query.batches if each.records]
    readers = [_jobs_and_stages_that_read_source(batch) for batch in batches]
    several = np.array([len(each) for each in readers])
    if len(several) < FEWEST or np.mean(several >= 2) < USUAL:
        return None
    lost = np.array([sum(stage.tasks.elapsed_seconds for _, stage in each[1:]) for each in readers])
    counted = median_with_interval(
        [batch.rows / _records_of_one_read(batch, each) for batch, each in zip(batches, readers, strict=True)]
    )
    sites = ", ".join(dict.fromkeys(job.site for job, _ in readers[-1]))
    return view.make_finding(
        "missing-cache",
        words=f"Every batch of {view.query.name} is read from its source and computed {int(np.median(several))} times, by "
        f"{sites}: nothing holds it between its actions, and a source that does not replay gives each other records.",
        evidence=(
            figure_evidence(
                "actions that read the source in a batch", median_with_interval(several), "actions"
            ),
            figure_evidence("rows counted for each record", counted, "times"),
            figure_evidence("seconds of reading again", median_with_interval(lost), "s"),
            Evidence("cached data in the batches", 0, "RDDs"),
        ),
        changes=view.changes_for(
            "cache", "batch", "batch.persist() before the first action, batch.unpersist() after the last"
        ),
        saved=median_with_interval(lost),
        batches=(batch.id for batch, each in zip(batches, several, strict=True) if each >= 2),
    )


def _records_of_one_read(batch: Batch, readers: list[tuple[SparkJob, Stage]]) -> float:
    """Return a batch's records as one reader had them: without offsets, Spark's count adds up all readers."""
    read = min((int(stage.tasks.successful.records_read.sum()) for _, stage in readers), default=0)
    return read or batch.records


def _repeated_count_finding(view: QueryView) -> Iterator[Finding]:
    """Yield a finding for rows counted more often than there are records, without several actions: several scans in one plan."""
    counted = median_with_interval([batch.rows / batch.records for batch in view.settled_batches])
    if counted.low < TWICE:
        return
    sources = {len(batch.sources) for batch in view.settled_batches}
    work = view.seconds_with_tasks * (1 - 1 / counted.value) if len(sources) == 1 else np.zeros(1)
    yield view.make_finding(
        "rows-counted-twice",
        words=f"Spark counts every record of {view.query.name} {counted.value:.1f} times: its plan reads the source more than "
        "once, and its input and processing rates are too high by as much.",
        evidence=(figure_evidence("rows counted for each record", counted, "times"),),
        changes=view.changes_for("cache", "batch", "read the source once and branch after it"),
        saved=median_with_interval(work),
    )


def _needless_cache_finding(view: QueryView) -> Iterator[Finding]:
    """Yield a finding for data that is cached in a batch and read by one action only, the one that made it."""
    uses = grouped(
        (scan.rdd, (batch.id, _action_number(job), stage.tasks.elapsed_seconds))
        for batch in view.query.batches
        for job, stage in _jobs_with_stages(batch)
        for scan in stage.scans
        if scan.cached
    )
    spent: dict[int, float] = defaultdict(float)
    for of_rdd in uses.values():
        # Data that lives longer than a batch is a reference table.
        if len({(number, action) for number, action, _ in of_rdd}) == 1:
            spent[of_rdd[0][0]] += sum(seconds for *_, seconds in of_rdd)
    settled = {batch.id for batch in view.settled_batches}
    held = sorted(settled & set(spent))
    if len(held) < USUAL * len(settled):
        return
    upper = median_with_interval([spent[number] for number in held])
    yield view.make_finding(
        "needless-cache",
        words=f"{view.query.name} holds data in memory that one action reads: writing it there costs time and memory and saves "
        "nothing. How much of the stages' time it is, one log does not tell.",
        evidence=(
            Evidence("batches with data that is held for one action", 100 * len(held) / len(settled), "%"),
            figure_evidence("seconds of the stages that hold it", upper, "s"),
        ),
        changes=view.changes_for("cache", "persist()", "no persist()"),
        saved=Estimate(0.0, 0.0, upper.high),
        batches=held,
    )


def _written_file_sizes(batch: Batch) -> list[Floats]:
    """Return the bytes of the files that each action of a batch writes; two actions cannot share a file."""
    written = grouped(
        (_action_number(job), sizes[sizes > 0].astype(float))
        for job, stage in _jobs_with_stages(batch)
        if (sizes := stage.tasks.successful.bytes_written).any()
    )
    return [np.concatenate(each) for each in written.values()]


def _small_files_finding(view: QueryView, cores: int) -> Iterator[Finding]:
    written = {batch.id: _written_file_sizes(batch) for batch in view.settled_batches}
    actions = {batch: files for batch, files in written.items() if files}
    counts = [sum(len(each) for each in files) for files in actions.values()]
    writes = [[float(each.sum()) for each in files] for files in actions.values()]
    if len(actions) < USUAL * len(view.settled_batches):
        return
    sizes = np.array([sum(each) for each in writes])
    count, mean = median_with_interval(counts), median_with_interval(sizes / np.array(counts))
    wanted = int(np.median([sum(math.ceil(each / FILE) for each in batch) for batch in writes]))
    if mean.high >= SMALL or count.low < FILES * wanted:
        return
    a_day = 86400 / max(view.median_interval, 1e-3) * count.value
    # A write of few bytes needs one file; of more, as many tasks write as there are cores, while files are not small.
    size = float(np.median([each for batch in writes for each in batch]))
    tasks = max(math.ceil(size / FILE), min(cores, int(size / SMALL)))
    # coalesce makes the stage before it run in as many tasks: repartition keeps those, and adds a shuffle.
    way = "coalesce" if 0 < cores <= tasks else "repartition"
    yield view.make_finding(
        "small-files",
        words=f"{view.query.name} writes {count.value:.0f} files a batch of {mean.value / 1024:,.0f} KiB, {a_day:,.0f} a day, where "
        f"{wanted} would do: whoever reads them pays for each.",
        evidence=(
            figure_evidence("files a batch", count, "files"),
            figure_evidence("bytes of one", mean, "B"),
            Evidence("files a day", a_day, "files"),
            Evidence("files that a batch needs", wanted, "files"),
        ),
        changes=view.subject.code_changes(f"query {view.query.name}", "before the write", f"{way}({tasks})"),
        saved=Estimate(0.0, 0.0, 0.0),  # one log does not tell a file's cost from its records'
        batches=actions,
    )
