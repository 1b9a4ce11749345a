"""CloudWatch calls and the rotated file, each read back by an independent parser."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import numpy as np
import pytest
from botocore.serialize import create_serializer
from moto import mock_aws

from millrace.etl.launch.metric_names import METRICS
from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.metrics import cloudwatch
from millrace.etl.metrics.background_writer import ROOM, BackgroundWriter
from millrace.etl.metrics.jsonlines import JsonLinesFile
from millrace.etl.metrics.metric_destinations import NonBlockingConsole, start_metrics_monitor
from millrace.etl.metrics.percentile_sketch import PercentileSketch
from millrace.etl.metrics.trigger_metrics import MetricSample
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from tests.unit.etl.test_launch_arguments import SETTINGS

JOB = "flights-prod-flights"
AGES = PercentileSketch(tuple((float(n), 1.0) for n in range(1000)), 999.0)


def sample(
    query: str | None = "land", at: float = 1000.0, batch: int | None = 1, **values: float
) -> MetricSample:
    return MetricSample(at, query, values, batch)


def aged(ages: PercentileSketch = AGES, **values: float) -> MetricSample:
    return MetricSample(1000.0, "land", values, 1, ages)


def data(*samples: MetricSample) -> list[dict[str, Any]]:
    """What a job sends of samples that fit one call."""
    (call,) = cloudwatch.put_metric_data_calls(JOB, samples)
    return call


def values(datum: dict[str, Any]) -> list[float]:
    return [v for v, count in zip(datum["Values"], datum["Counts"], strict=True) for _ in range(round(count))]


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [datum for datum in found if datum["MetricName"] == name]


OF_QUERY = [{"Name": "job", "Value": JOB}, {"Name": "query", "Value": "land"}]


def test_a_datum_says_whose_it_is_and_in_which_unit() -> None:
    result = data(sample(InputRows=5, BatchDuration=1.23456, Triggers=1))
    assert [(d["MetricName"], d["Unit"], d["Values"], d["Counts"]) for d in result] == [
        ("InputRows", "Count", [5], [1]),
        ("BatchDuration", "Seconds", [1.235], [1]),
        ("Triggers", "Count", [1], [1]),
    ]
    assert all(d["Dimensions"] == OF_QUERY for d in result)
    assert {d["Timestamp"].timestamp() for d in result} == {1000}


def test_what_concerns_the_job_has_no_query() -> None:
    (datum,) = data(sample(None, batch=None, Starts=1))
    assert datum["Dimensions"] == OF_QUERY[:1]


def test_batches_of_a_query_and_a_minute_share_a_datum() -> None:
    result = data(
        sample(at=960, InputRows=5),
        sample("derive", InputRows=7),
        sample(at=1019, batch=2, InputRows=5),
        sample(at=1020, batch=3, InputRows=6),
    )
    assert [(d["Dimensions"][1]["Value"], values(d), d["Timestamp"].timestamp()) for d in result] == [
        ("land", [5, 5], 1019),
        ("derive", [7], 1000),
        ("land", [6], 1020),
    ]


def test_ages_keep_their_weights_and_the_oldest() -> None:
    """CloudWatch works percentiles out of values and how often each came; a batch's points stand for shares of it."""
    first = PercentileSketch(((1.0, 0.5), (2.0, 9.5)), 2.5)
    (datum,) = named(data(aged(first), aged(PercentileSketch(((2.0, 30.0), (7.0, 10.0)), 9.25))), "RecordAge")
    assert dict(zip(datum["Values"], datum["Counts"], strict=True)) == {
        1.0: 0.5,
        2.0: 39.5,
        2.5: 1,
        7.0: 10,
        9.25: 1,
    }


def test_ages_of_many_batches_are_several_data() -> None:
    result = named(
        data(aged(), aged(PercentileSketch(tuple((n + 0.5, 1.0) for n in range(1000)), 1000.5))), "RecordAge"
    )
    assert max(len(datum["Values"]) for datum in result) == cloudwatch.MOST_VALUES
    ages = [age for datum in result for age in values(datum)]
    assert (len(ages), max(ages)) == (2002, 1000.5)
    for q in (50, 95, 99):
        assert np.percentile(ages, q) == pytest.approx(q * 10, abs=1)


def test_no_call_is_too_large_and_no_value_is_lost() -> None:
    """CloudWatch's own model and serializer say how large: 1,000 data, 150 values, a mebibyte."""
    names = [m.name for m in METRICS if m.kind != "spread"]
    queries = [f"query-{n:02}" for n in range(10)]
    samples = [
        MetricSample(960.0 + n / 100, query, dict.fromkeys(names, 1000000000.0 + n + 0.123), n, AGES)
        for query in queries
        for n in range(80)
    ]
    calls = list(cloudwatch.put_metric_data_calls("j" * 100, samples))
    assert len(calls) > 1
    client = boto3.client("cloudwatch", region_name="us-east-1")
    model = client.meta.service_model.operation_model("PutMetricData")
    for protocol in client.meta.service_model.metadata["protocols"]:
        for call in calls:
            assert len(call) <= cloudwatch.MOST_DATA
            assert max(len(datum["Values"]) for datum in call) <= cloudwatch.MOST_VALUES
            asked = create_serializer(protocol).serialize_to_request(
                {"Namespace": "Millrace", "MetricData": call}, model
            )
            body = asked["body"] if isinstance(asked["body"], bytes) else urlencode(asked["body"]).encode()
            assert len(body) <= 1 << 20, protocol
    counted = Counter(d["MetricName"] for call in calls for d in call for _ in values(d))
    assert {counted[name] for name in names} == {80 * len(queries)}


def test_the_file_has_a_line_for_each_sample(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    JsonLinesFile(path, JOB).write([aged(InputRows=5), sample(None, batch=None, Starts=1)])
    first, second = map(json.loads, path.read_text().splitlines())
    assert first["RecordAge"] == pytest.approx(
        {"p50": 499.5, "p95": 949.5, "p99": 989.5, "max": 999.0}, abs=1
    )
    assert (first["at"], first["job"], first["query"]) == ("1970-01-01T00:16:40.000Z", JOB, "land")
    assert (first["batch"], first["InputRows"]) == (1, 5)
    assert (second["query"], second["Starts"]) == (None, 1)


def test_a_full_file_gives_way_and_nothing_grows_without_bound(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    output = JsonLinesFile(path, JOB, most_bytes=1000, kept=2)
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


def test_standard_output_that_nobody_reads_holds_nobody_up() -> None:
    """A pipe takes 64 KiB and then makes its writer wait: that is what a log collector that hangs does."""
    reading, writing = os.pipe()
    stream, reader = os.fdopen(writing, "w"), os.fdopen(reading, "rb")
    console = NonBlockingConsole(stream)
    report = EventReporter("flights", console)
    started = time.monotonic()
    for n in range(3000):
        report.emit("batch", query="land", batch=n, filler="x" * 100)
    took = time.monotonic() - started
    finished = console.pipe.close(0.2)
    dropped = console.pipe.take_dropped_count()
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


def opened(binds: dict[str, str], tmp_path: Path, region: str | None = None) -> list[dict[str, Any]]:
    """Open a job's outputs, close them, and give what it printed."""
    with (tmp_path / "stdout").open("w") as stream:
        console = NonBlockingConsole(stream)
        spark: Any = None
        run = JobRun(spark, parse_job_settings(SETTINGS), binds, EventReporter("flights", console))
        monitor = start_metrics_monitor(JOB, run, console, region)
        assert monitor.close()
    return [json.loads(line) for line in (tmp_path / "stdout").read_text().splitlines()]


def test_every_start_is_told_to_cloudwatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mock_aws():
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        assert opened({}, tmp_path, region="eu-west-1") == []
        result = boto3.client("cloudwatch", region_name="eu-west-1").list_metrics()["Metrics"]
    assert result == [
        {"Namespace": f"Millrace/{JOB}", "MetricName": "Starts", "Dimensions": OF_QUERY[:1]},
    ]


def test_a_cloudwatch_that_cannot_be_reached_is_said_once_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # which remembers credentials
    told = StringIO()
    output = cloudwatch.CloudWatchSender(JOB, "eu-west-1", EventReporter("flights", told))
    for n in range(2):
        with pytest.raises(OSError, match="Unable to locate credentials"):
            output.write([sample(batch=n, InputRows=n)])
    pipe = BackgroundWriter("refused", output.write)
    pipe.put(sample(InputRows=3))
    assert pipe.close(30)
    assert pipe.take_dropped_count() == 1
    (event,) = [json.loads(line) for line in told.getvalue().splitlines()]
    assert event["event"] == "metrics_unsent"
    assert event["error"] == "CloudWatch takes no metrics: Unable to locate credentials"


def test_without_a_region_nothing_is_sent(tmp_path: Path) -> None:
    assert opened({}, tmp_path) == []


def test_the_file_is_asked_for_by_name(tmp_path: Path) -> None:
    file = tmp_path / "metrics.jsonl"
    told = opened({"metrics.file": str(file)}, tmp_path)
    (event,) = [line for line in told if line.get("event") == "metrics"]
    assert event["file"] == str(file)
    assert json.loads(file.read_text())["Starts"] == 1


def test_a_file_that_cannot_be_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"--bind metrics\.file=/nowhere/at/all: No such file"):
        opened({"metrics.file": "/nowhere/at/all"}, tmp_path)
