"""Recorded traffic: CSV or JSON lines with times and rates, for one stream or several."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from millrace.config.document.problems import ConfigurationError, Problem, results_or_all_problems
from millrace.config.sources.base import MOST_RECORDS_PER_SECOND
from millrace.sizing.simulation.cumulative_arrivals import Arrivals

COLUMNS = ("time", "records_per_second", "stream")
"""Columns of a trace; without ``stream``, the traffic applies to every stream."""

_Rows = dict[str | None, list[tuple[float, float, int]]]
"""Time, rate and line of each row, by stream."""

_UNITS_SINCE_1970 = {
    "milliseconds since 1970": 1e3,
    "microseconds since 1970": 1e6,
    "nanoseconds since 1970": 1e9,
}
"""Units in which a trace may have moments as numbers, and how many of them a second has."""

_LARGEST_SECONDS = 1e11
"""Number from which a time is no longer in seconds: 1973 in milliseconds, and the year 5138 in seconds."""

_TIMES = "seconds, milliseconds since 1970, or a moment with its zone, such as 2026-01-31T00:00:00Z"


def read_trace(file: Path) -> dict[str | None, Arrivals]:
    """Read a trace.

    Parameters
    ----------
    file
        ``.csv`` with a header, or ``.jsonl`` with one object in a line. ``time`` is in seconds, in milliseconds,
        microseconds or nanoseconds since 1970, or a time in ISO 8601, alike in all rows; it ascends.
        ``records_per_second`` applies from that time to the next; the last row, as long as the one before it.

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
    units: list[str] = []
    results_or_all_problems(
        partial(_add_row, rows, units, file, line, row) for line, row in _rows_of_file(file)
    )
    if not rows:
        raise _trace_error(file, 0, "", "no rows", "two rows or more of time and records_per_second")
    begin = min(found[0][0] for found in rows.values())
    arrivals = results_or_all_problems(
        partial(_arrivals_of_stream, file, stream, found, begin) for stream, found in rows.items()
    )
    return dict(zip(rows, arrivals, strict=True))


def _add_row(rows: _Rows, units: list[str], file: Path, line: int, row: dict[str, Any]) -> None:
    """Add a row; ``units`` gets the kind of time of the first row, which all others must have."""
    stream = row.get("stream") or None
    parsers: dict[str, Callable[[Path, int, Any], float]] = {
        "time": partial(_parse_time, units),
        "records_per_second": _parse_rate,
    }
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
    if file.suffix.lower() == ".csv":
        reader = csv.DictReader(text.splitlines(), restkey="(more)", strict=True)
        try:
            if reader.fieldnames == []:
                raise _trace_error(file, 1, "", "an empty line", "CSV with a header")
            _row_of_columns(file, 1, [(name, None) for name in reader.fieldnames or ()])
            for row in reader:
                given = [(key, value) for key, value in row.items() if value is not None]
                yield reader.line_num, _row_of_columns(file, reader.line_num, given)
        except csv.Error as error:
            raise _trace_error(file, reader.line_num, "", str(error), "CSV with a header") from error
        return
    if file.suffix.lower() not in (".jsonl", ".ndjson"):
        raise _trace_error(
            file, 0, "", f"ends in {file.suffix or 'nothing'}", "a file that ends in .csv or .jsonl"
        )
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=tuple)
        except (ValueError, RecursionError) as error:
            raise _trace_error(file, number, "", line[:40], "one JSON object per line") from error
        if not isinstance(row, tuple):
            raise _trace_error(file, number, "", line[:40], "one JSON object per line")
        yield number, _row_of_columns(file, number, row)


def _row_of_columns(file: Path, line: int, columns: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return columns by name, each of which may be there once."""
    row = dict(columns)
    if unknown := sorted(row.keys() - set(COLUMNS)):
        raise _trace_error(file, line, unknown[0], "an unknown column", ", ".join(COLUMNS))
    if len(row) < len(columns):
        names = [name for name, _ in columns]
        twice = next(name for name in names if names.count(name) > 1)
        raise _trace_error(file, line, twice, "there twice", "each column once")
    return row


def _parse_time(units: list[str], file: Path, line: int, value: Any) -> float:
    number = _finite_number_or_nan(value)
    seconds = number
    unit = "seconds"
    if math.isnan(number) or (not units and re.fullmatch(r"(19|20)\d{6}", str(value))):
        unit = "a moment"
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            moment = None
        if moment is None or moment.tzinfo is None:
            raise _trace_error(file, line, "time", str(value), _TIMES)
        seconds = moment.timestamp()
    for name, each in _UNITS_SINCE_1970.items():
        if abs(number) >= _LARGEST_SECONDS * each / 1e3:
            unit, seconds = name, number / each
    units.append(unit)
    if unit != units[0]:
        raise _trace_error(file, line, "time", f"{value} ({unit})", f"{units[0]}, as in the rows before it")
    return seconds


def _parse_rate(file: Path, line: int, value: Any) -> float:
    rate = _finite_number_or_nan(value)
    if not 0 <= rate <= MOST_RECORDS_PER_SECOND:
        allowed = f"a number from 0 to {MOST_RECORDS_PER_SECOND:,}"
        raise _trace_error(file, line, "records_per_second", str(value), allowed)
    return rate


def _finite_number_or_nan(value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan
    return number if math.isfinite(number) else math.nan


def _trace_error(file: Path, line: int, key: str, value: str, allowed: str) -> ConfigurationError:
    return ConfigurationError([Problem(str(file), line, key, value, allowed)])
