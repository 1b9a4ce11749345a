"""Requests of the core to Kinesis beside the connector's."""

from __future__ import annotations

import dataclasses
import hashlib
import threading
from collections.abc import Iterator
from typing import Any

import boto3
import hypothesis
import pytest
from botocore.stub import Stubber
from hypothesis import strategies as st
from moto import mock_aws

from millrace.etl.launch.sources import KinesisSource
from millrace.etl.record.errors import NoAnswerError, StartError
from millrace.etl.sources.kinesis import closed_shards
from millrace.etl.sources.kinesis import connector_stream as kinesis
from millrace.etl.sources.kinesis.closed_shards import (
    AGGREGATE,
    Shard,
    ShardPositions,
    UnreadShardRest,
    split_kinesis_aggregate,
    unread_shard_rests,
)
from millrace.etl.sources.kinesis.missed_records_guard import KinesisLossGuard
from millrace.lifecycle.audits import kinesis as audit_kinesis
from tests import protobuf_without_protoc as pb
from tests.faults.record_sender import aggregate

SOURCE = KinesisSource("flights", "flights", "us-east-1", "earliest", 100, 1.0, 86_400)


def positions(**shards: str | None) -> ShardPositions:
    """Shards by letter: a number (read so far), ``END``, or None (from its beginning)."""
    kinds = {None: "TRIM_HORIZON", "END": "SHARD_END"}
    entry = {
        shard: {
            "iteratorType": kinds.get(at, "AFTER_SEQUENCE_NUMBER"),
            "iteratorPosition": "" if at in kinds else at,
        }
        for shard, at in shards.items()
    }
    return ShardPositions.from_offset({"metadata": {"streamName": "flights", "batchId": "1"}, **entry})


def test_an_entry_of_the_offset_log() -> None:
    result = positions(a="12", b="END", c=None)
    assert (result.shards, result.read, result.ended) == (frozenset("abc"), {"a": "12"}, frozenset("b"))
    assert ShardPositions.from_offset(None) == ShardPositions(frozenset(), {}, frozenset())
    for shapeless in ({}, {"metadata": {}}, {"shard": {"position": 7}}, [], "x", {"shard": "7"}):
        assert ShardPositions.from_offset(shapeless) == ShardPositions(
            frozenset(), {}, frozenset(), known=False
        )
    assert positions(a="12", b="7", c="1").shards_advanced_since(positions(a="12", b="6")) == {
        "b": "7",
        "c": "1",
    }


@pytest.mark.parametrize("listed", [closed_shards.list_shards, audit_kinesis.parents_by_shard])
def test_a_stream_with_more_shards_than_a_page_holds_is_listed(listed: Any) -> None:
    """Kinesis refuses a request that has the name of the stream beside the token, and a page ends after 1,000 shards."""
    client = boto3.client("kinesis", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
    numbers = {"SequenceNumberRange": {"StartingSequenceNumber": "1"}}
    keys = {"HashKeyRange": {"StartingHashKey": "0", "EndingHashKey": "1"}}
    pages = [[f"shard-{n:04}" for n in range(start, start + 1000)] for start in (0, 1000)]
    answers = [{"Shards": [{"ShardId": name, **numbers, **keys} for name in page]} for page in pages]
    with Stubber(client) as stub:
        on = {"NextToken": pages[1][0]}
        stub.add_response("list_shards", answers[0] | on, {"StreamName": "flights"})
        stub.add_response("list_shards", answers[1], on)
        assert len(listed(client, "flights")) == 2000


def shards(*specs: str) -> list[Shard]:
    """``c!<ab``: shard c, closed, of the parents a and b."""
    made = []
    for spec in specs:
        name, _, parents = spec.partition("<")
        made.append(Shard(name.rstrip("!"), tuple(parents), name.endswith("!")))
    return made


@pytest.mark.parametrize(
    ("stream", "before", "here", "wanted"),
    [
        # Nothing is closed, or what is closed is being read on, or was read to its end.
        (shards("a", "b"), positions(a="1", b="2"), positions(a="3", b="2"), []),
        (shards("a!", "b<a"), positions(a="1"), positions(a="2", b=None), []),
        (shards("a!", "b<a"), positions(a="END"), positions(b=None), []),
        (shards("a!", "b<a"), positions(a="5"), positions(a="END", b=None), [UnreadShardRest("a", "5")]),
        # A shard was split, and dropped with a part of it unread; or it had not been read at all.
        (shards("a!", "b<a", "c<a"), positions(a="5"), positions(b=None, c=None), [UnreadShardRest("a", "5")]),
        (shards("a!", "b<a", "c<a"), positions(a=None), positions(b=None, c=None), [UnreadShardRest("a", None)]),
        # Two were merged.
        (shards("a!", "b!", "c<ab"), positions(a="5", b="6"), positions(c=None), [UnreadShardRest("a", "5"), UnreadShardRest("b", "6")]),
        # Children opened and closed unseen.
        (
            shards("a!", "b!<a", "c<a", "d<b"),
            positions(a="5"),
            positions(c=None, d=None),
            [UnreadShardRest("a", "5"), UnreadShardRest("b", None)],
        ),
        # Ancestors of what was read are no business of this batch.
        (shards("a!", "b!<a", "c<b"), positions(b="5"), positions(c=None), [UnreadShardRest("b", "5")]),
        (shards("a!", "b<a", "z"), positions(b="5"), positions(b="5", z=None), []),
        # The first batch begins at the beginning, where there are closed shards already.
        (shards("a!", "b<a"), positions(), positions(b=None), [UnreadShardRest("a", None)]),
    ],
)  # fmt: skip
def test_tails_that_a_connector_passes_over(
    stream: list[Shard], before: ShardPositions, here: ShardPositions, wanted: list[UnreadShardRest]
) -> None:
    assert unread_shard_rests(stream, before, here) == wanted


@pytest.fixture
def client() -> Iterator[Any]:
    with mock_aws():
        made = boto3.client("kinesis", "us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
        made.create_stream(StreamName="flights", ShardCount=1)
        yield made


def put(client: Any, *payloads: bytes) -> list[str]:
    return [
        client.put_record(StreamName="flights", Data=p, PartitionKey="k")["SequenceNumber"] for p in payloads
    ]


def test_a_batch_is_shared_out_among_the_shards_that_are_open(client: Any) -> None:
    assert kinesis.count_open_shards(SOURCE, None, client=client) == 1
    client.split_shard(
        StreamName="flights", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
    )
    assert kinesis.count_open_shards(SOURCE, None, client=client) == 2  # and a closed one
    limited = dataclasses.replace(SOURCE, records_per_batch=1000)
    assert [kinesis.with_limits_per_shard(limited, n).records_per_shard for n in (1, 3, 2000)] == [
        1000,
        334,
        1,
    ]
    assert kinesis.with_limits_per_shard(SOURCE, 3) is SOURCE


def test_a_stream_that_is_not_there_is_told_in_one_message(client: Any) -> None:
    other = dataclasses.replace(SOURCE, stream="flight")
    with pytest.raises(StartError, match=r"stream flight: .*Stream flight under account \d+ not found"):
        kinesis.count_open_shards(other, None, client=client)


def test_the_horizon_of_shards(client: Any) -> None:
    oldest = kinesis.make_oldest_record_finder(SOURCE, None, client=client)
    assert oldest(["shardId-000000000000"]) == {"shardId-000000000000": None}
    first, _ = put(client, b"1", b"2")
    asked = ["shardId-000000000000", "shardId-000000000099"]
    assert oldest(asked) == {"shardId-000000000000": first, "shardId-000000000099": None}


def test_shards_are_asked_at_once_by_a_client_of_that_question(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys of a role hold for an hour, and a run goes on for months."""
    together, made = threading.Barrier(4, timeout=60), []

    class Keyed:
        exceptions = client.exceptions

        def __init__(self, source: KinesisSource, endpoint: str | None) -> None:
            made.append((source, endpoint))

        def get_shard_iterator(self, **asked: str) -> Any:
            together.wait()  # breaks where they are asked one after the other
            return {"ShardIterator": asked["ShardId"]}

        def get_records(self, ShardIterator: str, **_: Any) -> Any:
            return {"Records": [{"SequenceNumber": ShardIterator}]}

    monkeypatch.setattr(kinesis, "make_kinesis_client", Keyed)
    source = dataclasses.replace(SOURCE, role="arn:aws:iam::999988887777:role/readers")
    oldest = kinesis.make_oldest_record_finder(source, None)
    for questions in (1, 2):
        assert oldest("1234") == {shard: shard for shard in "1234"}
        assert made == [(source, None)] * questions


def test_a_stream_that_does_not_say_how_many_shards_it_has_ends_no_job(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a batch that is no error of the start, which would not be tried again."""
    there: Any = None
    guard = KinesisLossGuard(SOURCE, there, there, shards=1)
    entries = {0: positions(a="1"), 1: positions(a="2", b=None)}
    monkeypatch.setattr(guard, "_start_positions", lambda _spark, batch: entries[batch])
    other = dataclasses.replace(SOURCE, stream="flight")
    guard.count_shards = lambda: kinesis.count_open_shards(other, None, client=client)
    with pytest.raises(NoAnswerError, match=r"stream flight: .*not found"):
        guard.checked_positions_before_batch(there, 1)


def test_a_query_that_begins_at_the_latest_record_reads_no_tails_at_first(client: Any) -> None:
    put(client, b"1")
    client.split_shard(
        StreamName="flights", ShardToSplit="shardId-000000000000", NewStartingHashKey=str(2**127)
    )
    latest = dataclasses.replace(SOURCE, start="latest")
    assert (
        list(kinesis.make_closed_shard_reader(latest, None, client=client)(positions(), positions(x=None)))
        == []
    )


def ended(body: bytes) -> bytes:
    """An aggregate of a body, as its producer ends it."""
    return AGGREGATE + body + hashlib.md5(body, usedforsecurity=False).digest()


PACKED = [("a", b"one"), ("b", b""), ("a", b"two")]
NO_AGGREGATES = {
    "its beginning only": AGGREGATE,
    "nothing that is an aggregate": AGGREGATE + b"{}",
    "as long as a digest": AGGREGATE + bytes(16),
    "the digest of nothing": ended(b""),
    "another digest": aggregate(PACKED)[:-1] + bytes([aggregate(PACKED)[-1] ^ 1]),
    "cut off": aggregate(PACKED)[:-20],
    "no message": ended(b"\xff"),
    "a key that it lacks": ended(pb.block(1, "a") + pb.block(3, pb.number(1, 1) + pb.block(3, b"x"))),
    "a record without a key": ended(pb.block(1, "a") + pb.block(3, pb.block(3, b"x"))),
    "a record without data": ended(pb.block(1, "a") + pb.block(3, pb.number(1, 0))),
    "data that is a number": ended(pb.block(1, "a") + pb.block(3, pb.number(1, 0) + pb.number(3, 1))),
    "a key that is bytes": ended(pb.block(1, "a") + pb.block(3, pb.block(1, "a") + pb.block(3, b"x"))),
    "a key that is a number": ended(pb.number(1, 7) + pb.block(3, pb.number(1, 0) + pb.block(3, b"x"))),
    "a record that is a number": ended(pb.block(1, "a") + pb.number(3, 1)),
    "a key that is no text": ended(pb.block(1, b"\xff") + pb.block(3, pb.number(1, 0) + pb.block(3, b"x"))),
    "another record": b"{}",
    "an empty one": b"",
}


def test_an_aggregate_is_taken_apart() -> None:
    assert split_kinesis_aggregate(aggregate(PACKED)) == PACKED


@pytest.mark.parametrize("name", NO_AGGREGATES)
def test_what_only_looks_like_an_aggregate_is_none(name: str) -> None:
    assert split_kinesis_aggregate(NO_AGGREGATES[name]) is None


@hypothesis.given(st.binary(max_size=60))
def test_any_bytes_are_an_aggregate_or_none(body: bytes) -> None:
    assert split_kinesis_aggregate(AGGREGATE + body) is None or AGGREGATE + body == ended(body[:-16])
    result = split_kinesis_aggregate(ended(body))
    assert result is None or all(isinstance(key, str) and isinstance(data, bytes) for key, data in result)
