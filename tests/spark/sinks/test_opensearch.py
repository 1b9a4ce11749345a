"""OpenSearch sink on a real server, with simulated answers for failures that a server does not give on request."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.sinks import OpenSearchSinkSettings
from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.services.backoff import Backoff
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delivery.python_task_writes import RowToSend
from millrace.etl.sinks.opensearch import (
    DocumentWriter,
    LatestDocumentWriter,
    OpenSearchSink,
    SignedHttpClient,
)
from tests.http_servers import Handler, served
from tests.opensearch import MOST_BYTES, OpenSearch
from tests.spark.sink_input_rows import Refused, breaking, changes, none_refused, place, results, row, rows

_numbers = itertools.count()


class Index:
    """An index of its own for each test; its field ``flight`` is a number of 16 bits."""

    def __init__(self, domain: OpenSearch, shards: int = 1) -> None:
        self.domain, self.name = domain, f"flights-{next(_numbers)}"
        domain.create(self.name, shards, flight="short")

    def documents(self) -> dict[str, dict[str, Any]]:
        return self.domain.documents(self.name)

    def sink(self) -> OpenSearchSink:
        return OpenSearchSink(OpenSearchSinkSettings(self.domain.endpoint, self.name, "us-east-1"))

    def writer(self, patience: float = 30.0) -> DocumentWriter:
        return writer(self.domain.endpoint, self.name, patience)

    def bulk(self, *lines: object) -> list[tuple[int, str]]:
        """Send lines as they are; status and result of each."""
        body = "".join(f"{json.dumps(line)}\n" for line in lines).encode()
        status, answer = SignedHttpClient(self.domain.endpoint, "us-east-1").send(
            "POST", f"/{self.name}/_bulk", body
        )
        assert status == 200, answer
        items = (next(iter(item.values())) for item in json.loads(answer)["items"])
        return [(item["status"], item.get("result", "")) for item in items]


@pytest.fixture
def index(domain: OpenSearch) -> Index:
    return Index(domain)


def writer(endpoint: str, index: str, patience: float = 0.2) -> DocumentWriter:
    backoff = Backoff(f"OpenSearch index {index}", first=0.01, patience=patience)
    return DocumentWriter(SignedHttpClient(endpoint, "us-east-1"), backoff, index, None)


def record(number: int, flight: int | None = None, text: str = "") -> RowToSend:
    document = f'{{"_id":"t/0/{number}","flight":{number if flight is None else flight},"text":"{text}"}}'
    return RowToSend(f"t/0/{number}", "flights", None, None, None, document)


@pytest.mark.faults
def test_documents_are_known_by_identity_through_breaks_and_replays(
    spark: SparkSession, index: Index
) -> None:
    one, batch = index.sink(), rows(spark, [row(n) for n in range(1200)])
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 1199), place(0), none_refused)
    done, documents = one.write(batch, place(0), none_refused), index.documents()
    assert (done.offered, done.refused, len(documents)) == (1200, 0, 1200)
    assert one.write(batch, place(0, "run-2"), none_refused) == WriteCounts(1200, 0)
    assert index.documents() == documents
    document = documents["flights/flights-topic/0/3"]
    assert (document["flight"], document["seat"], document["millrace"]["id"]) == (
        3, {"row": 3, "letter": "C"}, "flights-topic/0/3",
    )  # fmt: skip


def test_what_the_mapping_or_the_id_refuses_is_a_letter(spark: SparkSession, index: Index) -> None:
    refused, longest = Refused(), "é" * 252  # of 2 bytes, after the 8 of the source
    records = [row(1), row(2, flight=40_000), row(3, _id=longest), row(4, _id=f"{longest}x"), row(5)]
    assert index.sink().write(rows(spark, records), place(0), refused) == WriteCounts(5, 3, 2)
    assert index.documents().keys() == {f"flights/{each[0]}" for each in (records[0], records[2], records[4])}
    reasons = refused.reasons()
    assert reasons["flights-topic/0/2"].startswith('400: {"type": "mapper_parsing_exception"')
    assert reasons[f"{longest}x"] == "the id has 513 bytes; OpenSearch allows 1 to 512 bytes"


@pytest.mark.slow
def test_results_replace_each_other(spark: SparkSession, index: Index) -> None:
    one = index.sink()
    assert one.write(results(spark, {"AA": 1, "UA": 2}), place(0), none_refused) == WriteCounts(2, 2)
    assert one.write(results(spark, {"AA": 5}), place(1), none_refused) == WriteCounts(1, 1)
    assert sorted(d["flights"] for d in index.documents().values()) == [2, 5]


def test_a_result_that_is_deleted_is_no_document(spark: SparkSession, index: Index) -> None:
    one, left = index.sink(), {"carrier": "UA", "flights": 3, "millrace": {"id": '{"carrier": "UA"}'}}
    one.write(changes(spark, {"AA": 1, "UA": 2}), place(0), none_refused)
    assert one.write(
        changes(spark, {"AA": None, "ZZ": None, "UA": 3}), place(1), none_refused
    ) == WriteCounts(3, 2)
    assert list(index.documents().values()) == [left]
    # Older ones find a later document, or what is remembered of a deleted one.
    assert one.write(changes(spark, {"UA": None, "AA": 1}), place(0), none_refused) == WriteCounts(2, 0)
    assert list(index.documents().values()) == [left]


@pytest.mark.faults
def test_results_of_an_older_batch_do_not_win_in_an_index(spark: SparkSession, index: Index) -> None:
    one = index.sink()

    def counts() -> dict[str, int]:
        return {d["carrier"]: d["flights"] for d in index.documents().values()}

    # As an earlier release wrote it: the domain itself counted its versions.
    earlier = ({"index": {"_id": '{"carrier": "AA"}'}}, {"carrier": "AA", "flights": 1})
    assert index.bulk(*earlier * 41)[-1] == (200, "updated")
    assert one.write(results(spark, {"AA": 7}), place(7), none_refused) == WriteCounts(1, 1)
    # What a driver or an executor that was cut off still writes: new keys are in, known ones stay as they are.
    assert one.write(results(spark, {"AA": 6, "UA": 6}), place(6), none_refused) == WriteCounts(2, 1)
    assert counts() == {"AA": 7, "UA": 6}
    assert one.write(results(spark, {"AA": 7}), place(7), none_refused) == WriteCounts(1, 1)
    # A reset checkpoint counts its batches again, and what it reads again comes to other results.
    assert one.write(results(spark, {"AA": 5}), place(0, "run-2", created=2), none_refused) == WriteCounts(
        1, 1
    )
    assert one.write(results(spark, {"AA": 8}), place(8), none_refused) == WriteCounts(1, 0)
    assert counts() == {"AA": 5, "UA": 6}


NEWER = """
def held = ctx._source.millrace?.order;
if (held != null && held.compareTo(params.document.millrace.order) >= 0) { ctx.op = 'none' }
else { ctx._source.clear(); ctx._source.putAll(params.document) }
"""


def test_a_script_replaces_what_is_older_only(index: Index) -> None:
    def put(order: str, flight: int) -> tuple[int, str]:
        document = {"flight": flight, "millrace": {"order": order}}
        script = {"lang": "painless", "source": NEWER, "params": {"document": document}}
        update = {"scripted_upsert": True, "upsert": {}, "script": script}
        (result,) = index.bulk({"update": {"_id": "AA", "retry_on_conflict": 3}}, update)
        return result

    created, updated, left = (201, "created"), (200, "updated"), (200, "noop")
    assert [put("02", 2), put("01", 1), put("10", 3), put("10", 3)] == [created, left, updated, left]
    assert index.documents() == {"AA": {"flight": 3, "millrace": {"order": "10"}}}
    # A document without an order is from before there were any.
    assert index.bulk({"index": {"_id": "AA"}}, {"flight": 4}) == [updated]
    assert put("01", 5) == updated
    assert put("02", 40_000) == (400, "")
    assert index.documents() == {"AA": {"flight": 5, "millrace": {"order": "01"}}}


@pytest.mark.faults
def test_a_busy_domain_is_asked_again_for_what_it_did_not_take(domain: OpenSearch) -> None:
    index = Index(domain, shards=16)
    one, refused_before, rejected_before = index.writer(), domain.refused(), domain.rejected()
    domain.refuse_writes(True)
    later = threading.Timer(0.5, domain.refuse_writes, (False,))
    later.start()
    refused = [
        each for n in range(300) for each in one.add_and_yield_refused(record(n, 40_000 if n == 4 else None))
    ]
    refused += list(one.write_rest_and_yield_refused())
    later.join()
    assert [(r.id, why[:3]) for r, why in refused] == [("t/0/4", "400")]
    assert (one.written, len(index.documents())) == (299, 299)
    assert domain.refused() > refused_before, "whole requests"
    assert domain.rejected() > rejected_before, "some documents of one"


def test_a_domain_with_small_requests_gets_smaller_ones(index: Index) -> None:
    one, sizes = index.writer(), [MOST_BYTES if n == 5 else MOST_BYTES // 3 for n in range(8)]
    refused = [
        each for n, size in enumerate(sizes) for each in one.add_and_yield_refused(record(n, text="x" * size))
    ]
    refused += list(one.write_rest_and_yield_refused())
    assert [(r.id, "is larger than the domain accepts" in why) for r, why in refused] == [("t/0/5", True)]
    assert (one.written, len(index.documents())) == (7, 7)


@pytest.mark.faults
def test_a_domain_that_stays_busy_or_is_not_there_is_an_error(spark: SparkSession, index: Index) -> None:
    one = index.writer(patience=0.2)
    list(one.add_and_yield_refused(record(1)))
    index.domain.refuse_writes(True)
    try:
        with pytest.raises(SinkError, match=r"nothing could be written for .*429"):
            list(one.write_rest_and_yield_refused())
    finally:
        index.domain.refuse_writes(False)
    away = writer("http://127.0.0.1:9", "flights")
    list(away.add_and_yield_refused(record(1)))
    with pytest.raises(SinkError, match="EndpointConnectionError"):
        list(away.write_rest_and_yield_refused())
    index.domain.ask("DELETE", f"/{index.name}")
    with pytest.raises(StartError, match="status 404; create the index"):
        index.sink().prepare(spark, rows(spark, []).schema)


def ordered(key: str, number: int, *, deleted: bool = False) -> RowToSend:
    """Record ``number`` of a key, as with ``latest_by``."""
    order = f"{number:017X}{7:016X}{number:064}"
    text = json.dumps({"_id": key, "flight": number, "_order": order}, separators=(",", ":"))
    return RowToSend(key, None, None, None, None, text, deleted, order)


def latest(index: Index, *records: RowToSend, patience: float = 30.0) -> tuple[int, list[str]]:
    """Write records of keys; the number that was written, and the reasons of those that were refused."""
    client, backoff = (
        SignedHttpClient(index.domain.endpoint, "us-east-1"),
        Backoff("the index", first=0.01, patience=patience),
    )
    one = LatestDocumentWriter(client, backoff, index.name, None)
    refused = [why for each in records for _, why in one.add_and_yield_refused(each)]
    refused += [why for _, why in one.write_rest_and_yield_refused()]
    return one.written, refused


@pytest.mark.faults
def test_a_delete_waits_for_documents_that_cannot_be_read(index: Index) -> None:
    assert latest(index, ordered("a", 1), ordered("b", 1)) == (2, [])
    index.domain.ask("POST", f"/{index.name}/_close")
    with pytest.raises(SinkError, match=r"1 of 1 documents could not be read: .*index_closed_exception"):
        latest(index, ordered("a", 2, deleted=True), patience=0.2)
    later = threading.Timer(0.5, index.domain.ask, ("POST", f"/{index.name}/_open"))
    later.start()
    assert latest(index, ordered("a", 2, deleted=True)) == (1, [])
    later.join()
    assert index.documents().keys() == {"b"}


@pytest.mark.faults
@pytest.mark.parametrize(
    ("method", "path", "said"),
    [
        ("POST", "/_close", "status 400 for a document: .*index_closed_exception"),
        ("PUT", "/_block/write", "status 403 for a document: .*cluster_block_exception"),
        ("DELETE", "", "status 404 for a document: .*index_not_found_exception"),
    ],
)
def test_what_the_index_refuses_is_no_fault_of_its_rows(
    index: Index, method: str, path: str, said: str
) -> None:
    assert latest(index, ordered("a", 1)) == (1, [])
    index.domain.ask(method, f"/{index.name}{path}")
    one = index.writer()
    list(one.add_and_yield_refused(record(1)))
    with pytest.raises(SinkError, match=said):
        list(one.write_rest_and_yield_refused())
    with pytest.raises(SinkError):
        latest(index, ordered("a", 2, deleted=True), patience=0.2)


@pytest.mark.parametrize(
    ("status", "answer", "said"),
    [
        (200, b"<html>", "unexpected response to a bulk request"),
        (200, b'{"items": []}', "1 documents were sent, but the response lists 0"),
        (403, b"no permissions", "status 403: no permissions"),
    ],
)
def test_requests_are_signed_and_other_answers_are_errors(
    monkeypatch: pytest.MonkeyPatch, status: int, answer: bytes, said: str
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    signatures = []

    class Odd(Handler):
        def do_POST(self) -> None:
            self.body()
            signatures.append(self.headers["Authorization"])
            self.reply(status, answer)

    with served(Odd) as endpoint:
        one = writer(endpoint, "flights")
        list(one.add_and_yield_refused(record(1)))
        with pytest.raises(SinkError, match=f"OpenSearch index flights: {said}"):
            list(one.write_rest_and_yield_refused())
    (signature,) = signatures
    assert signature.startswith("AWS4-HMAC-SHA256 Credential=test/")
    assert "/us-east-1/es/aws4_request" in signature


def test_rows_without_identity_are_not_one_document(spark: SparkSession, index: Index) -> None:
    refused = Refused()
    batch = rows(spark, [row(1), row(2, _id=None), row(3, _id=None)])
    assert index.sink().write(batch, place(0), refused) == WriteCounts(3, 1, 2)
    assert [letter["_error"] for letter in refused.letters] == [
        "the transform returned a row without _source or without _id"
    ] * 2
