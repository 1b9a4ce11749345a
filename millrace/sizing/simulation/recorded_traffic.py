"""Recorded traffic: CSV or JSON lines with times and rates, for one stream or several."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from millrace.config.document.problems import ConfigurationError, Problem, results_or_all_problems
from millrace.sizing.simulation.cumulative_arrivals import Arrivals

COLUMNS = ("time", "records_per_second", "stream")
"""Columns of a trace; without ``stream``, the traffic applies to every stream."""

_Rows = dict[str | None, list[tuple[float, float, int]]]
"""Time, rate and line of each row, by stream."""


def read_trace(file: Path) -> dict[str | None, Arrivals]:
    """Read a trace.

    Parameters
    ----------
    file
        ``.csv`` with a header, or ``.jsonl`` with one object in a line. ``time`` is in seconds, or a time in ISO
        8601; it ascends. ``records_per_second`` applies from that time to the next; the last row, as long as the
        one before it.

    Returns
    -------
    dict
        Arrivals by stream; ``None`` for rows without a stream.

    Raises
    ------
    ConfigurationError
        The file is not a valid trace; the message names the lines.
    """
    rows: _Rows = {}
    results_or_all_problems(partial(_add_row, rows, file, line, row) for line, row in _rows_of_file(file))
    if not rows:
        raise _trace_error(file, 0, "", "no rows", "two rows or more of time and records_per_second")
    begin = min(found[0][0] for found in rows.values())
    arrivals = results_or_all_problems(
        partial(_arrivals_of_stream, file, stream, found, begin) for stream, found in rows.items()
    )
    return dict(zip(rows, arrivals, strict=True))


def _add_row(rows: _Rows, file: Path, line: int, row: dict[str, Any]) -> None:
    if unknown := sorted(set(row) - set(COLUMNS)):
        raise _trace_error(file, line, unknown[0], "an unknown column", f"{', '.join(COLUMNS)}")
    stream = row.get("stream") or None
    parsers = {"time": _parse_time, "records_per_second": _parse_rate}
    at, rate = results_or_all_problems(
        partial(parse, file, line, row.get(column)) for column, parse in parsers.items()
    )
    known = rows.setdefault(None if stream is None else str(stream), [])
    if known and at <= known[-1][0]:
        raise _trace_error(file, line, "time", str(row["time"]), "a time after that of the row before")
    known.append((at, rate, line))


def _arrivals_of_stream(
    file: Path, stream: str | None, rows: list[tuple[float, float, int]], begin: float
) -> Arrivals:
    if len(rows) < 2:
        raise _trace_error(
            file,
            rows[0][2],
            "time",
            "one row" if stream is None else f"only one row of stream {stream}",
            "two rows or more of each stream, because the last rate lasts as long as the one before it",
        )
    times = [at - begin for at, _, _ in rows]
    rates = [rate for _, rate, _ in rows]
    if times[0] > 0:  # another stream begins earlier
        times, rates = [0.0, *times], [0.0, *rates]
    return Arrivals.of_rates([*times, 2 * times[-1] - times[-2]], rates)


def _rows_of_file(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise _trace_error(
            file, 0, "", "cannot be read", "a readable file of CSV or JSON lines in UTF-8"
        ) from error
    if file.suffix == ".csv":
        reader = csv.DictReader(text.splitlines(), restkey="(more)", strict=True)
        try:
            for row in reader:
                yield reader.line_num, {key: value for key, value in row.items() if value is not None}
        except csv.Error as error:
            raise _trace_error(file, reader.line_num, "", str(error), "CSV with a header") from error
        return
    if file.suffix not in (".jsonl", ".ndjson"):
        raise _trace_error(
            file, 0, "", f"ends in {file.suffix or 'nothing'}", "a file that ends in .csv or .jsonl"
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except ValueError as error:
            raise _trace_error(file, number, "", line[:40], "one JSON object per line") from error
        if not isinstance(row, dict):
            raise _trace_error(file, number, "", line[:40], "one JSON object per line")
        yield number, row


def _parse_time(file: Path, line: int, value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = math.nan
    if math.isfinite(seconds) and not isinstance(value, bool):
        return seconds
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        allowed = "seconds, or a moment with its zone, such as 2026-01-31T00:00:00Z"
        raise _trace_error(file, line, "time", str(value), allowed)
    return moment.timestamp()


def _parse_rate(file: Path, line: int, value: Any) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not math.isfinite(rate) or rate < 0 or isinstance(value, bool):
        raise _trace_error(file, line, "records_per_second", str(value), "a number, 0 or more")
    return rate


def _trace_error(file: Path, line: int, key: str, value: str, allowed: str) -> ConfigurationError:
    return ConfigurationError([Problem(str(file), line, key, value, allowed)])
