"""An erasure takes a record with its dead letter and its replays, whichever of them the condition finds."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.record import tables
from millrace.etl.repair.erase_condition import ErasureCondition
from millrace.etl.repair.erase_targets import ErasureTarget
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.base import LETTER
from tests.spark.erasure_shop import Shop
from tests.spark.maintained_table import Names

MENDED = "customer STRING NOT NULL, amount INT"
LOWER = "lower(customer) = 'zoe@example.org'"
"""Not a comparison whose value could be looked for in the bytes of a letter."""


@pytest.mark.slow
def test_the_letter_of_an_erased_replay_goes_too_and_is_not_replayed_again(
    spark: SparkSession, table: Names, warehouse: Path, tmp_path: Path
) -> None:
    shop = Shop(spark, table, tmp_path)
    without = b'{"customer": "Zoe@Example.org"}', b'{"customer": "amy@example.org"}'
    shop.land([b'{"customer": "amy@example.org", "amount": 1}', *without])
    mended = JsonDecoder(parse_ddl_schema(spark, MENDED, "t.ddl"))
    replayer = DeadLetterReplayer("land-orders", shop.landing, shop.events.reporter, "flights", mended)
    assert replayer(spark, ReplayRequest("land-orders")) == 0
    shop.derive()
    shop.ask(LOWER, apply=False)
    landing = shop.step()["tables"][str(shop.landing)]
    assert (landing["rows"], landing["dead_letters"], landing["of"]) == (1, 1, 5)
    shop.ask(LOWER, apply=True)
    while shop.step()["state"] != "done":
        shop.derive()
    rows = spark.table(str(shop.landing))
    assert [r["_id"] for r in rows.where("_stage = 'erased'").orderBy("_id").collect()] == [
        "flights-topic/0/1",
        "flights-topic/0/1#replay",
    ]
    files = [*(warehouse / "tests" / shop.landing.name).rglob("*.parquet")]
    assert files
    assert not [each for each in files if b"Zoe" in each.read_bytes()]
    # Later letters are replayed, and she is not.
    shop.land([b'{"customer": "eve@example.org"}'])
    assert replayer(spark, ReplayRequest("land-orders")) == 0
    figures = shop.events.last()
    assert [figures[name] for name in ("letters", "good", "already", "landed")] == [2, 1, 1, 1]
    assert rows.where("customer = 'Zoe@Example.org'").isEmpty()


@pytest.mark.slow
def test_a_good_replay_goes_with_the_letter_that_holds_the_value(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """A correction may have another spelling: the record is hers all the same."""
    shop = Shop(spark, table, tmp_path)
    shop.land([b'{"customer": "Zoe@Example.org"}'])
    loose = JsonDecoder(parse_ddl_schema(spark, "customer STRING, amount INT", "t.ddl"))
    replayer = DeadLetterReplayer("land-orders", shop.landing, shop.events.reporter, "flights", loose)
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(
        '{"id": "flights-topic/0/0", "payload": "{\\"customer\\": \\"Z.\\", \\"amount\\": 1}"}\n'
    )
    assert replayer(spark, ReplayRequest("land-orders", (), str(fixed))) == 0
    condition = ErasureCondition(spark, "customer = 'Zoe@Example.org'")
    target = ErasureTarget(shop.landing, "landing", ())
    assert target.count_matches(spark, condition).matching_count == 2
    target.erase_matching_rows(spark, condition, "e1")
    assert target.count_matches(spark, condition).matching_count == 0
    assert spark.table(str(shop.landing)).where("_stage = 'erased'").count() == 2


def test_a_correction_that_a_sink_refused_again_goes_with_its_record(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    shop = Shop(spark, table, tmp_path)
    shop.land(
        [b'{"customer": "Zoe@Example.org", "amount": 1}', b'{"customer": "amy@example.org", "amount": 2}']
    )
    refused = table("refused")
    tables.create_or_evolve_table(spark, refused, LETTER)
    arrived = {r["_id"]: r["_arrived_at"] for r in spark.table(str(shop.landing)).collect()}
    ids = [f"flights-topic/0/{n}{end}" for n in (0, 1) for end in ("", "#sent", "/0#sent2")]
    letters = [
        (each, "flights", arrived[each[:17]], arrived[each[:17]], bytearray(b"{}"), "sink", "too long")
        for each in ids
    ]
    spark.createDataFrame(letters, LETTER).writeTo(str(refused)).append()
    target = ErasureTarget(refused, "refused", (), sources=((shop.landing, "unused"),))
    target.erase_matching_rows(spark, ErasureCondition(spark, LOWER), "e1")
    assert sorted(r["_id"] for r in spark.table(str(refused)).collect()) == sorted(ids[3:])
