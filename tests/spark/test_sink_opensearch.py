"""OpenSearch: a contract test against the documented bulk API (:mod:`tests.opensearch`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.services.backoff import Backoff
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delivery.python_tasks import Record
from millrace.etl.sinks.opensearch import DocumentWriter, Http, OpenSearchSink, OpenSearchSinkSettings
from tests import opensearch
from tests.opensearch import Domain
from tests.spark.sinks import Refused, breaking, changes, none_refused, place, results, row, rows


@pytest.fixture(scope="module")
def domain() -> Iterator[Domain]:
    with pytest.MonkeyPatch.context() as patch, opensearch.running() as served:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        yield served


@pytest.fixture(autouse=True)
def empty(domain: Domain) -> None:
    domain.documents.clear()
    domain.versions.clear()
    domain.asked.clear()


def sink(domain: Domain, index: str = "flights") -> OpenSearchSink:
    return OpenSearchSink(OpenSearchSinkSettings("opensearch", domain.endpoint, index, "us-east-1"))


def writer(domain: Domain, patience: float = 5.0) -> DocumentWriter:
    backoff = Backoff("OpenSearch index flights", first=0.01, patience=patience)
    return DocumentWriter(Http(domain.endpoint, "us-east-1"), backoff, "flights", None)


def record(number: int, flight: str | None = None) -> Record:
    text = f'{{"_id":"t/0/{number}","flight":{flight or number}}}'
    return Record(f"t/0/{number}", "flights", None, None, None, text)


@pytest.mark.faults
def test_documents_are_known_by_identity_through_breaks_and_replays(
    spark: SparkSession, domain: Domain
) -> None:
    one, batch = sink(domain), rows(spark, [row(n) for n in range(1200)])
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 1199), place(0), none_refused)
    done = one.write(batch, place(0), none_refused)
    assert (done.offered, done.refused, len(domain.documents)) == (1200, 0, 1200)
    assert one.write(batch, place(0, "run-2"), none_refused) == WriteCounts(1200, 0)
    document = domain.documents["flights/flights-topic/0/3"]
    assert (document["flight"], document["seat"], document["millrace"]["id"]) == (
        3, {"row": 3, "letter": "C"}, "flights-topic/0/3",
    )  # fmt: skip


def test_what_the_mapping_refuses_is_a_letter(spark: SparkSession, domain: Domain) -> None:
    refused = Refused()
    batch = rows(spark, [row(1), row(2, flight=None), row(3, _id="x" * 600), row(4)])
    assert sink(domain).write(batch, place(0), refused) == WriteCounts(4, 2, 2)
    assert len(domain.documents) == 2
    reasons = refused.reasons()
    assert reasons["flights-topic/0/2"].startswith('400: {"type": "mapper_parsing_exception"')
    assert reasons["x" * 600] == "the id has 608 bytes; OpenSearch allows 1 to 512"


def test_results_replace_each_other(spark: SparkSession, domain: Domain) -> None:
    one = sink(domain)
    assert one.write(results(spark, {"AA": 1, "UA": 2}), place(0), none_refused) == WriteCounts(2, 2)
    assert one.write(results(spark, {"AA": 5}), place(1), none_refused) == WriteCounts(1, 1)
    assert sorted(d["flights"] for d in domain.documents.values()) == [2, 5]


def test_a_result_that_is_deleted_is_no_document(spark: SparkSession, domain: Domain) -> None:
    one = sink(domain)
    one.write(changes(spark, {"AA": 1, "UA": 2}), place(0), none_refused)
    assert one.write(
        changes(spark, {"AA": None, "ZZ": None, "UA": 3}), place(1), none_refused
    ) == WriteCounts(3, 2)
    assert list(domain.documents.values()) == [
        {"carrier": "UA", "flights": 3, "millrace": {"id": '{"carrier": "UA"}'}}
    ]
    assert one.write(changes(spark, {"UA": None}), place(0), none_refused) == WriteCounts(1, 0)
    assert len(domain.documents) == 1


@pytest.mark.faults
def test_results_of_an_older_batch_do_not_win_in_an_index(spark: SparkSession, domain: Domain) -> None:
    one, key = sink(domain), '{"carrier": "AA"}'

    def counts() -> dict[str, int]:
        return {d["carrier"]: d["flights"] for d in domain.documents.values()}

    # As an earlier release wrote it: the domain itself counted its versions.
    domain.documents[key], domain.versions[key] = {"carrier": "AA", "flights": 1}, 41
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


@pytest.mark.faults
def test_a_busy_domain_is_asked_again_for_what_it_did_not_take(domain: Domain) -> None:
    one = writer(domain)
    domain.refuse, domain.busy = 2, {"flights/t/0/1", "flights/t/0/3"}
    refused = [each for n in range(5) for each in one.add(record(n, "null" if n == 4 else None))]
    refused += list(one.finish())
    assert [(r.id, why[:3]) for r, why in refused] == [("t/0/4", "400")]
    assert (one.written, len(domain.documents)) == (4, 4)
    assert domain.asked == {"refused": 2, "taken": 2}


def test_a_domain_with_small_requests_gets_smaller_ones(
    domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(domain, "most_bytes", 300)
    one = writer(domain)
    refused = [each for n in range(8) for each in one.add(record(n, "1" * 400 if n == 5 else None))]
    refused += list(one.finish())
    assert [(r.id, "is larger than the domain accepts" in why) for r, why in refused] == [("t/0/5", True)]
    assert (one.written, len(domain.documents)) == (7, 7)


@pytest.mark.faults
def test_a_domain_that_stays_busy_or_is_not_there_is_an_error(spark: SparkSession, domain: Domain) -> None:
    domain.refuse = 10**6
    one = writer(domain, patience=0.2)
    list(one.add(record(1)))
    with pytest.raises(SinkError, match=r"nothing could be written for .*429"):
        list(one.finish())
    domain.refuse = 0
    away = DocumentWriter(
        Http("http://127.0.0.1:9", "us-east-1"), Backoff("x", patience=0.2), "flights", None
    )
    list(away.add(record(1)))
    with pytest.raises(SinkError, match="EndpointConnectionError"):
        list(away.finish())
    with pytest.raises(StartError, match="status 404; the index must be there"):
        sink(domain, "nowhere").prepare(spark, rows(spark, []).schema)


def test_rows_without_identity_are_not_one_document(spark: SparkSession, domain: Domain) -> None:
    refused = Refused()
    batch = rows(spark, [row(1), row(2, _id=None), row(3, _id=None)])
    assert sink(domain).write(batch, place(0), refused) == WriteCounts(3, 1, 2)
    assert [letter["_error"] for letter in refused.letters] == [
        "the transform returned a row without _source or without _id"
    ] * 2
