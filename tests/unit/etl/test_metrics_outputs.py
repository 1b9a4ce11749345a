"""CloudWatch's lines, the rotated file and Prometheus' page, each read back by something that is not ours."""

from __future__ import annotations

import json
import os
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etl.accounts import Reporter
from etl.errors import StartError
from etl.metrics import emf
from etl.metrics.catalogue import BY_NAME, METRICS
from etl.metrics.jsonlines import JsonLines
from etl.metrics.outputs import Console, open_monitor
from etl.metrics.pipe import ROOM
from etl.metrics.progress import Sample
from etl.metrics.prometheus import Page, metric_name, serve
from etl.metrics.sketch import Sketch
from etl.settings import parse
from tests.unit.etl.test_launch import SETTINGS

JOB = "flights-prod-flights"
AGES = Sketch(tuple((float(n), 1.0) for n in range(1000)), 999.0)


def sample(query: str | None = "land", at: float = 1000.0, batch: int | None = 1, **values: float) -> Sample:
    return Sample(at, query, values, batch)


def aged(ages: Sketch = AGES, **values: float) -> Sample:
    return Sample(1000.0, "land", values, 1, ages)


def documents(*samples: Sample) -> list[dict[str, Any]]:
    return [json.loads(line) for line in emf.lines(JOB, samples)]


def test_a_line_says_what_is_a_metric_and_what_a_dimension() -> None:
    (line,) = documents(sample(InputRows=5, BatchDuration=1.23456, Triggers=1))
    assert line["_aws"] == {
        "Timestamp": 1_000_000,
        "CloudWatchMetrics": [
            {
                "Namespace": "Millrace",
                "Dimensions": [["job", "query"]],
                "Metrics": [
                    {"Name": "InputRows", "Unit": "Count"},
                    {"Name": "BatchDuration", "Unit": "Seconds"},
                    {"Name": "Triggers", "Unit": "Count"},
                ],
            }
        ],
    }
    assert (line["job"], line["query"], line["batches"]) == (JOB, "land", [1, 1])
    assert (line["InputRows"], line["BatchDuration"], line["Triggers"]) == (5, 1.235, 1)


def test_what_concerns_the_job_has_no_query() -> None:
    (line,) = documents(sample(None, batch=None, Starts=1))
    assert line["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["job"]]
    assert "query" not in line
    assert "batches" not in line


def test_batches_of_a_query_share_a_line_and_queries_do_not() -> None:
    lines = documents(
        sample(InputRows=5), sample("derive", InputRows=7), sample(at=1010.0, batch=2, InputRows=6)
    )
    assert [(line["query"], line["InputRows"]) for line in lines] == [("land", [5, 6]), ("derive", 7)]
    assert lines[0]["_aws"]["Timestamp"] == 1_010_000
    assert lines[0]["batches"] == [1, 2]


def test_ages_keep_percentiles_and_the_oldest() -> None:
    (line,) = documents(aged(), aged(Sketch(tuple((float(n), 1.0) for n in range(1000, 3000)), 3000.5)))
    ages = line["RecordAge"]
    assert len(ages) == emf.MOST_VALUES
    assert max(ages) == 3000.5
    exact = np.arange(3000)
    for q in (50, 95, 99):
        assert np.percentile(ages, q) == pytest.approx(np.percentile(exact, q), abs=35)  # 1 % of ranks is 30


def test_no_line_is_too_long_and_no_value_is_lost() -> None:
    everything = {m.name: 123456.789 for m in METRICS if m.kind != "spread"}
    samples = [Sample(float(n), "land", everything, n, AGES) for n in range(250)]
    lines = list(emf.lines(JOB, samples))
    assert max(len(line.encode()) for line in lines) <= emf.MOST_BYTES
    assert not any("\n" in line for line in lines)
    counts = dict.fromkeys(everything, 0)
    for document in map(json.loads, lines):
        (directive,) = document["_aws"]["CloudWatchMetrics"]
        names = [metric["Name"] for metric in directive["Metrics"]]
        assert len(names) == len(set(names)) <= emf.MOST_METRICS
        for name in names:
            values = document[name] if isinstance(document[name], list) else [document[name]]
            assert len(values) <= emf.MOST_VALUES
            if name in counts:
                counts[name] += len(values)
    assert set(counts.values()) == {250}


def test_a_value_that_is_no_number_makes_no_line() -> None:
    with pytest.raises(ValueError, match="no metric has the value nan"):
        documents(sample(BatchDuration=float("nan")))


def test_the_file_has_a_line_for_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    JsonLines(path, JOB).write([aged(InputRows=5), sample(None, batch=None, Starts=1)])
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["RecordAge"] == pytest.approx(
        {"p50": 499.5, "p95": 949.5, "p99": 989.5, "max": 999.0}, abs=1
    )
    assert (first["at"], first["job"], first["query"]) == ("1970-01-01T00:16:40.000Z", JOB, "land")
    assert (first["batch"], first["InputRows"]) == (1, 5)
    assert (second["query"], second["Starts"]) == (None, 1)


def test_a_full_file_gives_way_and_nothing_grows_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    output = JsonLines(path, JOB, most_bytes=1000, kept=2)
    for n in range(100):
        output.write([sample(batch=n, InputRows=n)])
    files = sorted(tmp_path.iterdir())
    assert [file.name for file in files] == ["metrics.jsonl", "metrics.jsonl.1", "metrics.jsonl.2"]
    assert all(file.stat().st_size <= 1000 for file in files)
    kept = [
        json.loads(line)["batch"]
        for file in (*files[:0:-1], files[0])
        for line in file.read_text().splitlines()
    ]
    assert kept == list(range(kept[0], 100)), "the newest, in order"


def page() -> Page:
    shown = Page('job "x"')
    shown.write([sample(InputRows=5, BatchDuration=2.0), aged(InputRows=7, BatchDuration=3.5)])
    shown.write([sample(None, Starts=1), sample("derive", StateMemory=1e12, FilteredRecords=-3)])
    return shown


def test_totals_add_up_and_levels_are_the_last() -> None:
    text = page().text()
    for line in (
        "# TYPE millrace_input_rows_total counter",
        r'millrace_input_rows_total{job="job \"x\"",query="land"} 12',
        "# TYPE millrace_batch_duration_seconds gauge",
        r'millrace_batch_duration_seconds{job="job \"x\"",query="land"} 3.5',
        r'millrace_starts_total{job="job \"x\""} 1',
        r'millrace_state_memory_bytes{job="job \"x\"",query="derive"} 1000000000000',
        r'millrace_filtered_records{job="job \"x\"",query="derive"} -3',
        "# TYPE millrace_record_age_seconds summary",
        r'millrace_record_age_seconds{job="job \"x\"",query="land",quantile="1"} 999',
        r'millrace_record_age_seconds_count{job="job \"x\"",query="land"} 1000',
        r'millrace_record_age_seconds_sum{job="job \"x\"",query="land"} 499500',
    ):
        assert line in text.splitlines()


def test_names_are_prometheus_names() -> None:
    assert metric_name(BY_NAME["ProcessedRowsPerSecond"]) == "millrace_processed_rows_per_second"
    assert metric_name(BY_NAME["BacklogSeconds"]) == "millrace_backlog_seconds"
    assert len({metric_name(metric) for metric in METRICS}) == len(METRICS)


def test_the_page_is_served_on_this_machine_alone() -> None:
    server = serve(page(), 0)
    try:
        assert server.server_address[0] == "127.0.0.1"
        client = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        client.request("GET", "/metrics")
        answer = client.getresponse()
        assert answer.status == 200
        assert answer.getheader("Content-Type", "").startswith("text/plain; version=0.0.4")
        assert answer.read().decode() == page().text()
        client.close()
        client.request("GET", "/")
        assert client.getresponse().status == 404
        client.close()
    finally:
        server.shutdown()
        server.server_close()


def test_standard_output_that_nobody_reads_holds_nobody_up() -> None:
    """A pipe takes 64 KiB and then makes its writer wait: that is what a log collector that hangs does."""
    reading, writing = os.pipe()
    stream, reader = os.fdopen(writing, "w"), os.fdopen(reading, "rb")
    console = Console(stream)
    report = Reporter("flights", console)
    started = time.monotonic()
    for n in range(3000):
        report.emit("batch", query="land", batch=n, filler="x" * 100)
    took = time.monotonic() - started
    finished = console.pipe.close(0.2)
    dropped = console.pipe.take_dropped()
    lines: list[bytes] = []
    drained = threading.Thread(target=lambda: lines.extend(reader), daemon=True)
    drained.start()  # a reader comes back
    finished_then = console.pipe.close(10)
    stream.close()
    drained.join(10)
    reader.close()
    assert took < 5
    assert (finished, finished_then) == (False, True)
    assert dropped >= 3000 - 2 * ROOM - 500, "one lot in hand, one that waits, and what the pipe itself took"
    assert len(lines) == 3000 - dropped
    assert all(json.loads(line)["job"] == "flights" for line in lines), "whole lines"


def opened(binds: dict[str, str], tmp_path: Path) -> list[dict[str, Any]]:
    """Open a job's outputs, close them, and give what it printed."""
    with (tmp_path / "stdout").open("w") as stream:
        console = Console(stream)
        monitor = open_monitor(JOB, parse(SETTINGS), console, Reporter("flights", console), binds)
        assert monitor.close()
    return [json.loads(line) for line in (tmp_path / "stdout").read_text().splitlines()]


def test_every_start_is_told_to_cloudwatch(tmp_path: Path) -> None:
    (line,) = opened({}, tmp_path)
    assert (line["job"], line["Starts"]) == (JOB, 1)


def test_the_file_and_the_page_are_asked_for_by_name(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    told = opened({"metrics.file": str(file), "metrics.port": "0"}, tmp_path)
    (event,) = [line for line in told if line.get("event") == "metrics"]
    assert event["file"] == str(file)
    assert event["url"].startswith("http://127.0.0.1:")
    assert json.loads(file.read_text())["Starts"] == 1


@pytest.mark.parametrize(
    ("binds", "message"),
    [
        ({"metrics.file": "/nowhere/at/all"}, r"--bind metrics\.file=/nowhere/at/all: No such file"),
        ({"metrics.port": "many"}, r"--bind metrics\.port=many: a port is a number"),
        ({"metrics.port": "70000"}, r"--bind metrics\.port=70000: a port is a number"),
    ],
)
def test_an_output_that_cannot_be_is_refused(binds: dict[str, str], message: str, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=message):
        opened(binds, tmp_path)


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    server = serve(Page(JOB), 0)
    try:
        with pytest.raises(StartError, match="in use"):
            opened({"metrics.port": str(server.server_port)}, tmp_path)
    finally:
        server.shutdown()
        server.server_close()
