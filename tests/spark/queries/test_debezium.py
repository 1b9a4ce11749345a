"""Rows of a real PostgreSQL, through Debezium and a broker, are those of the derived table.

Two sessions change rows at once while the connector makes its snapshots and is killed. The judges are PostgreSQL's own table, and of
the history what its triggers log.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats import schema_files
from millrace.etl.formats.changes import debezium as events
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests import debezium_connector, mysql, postgres, postgres_random_transactions
from tests.postgres_random_transactions import DDL, session, transactions
from tests.spark.queries import test_keyed_and_windowed_results
from tests.spark.source_batches import Events, frame, lander

Names = Callable[[str], Table]
Record = tuple[Any, ...]
TOPIC, PARTITIONS = "shop.public.orders", 3


@dataclass(frozen=True)
class Recording:
    """Messages, PostgreSQL's rows at the end, and each row's intervals from a time on, after the first snapshot."""

    records: list[Record]
    rows: list[list[str]]
    intervals: Mapping[int, list[postgres_random_transactions.Interval]]
    since: int


def commits(records: list[Record]) -> Iterator[list[Record]]:
    """Yield the records as they land: partitions apart from each other, and a tenth of all late."""
    choose = random.Random(1)
    late = [record for record in records if choose.random() < 0.1]
    there = {record[0] for record in late}
    queues = [
        [each for each in records if each[2] == str(shard) and each[0] not in there]
        for shard in range(PARTITIONS)
    ]
    while any(queues):
        portion = []
        for queue in queues:
            take = choose.choice((0, 200, 600))
            portion += queue[:take]
            del queue[:take]
        if portion:
            yield portion
    yield late


@dataclass
class Tape:
    """Messages of the topic as they arrive, as rows of a source."""

    consumer: Consumer
    database: postgres.Postgres | mysql.MySql
    records: list[Record] = field(default_factory=list)
    marks: int = 0

    def mark(self, *, last: bool = False) -> None:
        """Insert a row, and wait for its message, the last one of all messages to the end of each partition."""
        self.marks += 1
        code = f"mark-{self.marks}"
        self.database.run(f"insert into orders (id, code) values (-{self.marks}, '{code}')")  # noqa: S608 - a number
        until, seen = time.monotonic() + 120, False
        while not seen or (last and self.pending()):
            assert time.monotonic() < until, f"{len(self.records)} messages, and not {code}"
            for message in self.consumer.consume(1000, 0.5):
                assert message.error() is None
                seen |= code.encode() in (message.value() or b"")
                self.records.append(as_record(message))

    def pending(self) -> bool:
        """Check for messages that were not read yet."""
        places = self.consumer.position(self.consumer.assignment())
        return any(self.consumer.get_watermark_offsets(each)[1] > each.offset for each in places)


def as_record(message: Message) -> Record:
    """Return a message as a row of a source."""
    shard, offset = str(message.partition()), message.offset()
    at = datetime.fromtimestamp(message.timestamp()[1] / 1000, UTC)
    key, value = (part and bytearray(part) for part in (message.key(), message.value()))
    headers = [(name, None) for name, _ in message.headers() or ()]  # type: ignore[str-unpack]
    return f"{TOPIC}/{shard}/{offset}", "orders", shard, str(offset).zfill(20), key, headers, at, value


@pytest.fixture(scope="module")
def recorded(broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """What a connector that was killed twice has sent, and the database says."""
    for topic in (TOPIC, "shop.public.signals"):
        broker.create_topic(topic, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "tape"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    with postgres.running() as database, closing(consumer):
        database.stop()
        database.start(*postgres_random_transactions.SETTINGS)
        database.run(postgres_random_transactions.TABLE)
        session(database, "\n".join(transactions(9, 50)))
        settings = {
            "table.include.list": "public.orders,public.signals",
            "incremental.snapshot.chunk.size": "10",
        }
        connector = debezium_connector.Connector(
            tmp_path_factory.mktemp("connect"), broker.bootstrap, database, settings
        )
        tape, over, since = Tape(consumer, database), threading.Event(), 0

        def write(seed: int) -> None:
            part = 0
            while not over.wait(1.0):
                part += 1
                session(database, "\n".join(transactions(1000 * seed + part, 20)))

        writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
        with debezium_connector.running(connector):
            for writer in writers:
                writer.start()
            try:
                for number in range(2):
                    # The first may be a row of the first snapshot.
                    tape.mark()
                    tape.mark()
                    since = since or postgres_random_transactions.clock(database)
                    database.run(postgres_random_transactions.SNAPSHOT.format(number))
                    tape.mark()
                    if not number:
                        database.run("truncate orders")
                    connector.kill()
                    connector.start()
                tape.mark()
            finally:
                over.set()
                for writer in writers:
                    writer.join()
            # Rows that change behind the last snapshot, which heals what came before.
            session(database, "\n".join(transactions(30, 150)))
            tape.mark(last=True)
        rows = database.run(
            "select id, code, n, price, day, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US'), extract(epoch from seen)::text, "
            "encode(raw, 'hex'), md5(note) from orders order by id"
        )
        return Recording(tape.records, rows, postgres_random_transactions.logged(database), since)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", ["id", "code"])
def test_the_table_is_postgresqls(
    spark: SparkSession, table: Names, tmp_path: Path, recorded: Recording, key: str
) -> None:
    landing, out, history = table("landing"), table("latest"), table("history")
    decoder = ChangeDecoder(schema_files.parse_ddl_schema(spark, DDL, "test.ddl"), events.debezium_envelope())
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    for number, commit in enumerate(commits(recorded.records)):
        write(frame(spark, commit), number)
    for target in (out, history):
        named = {"latest_by": [key], "transform": None, "history": target is history}
        for dies in (1, None):
            test_keyed_and_windowed_results.played(
                spark,
                {**test_keyed_and_windowed_results.query(landing, target, "none"), **named},
                tmp_path / target.name,
                dies=dies,
            )
    landed = spark.table(str(landing))
    assert landed.where("_error IS NOT NULL").select("_error").distinct().collect() == []
    done = Counter(row[0] for row in landed.select(F.col("_change")["operation"]).collect())
    assert all(done[each] for each in ("insert", "update", "delete", "snapshot", "truncate", "control")), done
    assert shown(spark.table(str(out))) == recorded.rows
    assert len(recorded.rows) > 100
    versions = spark.table(str(history))
    assert shown(versions.where("_valid_to IS NULL")) == recorded.rows
    kept = postgres_random_transactions.kept(row.asDict() for row in versions.collect())
    assert postgres_random_transactions.differences(kept, recorded.intervals, recorded.since) == {}
    assert sum(map(len, kept.values())) > 1000


def shown(rows: DataFrame) -> list[list[str]]:
    """Values as PostgreSQL shows them."""
    text = rows.select(
        "id", "code", "n", "price", "day",
        F.date_format("at", "yyyy-MM-dd HH:mm:ss.SSSSSS").alias("at"),
        (F.unix_micros("seen").cast("decimal(20,0)") / 1_000_000).cast("decimal(20,6)").alias("seen"),
        F.lower(F.hex("raw")).alias("raw"), F.md5(F.col("note").cast("binary")).alias("note"),
    )  # fmt: skip
    return [["" if value is None else str(value) for value in row] for row in text.orderBy("id").collect()]
