"""Log line of a batch, for each kind of query: the fields that advisor, dashboards and metrics read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.settings import StateSettings, WatermarkSettings
from millrace.etl.launch.sinks import ParquetSinkSettings
from millrace.etl.record.tables import Table
from millrace.etl.sinks.base import Sink
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from millrace.etl.sinks.parquet import ParquetSink
from tests.spark import sink_input_rows
from tests.spark.queries import test_derive, test_direct, test_routed_direct
from tests.spark.queries import test_sinks_outside_lake as test_outward
from tests.spark.queries.test_routed_direct import click, gate, record, web
from tests.spark.source_batches import Events, frame, good, kafka_rows, lander, log_offsets

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]
Line = dict[str, Any]
RECORDS: list[bytes | None] = [*(good(n) for n in range(1, 7)), b"bad"]

# As printed before the handlers of each kind became one.
LINES: dict[str, Line] = {
    "land": {"read": 7, "duplicates": 0, "landed": 7, "good": 6, "bad": 1},
    "derive": {"read": 6, "duplicates": 0, "filtered": 2, "written": 4},
    "derive files": {"read": 6, "duplicates": 0, "filtered": 2, "written": 4, "refused": 0},
    "derive results": {"duplicates": 0, "written": 2},
    "direct": {"read": 7, "bad": 1, "good": 6, "duplicates": 0, "filtered": 2, "written": 4},
    "direct files": {
        "read": 7, "bad": 1, "good": 6, "duplicates": 0, "filtered": 2, "written": 4, "refused": 0,
    },
    "direct routes": {
        "read": 3, "bad": 1, "good": 2, "duplicates": 0, "filtered": 0, "written": 2, "refused": 0,
    },
    "direct route": {
        "read": 2, "bad": 1, "good": 1, "duplicates": 0, "filtered": 0, "written": 1, "refused": 0,
    },
}  # fmt: skip
AGED = ("land", "direct", "direct files", "direct routes", "direct route")
"""Kinds that tell the age of the oldest record: those that read a stream."""


def land(spark: SparkSession, table: Names, folder: Path) -> Line:
    events = Events()
    log_offsets(folder, 0, {"flights-topic": {"0": len(RECORDS)}})
    lander(spark, table("landing"), events, checkpoint=folder)(frame(spark, kafka_rows(0, 0, RECORDS)), 0)
    return events.last()


def _derived(spark: SparkSession, table: Names, folder: Path, sink: Sink | None) -> Line:
    pipe = test_derive.Pipeline(spark, table, folder)
    pipe.land(frame(spark, kafka_rows(0, 0, RECORDS)), 0)
    if sink is not None:
        sink.prepare(spark, pipe.compose.checked_sink_schema(spark, pipe.landing))
        pipe.deriver.sink = sink
    pipe.derive()
    return next(each for each in pipe.events.all() if each["event"] == "batch")


def derive(spark: SparkSession, table: Names, folder: Path) -> Line:
    return _derived(spark, table, folder, None)


def derive_files(spark: SparkSession, table: Names, folder: Path) -> Line:
    files = ParquetSinkSettings(str(folder / "files"), 1)
    return _derived(spark, table, folder, ParquetSink(files))


def derive_results(spark: SparkSession, table: Names, folder: Path) -> Line:
    pipe = test_derive.Pipeline(spark, table, folder)
    rows = sink_input_rows.results(spark, {"AA": 1, "BB": 2})
    sink = KeyedIcebergSink(table("results"), key=("carrier",))
    pipe.deriver.compose = replace(pipe.compose, transform=lambda rows: rows, carries=("_id",))
    sink.prepare(spark, pipe.deriver.compose(rows).schema)
    mark = WatermarkSettings("_arrived_at", 60.0, 3600.0)
    pipe.deriver.settings = replace(pipe.deriver.settings, state=StateSettings(mark, (), ("carrier",), None))
    pipe.deriver.sink = sink
    log_offsets(folder, 0, {})
    pipe.deriver(rows, 0)
    assert spark.table(str(sink.table)).count() == 2
    return pipe.events.last()


def direct(spark: SparkSession, table: Names, folder: Path) -> Line:
    pipe = test_direct.Pipeline(spark, table, folder)
    pipe.batch(0, 0, RECORDS)
    return pipe.events.last()


def direct_files(spark: SparkSession, table: Names, folder: Path) -> Line:
    sink = ParquetSink(ParquetSinkSettings(str(folder / "files"), 1))
    pipe = test_outward.Direct(spark, table, folder / "one", sink, test_direct.by_two)
    pipe.batch(0, 0, RECORDS)
    return pipe.events.last()


def direct_routes(spark: SparkSession, table: Names, folder: Path) -> Line:
    pipe = test_routed_direct.Pipeline(spark, table, folder)
    pipe.batch(0, [gate(0), record("gates", "gates", 1, b"\xff"), click(0)], 2, web(1))
    return pipe.events.last()


def direct_route(spark: SparkSession, table: Names, folder: Path) -> Line:
    pipe = test_routed_direct.Pipeline(spark, table, folder)
    pipe.director.routes = pipe.director.routes[:1]
    pipe.batch(0, [gate(0), record("gates", "gates", 1, b"\xff")], 2, web(0))
    return pipe.events.last()


KINDS = (land, derive, derive_files, derive_results, direct, direct_files, direct_routes, direct_route)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_line_of_a_batch_has_the_fields_that_it_always_had(
    spark: SparkSession, table: Names, tmp_path: Path, kind: Callable[..., Line]
) -> None:
    told = kind(spark, table, tmp_path)
    name = kind.__name__.replace("_", " ")
    common = {"event", "job", "query", "batch", "seconds", "committed_at"}
    assert told.keys() == common | LINES[name].keys() | ({"max_age_seconds"} if name in AGED else set())
    assert {field: told[field] for field in LINES[name]} == LINES[name]
