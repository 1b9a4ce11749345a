"""Kinesis API calls of the sandbox's reader: positions, pages, clock, and retries."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from botocore.exceptions import ClientError

from millrace.etl.services import backoff
from millrace.etl.sources.kinesis.closed_shards import Shard
from millrace.sandbox.kinesis_reader.pyspark_millrace_kinesis import stream_batches as module
from millrace.sandbox.kinesis_reader.pyspark_millrace_kinesis.stream_batches import KinesisService

Answer = tuple[int, Any]


@contextmanager
def answering(*answers: Answer) -> Iterator[tuple[KinesisService, list[tuple[str, dict[str, Any], str]]]]:
    """A service that gives these answers in turn; what it was asked: action, body, authorisation."""
    left, asked = list(answers), list[tuple[str, dict[str, Any], str]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            action = self.headers["X-Amz-Target"].rpartition(".")[2]
            asked.append((action, body, self.headers["Authorization"]))
            status, content = left.pop(0)
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def date_time_string(self, timestamp: float | None = None) -> str:
            return "Wed, 25 Nov 2026 01:02:03 GMT"

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{server.server_port}"
        service = KinesisService("flights", "eu-west-1", address)
        try:
            yield service, asked
        finally:
            service.client.close()
            server.shutdown()
            thread.join()
    assert not left


def refused(code: str, status: int = 400) -> Answer:
    return status, {"__type": f"com.amazonaws.kinesis#{code}", "message": f"{code} it is"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKID")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setattr(backoff.time, "sleep", lambda _: None)
    monkeypatch.setattr(module, "Backoff", lambda what: backoff.Backoff(what, sleep=lambda _: None))


def test_calls_are_signed_for_the_region_and_places_are_kinesis_own() -> None:
    places = [
        ("TRIM_HORIZON", "", {}),
        ("AT_TIMESTAMP", "1769817600500", {"Timestamp": 1769817600.5}),
        ("AFTER_SEQUENCE_NUMBER", "49", {"StartingSequenceNumber": "49"}),
    ]
    with answering(*((200, {"ShardIterator": kind}) for kind, _, _ in places)) as (service, asked):
        for kind, place, _ in places:
            assert service.shard_iterator("shardId-0", kind, place) == kind
    of = {"StreamName": "flights", "ShardId": "shardId-0"}
    assert [body for _, body, _ in asked] == [
        {**of, "ShardIteratorType": kind, **more} for kind, _, more in places
    ]
    for action, _, authorisation in asked:
        assert action == "GetShardIterator"
        assert re.match(
            r"AWS4-HMAC-SHA256 Credential=AKID/\d{8}/eu-west-1/kinesis/aws4_request", authorisation
        )


def test_shards_are_listed_page_by_page_with_the_services_time() -> None:
    first = {
        "ShardId": "a",
        "SequenceNumberRange": {"StartingSequenceNumber": "1", "EndingSequenceNumber": "9"},
    }
    second = {
        "ShardId": "b",
        "ParentShardId": "a",
        "AdjacentParentShardId": None,
        "SequenceNumberRange": {"StartingSequenceNumber": "10"},
    }
    pages = [(200, {"Shards": [first], "NextToken": "more"}), (200, {"Shards": [second]})]
    with answering(*pages, pages[0]) as (service, asked):
        assert service.shards() == [Shard("a", (), True), Shard("b", ("a",), False)]
        assert service.now() == datetime(2026, 11, 25, 1, 2, 3, tzinfo=UTC)
    # A token may not stand beside the stream's name (API reference, ListShards).
    assert [body for _, body, _ in asked] == [
        {"StreamName": "flights"},
        {"NextToken": "more"},
        {"StreamName": "flights", "MaxResults": 1},
    ]


@pytest.mark.faults
def test_what_is_throttled_or_fails_is_asked_again() -> None:
    records = {
        "Records": [{"SequenceNumber": "1", "PartitionKey": "k", "Data": "eA=="}],
        "MillisBehindLatest": 0,
    }
    busy = [refused("ProvisionedThroughputExceededException"), refused("LimitExceededException")]
    with answering(*busy, (500, b"<html>oh</html>"), (200, records)) as (service, asked):
        assert service.get_records("here", 7)["Records"] == [
            {"SequenceNumber": "1", "PartitionKey": "k", "Data": b"x"}
        ]
    assert [body for _, body, _ in asked] == [{"ShardIterator": "here", "Limit": 7}] * 4


@pytest.mark.parametrize(
    "code", ["ExpiredIteratorException", "ResourceNotFoundException", "AccessDeniedException"]
)
def test_what_is_refused_for_good_is_told_once(code: str) -> None:
    with (
        answering(refused(code)) as (service, _),
        pytest.raises(ClientError, match=f"{code} it is") as raised,
    ):
        service.get_records("here", 7)
    assert raised.value.response["Error"]["Code"] == code
