"""MySQL, its connector, and the table that is kept of it: as :mod:`tests.spark.queries.test_debezium`, with GTIDs and several binlog files."""

# ruff: noqa: S608 - statements of a test

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats import schemas
from millrace.etl.formats.changes import debezium as events
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.sandbox.programs.kafka import Kafka
from tests import changed_orders, debezium, mysql
from tests.changed_orders import DDL
from tests.spark.batches import Events, frame, lander
from tests.spark.queries import test_order
from tests.spark.queries.test_debezium import PARTITIONS, Names, Recording, Tape, commits, shown

TOPIC = "shop.shop.orders"
TABLES = (
    "create table signals (id varchar(42) primary key, type varchar(32), data varchar(2048))",
    "create table orders (id bigint primary key, code varchar(60) not null unique, n int, price decimal(9,2), day date, at datetime(6), "
    "seen timestamp(6) null, raw varbinary(9), note mediumtext)",
)
ROWS = (
    "select id, code, n, price, day, date_format(at, '%Y-%m-%d %H:%i:%s.%f'), cast(unix_timestamp(seen) as decimal(20,6)), "
    "lower(hex(raw)), md5(note) from orders order by id"
)


def transactions(seed: int, number: int, keys: int = 40) -> Iterator[list[str]]:
    """Yield the statements of transactions, and how each ends."""
    choose = random.Random(seed)
    for place in range(number):
        made = []
        for nth in range(choose.randint(1, 5)):
            key, fate, code = choose.randrange(keys), choose.random(), f"'c{seed}-{place}-{nth}'"
            if fate < 0.4:
                price, day = choose.randrange(-(10**6), 10**6), choose.randrange(40_000)
                values = f"{key}, {code}, {place}, {price} / 100, date '1960-01-01' + interval {day} day"
                values += f", '2024-02-29 23:59:59.123456', now(6), x'00ff{place % 256:02x}', repeat(md5({place}), {choose.choice((1, 300))})"
                made.append(
                    f"insert into orders values ({values}) on duplicate key update code = {code}, n = n + 1, at = null"
                )
            elif fate < 0.6:
                made.append(f"update orders set n = n + 1, code = {code} where id = {key}")
            elif fate < 0.75:
                made.append(
                    f"update orders set id = {100 + choose.randrange(keys) + 10 * keys * seed} where id = {key}"
                )
            elif fate < 0.95:
                made.append(f"delete from orders where id in ({key}, {100 + key + 10 * keys * seed})")
            else:
                made.append(f"update orders set note = null, price = null where n % 7 = {place % 7}")
        yield [*made, choose.choice(("commit", "commit", "commit", "rollback"))]


def write(database: mysql.MySql, seed: int, number: int) -> None:
    """Run transactions in a session of their own; of two that wait for each other, MySQL ends one."""
    with closing(database.connect()) as connection:
        connection.setAutoCommit(False)
        for statements in transactions(seed, number):
            with suppress(Py4JJavaError):
                for each in statements:
                    connection.createStatement().execute(each)
            connection.rollback()


@pytest.fixture(scope="module")
def recorded(spark: SparkSession, broker: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """What a connector that was killed twice has sent, and the database says."""
    for topic in (TOPIC, "shop.shop.signals"):
        broker.create_topic(topic, PARTITIONS)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "tape-mysql"})
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    with mysql.running(spark) as database, closing(consumer):
        for each in TABLES:
            database.run(each)
        write(database, 9, 50)
        settings = {"table.include.list": "shop.orders,shop.signals", "incremental.snapshot.chunk.size": "10"}
        connector = debezium.Connector(
            tmp_path_factory.mktemp("connect"), broker.bootstrap, database, settings
        )
        tape, over = Tape(consumer, database), threading.Event()

        def go_on(seed: int) -> None:
            part = 0
            while not over.wait(1.0):
                part += 1
                write(database, 1000 * seed + part, 20)

        writers = [threading.Thread(target=go_on, args=(seed,)) for seed in (1, 2)]
        with debezium.running(connector):
            for writer in writers:
                writer.start()
            try:
                for number in range(2):
                    tape.mark()
                    database.run(
                        changed_orders.SNAPSHOT.replace("public.", "shop.").format(number).strip().rstrip(";")
                    )
                    tape.mark()
                    database.run("truncate table orders" if not number else "flush binary logs")
                    connector.kill()
                    connector.start()
                tape.mark()
            finally:
                over.set()
                for writer in writers:
                    writer.join()
            # Rows that change behind the last snapshot, which heals what came before.
            write(database, 30, 150)
            tape.mark(last=True)
        return Recording(tape.records, database.run(ROWS), {}, 0)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("key", ["id", "code"])
def test_the_table_is_mysqls(
    spark: SparkSession, table: Names, tmp_path: Path, recorded: Recording, key: str
) -> None:
    landing, out = table("landing"), table("latest")
    decoder = ChangeDecoder(schemas.parse_schema(spark, DDL, "test.ddl"), events.events())
    land_batch = replace(lander(spark, landing, Events(), ddl=DDL), decoder=decoder)
    tables.ensure(spark, landing, land.table_schema(decoder.schema))
    for number, commit in enumerate(commits(recorded.records)):
        land_batch(frame(spark, commit), number)
    for dies in (1, None):
        what = {**test_order.query(landing, out, "none"), "latest_by": [key], "transform": None}
        test_order.played(spark, what, tmp_path, dies=dies)
    landed = spark.table(str(landing))
    assert landed.where("_error IS NOT NULL").select("_error").distinct().collect() == []
    done = Counter(row[0] for row in landed.select(F.col("_change")["operation"]).collect())
    assert all(done[each] for each in ("insert", "update", "delete", "snapshot", "truncate", "control")), done
    # The lane is the origin of the transactions.
    lanes = {row[0] for row in landed.select(F.col("_change")["lane"]).distinct().collect() if row[0]}
    assert any(len(each.split("/")[2]) == 36 for each in lanes), lanes
    assert shown(spark.table(str(out))) == recorded.rows
    assert len(recorded.rows) > 40
