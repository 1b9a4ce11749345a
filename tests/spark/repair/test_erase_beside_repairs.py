"""A replay and a backfill that read a person's records before an erasure do not bring them back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import BackfillRequest, ReplayRequest
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record.tables import Table
from millrace.etl.repair.backfill_derived import DerivedTableBackfiller
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.iceberg import IcebergSink
from tests.spark.erasure_shop import WHERE, ZOE, Shop, by_customer, order
from tests.spark.source_batches import EPOCH
from tests.spark.task_gate import TaskGate

Names = Callable[[str], Table]

ALL = (EPOCH - timedelta(hours=1), EPOCH + timedelta(hours=2))


@pytest.fixture
def shop(spark: SparkSession, table: Names, tmp_path: Path) -> Shop:
    """Ten orders, landed and derived; the catalog's service expires old snapshots, which would refuse a late commit."""
    shop = Shop(spark, table, tmp_path)
    shop.job = replace(shop.job, upkeep=None)
    shop.land([order(n) for n in range(10)])
    shop.derive()
    return shop


def erase(shop: Shop) -> None:
    shop.ask(apply=True)
    for _ in range(5):
        if shop.step()["state"] == "done":
            return
        shop.derive()
    raise AssertionError(shop.step())


def backfill(shop: Shop, transform: Callable[[DataFrame], DataFrame], *, replaces: bool) -> None:
    compose = EnrichThenTransform((), transform, "t")
    backfiller = DerivedTableBackfiller(
        "orders", shop.landing, compose, IcebergSink(shop.sink), shop.events.reporter
    )
    assert backfiller(shop.spark, BackfillRequest("orders", *ALL, replaces)) == 0


@pytest.mark.slow
def test_a_backfill_that_replaces(shop: Shop, tmp_path: Path) -> None:
    backfill(shop, by_customer, replaces=True)  # Iceberg sets its cache catalog in the first caller's session
    gate = TaskGate(tmp_path)
    gate.while_it_waits(
        lambda: backfill(shop, lambda rows: by_customer(gate.waiting(rows, "amount")), replaces=True),
        lambda: erase(shop),
    )
    wanted = [n for n in range(10) if n % 5]
    assert (shop.amounts(shop.landing), shop.amounts(shop.sink)) == (wanted, wanted)


@dataclass(frozen=True)
class GatedDecoder:
    """Decoder whose task waits."""

    decoder: JsonDecoder
    gate: TaskGate

    def __getattr__(self, name: str) -> object:
        return getattr(self.decoder, name)

    def decode(self, rows: DataFrame) -> DataFrame:
        return self.gate.waiting(self.decoder.decode(rows), "customer")


@pytest.mark.slow
def test_a_replay(shop: Shop, tmp_path: Path) -> None:
    backfill(shop, by_customer, replaces=False)
    # One partition with a letter: the erasure needs the other core.
    shop.land([order(11), b'{"customer": "%s"}' % ZOE.encode()])
    loose = JsonDecoder(parse_ddl_schema(shop.spark, "customer STRING, amount INT", "t.ddl"))
    gate = TaskGate(tmp_path)
    replayer = DeadLetterReplayer(
        "land-orders",
        shop.landing,
        shop.events.reporter,
        "flights",
        GatedDecoder(loose, gate),  # type: ignore[arg-type]
    )

    def erase_landing_table() -> None:
        shop.ask(apply=True)
        assert "has yet to read past" in shop.step()["waiting"][0]

    gate.while_it_waits(lambda: replayer(shop.spark, ReplayRequest("land-orders")), erase_landing_table)
    said = shop.events.last()
    assert (said["event"], said["letters"], said["landed"]) == ("replayed", 0, 0)
    assert shop.spark.table(str(shop.landing)).where(WHERE).isEmpty()


@pytest.mark.slow
def test_rows_that_were_written_again_before_the_end_are_erased_again(shop: Shop) -> None:
    shop.land([order(n) for n in range(10, 15)])
    rows = shop.spark.table(str(shop.landing)).where(WHERE).limit(1)
    again = rows.withColumn("_id", F.concat("_id", F.lit("#replay"))).localCheckpoint()
    shop.ask(apply=True)
    assert "has yet to read past" in shop.step()["waiting"][0]
    again.writeTo(str(shop.landing)).append()
    shop.derive()
    told = shop.step()
    assert (told["state"], len(told["waiting"])) == ("running", 1)
    assert "written again" in told["waiting"][0]
    # The query has yet to read the new mark.
    assert "has yet to read past" in shop.step()["waiting"][0]
    shop.derive()
    assert shop.step()["state"] == "done"
    wanted = [n for n in range(15) if n % 5]
    assert (shop.amounts(shop.landing), shop.amounts(shop.sink)) == (wanted, wanted)
