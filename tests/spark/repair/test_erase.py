"""An erasure removes all rows of a person, loses or doubles no others, and stops no query."""

from __future__ import annotations

import json
import re
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.job import maintenance_schedule
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.maintenance.table_maintenance import (
    DeadLetterRetention,
    call_iceberg_procedure,
    sql_timestamp,
)
from millrace.etl.record import tables
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.repair import erase_in_running_job
from millrace.etl.repair.erase_condition import ErasureCondition, ErasureConditionError
from millrace.etl.repair.erase_old_snapshots import (
    expire_before_mark_and_count_files,
    remove_rest_and_commit_erasure_mark,
    snapshot_id_of_newest_mark,
)
from millrace.etl.repair.erase_targets import ErasureTarget
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.base import LETTER
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.spark.erasure_shop import DDL, WHERE, ZOE, Shop, of_zoe, order
from tests.spark.maintained_table import Names, snapshots
from tests.spark.sink_input_rows import none_refused
from tests.spark.source_batches import Events, log_offsets

BROKEN = f'{{"customer": "{ZOE}", "amount": '.encode()
NEIGHBOUR = b'{"customer": "my-zoe@example.org", "amount": '


def others(count: int) -> list[int]:
    return [n for n in range(count) if n % 5]


@pytest.mark.slow
def test_a_reader_that_is_behind_a_kill_and_a_batch_that_comes_again(
    spark: SparkSession, table: Names, warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Shop(spark, table, tmp_path)
    folders = [warehouse / "tests" / t.name for t in (shop.landing, shop.sink)]
    shop.land([order(n) for n in range(10)])
    shop.land([BROKEN, NEIGHBOUR])
    shop.derive()
    # Landed, and not read by the derive query yet; the last batch was killed before Spark noted it.
    shop.land([order(n) for n in range(10, 20)])
    shop.land([order(n) for n in range(20, 25)], commit=False)

    shop.ask(apply=False)
    seen = shop.step()
    assert seen["state"] == "previewed"
    landing, sink = (seen["tables"][str(t)] for t in (shop.landing, shop.sink))
    assert (landing["rows"], landing["dead_letters"], landing["of"]) == (5, 1, 27)
    # Its column has another name: the rows are known by the identity of the records they were made of.
    assert (sink["rows"], sink["of"]) == (2, 10)
    assert 0 < sink["files"] <= 2
    assert all(of_zoe(folder) for folder in folders)
    assert shop.amounts(shop.landing) == list(range(25))

    shop.ask(apply=True)
    told = shop.step()
    assert told["state"] == "running"
    assert "has yet to commit batch 3" in told["waiting"][0]
    assert "is not erased yet" in told["waiting"][1]
    assert shop.amounts(shop.landing) == others(25)
    # The batch comes again: what it brings is there, or was erased.
    shop.lander = shop.new_lander()
    shop.lander(shop.rows([order(n) for n in range(20, 25)], 22), 3)
    shop.commit(3)
    assert spark.table(str(shop.landing)).count() == 27
    told = shop.step()
    # The query that is behind must read on from where it was.
    assert all("has yet to read past snapshot" in line for line in told["waiting"])
    assert shop.amounts(shop.sink) == list(range(10))
    shop.derive()
    # What was erased is in states that it had yet to read: it writes those rows, and they go after it.
    assert shop.amounts(shop.sink) == list(range(25))

    def killed(*_: Any) -> int:
        raise OSError("killed")

    monkeypatch.setattr(erase_in_running_job, "expire_before_mark_and_count_files", killed)
    with pytest.raises(OSError, match="killed"):
        shop.step()
    monkeypatch.undo()
    told = shop.step()
    assert (told["state"], told["waiting"]) == ("done", [])
    assert [told["tables"][str(t)]["rows"] for t in (shop.landing, shop.sink)] == [6, 5]
    assert [of_zoe(folder) for folder in folders] == [[], []]
    assert not (tmp_path / "_millrace" / "erase" / "request.json").exists()
    erase_in_running_job.ErasureTask(shop.job, shop.events.reporter)(spark)  # has nothing to do

    # Nor does a record land again when the checkpoint is put back to where the topic begins.
    rewound = tmp_path / "rewound"
    log_offsets(rewound, 0, {"flights-topic": {"0": 27}})
    shop.new_lander(rewound)(
        shop.rows([*map(order, range(10)), BROKEN, NEIGHBOUR, *map(order, range(10, 25))], 0), 0
    )
    # Streams continue, and everybody else's orders are there once.
    shop.next_batch, shop.next_offset = 4, 27
    shop.land([order(n) for n in range(25, 30) if n % 5])
    shop.derive()
    wanted = [n for n in range(30) if n % 5]
    assert (shop.amounts(shop.landing), shop.amounts(shop.sink)) == (wanted, wanted)
    kept = spark.table(str(shop.landing)).where("_stage = 'erased'")
    assert kept.count() == 6
    empty = [c for c in kept.columns if kept.where(f"`{c}` IS NOT NULL").isEmpty()]
    assert {"_key", "_headers", "_bytes", "_hash", "customer", "amount"} == set(empty)
    (letter,) = spark.table(str(shop.landing)).where("_error IS NOT NULL AND _stage <> 'erased'").collect()
    assert bytes(letter["_bytes"]) == NEIGHBOUR
    # An empty row is no dead letter: none is replayed, and retention, which takes the letter, leaves it.
    decoder = JsonDecoder(parse_ddl_schema(spark, DDL, "t.ddl"))
    DeadLetterReplayer("land-orders", shop.landing, shop.events.reporter, "flights", decoder)(
        spark, ReplayRequest("land-orders")
    )
    assert shop.events.last()["letters"] == 1
    DeadLetterRetention(table=shop.landing, keep=timedelta(0), report=shop.events.reporter)(spark)
    errors = spark.table(str(shop.landing)).where("_error IS NOT NULL")
    assert [r["_stage"] for r in errors.select("_stage").distinct().collect()] == ["erased"]

    (record,) = (warehouse / "tests" / "_erasures" / "shop").glob("e1.json")
    result = json.loads(record.read_text())
    assert (result["by"], "condition" in result, len(result["condition_sha256"])) == ("me", False, 64)
    assert result["tables"][str(shop.landing)]["snapshots"]
    assert snapshots(spark, shop.sink) < 8


@pytest.mark.slow  # the steps of an erasure one by one, with a reader behind, are above
def test_beside_a_stream_that_lands_and_one_that_derives(
    spark: SparkSession, table: Names, warehouse: Path, tmp_path: Path
) -> None:
    shop = Shop(spark, table, tmp_path)
    shop.land([order(n) for n in range(5)])
    failed: list[BaseException] = []

    def land() -> None:
        try:
            for first in range(5, 30, 5):
                # From the second batch on she orders no more, so that what is left of her was there before.
                amy = "amy@example.org" if first > 5 else None
                shop.land([order(n, None if n % 5 else amy) for n in range(first, first + 5)])
        except BaseException as error:
            failed.append(error)

    query = shop.stream()
    landing = threading.Thread(target=land)
    try:
        shop.ask(apply=True)
        landing.start()
        for _ in range(60):
            told = shop.step()
            if told["state"] == "done" and not landing.is_alive():
                break
        landing.join()
        query.processAllAvailable()
        assert query.exception() is None
    finally:
        landing.join()
        query.stop()
    assert (failed, told["state"]) == ([], "done")
    if of_zoe(warehouse / "tests" / shop.landing.name):
        # Her second order came while the erasure ran, and landed behind it: a new record, and another erasure.
        shop.ask(apply=True, name="e2")
        while shop.step("e2")["state"] != "done":
            shop.derive()
    wanted = [n for n in range(30) if n not in (0, 5)]
    assert (shop.amounts(shop.landing), shop.amounts(shop.sink)) == (wanted, wanted)
    assert [of_zoe(warehouse / "tests" / t.name) for t in (shop.landing, shop.sink)] == [[], []]


@pytest.mark.slow
def test_a_mark_that_was_forgotten_is_waited_for_no_more(
    spark: SparkSession, table: Names, warehouse: Path, tmp_path: Path
) -> None:
    """A job that stood still for longer than past states are kept, behind the mark of its landing table."""
    shop = Shop(spark, table, tmp_path)
    shop.land([order(n) for n in range(5)])
    shop.derive()
    shop.land([order(n) for n in range(5, 10)])
    shop.ask(apply=True)
    waiting = shop.step()["waiting"]
    assert [f"{shop.sink}: " in each for each in waiting] == [False, True]
    shop.land([order(n, "amy@example.org") for n in range(11, 12)])
    shop.derive()
    call_iceberg_procedure(
        spark, shop.landing, "expire_snapshots", older_than=sql_timestamp(datetime.now(UTC)), retain_last="1"
    )
    assert snapshot_id_of_newest_mark(spark, shop.landing, "e1") is None
    assert shop.step()["state"] == "done"
    assert of_zoe(warehouse / "tests" / shop.sink.name) == []


@pytest.mark.slow
def test_rows_that_were_replaced_and_rows_that_a_sink_refused(
    spark: SparkSession, table: Names, warehouse: Path
) -> None:
    results, refused = table("results"), table("refused")
    sink = KeyedIcebergSink(results, key=("customer",))
    shape = "_id STRING, customer STRING, total LONG, _written_at TIMESTAMP"
    sink.prepare(spark, spark.createDataFrame([], shape).schema)
    for total in (1, 2):
        rows = [(name, name, total, None) for name in (ZOE, "amy@example.org")]
        sink.write(spark.createDataFrame(rows, shape).coalesce(1), None, none_refused)
    # Merged on read: her first total is in a file, and another one says that it is gone.
    assert spark.table(f"{results}.delete_files").count()
    tables.create_or_evolve_table(spark, refused, LETTER)
    letters = [(f"t/0/{n}", "t", None, None, bytearray(order(n)), "sink", "too long") for n in range(5)]
    for some in (letters[:1], letters[1:]):
        spark.createDataFrame(some, LETTER).coalesce(1).writeTo(str(refused)).append()
    # Two files of one commit, one of hers alone: the list that names both has her address as a bound.
    plain = table("plain")
    both = spark.sparkContext.parallelize([("amy@example.org",), (ZOE,)], 2)
    spark.createDataFrame(both, "customer STRING").writeTo(str(plain)).using("iceberg").create()
    assert spark.table(f"{plain}.files").count() == 2
    condition = ErasureCondition(spark, WHERE)
    kinds = ((results, "rows"), (refused, "refused"), (plain, "rows"))
    for target in (ErasureTarget(each, kind, (), kept=True) for each, kind in kinds):
        assert target.count_matches(spark, condition).matching_count == 1
        target.erase_matching_rows(spark, condition, "e1")
        assert target.count_matches(spark, condition).matching_count == 0
        assert of_zoe(warehouse / "tests" / target.table.name)
        assert (
            expire_before_mark_and_count_files(
                spark, target.table, remove_rest_and_commit_erasure_mark(spark, target.table, "e1")
            )
            > 0
        )
        assert of_zoe(warehouse / "tests" / target.table.name) == []
    assert [r["total"] for r in spark.table(str(results)).collect()] == [2]
    assert spark.table(str(refused)).count() == 4


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("customer = ", "the condition is not valid in Spark SQL"),
        ("1 = 1", "names no column"),
        ("customer IN (SELECT name FROM people)", "a subquery"),
    ],
)
def test_what_is_no_condition(spark: SparkSession, where: str, said: str) -> None:
    with pytest.raises(ErasureConditionError, match=said):
        ErasureCondition(spark, where).raise_if_invalid()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("customer = 'a' OR true", "the condition is true of every record"),
        ("customer = 'a' AND 1 = 2", "the condition is true of no record"),
        ("rand() < amount", "may change its value between statements"),
        (
            "cast(amount AS STRING) = cast(current_date() AS STRING)",
            "may change its value between statements",
        ),
        ("amount + 1", "the condition has type int; it must be BOOLEAN"),
        ("sum(amount) > 1", "invalid expressions"),
        ("upper(customer, 1) = 'A'", "(?i)upper"),
        ("customer = 'a' -- a comment", None),
        ("customer = 'a' OR amount IN (1, 2)", None),
    ],
)
def test_what_is_wrong_with_a_condition_on_a_table(spark: SparkSession, where: str, said: str | None) -> None:
    schema = spark.createDataFrame([], "customer STRING, amount INT").schema
    result = ErasureCondition(spark, where).problem(schema)
    assert result is None if said is None else re.search(said, result or ""), result


def test_a_wrong_condition_is_told_for_all_tables_and_nothing_begins(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    shop = Shop(spark, table, tmp_path)
    for number, (where, said) in enumerate(
        [
            ("customer = 'a' AND email = 'b'", f"{shop.landing}: no column email"),
            ("customer = 'a' OR true", f"{shop.landing}: the condition is true of every record"),
            ("amount = 1 OR true", f"{shop.sink}: the condition is true of every record"),
        ]
    ):
        shop.ask(where, apply=True, name=f"w{number}")
        told = shop.step(f"w{number}")
        assert (told["state"], told["tables"]) == ("refused", {})
        assert said in told["problems"]
    assert len(told["problems"]) == 2
    shop.ask("email = 'b'", apply=False, name="none")
    told = shop.step("none")
    assert (told["tables"], told["problems"]) == ({}, [])
    assert f"{shop.landing} has no column email" in told["left_out"]
    (tmp_path / "_millrace" / "erase" / "request.json").write_text('{"id": 1}')
    with pytest.raises(OSError, match="request"):
        shop.step("none")


@pytest.mark.parametrize(
    ("where", "payload", "holds"),
    [
        ("id = 'c-1'", '{"id":"c-1"', True),
        ("id = 'c-1'", '{"id":"c-17"', False),
        ("id = 'c-1'", '{"id":"abc-1"', False),
        ("id = 'c-1'", "c-1,broken", True),
        ("id = 'c-1'", "he is c-1.", True),
        ("id = 'm@x.org'", "m@x.org.uk", False),
        ("id = 17", '{"id":17,', True),
        ("id = 17", '{"id":117,', False),
        ("id IN ('aa', 'bb')", "bb", True),
        ("id = 'aa' AND zip = 'bb'", "aa", False),
        ("id = 'aa' OR zip = 'bb'", "bb", True),
        ("id = 'aa' AND amount > 5", "aa", True),
        ("name = 'Zoë \"Z\"'", '{"n": "Zoë \\"Z\\""', True),
        # As Jackson, System.Text.Json and PHP escape them.
        ("name = 'Zoë'", '"Zo\\u00EB"', True),
        ("id = 'a+b@x.org'", '"a\\u002Bb@x.org"', True),
        ("id = 'b@x.org'", '"a\\u002Bb@x.org"', False),
        ("id = 'a/b'", '"a\\/b"', True),
        ("id = 'a😀b'", '"a\\ud83d\\uDE00b"', True),
        ("id = 'a😀b'", "a😀b", True),
        ("name = 'Zoë'", "Zoë,", True),
        ("name = 'Zoë'", '"Zo\\u00eb"', True),
        ("name = 'a.c'", "abc", False),
        ("name = 'aa'", "\x00aa", True),
    ],
)
def test_text_of_a_value_in_bytes(spark: SparkSession, where: str, payload: str, *, holds: bool) -> None:
    text = ErasureCondition(spark, where).byte_search_sql("b", words=True)
    assert text is not None
    assert "\\" not in text
    rows = spark.createDataFrame([(bytearray(payload.encode()),)], "b BINARY")
    assert rows.where(text).count() == int(holds)


def test_text_of_what_is_no_equality_and_of_binary_formats(spark: SparkSession) -> None:
    assert ErasureCondition(spark, "amount > 5 OR name LIKE 'a%'").byte_search_sql("b", words=True) is None
    # One character, and true, are in every payload.
    assert ErasureCondition(spark, "amount = 5 OR paid = true").byte_search_sql("b", words=True) is None
    inside = ErasureCondition(spark, "name = 'zoe'").byte_search_sql("b", words=False)
    assert spark.createDataFrame([(bytearray(b"\x06zoeH"),)], "b BINARY").where(inside or "").count() == 1


def test_the_job_looks_for_requests_from_its_first_half_minute_on(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    shop = Shop(spark, table, tmp_path)
    first = maintenance_schedule.maintenance_tasks(JobRun(spark, shop.job, {}, Events().reporter))[0]
    assert isinstance(first, erase_in_running_job.ErasureTask)
    asked = threading.Event()

    class Noted(erase_in_running_job.ErasureTask):
        def __call__(self, spark: SparkSession) -> None:
            asked.set()

    chores = maintenance_schedule.MaintenanceThread(
        spark, [Noted(shop.job, Events().reporter, timedelta(milliseconds=10))], Events().reporter
    )
    chores.start()
    assert asked.wait(10)
    chores.stop()
