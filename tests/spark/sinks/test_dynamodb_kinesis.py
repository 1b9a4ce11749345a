"""DynamoDB (moto) and Kinesis (kinesalite) sinks write each row after replays, failures and throttling."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from millrace.etl.launch.sinks import DynamoDbSinkSettings, KinesisSinkSettings
from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.services import aws_clients
from millrace.etl.services.backoff import Backoff
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delivery.dynamodb_items import RowToItemConverter
from millrace.etl.sinks.delivery.kinesis_tail import StreamTail
from millrace.etl.sinks.delivery.python_task_writes import RowToSend
from millrace.etl.sinks.dynamodb import DynamoDbSink, ItemWriter, ResultWriter
from millrace.etl.sinks.kinesis import KinesisSink, RecordWriter
from tests import kinesalite
from tests.faults import sink_contents
from tests.faults.moto_server import moto
from tests.kinesalite import Kinesalite
from tests.spark import faulty_dynamodb_kinesis_proxy
from tests.spark.sink_input_rows import Refused, breaking, changes, none_refused, place, results, row, rows

REGION = "us-east-1"


@pytest.fixture(scope="module", autouse=True)
def credentials() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in kinesalite.CREDENTIALS.items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    with moto() as server:
        yield server.endpoint


@pytest.fixture(scope="module")
def kinesis() -> Iterator[Kinesalite]:
    with kinesalite.running(name="sinks") as running:
        yield running


def make_table(endpoint: str, name: str, *keys: str, index: str | None = None) -> Any:
    client = boto3.client("dynamodb", endpoint_url=endpoint, region_name=REGION)
    named = [*keys, *([] if index is None else [index])]
    indexes = [
        {
            "IndexName": index,
            "KeySchema": [{"AttributeName": index, "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "ALL"},
        }
    ]
    client.create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": k, "AttributeType": "S"} for k in named],
        **({} if index is None else {"GlobalSecondaryIndexes": indexes}),
        KeySchema=[
            {"AttributeName": k, "KeyType": kind} for k, kind in zip(keys, ("HASH", "RANGE"), strict=False)
        ],
        BillingMode="PAY_PER_REQUEST",
    )
    client.close()
    return boto3.resource("dynamodb", endpoint_url=endpoint, region_name=REGION).Table(name)


def table_sink(endpoint: str, name: str) -> DynamoDbSink:
    return DynamoDbSink(DynamoDbSinkSettings(name, REGION), endpoint)


@pytest.mark.faults
def test_items_are_typed_and_a_replay_puts_the_same_ones(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "typed", "_id", "_source")
    one = table_sink(dynamodb, "typed")
    batch = rows(spark, [row(n, carrier=None if n == 1 else "ÄA") for n in range(60)])
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 59), place(0), none_refused)
    for _ in range(2):
        assert one.write(batch, place(0), none_refused) == WriteCounts(60, 60)
    items = {item["flight"]: item for item in table.scan()["Items"]}
    assert sorted(items) == list(range(60))
    assert "carrier" not in items[1]
    assert (items[3]["price"], items[3]["late"], items[3]["seat"]) == (
        Decimal("3.25"), True, {"row": 3, "letter": "C"},
    )  # fmt: skip
    assert (bytes(items[3]["raw"]), items[3]["tags"], items[3]["at"]) == (
        b"\x00\xff", ["a", "b"], "2026-01-01T12:00:03.123456Z",
    )  # fmt: skip


def test_a_reset_checkpoint_neither_skips_nor_doubles_items(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "reset", "_id", "_source")
    one = table_sink(dynamodb, "reset")
    one.write(rows(spark, [row(1), row(2)]), place(0), none_refused)
    one.write(rows(spark, [row(2), row(3)]), place(0, "run-2"), none_refused)
    assert sorted(i["flight"] for i in table.scan()["Items"]) == [1, 2, 3]


def test_items_that_cannot_be_are_letters(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "strict", "_id", "_source")
    one, refused = table_sink(dynamodb, "strict"), Refused()
    batch = [row(1), row(2, carrier="x" * 410_000), row(3, delay=float("nan")), row(4, _id=""), row(5)]
    # The table says of its own accord what an item cannot be; what would spoil a request with another code is not sent.
    batch += [row(6, delay=1e200), row(7, carrier="x" * 5_000_000)]
    assert one.write(rows(spark, batch), place(0), refused) == WriteCounts(7, 2, 5)
    assert sorted(i["flight"] for i in table.scan()["Items"]) == [1, 5]
    reasons = refused.reasons()
    assert "ValidationException" in reasons["flights-topic/0/2"]
    assert "Item size has exceeded the maximum allowed size" in reasons["flights-topic/0/2"]
    assert (
        reasons["flights-topic/0/3"] == "the value of delay is NaN, which DynamoDB cannot store as a number"
    )
    assert "ValidationException" in reasons[""]
    assert "Number overflow" in reasons["flights-topic/0/6"]
    assert reasons["flights-topic/0/7"].endswith("bytes; the limit is 4194304")


def test_results_that_cannot_be_are_letters(spark: SparkSession, dynamodb: str) -> None:
    table, refused = make_table(dynamodb, "strict-totals", "_id", index="carrier"), Refused()
    batch = results(spark, {"AA": 1, "": 2, "x" * 2048: 3})
    # moto refuses an empty key of an index, as DynamoDB does: the request of that item alone.
    assert table_sink(dynamodb, "strict-totals").write(batch, place(0), refused) == WriteCounts(3, 1, 2)
    assert [i["carrier"] for i in table.scan()["Items"]] == ["AA"]
    reasons = refused.reasons()
    assert "ValidationException" in reasons['{"carrier": ""}']
    assert "ValidationException" in reasons[json.dumps({"carrier": "x" * 2048})]


def test_results_are_known_by_their_key(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "totals", "_id")
    one = table_sink(dynamodb, "totals")
    one.prepare(spark, results(spark, {}).schema)
    one.write(results(spark, {"AA": 1, "UA": 2}), place(0), none_refused)
    one.write(results(spark, {"AA": 5}), place(1), none_refused)
    assert {i["carrier"]: i["flights"] for i in table.scan()["Items"]} == {"AA": 5, "UA": 2}
    with pytest.raises(
        StartError, match=r"its key is _id \(S\), but rows of this query need _id \(S\), _source"
    ):
        one.prepare(spark, rows(spark, []).schema)
    with pytest.raises(StartError, match=r"DynamoDB table nowhere: .*ResourceNotFound"):
        table_sink(dynamodb, "nowhere").prepare(spark, results(spark, {}).schema)


def test_a_result_that_is_deleted_is_no_item(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "deleted", "_id")
    one = table_sink(dynamodb, "deleted")

    def counts() -> dict[str, int]:
        items = table.scan()["Items"]
        assert not [i for i in items if "_deleted" in i]
        return {i["carrier"]: int(i["flights"]) for i in items}

    one.write(changes(spark, {"AA": 1, "UA": 2}), place(0), none_refused)
    assert one.write(
        changes(spark, {"AA": None, "ZZ": None, "UA": 3}), place(1), none_refused
    ) == WriteCounts(3, 3)
    assert counts() == {"UA": 3}
    # Of a driver that was cut off: what is there of a later batch stays.
    assert one.write(changes(spark, {"UA": None}), place(0), none_refused) == WriteCounts(1, 0)
    assert counts() == {"UA": 3}


@pytest.mark.faults
def test_results_of_an_older_batch_do_not_win_in_a_table(spark: SparkSession, dynamodb: str) -> None:
    table = make_table(dynamodb, "versions", "_id")
    one = table_sink(dynamodb, "versions")

    def counts() -> dict[str, int]:
        return {i["carrier"]: int(i["flights"]) for i in table.scan()["Items"]}

    # As an earlier release wrote it, or another program: without a version.
    table.put_item(Item={"_id": '{"carrier": "AA"}', "carrier": "AA", "flights": 1})
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
    with pytest.raises(SinkError, match="these rows belong to no batch"):
        one.write(results(spark, {"AA": 1}), None, none_refused)


@pytest.mark.faults
def test_a_table_that_went_away_fails_the_batch(spark: SparkSession, dynamodb: str) -> None:
    with pytest.raises(Exception, match=r"DynamoDB table gone: .*ResourceNotFound") as caught:
        table_sink(dynamodb, "gone").write(rows(spark, [row(1)]), place(0), none_refused)
    assert SinkError.__name__ in str(caught.value)


def stream_sink(kinesis: Kinesalite, stream: str, key: str | None = None, most: int = 100_000) -> KinesisSink:
    return KinesisSink(KinesisSinkSettings(stream, REGION, key, most), kinesis.endpoint)


def make_stream(kinesis: Kinesalite, name: str, shards: int) -> None:
    client = kinesis.client()
    client.create_stream(StreamName=name, ShardCount=shards)
    client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})


def records(kinesis: Kinesalite, stream: str) -> list[dict[str, Any]]:
    result = sink_contents.records(kinesis.client(), stream)
    return [{"key": record["PartitionKey"], **json.loads(record["Data"])} for record in result]


@pytest.mark.faults
@pytest.mark.slow
def test_records_that_come_again_are_put_where_the_stream_lacks_them(
    spark: SparkSession, kinesis: Kinesalite, tmp_path: Path
) -> None:
    make_stream(kinesis, "again", 2)
    one = stream_sink(kinesis, "again", key="gate")
    # One task: beside another that fails, it may be ended before its first request or behind it.
    batch = rows(spark, [row(n) for n in range(700)], parts=1)
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 699), place(0, notes=tmp_path), none_refused)
    half = len(records(kinesis, "again"))
    assert 0 < half < 700
    # A first batch may be one that was written: here a half of it was, in a second run all of it.
    assert one.write(batch, place(0, notes=tmp_path), none_refused) == WriteCounts(700, 700 - half)
    two = stream_sink(kinesis, "again", key="gate")
    assert two.write(batch, place(0, notes=tmp_path), none_refused) == WriteCounts(700, 0)
    assert two.write(rows(spark, [row(700)]), place(1, notes=tmp_path), none_refused) == WriteCounts(1, 1)
    result = records(kinesis, "again")
    assert Counter((r["_source"], r["_id"]) for r in result) == Counter(
        ("flights", f"flights-topic/0/{n}") for n in range(701)
    )
    assert {r["key"] for r in result if r["flight"] == 7} == {"7"}
    # A new checkpoint puts again what it reads again, and skips nothing that is new.
    again = rows(spark, [row(1), row(701)])
    fresh = place(0, "run-2", tmp_path / "other")
    assert stream_sink(kinesis, "again").write(again, fresh, none_refused) == WriteCounts(2, 2)


@pytest.mark.slow
@pytest.mark.faults
def test_a_task_that_comes_again_puts_nothing_twice(
    spark: SparkSession, kinesis: Kinesalite, tmp_path: Path
) -> None:
    make_stream(kinesis, "tasks", 1)
    one = stream_sink(kinesis, "tasks")
    lost = tmp_path / "lost"

    def once_lost(part: Iterable[Any]) -> Iterator[Any]:
        for number, each in enumerate(part):
            if number == 600 and not lost.exists():
                lost.touch()
                raise RuntimeError("the executor was lost")
            yield each

    batch = rows(spark, [row(n) for n in range(700)], parts=1)
    given: list[int] = []

    def again() -> DataFrame:
        given.append(1)
        return spark.createDataFrame(batch.rdd.mapPartitions(once_lost), batch.schema)

    done = one.write(again(), place(0, notes=tmp_path), none_refused, again)
    assert done.offered == 700
    assert 0 < done.written < 700
    assert len(given) == 2  # Spark had the task come again: the batch began again
    assert Counter(r["flight"] for r in records(kinesis, "tasks")) == Counter(range(700))


@pytest.mark.faults
@pytest.mark.slow
def test_a_request_whose_answer_is_lost_puts_nothing_twice(kinesis: Kinesalite) -> None:
    make_stream(kinesis, "answers", 2)
    with faulty_dynamodb_kinesis_proxy.before(kinesis.endpoint) as faults:
        faults.share, faults.kinds = 0.6, ("lost", "failed")
        tail = StreamTail("answers", REGION, faults.endpoint)
        writer = RecordWriter(tail.make_client(), Backoff("the stream", first=0.01), tail, 10_000, once=True)
        for n in range(1200):
            assert (
                list(
                    writer.add_and_yield_refused(
                        RowToSend(f"t/0/{n}", "t", None, None, None, json.dumps(identified(n)))
                    )
                )
                == []
            )
        assert list(writer.write_rest_and_yield_refused()) == []
        writer.close()
        assert faults.done["lost"]
    assert writer.written == 1200
    assert Counter(r["flight"] for r in records(kinesis, "answers")) == Counter(range(1200))


def identified(number: int) -> dict[str, Any]:
    return {"_source": "t", "_id": f"t/0/{number}", "flight": number}


def test_records_that_cannot_be_are_letters(spark: SparkSession, kinesis: Kinesalite) -> None:
    make_stream(kinesis, "strict", 1)
    one, refused = stream_sink(kinesis, "strict", key="carrier", most=2000), Refused()
    batch = [
        row(1),
        row(2, carrier="x" * 300),
        row(3, carrier=""),
        row(4, tags=["y" * 2000]),
        row(5, carrier=None),
    ]
    assert one.write(rows(spark, batch), place(0), refused) == WriteCounts(5, 2, 3)
    assert sorted((r["flight"], r["key"]) for r in records(kinesis, "strict")) == [
        (1, "ÄA"), (5, "flights-topic/0/5"),
    ]  # fmt: skip
    assert {why.split(" ")[1] + " " + why.split(" ")[2] for why in refused.reasons().values()} == {
        "partition key", "record has",
    }  # fmt: skip


def test_a_stream_that_is_not_there_stops_the_start(spark: SparkSession, kinesis: Kinesalite) -> None:
    schema = rows(spark, []).schema
    with pytest.raises(StartError, match=r"Kinesis stream nowhere: .*ResourceNotFound"):
        stream_sink(kinesis, "nowhere").prepare(spark, schema)
    with pytest.raises(StartError, match="is column colour, which the rows do not have"):
        stream_sink(kinesis, "again", key="colour").prepare(spark, schema)


@pytest.mark.slow
@pytest.mark.faults
def test_throttled_items_and_records_are_put_until_they_are_in(
    spark: SparkSession, dynamodb: str, kinesis: Kinesalite
) -> None:
    batch = rows(spark, [row(n) for n in range(500)])
    table = make_table(dynamodb, "busy", "_id", "_source")
    with faulty_dynamodb_kinesis_proxy.before(dynamodb) as faults:
        assert table_sink(faults.endpoint, "busy").write(batch, place(0), none_refused) == WriteCounts(
            500, 500
        )
        assert {"part", "refused", "failed", "cut", "passed"} <= faults.done.keys()
    assert sorted(i["flight"] for i in table.scan()["Items"]) == list(range(500))
    totals = make_table(dynamodb, "busy-totals", "_id")
    with faulty_dynamodb_kinesis_proxy.before(dynamodb) as faults:
        faults.kinds = ("refused", "failed", "cut", "lost")
        many = {f"{n:03}": n for n in range(300)}
        one = table_sink(faults.endpoint, "busy-totals")
        assert one.write(results(spark, many), place(1), none_refused) == WriteCounts(300, 300)
        assert one.write(results(spark, many), place(0), none_refused) == WriteCounts(300, 0)
        assert {"refused", "failed", "cut", "lost", "passed"} <= faults.done.keys()
    assert {i["carrier"]: int(i["flights"]) for i in totals.scan()["Items"]} == many
    make_stream(kinesis, "busy", 1)
    with faulty_dynamodb_kinesis_proxy.before(kinesis.endpoint) as faults:
        settings = KinesisSinkSettings("busy", REGION, None, 100_000)
        one = KinesisSink(settings, faults.endpoint)
        for number in range(2):
            part = rows(spark, [row(n) for n in range(number * 100, number * 100 + 100)], parts=6)
            assert one.write(part, place(number), none_refused) == WriteCounts(100, 100)
        assert faults.done["part"]
    assert {r["flight"] for r in records(kinesis, "busy")} == set(range(200))


class Killed(BaseException):
    """The end of a process, which no handler of errors catches."""


@pytest.mark.faults
def test_a_lane_stays_as_late_as_its_latest_record_after_a_kill_at_any_request(dynamodb: str) -> None:
    """A record replaces one of its lane that arrived later, is killed, and comes again; one of another lane arrived between."""
    histories = []
    for kill in range(1, 5):
        table = make_table(dynamodb, f"killed-{kill}", "_id")
        requests = count(1)

        def asked(wrapped: Any, kill: int = kill, requests: Iterator[int] = requests, **request: Any) -> Any:
            answer = wrapped(**request)
            if next(requests) == kill:
                raise Killed
            return answer

        form = RowToItemConverter.for_columns(
            StructType().add("_id", "string").add("n", "integer").add("_order", "string")
        )
        for n, (lane, time) in enumerate((("a", 10), ("a", 5), ("b", 7))):
            order = f"1{time:016}{lane * 16}{n:064}"
            text = json.dumps({"_id": "k", "n": n, "_order": order})
            record = RowToSend("k", None, None, None, None, text, order=order)
            for _ in range(2):  # a batch comes again
                client = aws_clients.make_client("dynamodb", REGION, dynamodb)
                client.put_item = partial(asked, client.put_item)
                writer = ResultWriter(client, Backoff("DynamoDB table killed"), table.name, form)
                with suppress(Killed):
                    list(writer.add_and_yield_refused(record))
                    assert list(writer.write_rest_and_yield_refused()) == []
                writer.close()
        histories.append([int(item["n"]) for item in table.scan()["Items"]])
    assert histories == [[1]] * 4


@pytest.mark.faults
@pytest.mark.parametrize("kind", [ItemWriter, ResultWriter])
def test_a_server_that_stays_busy_fails_the_batch_loudly(dynamodb: str, kind: type[ItemWriter]) -> None:
    """In one partition's writer, as tasks have it, by a clock that only its waits move: how often it tries is its own."""
    waits: list[float] = []
    backoff = Backoff(
        "DynamoDB table busy", first=1.0, longest=8.0, patience=60.0,
        sleep=waits.append, clock=lambda: sum(waits),
    )  # fmt: skip
    form = RowToItemConverter.for_columns(StructType().add("_id", "string"))
    record = RowToSend('{"carrier":"AA"}', None, None, None, None, '{"_id":"x"}')
    with faulty_dynamodb_kinesis_proxy.before(dynamodb) as faults:
        faults.share = 1.0
        client = aws_clients.make_client("dynamodb", REGION, faults.endpoint)
        writer = kind(client, backoff, "busy", form)
        assert list(writer.add_and_yield_refused(record)) == []
        with pytest.raises(SinkError, match=r"DynamoDB table busy: nothing could be written for .*slow down"):
            list(writer.write_rest_and_yield_refused())
        writer.close()
        # Waits of up to 1, 2, 4 and then 8 s, half of that at least, fill 60 s; a try comes before each, and after the last.
        assert 10 <= len(waits) <= 18
        assert faults.done["refused"] == len(waits) + 1
