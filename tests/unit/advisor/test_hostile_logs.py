"""Malicious event logs give a report or a message, without a traceback and within the memory limit."""

from __future__ import annotations

import gzip
import io
import json
import struct
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import cramjam
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some
from typer.testing import CliRunner

from millrace.advisor.advise import advise
from millrace.advisor.findings import query_view, tasks
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.forecasts import query_twin as twins
from millrace.advisor.logs import event_log_to_history, event_logs
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import EventLog, LogFile, LogLines, find_event_logs
from millrace.advisor.logs.statistics import count_startup_batches, median_with_interval, slope_with_interval
from millrace.cli.app import app
from millrace.cli.watch.advise import _print_advice, advice_document
from millrace.cli.watch.advised_changes_with_forecasts import forecast_changes, print_forecasts
from millrace.cli.watch.advised_changes_with_forecasts import forecasts_document as foreseen_json
from millrace.config import ConfigurationError
from tests.run import examples
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import history
from tests.unit.advisor.packed_logs import TEXT, lz4_block

START = b'{"Event":"SparkListenerLogStart","Spark Version":"3.5.7"}\n'
TASK = b'{"Event":"SparkListenerTaskStart","x":"' + b"0" * 200 + b'"}\n'
GIB = 1 << 30


def _zstd(unit: bytes, size: int) -> bytes:
    packer, out = zstandard.ZstdCompressor(level=3).compressobj(), io.BytesIO()
    piece = unit * (1024 * 1024 // len(unit))
    out.write(packer.compress(START))
    for _ in range(size // len(piece)):
        out.write(packer.compress(piece))
    out.write(packer.flush())
    return out.getvalue()


def _gzip(unit: bytes, size: int) -> bytes:
    # Members stand one behind the other, so one is packed and repeated.
    return gzip.compress(START) + gzip.compress(unit * (16 * 1024 * 1024 // len(unit))) * (size >> 24)


def _lz4(unit: bytes, size: int) -> bytes:
    text = unit * (1024 * 1024 // len(unit))
    return lz4_block(START, raw=True) + lz4_block(text) * (size >> 20)


def _snappy(unit: bytes, size: int) -> bytes:
    def block(text: bytes) -> bytes:
        packed = bytes(cramjam.snappy.compress_raw(text))
        return len(packed).to_bytes(4, "big") + packed

    text = unit * (1024 * 1024 // len(unit))
    return b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1) + block(START) + block(text) * (size >> 20)


BOMBS = {"zstd": _zstd, "gzip": _gzip, "lz4": _lz4, "snappy": _snappy}


@pytest.mark.parametrize("codec", BOMBS)
@pytest.mark.parametrize("unit", [b"\n", b"0", TASK], ids=["empty lines", "one line", "events"])
def test_what_a_log_unpacks_to_has_a_ceiling_and_the_report_says_that_it_was_met(
    codec, unit, tmp_path, monkeypatch
):
    monkeypatch.setattr(event_logs, "AT_LEAST", 8 << 20)
    monkeypatch.setattr(event_logs, "MOST_TIMES", 1)
    file = tmp_path / "local-1"
    file.write_bytes(BOMBS[codec](unit, 64 << 20))
    given_out = 0
    lines = LogLines(find_event_logs(str(file))[0])
    for line in lines:
        given_out += len(line)
    most = max(8 << 20, file.stat().st_size)
    assert lines.ended_at == f"it unpacks to more than {most >> 20} MiB"
    assert given_out <= most
    # One without a single event is told to be none, with what was met, and not taken for a run that needs nothing.
    found = CliRunner().invoke(app, ["advise", str(file)])
    assert isinstance(found.exception, ConfigurationError)
    assert "not read to its end: it unpacks to more than" in str(found.exception)


@pytest.mark.slow
def test_16_kib_that_unpack_to_gigabytes_are_read_in_bounded_memory(tmp_path):
    file = tmp_path / "local-1"
    file.write_bytes(_zstd(b"\n", 8 * GIB)[: 1 << 20])
    assert file.stat().st_size < 1 << 20
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30));"
        "from millrace.cli import main; sys.argv = ['millrace', 'advise', sys.argv[1]]; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert "unpacks to more than 256 MiB" in done.stderr


def test_a_snappy_block_that_claims_gigabytes_gets_no_room():
    claimed = b"\xff\xff\xff\xff\x0f" + b"\x00a"
    text = b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1) + len(claimed).to_bytes(4, "big") + claimed
    lines = LogLines(_log(text))
    assert list(lines) == []
    assert "a snappy block claims to be larger than the limit" in lines.ended_at


def _log(text: bytes) -> EventLog:
    return EventLog(
        "x", (LogFile("x", len(text), 0, lambda: io.BufferedReader(io.BytesIO(text))),), lost=False
    )


def _report(text: bytes, *, twin: bool = False) -> None:
    """A report is made of it, as JSON and as words, whatever it holds; judged from two batches on, as from eight."""
    with ExitStack() as patched:
        for module in (query_view, tasks, twins):
            patched.enter_context(patch.object(module, "LEAST", 2))
        advice = advise(read_history(_log(text)))
        json.dumps(advice_document(advice))
        _print_advice(advice, "x")
        if twin:
            foreseen = forecast_changes(advice, AdvisedJob(), (), None)
            json.dumps(foreseen_json(foreseen))
            print_forecasts(foreseen)


def test_millions_of_tiny_stages_end_reading_where_memory_has_its_ceiling(monkeypatch):
    monkeypatch.setattr(event_log_to_history, "HELD", 50 << 20)
    begin = START + b'{"Event":"SparkListenerApplicationStart","App Name":"x","Timestamp":1700000000000}\n'
    tiny = (
        b'{"Event":"SparkListenerJobStart","Job ID":%d,"Submission Time":1700000000000,"Stage Infos":'
        b'[{"Stage ID":%d,"Stage Name":"s","Number of Tasks":1}]}\n'
    )
    text = begin + b"".join(tiny % (n, n) for n in range(100_000))
    found = read_history(_log(text))
    assert found.ended_at == "its figures take more than 0 GiB"
    assert 0 < len(found.jobs) < 50_000
    assert any("not read to its end" in note for note in advise(found).notes)


def test_what_is_held_is_no_more_than_is_counted():
    """The estimate must not fall below what a thing takes."""
    import tracemalloc

    tiny = (
        b'{"Event":"SparkListenerJobStart","Job ID":%d,"Submission Time":1700000000000,"Stage Infos":'
        b'[{"Stage ID":%d,"Stage Name":"' + b"s" * 300 + b'","Number of Tasks":1}]}\n'
    )
    task = {
        "Event": "SparkListenerTaskEnd",
        "Stage Attempt ID": 0,
        "Task Info": {"Index": 0, "Launch Time": 1700000000000, "Finish Time": 1700000000100},
    }
    count = 5000
    text = START + b"".join(
        tiny % (n, n) + json.dumps(task | {"Stage ID": n}).encode() + b"\n" for n in range(count)
    )
    reader = event_log_to_history._HistoryReader()
    tracemalloc.start()
    for line in LogLines(_log(text)):
        reader.process_line(line)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert reader.unread == 0
    assert held < reader._held


WRONG = some.one_of(
    some.none(),
    some.booleans(),
    some.integers(-(2**70), 2**70),
    some.sampled_from(
        [-1, -(2**31), 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**15, 1e300, -1e300, 0.5, 1e-320]
    ),
    some.floats(),
    some.text(max_size=20),
    some.sampled_from(["8", "-1", "NaN", "Infinity", "\x1b[2J", "\u202eevil", "9" * 5000, "1e999"]),
    some.lists(some.integers(), max_size=3),
    some.dictionaries(some.text(max_size=5), some.one_of(some.integers(), some.text(max_size=5)), max_size=3),
)
EVENTS = [json.loads(line) for line in TEXT.splitlines()]
KINDS = sorted({each["Event"] for each in EVENTS})
FIRST = {kind: [n for n, each in enumerate(EVENTS) if each["Event"] == kind] for kind in KINDS}


def _paths(value: object, path: tuple = ()) -> list[tuple]:
    children = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [found for key, below in children for found in ((*path, key), *_paths(below, (*path, key)))]


def _put(event: dict, path: tuple, value: object) -> dict:
    event = json.loads(json.dumps(event))
    holder = event
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    return event


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=some.data())
@pytest.mark.slow
def test_any_value_in_any_field_of_any_line_is_a_report(data):
    """The whole of a real log, some fields of which hold what they never should."""
    changed = list(EVENTS)
    for _ in range(data.draw(some.integers(1, 4))):
        kind = data.draw(some.sampled_from(KINDS))
        every = data.draw(some.booleans())
        at = data.draw(some.sampled_from(FIRST[kind]))
        paths = [each for each in _paths(changed[at]) if "Accumulables" not in each and each != ("Event",)]
        path, value = data.draw(some.sampled_from(paths)), data.draw(WRONG)
        for number in FIRST[kind] if every else [at]:
            try:
                changed[number] = _put(changed[number], path, value)
            except (KeyError, IndexError, TypeError):
                continue
    text = b"\n".join(json.dumps(each, separators=(",", ":")).encode() for each in changed) + b"\n"
    _report(text, twin=data.draw(some.integers(0, 9)) == 0)


JUNK = some.recursive(
    WRONG, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(), inner, max_size=3)
)


@settings(max_examples=examples(200))
@given(
    lines=some.lists(
        some.tuples(
            some.sampled_from(KINDS),
            some.dictionaries(
                some.sampled_from(sorted({str(path[-1]) for each in EVENTS[:400] for path in _paths(each)})),
                JUNK,
                max_size=8,
            ),
        ),
        max_size=12,
    )
)
@pytest.mark.slow
def test_any_object_under_any_events_name_is_a_report(lines):
    _report(b"\n".join(json.dumps({"Event": kind} | fields).encode() for kind, fields in lines) + b"\n")


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        (kind, path, value)
        for kind, path in [
            ("SparkListenerExecutorAdded", ("Executor Info", "Total Cores")),
            ("SparkListenerTaskEnd", ("Task Metrics", "Executor Run Time")),
            ("SparkListenerTaskEnd", ("Task Info", "Index")),
            ("SparkListenerStageCompleted", ("Stage Info", "Number of Tasks")),
            ("SparkListenerApplicationStart", ("App Name",)),
            (
                "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
                ("progress", "batchId"),
            ),
            (
                "org.apache.spark.sql.streaming.StreamingQueryListener$QueryProgressEvent",
                ("progress", "durationMs", "triggerExecution"),
            ),
        ]
        for value in ("8", True, -1, [], {}, 1e300, None)
        if (path, value) != (("App Name",), "8")  # which is a name
    ],
    ids=repr,
)
def test_a_line_of_another_type_is_passed_over_and_counted(kind, path, value):
    at = FIRST[kind][0]
    changed = [*EVENTS[:at], _put(EVENTS[at], path, value), *EVENTS[at + 1 :]]
    text = b"\n".join(json.dumps(each, separators=(",", ":")).encode() for each in changed) + b"\n"
    assert read_history(_log(text)).unread >= 1
    _report(text)


@pytest.mark.parametrize("raw", [b"NaN", b"Infinity", b"1e999", b"-1e999", b"[" * 5000, b'{"a":' * 5000])
def test_what_json_has_no_word_for_costs_its_line(raw):
    line = b'{"Event":"SparkListenerApplicationEnd","Timestamp":' + raw + b"}\n"
    assert read_history(_log(TEXT + line)).unread == 1


def test_gigantic_keys_and_names_are_cut():
    long = "n" * 3_000_000
    event = {
        "Event": "org.apache.spark.sql.streaming.StreamingQueryListener$QueryStartedEvent",
        "id": long,
        "runId": "r",
        "name": long,
        "timestamp": "2026-01-01T00:00:00.000Z",
    }
    spark = {
        "Event": "SparkListenerEnvironmentUpdate",
        "Spark Properties": {long: "x", "spark.master": "local"},
    }
    text = START + b"".join(
        json.dumps(each, separators=(",", ":")).encode() + b"\n" for each in (event, spark)
    )
    found = read_history(_log(text))
    assert len(found.queries[0].name) == len(found.queries[0].id) == 300
    assert dict(found.properties) == {"spark.master": "local"}


def test_a_history_of_two_centuries_is_not_played_batch_by_batch(tmp_path):
    made = history()
    query = made.queries[0]
    *others, last = query.batches
    source = last.sources[0]
    much = replace(source, end={"orders:0": source.start["orders:0"] + 10**13})
    late = replace(last, begun=last.begun + 1e9, sources=(much,))
    file = write(replace(made, queries=(replace(query, batches=(*others, late)),)), tmp_path / "local-1")
    done = CliRunner().invoke(app, ["advise", str(file), "--json"])
    assert done.exit_code == 0, done.exception
    assert json.loads(done.stdout)["forecasts"] == []


def test_statistics_of_a_weeks_batches_are_those_of_their_definition():
    import numpy as np

    chance = np.random.default_rng(1)
    seen = np.exp(chance.normal(0, 0.3, 2000))
    most = len(seen) // 2
    logged = np.log(seen)
    errors = [float(np.var(logged[cut:]) / (len(seen) - cut)) for cut in range(1, most + 1)]
    assert count_startup_batches(seen) == 1 + int(np.argmin(errors))
    large = np.exp(chance.normal(0, 0.3, 400_000))
    found = median_with_interval(large)
    assert found.low < found.value < found.high
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.3 * np.sqrt(np.pi / 2 / len(large)), rel=0.2)
    at = np.arange(400_000.0)
    assert slope_with_interval(at, 3 * at + large).value == pytest.approx(3, rel=1e-4)


def test_a_file_that_is_no_log_is_a_message(tmp_path):
    (tmp_path / "x").write_bytes(b"\x28\xb5\x2f\xfd" + b"\x00" * 100)
    with pytest.raises(ConfigurationError, match="PATH"):
        find_event_logs(str(tmp_path / "x"))
    assert Path(tmp_path / "x").exists()
