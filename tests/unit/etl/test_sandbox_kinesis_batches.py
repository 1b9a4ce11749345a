"""The sandbox's Kinesis reader plans and reads batches of an in-memory stream with failures."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import hypothesis
import pytest
from botocore.exceptions import ClientError
from hypothesis import strategies as st

from millrace.etl.record.errors import LossError
from millrace.etl.sources.kinesis.closed_shards import Shard, ShardPositions
from millrace.sandbox.kinesis_reader.pyspark_millrace_kinesis.stream_batches import (
    BatchPlanner,
    Offset,
    ShardRange,
    ranges_between_offsets,
    read_shard_range,
)
from tests.faults.record_sender import aggregate

NOW = 1_800_000_000


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": code}}, "GetRecords")


@dataclass
class Stream:
    """A stream: shards with their records, parents and ends; a clock in seconds that each record moves on."""

    choose: random.Random
    stream: str = "flights"
    records_of: dict[str, list[tuple[int, bytes, int]]] = field(default_factory=dict)
    """By shard: number, data, arrival in milliseconds."""
    trimmed: dict[str, int] = field(default_factory=dict)
    parents: dict[str, tuple[str, ...]] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)
    expired: float = 0.0
    """Share of iterators that are refused as expired."""
    asked: Counter[str] = field(default_factory=Counter)
    numbers: int = 100

    @classmethod
    def of(cls, shards: int, seed: int = 1) -> Stream:
        made = cls(random.Random(seed))
        for _ in range(shards):
            made.open()
        return made

    # ---- what happens to it ----

    def open(self, *parents: str) -> str:
        shard = f"shardId-{len(self.records_of):012}"
        self.records_of[shard], self.parents[shard] = [], parents
        self.closed |= set(parents)
        return shard

    def takes(self) -> list[str]:
        return sorted(self.records_of.keys() - self.closed)

    def put(self, shard: str | None = None, data: bytes | None = None) -> str:
        self.numbers += self.choose.randrange(1, 5)
        number, into = self.numbers, shard or self.choose.choice(self.takes())
        self.records_of[into].append((number, data or str(number).encode(), self.at(number)))
        return str(number)

    @staticmethod
    def at(number: int) -> int:
        return NOW * 1000 + number * 1000

    def split(self) -> None:
        parent = self.choose.choice(self.takes())
        self.open(parent), self.open(parent)

    def merge(self) -> None:
        if len(self.takes()) > 1:
            self.open(*self.choose.sample(self.takes(), 2))

    # ---- what is asked of it ----

    def shards(self) -> list[Shard]:
        self.asked["ListShards"] += 1
        return [Shard(s, self.parents[s], s in self.closed) for s in self.records_of if s not in self.gone]

    def now(self) -> datetime:
        return datetime.fromtimestamp(self.at(self.numbers) / 1000, tz=UTC)

    def shard_iterator(self, shard: str, kind: str, place: str) -> str:
        if shard in self.gone:
            raise refusal("ResourceNotFoundException")
        begins: dict[str, Callable[[int], bool]] = {
            "TRIM_HORIZON": lambda _: True,
            "LATEST": lambda number: number > self.numbers,
            "AT_TIMESTAMP": lambda number: self.at(number) >= int(place),
            "AT_SEQUENCE_NUMBER": lambda number: number >= int(place),
            "AFTER_SEQUENCE_NUMBER": lambda number: number > int(place),
        }
        kept = self.records_of[shard]
        return json.dumps([shard, next((n for n, r in enumerate(kept) if begins[kind](r[0])), len(kept))])

    def get_records(self, iterator: str, limit: int) -> Any:
        assert 1 <= limit <= 10_000
        self.asked["GetRecords"] += 1
        if self.choose.random() < self.expired:
            raise refusal("ExpiredIteratorException")
        shard, index = json.loads(iterator)
        if shard in self.gone:
            raise refusal("ResourceNotFoundException")
        index = max(index, self.trimmed.get(shard, 0))
        # A call gives what it likes of what there is, and sometimes nothing.
        upto = min(len(self.records_of[shard]), index + self.choose.randint(0, limit))
        result, left = self.records_of[shard][index:upto], len(self.records_of[shard]) - upto
        ended = shard in self.closed and not left
        return {
            "Records": [
                {
                    "SequenceNumber": str(number),
                    "PartitionKey": f"key-{number}",
                    "Data": data,
                    "ApproximateArrivalTimestamp": datetime.fromtimestamp(at / 1000, UTC),
                }
                for number, data, at in result
            ],
            "MillisBehindLatest": left,
            **({} if ended else {"NextShardIterator": json.dumps([shard, upto])}),
        }

    def all(self) -> list[str]:
        return sorted(str(number) for kept in self.records_of.values() for number, _, _ in kept)


def planner(
    stream: Stream, start: str = "TRIM_HORIZON", *, records: int = 7, seconds: float = 60.0
) -> BatchPlanner:
    return BatchPlanner(stream, start, records, seconds, call=5, sleep=lambda _: None)


def through_the_log(offset: Offset) -> Offset:
    """As Spark hands an offset back after a restart."""
    result: Offset = json.loads(json.dumps(offset))
    return result


def read(stream: Stream, start: Offset, end: Offset) -> list[str]:
    """Numbers of the records that a batch's tasks read."""
    result = []
    for asked in ranges_between_offsets(through_the_log(start), through_the_log(end)):
        result += [row[3] for row in read_shard_range(stream, asked, sleep=lambda _: None)]
    return result


def drained(stream: Stream, planning: BatchPlanner, begin: Offset) -> list[tuple[Offset, Offset]]:
    """Batches up to the stream's end."""
    result, quiet = [], 0
    while quiet < 20:
        end = planning.read_to_latest_offset()
        quiet = quiet + 1 if end == begin else 0
        if end != begin:
            result.append((begin, end))
        begin = end
    return result


EVENTS = st.lists(
    st.sampled_from(["put"] * 6 + ["split", "merge", "look", "look", "restart", "replay"]), max_size=60
)


@hypothesis.given(EVENTS, st.integers(1, 3), st.integers(0, 10**6), st.sampled_from([0.0, 0.2]))
def test_every_record_is_in_one_batch_and_a_replay_is_the_same(
    events: list[str], shards: int, seed: int, expired: float
) -> None:
    stream = Stream.of(shards, seed)
    stream.expired = expired
    planning, batches = planner(stream), list[tuple[Offset, Offset, list[str]]]()
    begin = planning.initial_offset()

    def look() -> None:
        nonlocal begin
        end = planning.read_to_latest_offset()
        if end != begin:
            batches.append((begin, end, read(stream, begin, end)))
            begin = end

    for event in events:
        if event == "put":
            stream.put()
        elif event in ("split", "merge"):
            getattr(stream, event)()
        elif event == "look":
            look()
        elif event == "restart" and batches:
            planning = planner(stream)
            planning.resume(through_the_log(begin))
        elif event == "replay" and batches:
            # The first batch's begin is found anew at a restart, when the stream has other shards.
            start, end, held = batches[-1]
            start = planner(stream).initial_offset() if len(batches) == 1 else start
            assert read(stream, start, end) == held
    for start, end in drained(stream, planning, begin):
        batches.append((start, end, read(stream, start, end)))
    result = [number for _, _, held in batches for number in held]
    assert sorted(result) == stream.all()
    for start, end, _ in batches:
        assert all(each.records <= 7 for each in ranges_between_offsets(start, end))
        # The core's guard sees the connectors' shape.
        assert ShardPositions.from_offset(end).known
    # Children come after all of their parents.
    order = [asked.shard for start, end, _ in batches for asked in ranges_between_offsets(start, end)]
    last = {shard: n for n, shard in enumerate(order)}
    for n, shard in enumerate(order):
        assert all(last.get(parent, -1) < n for parent in stream.parents[shard])


def test_nothing_new_is_the_same_offset() -> None:
    stream = Stream.of(2)
    planning = planner(stream)
    begin = planning.initial_offset()
    assert planning.read_to_latest_offset() == begin
    stream.put()
    end = drained(stream, planning, begin)[-1][1]
    stream.split()
    # Spark compares what it wrote with what it is told, as text: a shard that ended without a record is no batch.
    assert json.dumps(planning.read_to_latest_offset()) == json.dumps(end)
    again = planner(stream)
    again.resume(through_the_log(end))
    assert json.dumps(again.read_to_latest_offset()) == json.dumps(end)


def test_latest_is_a_moment_and_holds_over_a_stop() -> None:
    stream = Stream.of(2)
    before = [stream.put() for _ in range(5)]
    stream.numbers += 10
    planning = planner(stream, "LATEST")
    begin = planning.initial_offset()
    assert planning.read_to_latest_offset() == begin
    assert {e["iteratorType"] for shard, e in begin.items() if shard != "metadata"} == {"AT_TIMESTAMP"}
    after = [stream.put() for _ in range(5)]
    stream.split()
    after += [stream.put() for _ in range(20)]
    batches = drained(stream, planning, begin)
    assert sorted(n for start, end in batches for n in read(stream, start, end)) == sorted(after)
    assert not set(before) & set(after)


def test_a_start_at_a_moment_is_the_offset_of_glues_connector() -> None:
    stream = Stream.of(2)
    for _ in range(10):
        stream.put()
    stream.split()
    moment = stream.at(stream.numbers + 1)
    wanted = [stream.put() for _ in range(10)]
    at = {"iteratorType": "AT_TIMESTAMP", "iteratorPosition": str(moment)}
    start = {"metadata": {"streamName": "flights", "batchId": "-1"}, **dict.fromkeys(stream.records_of, at)}
    planning = planner(stream, json.dumps(start))
    batches = drained(stream, planning, planning.initial_offset())
    assert sorted(n for begin, end in batches for n in read(stream, begin, end)) == sorted(wanted)


def test_a_batch_goes_on_from_what_a_connector_wrote() -> None:
    stream = Stream.of(1)
    numbers = [stream.put() for _ in range(10)]
    stream.split()
    numbers += [stream.put() for _ in range(10)]
    shard = next(iter(stream.records_of))
    planning = planner(stream)
    entry = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": numbers[3]}
    planning.resume({"metadata": {"streamName": "flights", "batchId": "7"}, shard: entry})
    begin = planning.read_to_latest_offset()
    first = read(stream, {"metadata": {}, shard: entry}, begin)
    result = first + [n for start, end in drained(stream, planning, begin) for n in read(stream, start, end)]
    assert sorted(result) == sorted(numbers[4:])


def test_what_was_trimmed_between_plan_and_read_is_told() -> None:
    stream = Stream.of(1)
    numbers = [stream.put() for _ in range(6)]
    shard = next(iter(stream.records_of))
    asked = ShardRange(shard, numbers[0], numbers[4], 5)
    assert len(list(read_shard_range(stream, asked, sleep=lambda _: None))) == 5
    for trimmed in (1, 3, 6):
        stream.trimmed[shard] = trimmed
        with pytest.raises(
            LossError, match=r"stream flights, shardId-0.* of 5 records from .* are no longer in the stream"
        ):
            list(read_shard_range(stream, asked, sleep=lambda _: None))
    stream.gone.add(shard)
    with pytest.raises(LossError, match="5 of 5 records"):
        list(read_shard_range(stream, asked, sleep=lambda _: None))


def test_a_shard_that_is_gone_unread_stops_the_query() -> None:
    stream = Stream.of(1)
    stream.put()
    planning = planner(stream)
    told = drained(stream, planning, planning.initial_offset())[-1][1]
    stream.split()
    stream.gone.add("shardId-000000000000")
    again = planner(stream)
    again.resume(told)
    with pytest.raises(LossError, match="shardId-000000000000 no longer exists, but was read only up to"):
        again.read_to_latest_offset()


def test_a_batch_ends_at_its_time_and_asks_each_shard_once() -> None:
    stream = Stream.of(3)
    for _ in range(60):
        stream.put()
    planning = planner(stream, records=1000, seconds=0.0)
    planning.read_to_latest_offset()
    assert stream.asked["GetRecords"] == 3


def test_an_aggregate_is_its_records_with_one_number() -> None:
    stream = Stream.of(1)
    number = stream.put(data=aggregate([("a", b"1"), ("b", b"2"), ("a", b"")]))
    odd = stream.put(data=bytes.fromhex("f3899ac2") + b"not an aggregate")
    planning = planner(stream)
    rows = [
        row
        for start, end in drained(stream, planning, planning.initial_offset())
        for asked in ranges_between_offsets(start, end)
        for row in read_shard_range(stream, asked, sleep=lambda _: None)
    ]
    assert [row[:4] for row in rows] == [
        (b"1", "flights", "a", number),
        (b"2", "flights", "b", number),
        (b"", "flights", "a", number),
        (bytes.fromhex("f3899ac2") + b"not an aggregate", "flights", f"key-{odd}", odd),
    ]
    assert [row[4] for row in rows] == [
        datetime.fromtimestamp(stream.at(int(n)) / 1000, UTC) for n in (number, number, number, odd)
    ]
