"""The sandbox's Kinesis reader on Spark 4: each record in one batch, and exact replays."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from millrace.etl.launch import engine_interface_and_registry
from millrace.etl.launch.engine_interface_and_registry import KINESIS_IN_PYTHON
from millrace.etl.launch.sources import KinesisSource
from millrace.etl.sources.kinesis import connector_stream as reading
from millrace.etl.sources.kinesis.closed_shards import ShardPositions
from millrace.sandbox.programs.toolchain import installed_spark_line
from tests import kinesalite
from tests.faults.record_sender import aggregate
from tests.kinesalite import CREDENTIALS, REGION, Kinesalite

pytestmark = pytest.mark.skipif(
    installed_spark_line().is_default_line, reason="no data sources in Python before Spark 4"
)

_numbers = itertools.count()
SECONDS = 60.0


@pytest.fixture(scope="module")
def kinesis() -> Iterator[Kinesalite]:
    with kinesalite.running(name="reader-kinesalite") as server:
        yield server


@dataclass
class Reading:
    """A stream, a checkpoint, and what each batch held, each time it came."""

    spark: SparkSession
    server: Kinesalite
    checkpoint: Path
    source: KinesisSource
    batches: dict[int, list[list[tuple[str, bytes]]]] = field(default_factory=dict)
    sent: Counter[tuple[str, bytes]] = field(default_factory=Counter)
    query: StreamingQuery | None = None

    def put(self, count: int) -> None:
        entries = [{"Data": b"%d" % n, "PartitionKey": f"{n * 7919}"} for n in range(count)]
        client = self.server.client()
        for begin in range(0, count, 500):
            some = entries[begin : begin + 500]
            answer = client.put_records(StreamName=self.source.stream, Records=some)
            for entry, told in zip(some, answer["Records"], strict=True):
                self.sent[told["SequenceNumber"], entry["Data"]] += 1

    def split(self) -> None:
        client = self.server.client()
        shards = client.list_shards(StreamName=self.source.stream)["Shards"]
        shard = next(s for s in shards if "EndingSequenceNumber" not in s["SequenceNumberRange"])
        low, high = (int(shard["HashKeyRange"][k]) for k in ("StartingHashKey", "EndingHashKey"))
        client.split_shard(
            StreamName=self.source.stream,
            ShardToSplit=shard["ShardId"],
            NewStartingHashKey=str((low + high) // 2),
        )
        client.get_waiter("stream_exists").wait(StreamName=self.source.stream, WaiterConfig={"Delay": 1})

    def start(self, begun: bool = False) -> None:
        rows = reading.open_kinesis_stream(
            self.spark,
            self.source,
            engine=engine_interface_and_registry.engine_of("sandbox"),
            endpoint=self.server.endpoint,
            begun=begun,
        )

        def keep(batch: DataFrame, number: int) -> None:
            result = [
                (r["_position"], bytes(r["payload"])) for r in batch.select("_position", "payload").collect()
            ]
            # In one step: the test's thread looks at the batches meanwhile.
            self.batches[number] = [*self.batches.get(number, ()), sorted(result)]

        self.query = (
            rows.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(processingTime="100 milliseconds")
            .start()
        )

    def until(self, reached: Callable[[], bool]) -> None:
        assert self.query is not None
        for _ in range(int(SECONDS / 0.1)):
            if reached():
                return
            if not self.query.isActive:
                raise AssertionError(self.query.exception())
            self.query.awaitTermination(0.1)
        raise AssertionError(f"{self.held().total()} of {self.sent.total()} after {SECONDS:g} s")

    def stop(self) -> None:
        assert self.query is not None
        self.query.stop()

    def held(self) -> Counter[tuple[str, bytes]]:
        """Records of the batches, as they came last."""
        return Counter(record for times in list(self.batches.values()) for record in times[-1])

    def complete(self) -> bool:
        """Whether all is in batches, and the last of them is committed: one that was stopped before comes again."""
        return self.held() == self.sent and (self.checkpoint / "commits" / str(max(self.batches))).exists()

    def forget_last_commit(self) -> int:
        """As a driver leaves it that was killed between a batch and its commit."""
        last = max(
            int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()
        )
        for path in (self.checkpoint / "commits").glob(f"*{last}*"):
            if path.name.strip(".").removesuffix(".crc") == str(last):
                path.unlink()
        return last


@pytest.fixture
def stream(
    spark: SparkSession, kinesis: Kinesalite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Reading]]:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    made: list[Reading] = []

    def make(shards: int = 2, **changes: Any) -> Reading:
        name = f"reader-{next(_numbers)}"
        client = kinesis.client()
        client.create_stream(StreamName=name, ShardCount=shards)
        client.get_waiter("stream_exists").wait(StreamName=name, WaiterConfig={"Delay": 1})
        given = {"start": "earliest", "records_per_shard": 200, "fetch_seconds": 5.0, **changes}
        source = KinesisSource("flights", name, REGION, retention_seconds=86_400, **given)
        made.append(Reading(spark, kinesis, tmp_path / "checkpoint", source))
        return made[-1]

    yield make
    kinesis.throttle(0)
    for each in made:
        if each.query is not None:
            each.query.stop()


def test_each_record_is_in_one_batch_over_a_split_and_a_restart(stream: Callable[..., Reading]) -> None:
    read = stream()
    read.put(900)
    read.start()
    read.until(read.complete)
    read.split()
    read.put(300)
    read.until(read.complete)
    read.stop()
    read.split()
    read.put(300)
    read.start(begun=True)
    read.until(read.complete)
    assert all(len(times) == 1 for times in read.batches.values())
    # Two shards at first, of 200 records in a batch each at most.
    assert max(len(times[0]) for times in read.batches.values()) <= 4 * 200
    assert min(len(times[0]) for times in read.batches.values()) > 0
    log = [path for path in (read.checkpoint / "offsets").iterdir() if path.name.isdecimal()]
    assert all(ShardPositions.from_offset(_offset(path)).known for path in log)


def _offset(path: Path) -> Any:
    return json.loads(path.read_text().splitlines()[2])


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("first", [True, False])
def test_a_batch_that_was_not_committed_comes_again_with_the_same_records(
    first: bool, stream: Callable[..., Reading]
) -> None:
    read = stream(records_per_shard=10_000)
    read.put(500)
    read.start()
    read.until(read.complete)
    if not first:
        read.put(500)
        read.until(read.complete)
    read.stop()
    last = read.forget_last_commit()
    # The children of a split, and more in what was there, must not come into it.
    read.put(200)
    read.split()
    read.put(200)
    read.start(begun=True)
    read.until(read.complete)
    before, again = read.batches[last]
    assert before == again
    assert len(before) > 0


@pytest.mark.faults
@pytest.mark.slow
def test_throttled_reads_are_tried_again(kinesis: Kinesalite, stream: Callable[..., Reading]) -> None:
    read = stream()
    kinesis.throttle(0.4)
    read.put(600)
    read.start()
    read.until(read.complete)
    assert kinesis.count_refused_reads() > 0


@pytest.mark.slow
@pytest.mark.faults
def test_what_is_gone_when_a_batch_comes_again_ends_the_query(
    kinesis: Kinesalite, stream: Callable[..., Reading]
) -> None:
    read = stream()
    read.put(300)
    read.start()
    read.until(read.complete)
    read.stop()
    read.forget_last_commit()
    kinesis.set_clock(90_000)  # a stream keeps its records for a day
    try:
        read.put(10)
        read.start(begun=True)
        assert read.query is not None
        with pytest.raises(
            StreamingQueryException, match="are no longer in the stream, but were when the batch was planned"
        ):
            read.query.awaitTermination(SECONDS)
    finally:
        kinesis.set_clock(0)


def test_records_of_an_aggregate_and_their_columns(
    spark: SparkSession, kinesis: Kinesalite, stream: Callable[..., Reading]
) -> None:
    read = stream(shards=1)
    client = kinesis.client()
    packed = [("a", b"1"), ("b", b"2"), ("a", b"")]
    number = client.put_record(
        StreamName=read.source.stream, Data=aggregate(packed), PartitionKey="of the aggregate"
    )["SequenceNumber"]
    for _, data in packed:
        read.sent[number, data] += 1
    read.start()
    read.until(read.complete)
    rows = reading.open_kinesis_stream(
        spark,
        read.source,
        engine=engine_interface_and_registry.engine_of("sandbox"),
        endpoint=kinesis.endpoint,
        begun=False,
    )
    assert rows.isStreaming
    assert (
        engine_interface_and_registry.engine_of("sandbox").kinesis_format(spark.version) == KINESIS_IN_PYTHON
    )
