"""Generated traffic keeps its rate, is reproducible, and agrees with its ledger."""

from __future__ import annotations

import io
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from threading import Event as Stop
from typing import Any

import pytest
from fastavro import schemaless_reader

from millrace.config.formats import KINDS
from millrace.config.formats.avro import AvroFormat
from millrace.config.formats.csv import CsvFormat
from millrace.config.formats.ddl import DdlError
from millrace.config.formats.json import JsonFormat
from millrace.sandbox.payloads import PayloadWriters, payload_writers
from millrace.sandbox.payloads.read_file_records import read_file_records
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.ledger import Ledger
from millrace.sandbox.records.traffic import (
    TrafficFeed,
    TrafficShape,
    default_key_field,
    send_feed,
    source_of_file_records,
    wait_for_rate,
)
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import (
    RecordGenerator,
    SampledRecords,
    SampleError,
    read_sample_file,
)

DDL = (
    "id BIGINT NOT NULL, city STRING NOT NULL, at TIMESTAMP NOT NULL, price DECIMAL(9,2), tags ARRAY<STRING>"
)
CHANCE = random.Random(0)
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def written(tmp_path: Path) -> PayloadWriters:
    (tmp_path / "t.ddl").write_text(DDL)
    return payload_writers(JsonFormat(), tmp_path / "t.ddl")


def feed(written: PayloadWriters, *, seed: int = 1, **shape: Any) -> TrafficFeed:
    choose = random.Random(seed)
    source = RecordGenerator(written.schema, choose).record
    return TrafficFeed(source, written, TrafficShape(per_second=100, **shape), choose, lambda: NOW)


class Clock:
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds


def passed(due: Iterator[None], clock: Clock, seconds: float) -> Counter[int]:
    """How many were due in each second."""
    result: Counter[int] = Counter()
    for _ in due:
        if clock.now >= seconds:
            break
        result[int(clock.now)] += 1
    return result


@pytest.mark.parametrize("rate", [0.5, 7, 250, 4000])
def test_the_rate_is_kept(rate: float) -> None:
    clock = Clock()
    result = passed(wait_for_rate(lambda _: rate, clock, clock.wait), clock, 20)
    assert abs(sum(result.values()) - 20 * rate) <= 1 + rate * 0.01


def test_bursts_come_when_they_should() -> None:
    clock, shape = Clock(), TrafficShape(per_second=100, burst_factor=5, burst_every=10, burst_seconds=2)
    result = passed(wait_for_rate(shape.rate_at, clock, clock.wait), clock, 20)
    for second in range(20):
        wanted = 500 if second % 10 < 2 else 100
        assert abs(result[second] - wanted) <= 30, (second, result[second])


def test_a_burst_does_not_wait_for_the_next_record_of_a_low_rate() -> None:
    clock = Clock()
    result = passed(wait_for_rate(lambda at: 0.1 if at < 3 else 100, clock, clock.wait), clock, 5)
    assert result[3] == pytest.approx(100, abs=6)


def test_after_a_stall_a_second_is_made_good_and_no_more() -> None:
    clock = Clock()
    due = wait_for_rate(lambda _: 100, clock, clock.wait)
    next(due)
    clock.now = 60.0
    assert passed(due, clock, 61)[60] <= 201


def test_a_seed_makes_the_same_records(written: PayloadWriters) -> None:
    shape = {"dirty": 0.2, "late": 0.2, "duplicates": 0.2, "hot": 0.1}
    first = list(feed(written, **shape).events(most=300))
    assert first == list(feed(written, **shape).events(most=300))
    assert first != list(feed(written, seed=2, **shape).events(most=300))


def test_shares_are_what_was_asked_for(written: PayloadWriters) -> None:
    made = feed(written, dirty=0.1, late=0.2, duplicates=0.05, hot=0.3)
    events = list(made.events(most=5000))
    assert abs(sum(e.dirt is not None for e in events) / 5000 - 0.1) < 0.02
    assert abs(made.late / 5000 - 0.2) < 0.03
    assert abs(made.duplicated / 5000 - 0.05) < 0.02
    assert abs(sum(e.key == b"hot" for e in events) / 5000 - 0.3) < 0.03
    twice = Counter(e.payload for e in events if e.dirt is None)
    assert sum(n - 1 for n in twice.values()) == made.duplicated
    assert {e.dirt for e in events} == {None, "broken", "retyped", "empty"}


def test_late_records_lie_back(written: PayloadWriters) -> None:
    for lateness, low, high in (("exponential", 25, 35), ("uniform", 12, 18)):
        events = feed(written, late=1.0, late_seconds=30, lateness=lateness).events(most=2000)
        delays = [(NOW - datetime.fromisoformat(json.loads(e.payload)["at"])).total_seconds() for e in events]
        assert low < sum(delays) / len(delays) < high
        assert (max(delays) <= 30) is (lateness == "uniform")


def test_keys(written: PayloadWriters) -> None:
    assert default_key_field(written) == "city"
    by_field = feed(written, key="city").events(most=50)
    assert all(e.key.decode() == json.loads(e.payload)["city"] for e in by_field)
    assert len({e.key for e in feed(written, keys=3).events(most=200)}) == 3


def test_what_does_not_fit_the_schema_is_refused(written: PayloadWriters, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="no field town for the key; its fields are id, city"):
        feed(written, key="town")
    with pytest.raises(
        SandboxError, match="the schema has no timestamp field city; its timestamp fields: at"
    ):
        feed(written, time="city")
    (tmp_path / "n.ddl").write_text("n INT")
    with pytest.raises(SandboxError, match="late records need a field of type timestamp"):
        feed(payload_writers(JsonFormat(), tmp_path / "n.ddl"), late=0.1)
    (tmp_path / "x.ddl").write_text("n NUMBER")
    with pytest.raises(
        SandboxError,
        match=r"x\.ddl: no test records can be generated from this schema: line 1: .*unknown type NUMBER",
    ):
        payload_writers(JsonFormat(), tmp_path / "x.ddl")


def test_a_file_is_sent_in_order_and_from_the_beginning_again(
    written: PayloadWriters, tmp_path: Path
) -> None:
    # Good or bad for the query: that is what a trial shows.
    lines = [
        b'{"id": "3", "city":12.50, "more": 1e400}',
        b'{"id": 1, "city": "\\ud800"',
        b"\xff",
        b'{"city": "a"}',
    ]
    (tmp_path / "s.jsonl").write_bytes(b"\n\n".join(lines) + b"\r\n")
    records = read_file_records(tmp_path / "s.jsonl", JsonFormat(), written)
    shape = TrafficShape(per_second=1, key="city")
    made = list(TrafficFeed(source_of_file_records(records), written, shape, CHANCE).events(most=5))
    assert [each.payload for each in made] == [*lines, lines[0]]
    assert [each.key for each in made] == [b"12.5", b"-", b"-", b"a", b"12.5"]


def test_a_csv_file_is_sent_without_its_header_and_to_json_as_values(
    written: PayloadWriters, tmp_path: Path
) -> None:
    file, rows = tmp_path / "s.csv", "Rome,007,2026-01-01,12345678901234567890.50,\n"
    file.write_text("city,id,at,price,tags\n" + rows)
    (tmp_path / "t.ddl").write_text("city STRING, id INT, at TIMESTAMP, price DECIMAL(30,2), tags STRING")
    form = CsvFormat(kind="csv")
    with_header = read_file_records(file, form, payload_writers(form, tmp_path / "t.ddl"))
    file.write_text(rows)
    assert with_header == read_file_records(file, form, payload_writers(form, tmp_path / "t.ddl"))
    assert [each.payload for each in with_header] == [rows.strip().encode()]
    file.write_text("city,id,at,price,tags\n" + rows)
    [record] = read_file_records(file, JsonFormat(), payload_writers(JsonFormat(), tmp_path / "t.ddl"))
    assert b'"price":12345678901234567890.50' in record.payload


def test_change_events_of_a_file_are_sent_with_the_key_of_their_row(tmp_path: Path) -> None:
    (tmp_path / "row.ddl").write_text("id STRING NOT NULL")
    form, event = KINDS["debezium"](kind="debezium"), b'{"op": "d", "before": {"id": "a"}, "after": null}'
    (tmp_path / "events.jsonl").write_bytes(event)
    [record] = read_file_records(tmp_path / "events.jsonl", form, payload_writers(form, tmp_path / "row.ddl"))
    assert (record.payload, record.row["id"]) == (event, "a")


AVRO = {
    "type": "record",
    "name": "r",
    "fields": [
        {"name": "n", "type": "int"},
        {"name": "ratio", "type": "double"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 29, "scale": 9}},
        {"name": "side", "type": {"type": "enum", "name": "s", "symbols": ["A", "B"]}},
    ],
}


def test_avro_of_a_file_has_its_exact_values_or_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.avsc").write_text(json.dumps(AVRO))
    form, file = AvroFormat(kind="avro"), tmp_path / "s.jsonl"
    written = payload_writers(form, tmp_path / "t.avsc")
    good = '{"n": 3, "ratio": 0.5, "price": 12345678901234567890.123456789, "side": "B"}'
    file.write_text(good)
    [record] = read_file_records(file, form, written)
    read = schemaless_reader(io.BytesIO(record.payload), AVRO, None)
    assert (read["price"], read["side"]) == (Decimal("12345678901234567890.123456789"), "B")
    for old, new in (
        ("3,", "3.5,"),
        ("3,", "3000000000,"),
        ("3,", "1e400,"),
        ("0.5", "1e400"),
        ('"B"', '"C"'),
        ("789,", "7891,"),
    ):
        file.write_text(good.replace(old, new))
        with pytest.raises(SampleError, match=r"s\.jsonl: line 1: "):
            read_file_records(file, form, written)


def test_a_time_of_a_sample_may_be_a_number_in_its_declared_unit(tmp_path: Path) -> None:
    (tmp_path / "s.jsonl").write_text('{"at": 1764500000123, "second": 1764500000}')
    schema = ddl_and_pyspark_types.parse_ddl("at TIMESTAMP COMMENT 'epoch milliseconds', second TIMESTAMP")
    [row] = read_sample_file(tmp_path / "s.jsonl", schema, dict)
    assert (
        row["at"]
        == row["second"] + timedelta(milliseconds=123)
        == datetime.fromtimestamp(1764500000.123, UTC)
    )


def test_a_sample_keeps_records_together_and_moves_their_times() -> None:
    schema = ddl_and_pyspark_types.parse_ddl("city STRING, at TIMESTAMP, sent TIMESTAMP")
    sample = SampledRecords(
        [{"city": "Rome", "at": NOW - timedelta(days=9), "sent": NOW - timedelta(days=8)}],
        schema,
        CHANCE,
    )
    assert sample.record(5, NOW) == {"city": "Rome", "at": NOW - timedelta(days=1), "sent": NOW}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: it is not JSON"),
        ("[]", "line 1: it is not a JSON object"),
        ('{"id":1}', "line 1: the required field city has no value"),
        (
            '{"id":"x","city":"a","at":"2026-01-01"}',
            "line 1: the value of id is 'x', which is not of type bigint",
        ),
        ("\n", "s.jsonl has no records"),
    ],
)
def test_a_sample_that_does_not_fit_names_its_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(SampleError, match=message):
        read_sample_file(tmp_path / "s.jsonl", ddl_and_pyspark_types.parse_ddl(DDL), dict)


class Taker:
    """A producer whose broker acknowledges at once."""

    def __init__(self) -> None:
        self.ledger = Ledger()

    def send(self, events: Iterable[RecordToSend], *, sent: Any) -> None:
        for number, event in enumerate(events):
            self.ledger.add(f"t/0/{number}", event.payload, event.dirt)
            sent(1)


def test_sending_ends_after_so_many_so_long_or_when_told(written: PayloadWriters) -> None:
    made = feed(written, dirty=0.5)
    counted: list[int] = []
    result = send_feed(made, Taker(), most=20, seconds=None, stop=Stop(), sent=counted.append)
    assert (result.records, sum(counted)) == (20, 20)
    assert 60 < result.records_per_second < 140
    assert result.dirty > 0
    assert send_feed(
        made, Taker(), most=None, seconds=0.3, stop=Stop(), sent=counted.append
    ).records == pytest.approx(30, abs=8)
    stop = Stop()
    stop.set()
    assert send_feed(made, Taker(), most=None, seconds=None, stop=stop, sent=counted.append).records == 0


def test_csv_of_a_feed_has_all_columns(tmp_path: Path) -> None:
    (tmp_path / "t.ddl").write_text("id BIGINT NOT NULL, city STRING, at TIMESTAMP, paid BOOLEAN")
    written = payload_writers(CsvFormat(kind="csv", delimiter=";"), tmp_path / "t.ddl")
    assert all(e.payload.count(b";") == 3 for e in feed(written).events(most=20))


DDLS = [
    "a INT",
    "a STRING NOT NULL, b DECIMAL(9,2), c TIMESTAMP",
    "a ARRAY<STRUCT<x: INT, y: MAP<STRING, DOUBLE>>>, `odd name` BINARY, b STRUCT<x: INT NOT NULL>",
]


@pytest.mark.parametrize("text", DDLS)
def test_ddl_is_read_and_written(text: str) -> None:
    schema = ddl_and_pyspark_types.parse_ddl(text)
    assert ddl_and_pyspark_types.parse_ddl(ddl_and_pyspark_types.schema_as_ddl(schema)) == schema


@pytest.mark.parametrize(
    "text", ["", "a", "a NUMBER", "a INT b INT", "a ARRAY<INT", "a INT,, b INT", "a DECIMAL(99,1)"]
)
def test_what_is_no_ddl_is_refused(text: str) -> None:
    with pytest.raises(DdlError):
        ddl_and_pyspark_types.parse_ddl(text)


def test_comments_and_the_example_schemas_are_read() -> None:
    assert (
        ddl_and_pyspark_types.parse_ddl("a INT COMMENT 'x, y', -- no\n b INT /* no */").simpleString()
        == "struct<a:int,b:int>"
    )
    root = Path(__file__).parents[3]
    files = sorted((root / "pipelines").rglob("*.ddl"))
    assert files
    assert all(ddl_and_pyspark_types.parse_ddl(file.read_text()).fields for file in files)


def test_values_repeat_keys_and_come_from_lists_that_the_schema_names() -> None:
    schema = ddl_and_pyspark_types.parse_ddl(
        "scan_id STRING NOT NULL, depot_id INT NOT NULL, state STRING NOT NULL COMMENT 'one of: in, out', n INT COMMENT 'one of: 7'"
    )
    values = RecordGenerator(schema, random.Random(1))
    made = [values.record(number, datetime.now(UTC)) for number in range(2000)]
    own = Counter(each["scan_id"] for each in made)
    assert 0.1 < 1 - len(own) / len(made) < 0.3, "some records are of a thing that was there before"
    assert len({each["depot_id"] for each in made}) <= 100, "many records are of one place"
    assert {each["state"] for each in made} == {"in", "out"}
    assert {each["n"] for each in made} == {7, None}
