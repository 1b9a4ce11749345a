"""State of a running job's queries, from the file of metrics that the job writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.table import Column, Table

METRICS_FILE = "metrics.jsonl"
"""File beside the log of a run (``docs/metrics.md``, JSON lines)."""

_TAIL_BYTES = 64 * 1024
"""Bytes that are read at the file's end: a few dozen batches of each query."""


@dataclass(frozen=True)
class QueryState:
    """Latest state of a query.

    Attributes
    ----------
    at
        Time of its last report, also of a trigger that found nothing to read.
    batch
        Its last batch with records; the next fields are that batch's.
    rows_per_second
        Records divided by the batch's duration.
    age_p95, age_max
        Seconds from arrival to commit; None where the batch had no new records.
    backlog_records
        None where the source does not report it.
    backlog_seconds
        Likewise.
    """

    query: str
    at: datetime
    batch: int | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    age_p95: float | None = None
    age_max: float | None = None
    backlog_records: int | None = None
    backlog_seconds: float | None = None


def states(path: Path) -> dict[str, QueryState]:
    """Read the latest state of each query; return none where there is no file yet.

    Parameters
    ----------
    path
        A file of JSON lines; it may be written to at the same time.
    """
    result: dict[str, QueryState] = {}
    for line in _last_lines(path):
        if line["query"] is not None and line.get("Triggers"):
            before = result.get(line["query"]) or QueryState(line["query"], datetime.min.replace(tzinfo=UTC))
            result[line["query"]] = _after(before, line)
    return result


def newest(jobs: Path, job: str) -> Path | None:
    """Return the file of a job's newest run below the sandbox's folder of runs."""
    files = [path for path in jobs.glob(f"{job}-*/{METRICS_FILE}") if path.is_file()]
    return max(files, key=lambda path: path.stat().st_mtime, default=None)


def table(found: Mapping[str, QueryState], now: datetime) -> Table:
    """Return the states as a table for a terminal, a line for each query.

    Parameters
    ----------
    found
        From :func:`states`.
    now
        Time for the column with "ago".
    """
    numbers = ("rows/s", "age p95", "age max", "backlog", "last batch")
    columns = (Column(name, justify="right") for name in numbers)
    shown = Table("query", *columns, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for state in sorted(found.values(), key=lambda state: state.query):
        last = "-" if state.batch is None else f"{state.batch}, {state.rows:,} rows"
        ago = max(0.0, (now - state.at).total_seconds())
        shown.add_row(
            state.query,
            f"{state.rows_per_second:,.0f}",
            _seconds(state.age_p95),
            _seconds(state.age_max),
            _backlog(state),
            f"{last}, {ago:.0f} s ago",
        )
    return shown


def of_job(jobs: Path, job: str) -> Table:
    """Return the state of a job's newest run as a table; without rows where it has reported nothing yet."""
    file = newest(jobs, job)
    return table({} if file is None else states(file), datetime.now(UTC))


def _after(before: QueryState, line: Mapping[str, Any]) -> QueryState:
    at = datetime.fromisoformat(line["at"])
    behind = replace(
        before,
        at=at,
        backlog_records=line.get("BacklogRecords", before.backlog_records),
        backlog_seconds=line.get("BacklogSeconds", before.backlog_seconds),
    )
    if not line.get("InputRows"):
        return behind
    ages = line.get("RecordAge") or {}
    return replace(
        behind,
        batch=line["batch"],
        rows=line["InputRows"],
        rows_per_second=line["ProcessedRowsPerSecond"],
        age_p95=ages.get("p95"),
        age_max=ages.get("max"),
    )


def _last_lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            start = max(0, file.seek(0, 2) - _TAIL_BYTES)
            file.seek(start)
            lines = file.read().splitlines(keepends=True)
    except FileNotFoundError:
        return
    for line in lines[1 if start else 0 :]:
        if line.endswith(b"\n"):  # the last one may be incomplete
            yield json.loads(line)


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _backlog(state: QueryState) -> str:
    parts = [] if state.backlog_records is None else [f"{state.backlog_records:,}"]
    parts += [] if state.backlog_seconds is None else [f"{state.backlog_seconds:.1f} s"]
    return ", ".join(parts) or "-"
