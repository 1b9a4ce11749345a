"""PostgreSQL sink on a real server: each row once after replays, failures and refusals."""

from __future__ import annotations

import hashlib
import socket
import threading
import time
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.etl.launch.sinks import JdbcSinkSettings
from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.services.backoff import Backoff
from millrace.etl.sinks import jdbc
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.delivery import postgres_session
from millrace.etl.sinks.delivery.python_task_writes import RowsCountedInPlan
from millrace.etl.sinks.jdbc import JdbcSink
from tests import postgres
from tests.postgres import Postgres
from tests.spark.sink_input_rows import Refused, breaking, changes, none_refused, place, results, row, rows

SECRET = "arn:aws:secretsmanager:us-east-1:111122223333:secret:db-AbCdEf"
LOGIN = ("writer", "writer's own")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as running:
        running.run(
            "CREATE ROLE writer LOGIN PASSWORD 'writer''s own'; CREATE SCHEMA shop AUTHORIZATION writer"
        )
        yield running


def sink(server: Postgres, table: str) -> JdbcSink:
    settings = JdbcSinkSettings(server.url, f"shop.{table}", SECRET, "us-east-1", 2, "off")
    return JdbcSink(settings, lambda: LOGIN)


def flights(server: Postgres, table: str) -> list[int]:
    return [int(n) for (n,) in server.run(f"SELECT flight FROM shop.{table} ORDER BY flight")]  # noqa: S608


def test_types_are_postgres_own_and_a_replay_writes_nothing(spark: SparkSession, server: Postgres) -> None:
    batch = rows(spark, [row(n) for n in range(1, 5)])
    one = sink(server, "typed")
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused) == WriteCounts(4, 4)
    assert one.write(batch, place(0), none_refused) == WriteCounts(4, 0)
    kinds = dict(
        server.run(
            "SELECT column_name, udt_name FROM information_schema.columns WHERE table_name = 'typed' ORDER BY 1"
        )
    )
    assert kinds == {
        "_id": "text", "_source": "text", "_arrived_at": "timestamptz", "_landed_at": "timestamptz",
        "carrier": "text", "flight": "int4", "miles": "int8", "delay": "float8", "price": "numeric",
        "late": "bool", "gate": "int2", "day": "date", "at": "timestamptz", "raw": "bytea", "tags": "jsonb",
        "seat": "jsonb",
    }  # fmt: skip
    result = server.run(
        "SET timezone = 'UTC'; SELECT carrier, miles, delay, price, late, gate, day, at, raw, tags->>1, "
        "seat->>'letter' FROM shop.typed WHERE flight = 3"
    )
    assert result == [
        ["ÄA", "1099511627779", "0.75", "3.25", "t", "3", "2026-01-01", "2026-01-01 12:00:03.123456+00",
         "\\x00ff", "b", "C"]
    ]  # fmt: skip


@pytest.mark.faults
def test_a_batch_that_breaks_leaves_nothing_and_comes_again(spark: SparkSession, server: Postgres) -> None:
    batch = rows(spark, [row(n) for n in range(20)], parts=4)
    one = sink(server, "broken")
    one.prepare(spark, batch.schema)
    with pytest.raises(Exception, match="the executor was lost"):
        one.write(breaking(batch, 19), place(0), none_refused)
    assert int(server.run("SELECT count(*) FROM shop.broken_millrace")[0][0]) > 0  # some of it was staged
    assert flights(server, "broken") == []
    assert one.write(batch, place(0), none_refused) == WriteCounts(20, 20)
    assert flights(server, "broken") == list(range(20))


@pytest.mark.faults
def test_a_server_that_accepts_and_is_silent_is_no_longer_wait_than_one_that_is_away(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdbc, "START_SECONDS", 0.5)
    monkeypatch.setattr(postgres_session, "LOGIN_SECONDS", 1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        threading.Timer(20, silent.close).start()
        settings = JdbcSinkSettings(
            f"jdbc:postgresql://127.0.0.1:{silent.getsockname()[1]}/postgres",
            "shop.t",
            SECRET,
            "us-east-1",
            2,
            "off",
        )
        with pytest.raises(StartError, match=r"nothing could be written for 1 s, in [1-9] tries"):
            JdbcSink(settings, lambda: LOGIN).prepare(spark, rows(spark, [row(1)]).schema)


def test_a_reset_checkpoint_neither_skips_nor_doubles(spark: SparkSession, server: Postgres) -> None:
    one = sink(server, "reset")
    first = rows(spark, [row(n) for n in range(4)])
    one.prepare(spark, first.schema)
    one.write(first, place(0), none_refused)
    again = sink(server, "reset")
    again.prepare(spark, first.schema)
    batch = rows(spark, [row(n) for n in range(2, 7)])
    assert again.write(batch, place(0, "run-2"), none_refused) == WriteCounts(5, 3)
    assert flights(server, "reset") == list(range(7))


def test_rows_that_the_table_refuses_are_letters_and_the_others_are_in(
    spark: SparkSession, server: Postgres
) -> None:
    columns = ", ".join(
        f"{c} {k}"
        for c, k in {
            "_id": "text", "_source": "varchar(40)", "_arrived_at": "timestamptz", "_landed_at": "timestamptz",
            "carrier": "varchar(4) NOT NULL", "flight": "int CHECK (flight <> 3)", "miles": "int8",
            "delay": "numeric", "price": "numeric(4,2)", "late": "bool", "gate": "int", "day": "date",
            "at": "timestamptz", "raw": "bytea", "tags": "jsonb", "seat": "json",
            "note": "text DEFAULT 'x' NOT NULL",
        }.items()
    )  # fmt: skip
    server.run(f"SET ROLE writer; CREATE TABLE shop.strict ({columns}, UNIQUE (_source, _id))")
    records = [row(1), row(2, carrier="12345"), row(3), row(4, price=Decimal(1000)), row(5, carrier=None)]
    batch = rows(spark, [*records, row(6, carrier="a\x00b"), row(7)])
    one, refused = sink(server, "strict"), Refused()
    one.prepare(spark, batch.schema)
    for new in (2, 0):
        refused.letters.clear()
        assert one.write(batch, place(0), refused) == WriteCounts(7, new, 5)
        assert {i.rsplit("/", 1)[1]: e.split(":")[0] for i, e in refused.reasons().items()} == {
            "2": "22001", "3": "23514", "4": "22003", "5": "23502", "6": "carrier holds a NUL character",
        }  # fmt: skip
    assert refused.fields("flights-topic/0/3")["seat"] == {"row": 3, "letter": "C"}
    assert refused.fields("flights-topic/0/6")["carrier"] == "a\x00b"
    assert flights(server, "strict") == [1, 7]


def test_a_row_without_identity_is_a_letter_and_so_is_one_with_a_dotted_column(
    spark: SparkSession, server: Postgres
) -> None:
    batch = rows(spark, [row(n, _id=None if n == 2 else f"t/0/{n}") for n in range(1, 5)])
    batch = batch.withColumnRenamed("gate", "at.gate")
    one, refused = sink(server, "nameless"), Refused()
    one.prepare(spark, batch.schema)
    server.run("ALTER TABLE shop.nameless ADD CHECK (flight <> 3)")
    assert one.write(batch, place(0), refused) == WriteCounts(4, 2, 2)
    assert flights(server, "nameless") == [1, 4]
    assert refused.fields("t/0/3")["at.gate"] == 3
    assert "row without _source or without _id" in refused.reasons()[None]  # type: ignore[index]


@pytest.mark.slow
def test_a_value_too_long_for_an_index_is_a_letter(spark: SparkSession, server: Postgres) -> None:
    # Bytes that do not compress, of more than a page of the index holds.
    batch = rows(spark, [row(1), row(2, raw=bytearray(hashlib.shake_128(b"").digest(9000))), row(3)])
    one, refused = sink(server, "indexed"), Refused()
    one.prepare(spark, batch.schema)
    server.run("CREATE INDEX ON shop.indexed (raw)")
    assert one.write(batch, place(0), refused) == WriteCounts(3, 2, 1)
    assert {i: e[:5] for i, e in refused.reasons().items()} == {"flights-topic/0/2": "54000"}
    assert flights(server, "indexed") == [1, 3]


@pytest.mark.slow
@pytest.mark.faults
def test_a_second_run_that_empties_staging_makes_the_first_fail(
    spark: SparkSession, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, batch = sink(server, "two"), rows(spark, [row(n) for n in range(3)])
    one.prepare(spark, batch.schema)
    stage = JdbcSink._stage_rows

    def and_another(self: JdbcSink, *staged: Any) -> None:
        stage(self, *staged)
        server.run(
            "CREATE TEMP TABLE held AS TABLE shop.two_millrace; TRUNCATE shop.two_millrace; "
            "UPDATE held SET _attempt = 'another'; INSERT INTO shop.two_millrace TABLE held"
        )

    with monkeypatch.context() as patch:
        patch.setattr(JdbcSink, "_stage_rows", and_another)
        with pytest.raises(SinkError, match="3 rows were written to the staging table, but it has only 0"):
            one.write(batch, place(0), none_refused)
    assert flights(server, "two") == []
    assert one.write(batch, place(0), none_refused) == WriteCounts(3, 3)


def test_a_later_result_takes_the_place_of_an_earlier_one(spark: SparkSession, server: Postgres) -> None:
    batch = results(spark, {"AA": 1, "UA": 2})
    one = sink(server, "totals")
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0), none_refused) == WriteCounts(2, 2)
    counted = RowsCountedInPlan((F.count(F.lit(1)).alias("read"),))
    done = one.write(counted.observe(results(spark, {"AA": 5})), place(1), none_refused)
    assert done == WriteCounts(1, 1)
    assert done.ran is not None
    assert counted.values_after_action(done.ran) == {"read": 1}  # although the batch is held
    assert server.run("SELECT carrier, flights FROM shop.totals ORDER BY 1") == [["AA", "5"], ["UA", "2"]]


@pytest.mark.slow
@pytest.mark.faults
def test_two_results_of_a_batch_with_one_key_are_told(spark: SparkSession, server: Postgres) -> None:
    one, batch = sink(server, "twofold"), results(spark, {"AA": 1, "BB": 2})
    one.prepare(spark, batch.schema)
    with pytest.raises(
        SinkError, match="two results of one batch have the same key; the key must name every column"
    ):
        one.write(batch.union(results(spark, {"AA": 3})), place(0), none_refused)
    assert one.write(batch, place(0), none_refused) == WriteCounts(2, 2)


def test_results_of_an_older_batch_do_not_win_in_a_database(spark: SparkSession, server: Postgres) -> None:
    one = sink(server, "versions")
    one.prepare(spark, results(spark, {}).schema)

    def counts() -> list[list[str]]:
        return server.run("SELECT carrier, flights FROM shop.versions ORDER BY 1")

    assert one.write(results(spark, {"AA": 6, "UA": 6}), place(6), none_refused) == WriteCounts(2, 2)
    assert one.write(results(spark, {"AA": 7}), place(7), none_refused) == WriteCounts(1, 1)
    # What a driver that was cut off still writes; all of it was written before batch 7 was planned.
    cut_off = sink(server, "versions")
    assert cut_off.write(results(spark, {"AA": 6, "UA": 6}), place(6), none_refused) == WriteCounts(2, 0)
    assert counts() == [["AA", "7"], ["UA", "6"]]
    assert one.write(results(spark, {"AA": 7}), place(7), none_refused) == WriteCounts(1, 1)
    # A reset checkpoint counts its batches again, and what it reads again comes to other results.
    again = sink(server, "versions")
    again.prepare(spark, results(spark, {}).schema)
    assert again.write(results(spark, {"AA": 5}), place(0, "run-2", created=2), none_refused) == WriteCounts(
        1, 1
    )
    assert cut_off.write(results(spark, {"AA": 8}), place(8), none_refused) == WriteCounts(1, 0)
    assert counts() == [["AA", "5"], ["UA", "6"]]


@pytest.mark.slow
def test_a_result_that_is_deleted_is_gone_and_may_come_back(spark: SparkSession, server: Postgres) -> None:
    one = sink(server, "deleted")
    one.prepare(spark, changes(spark, {}).schema)

    def counts() -> list[list[str]]:
        return server.run("SELECT carrier, flights FROM shop.deleted ORDER BY 1")

    assert one.write(changes(spark, {"AA": 1, "UA": 2, "DL": 3}), place(0), none_refused) == WriteCounts(3, 3)
    # One of the two that are to be deleted is not there: a duplicate.
    deleting = {"AA": None, "ZZ": None, "UA": 4}
    assert one.write(changes(spark, deleting), place(1), none_refused) == WriteCounts(3, 2)
    assert counts() == [["DL", "3"], ["UA", "4"]]
    assert one.write(changes(spark, deleting), place(1), none_refused) == WriteCounts(3, 1)
    cut_off = sink(server, "deleted")
    assert cut_off.write(changes(spark, {"AA": 1}), place(0), none_refused) == WriteCounts(1, 0)
    assert counts() == [["DL", "3"], ["UA", "4"]]
    assert one.write(changes(spark, {"AA": 9}), place(2), none_refused) == WriteCounts(1, 1)
    assert counts() == [["AA", "9"], ["DL", "3"], ["UA", "4"]]


@pytest.mark.slow
@pytest.mark.faults
def test_what_a_database_does_not_let_go_is_a_letter_and_the_others_are_in(
    spark: SparkSession, server: Postgres
) -> None:
    one, refused = sink(server, "held"), Refused()
    one.prepare(spark, changes(spark, {}).schema)
    one.write(changes(spark, {"AA": 1, "UA": 2}), place(0), none_refused)
    server.run("CREATE TABLE shop.holds (id text REFERENCES shop.held(_id))")
    server.run("""INSERT INTO shop.holds VALUES ('{"carrier": "AA"}')""")
    done = one.write(changes(spark, {"AA": None, "UA": None, "DL": 3}), place(1), refused)
    assert done == WriteCounts(3, 2, 1)
    (letter,) = refused.letters
    assert "violates foreign key" in letter["_error"]
    assert refused.fields('{"carrier": "AA"}')["_deleted"] is True
    assert server.run("SELECT carrier FROM shop.held ORDER BY 1") == [["AA"], ["DL"]]


@pytest.mark.faults
def test_a_value_that_a_row_of_the_batch_gives_up_is_free_also_beside_a_refused_row(
    spark: SparkSession, server: Postgres
) -> None:
    one, refused = sink(server, "taken"), Refused()
    one.prepare(spark, changes(spark, {}).schema)
    server.run("ALTER TABLE shop.taken ADD UNIQUE (flights), ADD CHECK (flights < 100)")
    one.write(changes(spark, {"ZZ": 1, "YY": 2}), place(0), none_refused)
    batch = changes(spark, {"ZZ": None, "AA": 1, "YY": 3, "BB": 2, "CC": 200})
    assert one.write(batch, place(1), refused) == WriteCounts(5, 4, 1)
    assert "violates check constraint" in refused.letters[0]["_error"]
    assert server.run("SELECT carrier, flights FROM shop.taken ORDER BY 1") == [
        ["AA", "1"],
        ["BB", "2"],
        ["YY", "3"],
    ]


@pytest.mark.faults
def test_a_row_that_breaks_a_deferred_constraint_is_a_letter(spark: SparkSession, server: Postgres) -> None:
    one, refused = sink(server, "deferred"), Refused()
    one.prepare(spark, changes(spark, {}).schema)
    server.run(
        "CREATE TABLE shop.carriers (carrier text PRIMARY KEY); INSERT INTO shop.carriers VALUES ('AA'); "
        "ALTER TABLE shop.deferred ADD FOREIGN KEY (carrier) REFERENCES shop.carriers DEFERRABLE INITIALLY DEFERRED"
    )
    assert one.write(changes(spark, {"AA": 1, "UA": 2}), place(0), refused) == WriteCounts(2, 1, 1)
    assert "violates foreign key" in refused.letters[0]["_error"]
    assert server.run("SELECT carrier FROM shop.deferred") == [["AA"]]


def test_a_table_that_does_not_fit_is_refused_at_the_start(spark: SparkSession, server: Postgres) -> None:
    server.run(
        "SET ROLE writer; CREATE TABLE shop.other (_id text, carrier int, flights date, owner text NOT NULL)"
    )
    with pytest.raises(StartError) as caught:
        sink(server, "other").prepare(spark, results(spark, {}).schema)
    assert str(caught.value) == (
        "PostgreSQL table shop.other: its column owner is NOT NULL without a default, and the query does not fill it; it "
        "has no unique key on _id; its column flights is pg_catalog.date: integer cannot be cast to it and back; alter the "
        "table, or name another one"
    )
    wrong = JdbcSinkSettings(server.url, "shop.other", SECRET, "us-east-1", 2, "off")
    with pytest.raises(StartError, match="password authentication failed"):
        JdbcSink(wrong, lambda: ("writer", "wrong")).prepare(spark, results(spark, {}).schema)


@pytest.mark.slow
@pytest.mark.faults
def test_a_server_that_is_full_or_restarts_is_waited_for(
    spark: SparkSession, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[str] = []
    wait = Backoff.wait
    monkeypatch.setattr(
        Backoff, "wait", lambda self, reason: (waits.append(reason[:5]), wait(self, reason))[1]
    )
    batch = rows(spark, [row(n) for n in range(10)])
    one = sink(server, "busy")
    one.prepare(spark, batch.schema)
    server.run("ALTER ROLE writer CONNECTION LIMIT 0")
    threading.Timer(0.5, server.run, ["ALTER ROLE writer CONNECTION LIMIT -1"]).start()
    assert one.write(batch, place(0), none_refused) == WriteCounts(10, 10)
    assert "53300" in waits
    waits.clear()
    server.stop()
    threading.Timer(0.5, server.start).start()
    assert one.write(batch, place(0), none_refused) == WriteCounts(10, 0)
    assert {"08001"} & set(waits)


@pytest.mark.slow
@pytest.mark.faults
def test_a_server_that_stays_away_fails_the_batch_loudly(
    spark: SparkSession, server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jdbc, "Backoff", lambda what, **_: Backoff(what, patience=0.3))
    batch = rows(spark, [row(1)])
    one = sink(server, "away")
    one.prepare(spark, batch.schema)
    server.run("ALTER ROLE writer CONNECTION LIMIT 0")
    begun = time.monotonic()
    with pytest.raises(SinkError, match=r"nothing could be written for .* too many connections"):
        one.write(batch, place(0), none_refused)
    assert time.monotonic() - begun < 10
    server.run("ALTER ROLE writer CONNECTION LIMIT -1")
    assert flights(server, "away") == []
