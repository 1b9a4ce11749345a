"""A database, its connector, and the table that is kept of it: PostgreSQL, Debezium and a broker, all real.

Two sessions change rows at once while the connector makes its snapshots and is killed. The judge is PostgreSQL's own table.
"""

# ruff: noqa: S608 - statements of a test

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats import schemas
from millrace.etl.formats.changes import debezium as events
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.sandbox.programs.kafka import Kafka
from tests import debezium, postgres
from tests.spark.batches import Events, frame, lander
from tests.spark.queries import test_order

Names = Callable[[str], Table]
Record = tuple[Any, ...]
TOPIC, PARTITIONS = "shop.public.orders", 3
TABLE = """
create table signals (id text primary key, type text, data text);
create table orders (
  id bigint primary key, code text not null, n int, price numeric(9,2), day date, at timestamp, seen timestamptz, raw bytea, note text
);
alter table orders replica identity full;
create unique index on orders (code);
"""
DDL = (
    "id BIGINT NOT NULL, code STRING NOT NULL, n INT, price DECIMAL(9,2), day DATE, "
    "at TIMESTAMP COMMENT 'epoch microseconds', seen TIMESTAMP, raw BINARY, note STRING"
)
SNAPSHOT = """
insert into signals values ('s{0}', 'execute-snapshot', '{{"data-collections": ["public.orders"], "type": "incremental"}}');
"""


def transactions(seed: int, number: int) -> Iterator[str]:
    """Yield statements that change some of 60 rows, keys too, in transactions of up to five changes."""
    choose = random.Random(seed)
    for place in range(number):
        yield "begin;"
        for nth in range(choose.randint(1, 5)):
            key, fate = choose.randrange(60), choose.random()
            code = f"'c{seed}-{place}-{nth}'"
            if fate < 0.35:
                values = (
                    f"{key}, {code}, {place}, {choose.randrange(-(10**6), 10**6)} / 100.0, "
                    f"date '1960-01-01' + {choose.randrange(40_000)}, timestamp '2024-02-29 23:59:59.123456' + interval '{place} s', "
                    f"now(), '\\x00ff{place % 256:02x}', repeat(md5('{place}'), {choose.choice((1, 300))})"
                )
                yield (
                    f"insert into orders values ({values}) on conflict (id) do update set code = excluded.code, n = excluded.n, "
                    "price = excluded.price, day = excluded.day, at = null;"
                )
            elif fate < 0.6:
                yield f"update orders set n = n + 1, code = {code} where id = {key};"
            elif fate < 0.75:
                # A change of the key; the row keeps its code.
                yield f"update orders set id = {100 + choose.randrange(60)} + {1000 * seed} where id = {key};"
            elif fate < 0.95:
                yield f"delete from orders where id in ({key}, {100 + key} + {1000 * seed});"
            else:
                yield f"update orders set note = null, price = null where id = {key};"
        yield choose.choice(("commit;", "commit;", "commit;", "rollback;"))


def session(database: postgres.Postgres, statements: str) -> None:
    """Run statements in a session of their own; of two that wait for each other, PostgreSQL ends one."""
    address = f"postgresql://{postgres.USER}@127.0.0.1:{database.port}/{postgres.DATABASE}"
    subprocess.run(
        [database.programs / "psql", "-Xq", address],
        input=statements,
        text=True,
        env={"PGPASSWORD": postgres.PASSWORD},
        capture_output=True,
        check=True,
    )


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
    database: postgres.Postgres
    records: list[Record] = field(default_factory=list)
    marks: int = 0

    def mark(self, *, last: bool = False) -> None:
        """Insert a row, and wait for its message, the last one of all messages to the end of each partition."""
        self.marks += 1
        code = f"mark-{self.marks}"
        self.database.run(f"insert into orders values (-{self.marks}, '{code}')")
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
    return f"{TOPIC}/{shard}/{offset}", "orders", shard, str(offset).zfill(20), key, None, at, value


@pytest.fixture(scope="module")
def recorded(broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Record], list[list[str]]]:
    """Messages of a connector that was killed twice, and PostgreSQL's rows at the end."""
    for topic in (TOPIC, "shop.public.signals"):
        broker.create_topic(topic, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "tape"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    with postgres.running() as database, closing(consumer):
        database.stop()
        database.start("wal_level=logical")
        database.run(TABLE)
        session(database, "\n".join(transactions(9, 50)))
        settings = {
            "table.include.list": "public.orders,public.signals",
            "incremental.snapshot.chunk.size": "10",
        }
        connector = debezium.Connector(
            tmp_path_factory.mktemp("connect"), broker.bootstrap, database, settings
        )
        tape, over = Tape(consumer, database), threading.Event()

        def write(seed: int) -> None:
            part = 0
            while not over.wait(1.0):
                part += 1
                session(database, "\n".join(transactions(1000 * seed + part, 20)))

        writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
        with debezium.running(connector):
            for writer in writers:
                writer.start()
            try:
                for number in range(2):
                    # The first may be a row of the first snapshot.
                    tape.mark()
                    tape.mark()
                    database.run(SNAPSHOT.format(number))
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
    return tape.records, rows


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", ["id", "code"])
def test_the_table_is_postgresqls(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    recorded: tuple[list[Record], list[list[str]]],
    key: str,
) -> None:
    records, expected = recorded
    landing, out = table("landing"), table("latest")
    decoder = ChangeDecoder(schemas.parse_schema(spark, DDL, "test.ddl"), events.events())
    write = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.ensure(spark, landing, land.table_schema(decoder.schema))
    what = {**test_order.query(landing, out, "none"), "latest_by": [key], "transform": None}
    for number, commit in enumerate(commits(records)):
        write(frame(spark, commit), number)
    for dies in (1, None):
        test_order.played(spark, what, tmp_path, dies=dies)
    landed = spark.table(str(landing))
    assert landed.where("_error IS NOT NULL").select("_error").distinct().collect() == []
    done = Counter(row[0] for row in landed.select(F.col("_change")["operation"]).collect())
    assert all(done[each] for each in ("insert", "update", "delete", "snapshot", "truncate", "control")), done
    assert shown(spark.table(str(out))) == expected
    assert len(expected) > 100


def shown(rows: DataFrame) -> list[list[str]]:
    """Values as PostgreSQL shows them."""
    text = rows.select(
        "id", "code", "n", "price", "day",
        F.date_format("at", "yyyy-MM-dd HH:mm:ss.SSSSSS").alias("at"),
        (F.unix_micros("seen").cast("decimal(20,0)") / 1_000_000).cast("decimal(20,6)").alias("seen"),
        F.lower(F.hex("raw")).alias("raw"), F.md5(F.col("note").cast("binary")).alias("note"),
    )  # fmt: skip
    return [["" if value is None else str(value) for value in row] for row in text.orderBy("id").collect()]
