"""Changes of several tables in one stream: each table's route keeps the rows of its table."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.changes.debezium import debezium_envelope
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.formats.decoding.decoder_per_topic import DecodingRoute, RoutingDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.queries import land
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import IcebergSink
from tests.spark.queries import test_keyed_and_windowed_results
from tests.spark.queries.test_change_order import decoder_of
from tests.spark.simulated_database_changes import DDL, Ledger
from tests.spark.source_batches import EPOCH, Events, frame, lander

Names = Callable[[str], Table]
Record = tuple[Any, ...]


def in_stream(record: Record, table: str, number: int) -> Record:
    """Return a ledger's record as one of the common stream: of a table, with a position that no other table's record has."""
    identity, _, shard, position, *between, payload = record
    if shard is not None:
        shard = str(int(shard) + 10 * number)
        identity = f"all/{shard}/{int(position)}"
    else:
        position = str(int(position) + 1_000_000 * number)
        identity = f"all/{position}"
    text = None if payload is None else payload.decode().replace('"orders"', f'"{table}"')
    return (
        identity,
        "all",
        shard,
        position,
        *between,
        None if text is None else bytearray(text.encode()),
    )


def router_of(decoder: ChangeDecoder, schema: str) -> RoutingDecoder:
    """Routes of two tables, of which one hides a field."""
    hiding = RedactingDecoder(decoder, ("code",))
    return RoutingDecoder(
        (
            DecodingRoute("orders", "all", "all", decoder, f"{schema}.orders"),
            DecodingRoute("items", "all", "all", hiding, f"{schema}.items"),
        )
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("connector", "schema"),
    [("postgresql", "public"), ("dms", "shop")],
)
def test_each_table_is_that_of_the_database(
    spark: SparkSession, table: Names, tmp_path: Path, connector: str, schema: str
) -> None:
    names = ("orders", "items", "other")
    ledgers = [Ledger(seed, connector).play(60) for seed in range(3)]
    landing = table("landing")
    router = router_of(decoder_of(spark, DDL, connector), schema)
    plain = lander(spark, table("unused"), Events(), ddl=DDL)
    settings = replace(plain.settings, table=str(landing))
    write = replace(plain, decoder=router, sink=IcebergSink(landing), settings=settings)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(router.schema))
    commits = [each.commits() for each in ledgers]
    for number in range(max(map(len, commits))):
        batch = [
            in_stream(record, name, place)
            for place, (name, own) in enumerate(zip(names, commits, strict=True))
            for record in (own[number] if number < len(own) else [])
        ]
        write(frame(spark, batch), number)
    for place, name in enumerate(names[:2]):
        out = table(f"latest_{name}")
        what = {
            **test_keyed_and_windowed_results.query(landing, out, "none"),
            "route": name,
            "latest_by": ["id"],
            "transform": None,
        }
        test_keyed_and_windowed_results.played(spark, what, tmp_path / name)
        rows = {row["id"]: row for row in spark.table(str(out)).collect()}
        expected = ledgers[place].rows
        assert {key: row["n"] for key, row in rows.items()} == {
            key: row["n"] for key, row in expected.items()
        }
        assert {row["code"] for row in rows.values()} == (
            {None} if name == "items" else {row["code"] for row in expected.values()}
        )
    letters = {
        (row["_stage"], row["_error"])
        for row in spark.table(str(landing)).where("_error IS NOT NULL").collect()
    }
    assert letters == {("route", f"no route for changes of {schema}.other in all")}


@pytest.mark.slow
def test_what_names_no_table_takes_the_first_route_and_hides_what_any_route_hides(
    spark: SparkSession,
) -> None:
    router = router_of(decoder_of(spark, DDL, "postgresql"), "public")
    payloads = [
        b'{"ts_ms": 1714000000000}',
        b'{"source": {"schema": "public", "table": "items"}, "after": {"code": "secret"',
        b'{"code": "secret", "source": {"schema": "public", "table": "other"}}',
        None,
        json.dumps({"source": {"schema": "public", "table": "items", "table ": "orders"}}).encode(),
    ]
    rows = [
        (f"all/0/{n}", "all", "0", str(n), bytearray(b"k"), None, EPOCH, p and bytearray(p))
        for n, p in enumerate(payloads)
    ]
    decoded = sorted(router.decode(frame(spark, rows)).collect(), key=lambda row: row["_id"])
    assert [(row["_route"], row["_stage"]) for row in decoded] == [
        ("orders", "control"), ("orders", "decode"), (None, "route"), ("orders", "control"), ("items", "decode"),
    ]  # fmt: skip
    assert not any(b"secret" in (row["_bytes"] or b"") for row in decoded)


@pytest.mark.slow
def test_a_delete_without_its_table_deletes_no_row_of_the_first_route(spark: SparkSession) -> None:
    """The default of ExtractNewRecordState leaves of a delete its key alone, which is one of any table."""
    decoder = replace(decoder_of(spark, DDL, "postgresql"), envelope=debezium_envelope(flattened=True))
    payloads = [
        None,
        b'{"id": 7, "code": "a", "__deleted": "true", "__schema": "public", "__table": "items"}',
    ]
    rows = [
        (f"all/0/{n}", "all", "0", str(n), bytearray(b'{"id": 7}'), None, EPOCH, p and bytearray(p))
        for n, p in enumerate(payloads)
    ]
    alone, deleted = router_of(decoder, "public").decode(frame(spark, rows)).orderBy("_id").collect()
    assert (alone["_route"], alone["_stage"]) == (None, "route")
    assert "delete.tombstone.handling.mode to rewrite" in alone["_error"]
    assert (deleted["_route"], deleted["_stage"]) == ("items", "delete")
