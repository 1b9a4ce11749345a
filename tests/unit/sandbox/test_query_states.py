"""The live state of queries, out of a file that the core's own output wrote."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from millrace.etl.metrics.jsonlines import JsonLines
from millrace.etl.metrics.progress import MetricSample
from millrace.etl.metrics.sketch import Sketch
from millrace.sandbox import demo
from millrace.sandbox.failure_drill import DrillProgress
from millrace.sandbox.query_states import newest, states, table

AGES = Sketch(tuple((float(n), 1.0) for n in range(101)), 100.0)


def batch(number: int, rows: int, *, query: str = "land", at: float = 1000.0, **more: float) -> MetricSample:
    values = {"Triggers": 1, "InputRows": rows, "ProcessedRowsPerSecond": rows / 2, **more}
    return MetricSample(at, query, values, number, AGES if rows else None)


def test_the_last_batch_with_records_is_shown_and_a_later_idle_trigger_moves_the_time(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    output = JsonLines(file, "flights-local-flights")
    output.write(
        [
            MetricSample(900.0, None, {"Starts": 1}),
            batch(1, 10),
            batch(2, 400, BacklogRecords=7, BacklogSeconds=3.0),
        ]
    )
    output.write(
        [batch(4, 20, query="derive"), MetricSample(1060.0, "land", {"Triggers": 1, "BacklogRecords": 0})]
    )
    with file.open("a") as writing:
        writing.write('{"at": "1970-01-01T00:20:00.000Z", "query": "la')  # under way
    result = states(file)
    land = result["land"]
    assert (land.batch, land.rows, land.rows_per_second) == (2, 400, 200.0)
    assert (land.age_p95, land.age_max) == (95.45, 100.0)
    assert (land.backlog_records, land.backlog_seconds) == (0, 3.0)
    assert land.at == datetime.fromtimestamp(1060, UTC)
    assert result.keys() == {"land", "derive"}


def test_only_the_end_of_a_long_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    JsonLines(file, "job").write([batch(n, 10) for n in range(3000)])
    assert file.stat().st_size > 200_000
    assert states(file)["land"].batch == 2999


def test_nothing_yet_is_no_state(tmp_path: Path) -> None:
    assert states(tmp_path / "none.jsonl") == {}
    assert newest(tmp_path, "flights") is None


def test_the_newest_run_of_a_job_is_found(tmp_path: Path) -> None:
    for run in ("flights-1", "flights-2", "departures-1"):
        (tmp_path / run).mkdir()
        JsonLines(tmp_path / run / "metrics.jsonl", "job").write([batch(1, 1)])
    result = newest(tmp_path, "flights")
    assert result is not None
    assert result.parent.name in {"flights-1", "flights-2"}
    (tmp_path / "flights-1" / "metrics.jsonl").touch()
    result = newest(tmp_path, "flights")
    assert result is not None
    assert result.parent.name == "flights-1"


def test_a_line_for_each_query(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    JsonLines(file, "job").write(
        [batch(7, 4000, BacklogRecords=1234, BacklogSeconds=2.5), batch(1, 0, query="derive")]
    )
    console = Console(width=120, file=io.StringIO())
    console.print(table(states(file), datetime.fromtimestamp(1003, UTC)))
    lines = console.file.getvalue().splitlines()
    assert lines[1].split("  ")[0] == "derive"
    assert [part.strip() for part in lines[2].split("  ") if part] == [
        "land",
        "2,000",
        "95.5 s",
        "100.0 s",
        "1,234, 2.5 s",
        "7, 4,000 rows, 3 s ago",
    ]


@pytest.mark.parametrize("terminal", [False, True])
def test_the_demo_shows_it_while_a_job_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, terminal: bool
) -> None:
    run = tmp_path / "jobs" / "flights-1"
    run.mkdir(parents=True)
    JsonLines(run / "metrics.jsonl", "job").write([batch(7, 4000, query="land-flights")])
    monkeypatch.setattr(demo, "RUN", tmp_path)
    console = Console(width=120, file=io.StringIO(), force_terminal=terminal)
    with demo.Phases(console).drill("job flights", "flights", 100) as report:
        report(DrillProgress("running", sent=100, landed=40, derived=30, total=100))
    shown = console.file.getvalue()
    assert "land-flights" in shown
    assert "2,000" in shown
    assert "4,000 rows" in shown
