"""A real event log of Spark 3.5 is read whole, rolled, compressed, truncated, damaged, and from S3."""

from __future__ import annotations

import gzip
import json
import random
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from millrace.advisor.advise import advise
from millrace.advisor.findings import query_view, tasks
from millrace.advisor.logs import event_logs
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.advisor.logs.event_parser import parse_event, without_accumulables
from millrace.cli.watch.advise import advice_document
from millrace.config import ConfigurationError
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import even, history, kinds
from tests.unit.advisor.packed_logs import (
    DATA,
    PACKED,
    REAL,
    TEXT,
    _stream,
    history_of,
    lz4,
)


def test_tasks_stages_jobs_and_batches_are_joined():
    found = history_of(REAL)
    assert (found.spark_version, found.engine, found.complete, found.cores) == ("3.5.7", "local", True, 2)
    assert (found.unread, found.cut_off, found.lost) == (0, False, False)
    assert [(each.name, len(each.batches)) for each in found.queries] == [
        ("land-flights", 7),
        ("flights-weather", 8),
    ]
    land, derive = found.queries
    assert [each.id for each in land.batches] == list(range(1, 8))
    first = land.batches[0]
    assert first.rows == first.records == 9997
    assert first.sources[0].records_read == 9997
    # Of the batch's two jobs one writes no stage of its own; the other reads four partitions of the topic.
    [stage] = [stage for job in first.jobs for stage in job.stages]
    assert stage.tasks.records_read.sum() == 9997
    assert sorted(stage.tasks.index) == [0, 1, 2, 3]
    assert first.begun <= stage.tasks.launched.min() <= stage.tasks.finished.max() <= first.ended_at + 1
    # What a query's batches read and what all events of the log tell are the same tasks.
    ended = sum(b'"SparkListenerTaskEnd"' in line for line in TEXT.splitlines())
    jobs = [*found.jobs, *(job for query in found.queries for batch in query.batches for job in batch.jobs)]
    assert sum(len(stage.tasks) for job in jobs for stage in job.stages) == ended
    assert {job.id for job in jobs} == set(range(len(jobs)))
    assert derive.batches[0].sources[0].records_read is None  # a snapshot counts no records
    assert derive.batches[0].records == 9998
    assert first.arrivals is None or first.arrivals[0] < first.ended_at


def test_a_log_of_spark_4():
    found = history_of(DATA / "rate-4.0.zstd")
    assert (found.spark_version, found.complete, found.unread, found.cores) == ("4.0.0", True, 0, 2)
    [query] = found.queries
    assert [each.id for each in query.batches] == list(range(18))
    for batch in query.batches[1:]:
        [job] = batch.jobs
        [stage] = job.stages
        assert stage.tasks.records_read.sum() == batch.rows
        assert stage.scans[0].name == "MicroBatchScan"
    assert kinds(advise(found)) == []


def test_tasks_of_a_job_whose_start_is_missing_are_counted_and_told(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)
    starts = [n for n, line in enumerate(lines) if b'"SparkListenerJobStart"' in line]
    for dropped in starts[:1], starts[3:6], starts:
        left = [line for n, line in enumerate(lines) if n not in dropped]
        (tmp_path / "local-1").write_bytes(b"".join(left))
        found = history_of(tmp_path / "local-1")
        jobs = [
            *found.jobs,
            *(job for query in found.queries for batch in query.batches for job in batch.jobs),
        ]
        counted = sum(len(stage.tasks) for job in jobs for stage in job.stages)
        assert counted == sum(b'"SparkListenerTaskEnd"' in line for line in lines)
        assert found.unread == 0
        said = f"the start of some jobs is not in the log: {found.tasks_without_job} of their tasks are counted to no batch"
        assert (said in advise(found).notes) == (found.tasks_without_job > 0)
    assert found.tasks_without_job == counted


def test_figures_are_those_of_the_log():
    events = [json.loads(line) for line in TEXT.splitlines()]
    ends = [each for each in events if each["Event"] == "SparkListenerTaskEnd"]
    run = sum(each["Task Metrics"]["Executor Run Time"] for each in ends) / 1e3
    cpu = sum(each["Task Metrics"]["Executor CPU Time"] for each in ends) / 1e9
    found = history_of(REAL)
    jobs = [*found.jobs, *(job for query in found.queries for batch in query.batches for job in batch.jobs)]
    tables = [stage.tasks for job in jobs for stage in job.stages]
    assert sum(float(each.run.sum()) for each in tables) == pytest.approx(run)
    assert sum(float(each.cpu.sum()) for each in tables) == pytest.approx(cpu)


@settings(max_examples=60)
@given(at=some.integers(0, len(TEXT) - 1), damage=some.binary(min_size=1, max_size=40))
def test_no_damage_crashes_the_reading(at, damage, tmp_path_factory):
    file = tmp_path_factory.mktemp("damaged") / "local-1"
    begin = TEXT.rfind(b"\n", 0, at) + 1
    # The lines around the damage only: the whole log a hundred times over takes too long.
    file.write_bytes(TEXT[:9000] + TEXT[begin:at] + damage + TEXT[at + len(damage) : at + 20_000])
    assert (
        read_history(
            event_logs.EventLog("x", (event_logs.LogFile("x", 0, 0, lambda: file.open("rb")),), False)
        ).unread
        >= 0
    )


def test_a_complete_log_may_lack_its_last_line_feed(tmp_path: Path) -> None:
    for text, cut in ((TEXT.rstrip(b"\n"), False), (TEXT.rstrip(b"\n")[:-3], True)):
        (tmp_path / "local-1").write_bytes(text)
        found = history_of(tmp_path / "local-1")
        assert (found.cut_off, found.complete, found.unread) == (cut, not cut, 0)


def test_a_killed_attempt_is_none_that_did_the_work(tmp_path: Path) -> None:
    lines = TEXT.splitlines(keepends=True)
    place = next(n for n, line in enumerate(lines) if b'"SparkListenerTaskEnd"' in line)
    won = json.loads(lines[place])
    won["Task Info"]["Speculative"] = True
    killed = json.loads(lines[place])
    killed["Task Info"]["Killed"] = True
    killed["Task End Reason"] = {"Reason": "TaskKilled", "Kill Reason": "another attempt succeeded"}
    lines[place] = b"".join(json.dumps(each).encode() + b"\n" for each in (won, killed))
    (tmp_path / "local-1").write_bytes(b"".join(lines))

    def successful(of: Path) -> list[int]:
        found = history_of(of)
        jobs = [
            *found.jobs,
            *(job for query in found.queries for batch in query.batches for job in batch.jobs),
        ]
        return sorted(len(stage.tasks.successful) for job in jobs for stage in job.stages)

    assert successful(tmp_path / "local-1") == successful(REAL)


@pytest.mark.parametrize("codec", [each for each in PACKED if each != "plain"])
def test_damage_in_the_middle_is_not_told_as_a_run_that_goes_on(codec: str, tmp_path: Path) -> None:
    """Bytes that a bad copy changed: the log is read up to them, and nothing is said of an application that still runs."""
    packed = bytearray(PACKED[codec](TEXT))
    middle = len(packed) // 2
    packed[middle : middle + 4000] = bytes(4000)
    (tmp_path / "local-1").write_bytes(packed)
    found = history_of(tmp_path / "local-1")
    assert not found.complete
    notes = " ".join(advise(found).notes)
    assert ("still runs" in notes, found.cut_off) == (False, False)
    assert "local-1 is damaged (" in notes or found.unread


def test_a_log_without_its_first_half_is_read_with_a_note(tmp_path: Path) -> None:
    (tmp_path / "local-1").write_bytes(TEXT[len(TEXT) // 2 :])
    (tmp_path / "half").write_bytes(TEXT[len(TEXT) // 2 :])
    for name in ("local-1", "half"):
        found = history_of(tmp_path / name)
        assert (found.lost, found.complete, found.unread < 5) == (True, True, True)
        assert sum(len(each.batches) for each in found.queries) >= 5
        assert any("older parts of the log are missing" in each for each in advise(found).notes)
    assert not history_of(REAL).lost


def test_a_second_application_in_the_file_is_noted_and_not_mixed_with_the_first(tmp_path: Path) -> None:
    (tmp_path / "local-1").write_bytes(TEXT + TEXT.replace(b"flights", b"another"))
    found = history_of(tmp_path / "local-1")
    assert [(each.name, len(each.batches)) for each in found.queries] == [
        ("land-flights", 7),
        ("flights-weather", 8),
    ]
    assert any(
        "not read to its end: a second application begins in it" in each for each in advise(found).notes
    )


def test_a_spark_line_that_is_not_supported_is_noted(tmp_path: Path) -> None:
    old = TEXT.replace(b'"Spark Version":"3.5.7"', b'"Spark Version":"3.3.0"')
    (tmp_path / "local-1").write_bytes(old)
    said = "Spark 3.3.0 is none of the lines whose logs are supported (3.5, 4.0, 4.1): figures may be missing"
    assert said in advise(history_of(tmp_path / "local-1")).notes
    assert not any("none of the lines" in each for each in advise(history_of(REAL)).notes)


def test_a_damaged_line_costs_itself(tmp_path):
    lines = TEXT.splitlines()
    ends = [n for n, line in enumerate(lines) if b'"SparkListenerTaskEnd"' in line]
    lines[ends[3]] = lines[ends[3]][:200]
    lines[ends[4]] = b'{"Event":"SparkListenerTaskEnd"}'
    lines.insert(5, b"no json")
    lines.insert(6, b'{"Event":"SparkListenerSomethingNew","field":1}')
    (tmp_path / "local-1").write_bytes(b"\n".join(lines) + b"\n")
    found = history_of(tmp_path / "local-1")
    assert found.unread == 3
    assert [len(each.batches) for each in found.queries] == [7, 8]


@pytest.mark.parametrize("moment", [-(10**17), 0, 10**15, 1e300])
def test_a_damaged_time_costs_its_line(moment, tmp_path):
    """Whatever holds a time of the log's own: none reaches a calendar that cannot hold it."""
    fields = {
        "SparkListenerApplicationEnd": ("Timestamp",),
        "SparkListenerTaskEnd": ("Task Info", "Launch Time"),
        "SparkListenerJobEnd": ("Completion Time",),
    }
    lines, left = TEXT.splitlines(), dict(fields)
    for number, line in enumerate(lines):
        event = json.loads(line)
        path = left.pop(event["Event"], None)
        if path is None:
            continue
        holder = event
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = moment
        lines[number] = json.dumps(event, separators=(",", ":")).encode()
    assert not left
    (tmp_path / "local-1").write_bytes(b"\n".join(lines) + b"\n")
    found, whole = history_of(tmp_path / "local-1"), history_of(REAL)
    assert found.unread == len(fields)
    assert (found.started, [len(each.batches) for each in found.queries]) == (whole.started, [7, 8])
    assert whole.ended - 60 < found.ended <= whole.ended
    text = json.dumps(advice_document(advise(found)))
    assert f'"started": "{datetime.fromtimestamp(whole.started, UTC).isoformat(timespec="seconds")}"' in text


@pytest.mark.parametrize(
    "offset",
    [
        pytest.param(lambda n: {"logOffset": n}, id="files"),
        pytest.param(lambda n: {"offset": n * 500, "timestamp": n}, id="rate per micro-batch"),
        pytest.param(lambda n: {"index": {"position": n}}, id="a connector of one's own"),
        pytest.param(lambda n: n, id="a bare number"),
    ],
)
def test_offsets_that_count_no_records_are_none(offset, tmp_path):
    made = history()
    found = history_of(write(made, tmp_path / "local-1", offset))
    [query] = found.queries
    assert {each.sources[0].records_read for each in query.batches} == {None}
    assert [each.records for each in query.batches] == [each.rows for each in made.queries[0].batches]
    assert kinds(advise(found)) == []


def test_kafkas_offsets_count_records(tmp_path):
    def twice(number, begun):
        made = even(number, begun)
        return replace(made, sources=(replace(made.sources[0], rows=2 * made.rows),))

    found = history_of(write(history(twice), tmp_path / "local-1"))
    taken = [each.records for each in history().queries[0].batches]
    assert [each.records for each in found.queries[0].batches] == taken


def test_a_rolled_log_with_a_compacted_begin(tmp_path):
    lines = TEXT.splitlines(keepends=True)
    folder = tmp_path / "applications" / "00a" / "jobs" / "00b" / "sparklogs" / "eventlog_v2_00b"
    folder.mkdir(parents=True)
    thirds = [b"".join(lines[at : at + 220]) for at in range(0, len(lines), 220)]
    for number, text in enumerate(thirds, 1):
        (folder / f"events_{number}_00b").write_bytes(text)
    (folder / "appstatus_00b").touch()
    (folder.parent.parent / "stdout.gz").write_bytes(gzip.compress(b"words"))
    whole = history_of(tmp_path)
    assert [len(each.batches) for each in whole.queries] == [7, 8]
    assert not (whole.lost)
    assert not (whole.ended_at)
    (folder / "events_2_00b.lz4.compact.inprogress").write_bytes(thirds[0] + thirds[1][:9999])
    (folder / "events_1_00b.lz4").write_bytes(lz4(thirds[0]))
    again = history_of(tmp_path)
    assert [len(each.batches) for each in again.queries] == [7, 8]
    assert not again.ended_at
    last = folder / f"events_{len(thirds)}_00b"
    last.rename(tmp_path / "elsewhere.txt")
    assert history_of(tmp_path).ended_at == "its last part is missing, as the application has ended"
    (tmp_path / "elsewhere.txt").rename(last)
    # Ten comes after nine, and what is compacted stands for all before it.
    for number in range(len(thirds), 0, -1):
        (folder / f"events_{number}_00b").rename(folder / f"events_{number + 8}_00b")
    (folder / "events_9_00b.compact").write_bytes(thirds[0])
    (folder / "events_8_00b").write_bytes(thirds[0])
    [log] = find_event_logs(str(tmp_path))
    assert [file.name for file in log.files] == [
        "events_9_00b.compact",
        *(f"events_{n + 9}_00b" for n in range(1, len(thirds))),
    ]
    again = read_history(log)
    assert [len(each.batches) for each in again.queries] == [7, 8]
    assert again.lost
    [part] = find_event_logs(str(folder / "events_10_00b"))
    assert part.lost


def test_what_is_no_log_is_left_aside(tmp_path):
    (tmp_path / "notes.md").write_text("words")
    (tmp_path / "jr_0a.lz4.inprogress").write_bytes(lz4(TEXT))
    (tmp_path / ".jr_0a.crc").write_bytes(b"sum")
    assert [each.name for each in find_event_logs(str(tmp_path))] == ["jr_0a"]


def test_a_plain_log_of_any_name_is_found_in_a_folder(tmp_path):
    (tmp_path / "orders").write_bytes(TEXT)
    (tmp_path / "words").write_text("words " * 1000)
    assert [each.name for each in find_event_logs(str(tmp_path))] == ["orders"]


@pytest.mark.parametrize(
    "name", ["orders.json", "driver.log", "log.txt", "_events", ".hidden", "appstatus_1", "stdout.gz"]
)
def test_a_log_that_is_named_itself_is_told_by_what_it_holds(name, tmp_path):
    file = tmp_path / "below" / name
    file.parent.mkdir()
    file.write_bytes(gzip.compress(TEXT) if name.endswith(".gz") else TEXT)
    [log] = find_event_logs(str(file))
    assert log.name == name.removesuffix(".gz")
    assert [len(each.batches) for each in read_history(log).queries] == [7, 8]
    for place in (file.parent, tmp_path):  # there it was not meant
        with pytest.raises(ConfigurationError):
            find_event_logs(str(place))
    file.write_text("words")
    with pytest.raises(ConfigurationError) as told:
        find_event_logs(str(file))
    assert "an event log of Spark" in str(told.value)


@pytest.mark.parametrize("place", ["", "empty", "none"])
def test_a_place_without_a_log_is_told(place, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "words").write_text("words")
    with pytest.raises(ConfigurationError) as told:
        find_event_logs(str(tmp_path / place) if place else str(tmp_path))
    assert "PATH" in str(told.value)


def test_a_line_beyond_all_bounds_is_passed_over(tmp_path, monkeypatch):
    monkeypatch.setattr(event_logs, "LONGEST_LINE", 200_000)
    long = b'{"Event":"SparkListenerJobStart","x":"' + b"y" * 300_000 + b'"}\n'
    (tmp_path / "local-1").write_bytes(TEXT[: TEXT.find(b"\n") + 1] + long + TEXT[TEXT.find(b"\n") + 1 :])
    found = history_of(tmp_path / "local-1")
    assert found.unread == 1
    assert [len(each.batches) for each in found.queries] == [7, 8]


def test_accumulators_are_cut_out_of_a_task_and_nothing_else():
    event = {
        "Event": "SparkListenerTaskEnd",
        "Task End Reason": {
            "Reason": "ExceptionFailure",
            "Accumulator Updates": [{"ID": 1, "Update": "]},"}],
        },
        "Task Info": {"Index": 3, "Accumulables": [{"ID": 2, "Name": 'a "Accumulables":[ b', "Update": 7}]},
        "Task Executor Metrics": {"JVMHeapMemory": 0},
        "Task Metrics": {"Executor Run Time": 5},
    }
    line = json.dumps(event, separators=(",", ":")).encode()
    assert json.loads(without_accumulables(line)) == {**event, "Task Info": {"Index": 3, "Accumulables": []}}
    assert parse_event(line, ("SparkListenerTaskEnd",))["Task Info"]["Accumulables"] == []


def test_whatever_lines_are_missing_the_rest_is_judged(monkeypatch):
    for module in (query_view, tasks):
        monkeypatch.setattr(module, "LEAST", 2)
    lines, chance = TEXT.splitlines(keepends=True), random.Random(1)
    for share in (0.5, 0.8, 0.9, 0.95, 0.99) * 4:
        text = b"".join(line for line in lines if chance.random() < share)
        log = event_logs.EventLog(
            "x", (event_logs.LogFile("x", 0, 0, lambda text=text: _stream(text)),), False
        )
        found = advise(read_history(log))
        assert all(each.effect.low <= each.effect.likely <= each.effect.high for each in found.findings)
