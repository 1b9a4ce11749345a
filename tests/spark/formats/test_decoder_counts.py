"""Rows that are observed in a decoder: all are counted, good and bad apart, and each is parsed once."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.base import UNCERTAIN, Decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.decoding.decoder_per_topic import (
    DecodingRoute,
    RoutingDecoder,
    TombstoneAsDeleteDecoder,
)
from millrace.etl.formats.decoding.decompress import DecompressingDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.formats import CsvFormat
from millrace.etl.record.batch_accounts import ObservedFigures, row_count_aggregate
from millrace.etl.record.errors import JVM_ERRORS, full_error_text
from tests.spark.formats.test_decode_json import BAD, DDL, GOOD

PAYLOADS = [GOOD + b"}", b"AA,1", *(payload for payload, _, _ in BAD.values()), GOOD + b',"delay":1}']


def decoders(spark: SparkSession) -> dict[str, Decoder]:
    json = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
    flat = parse_ddl_schema(spark, "carrier STRING, flight INT", "test.ddl")
    csv = CsvDecoder(flat, CsvFormat(",", '"', ""))
    return {
        "json": json,
        "json, redacted": RedactingDecoder(json, ("carrier",)),
        "csv": csv,
        "csv, redacted": RedactingDecoder(csv, ("carrier",), readable=False),
    }


@pytest.mark.parametrize("name", ["json", "json, redacted", "csv", "csv, redacted"])
def test_every_row_is_observed_once_and_as_good_as_it_comes_out(spark: SparkSession, name: str) -> None:
    decoder = decoders(spark)[name]
    numbered = [(n, None if p is None else bytearray(p)) for n, p in enumerate(PAYLOADS)]
    rows = spark.createDataFrame(numbered, "n INT, payload BINARY")
    seen = ObservedFigures(row_count_aggregate("read"))

    def observe(passing: DataFrame, error: str) -> DataFrame:
        bad = f"collect_list(CASE WHEN {error} IS NOT NULL THEN n END)"
        return seen.observe(passing, F.expr(f"array_join(sort_array({bad}), ' ') AS bad"))

    plain = decoder.decode(rows)
    observed = decoder.decode_and_observe(rows, observe)
    assert observed.schema == plain.schema
    found = sorted(observed.collect(), key=lambda r: r["n"])
    assert found == sorted(plain.collect(), key=lambda r: r["n"])
    figures = seen.values()
    assert figures["read"] == len(PAYLOADS)
    bad = [r["n"] for r in found if r["_error"] is not None]
    assert figures["bad"] == " ".join(map(str, bad))
    assert 0 < len(bad) < len(PAYLOADS), "some of both kinds"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(each, marks=pytest.mark.slow)
        for each in ("json", "redacted", "tombstones", "compressed", "routed")
    ],
)
def test_without_the_exact_way_rows_are_the_same_or_the_task_fails(spark: SparkSession, name: str) -> None:
    json = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
    route = DecodingRoute("a", "flights", "topic", RedactingDecoder(json, ("carrier",)))
    decoder = {
        "json": json,
        "redacted": RedactingDecoder(json, ("carrier",)),
        "tombstones": TombstoneAsDeleteDecoder(json),
        "compressed": DecompressingDecoder(TombstoneAsDeleteDecoder(json), 1000),
        "routed": RoutingDecoder((route, DecodingRoute("b", "flights", "other", json))),
    }[name]

    def rows(payloads: list[bytes | None]) -> DataFrame:
        numbered = [
            (f"{('topic', 'other', 'none')[n % 3]}/0/{n}", "flights", None if p is None else bytearray(p))
            for n, p in enumerate(payloads)
        ]
        return spark.createDataFrame(numbered, "_id STRING, _source STRING, payload BINARY")

    certain = decoder.failing_if_uncertain()
    good = rows([GOOD + b"}", None, GOOD + b',"delay":1}'] * 3)
    assert certain.decode(good).schema == decoder.decode(good).schema
    assert certain.decode(good).collect() == decoder.decode(good).collect()
    for payload in (GOOD + b"} ", b"", b"hello", b'{"carrier":"AA","flight":"x"}'):
        with pytest.raises(JVM_ERRORS) as failed:
            certain.decode(rows([payload])).collect()
        assert UNCERTAIN in full_error_text(failed.value)
        marked = decoder.failing_if_uncertain(marking=True).decode(
            rows([payload, GOOD + b"}", None, payload])
        )
        assert [r["_stage"] for r in marked.orderBy("_id").collect()][2:] == [UNCERTAIN] * 2


def test_a_decoder_with_one_way_is_itself_without_the_exact_one(spark: SparkSession) -> None:
    csv = decoders(spark)["csv"]
    assert csv.failing_if_uncertain() is csv


def parsing(rows: DataFrame) -> list[str]:
    """Filters of a plan that parse JSON, which those above them do again."""
    frame: Any = rows
    plan = str(frame._jdf.queryExecution().executedPlan().toString())
    # The ends of lines that a payload may have are in the plan as they are.
    return [
        step
        for step in re.split(r"\n *(?=[*:+] )|\n *\+- ", plan)
        if re.match(r"[*():\d+ -]*Filter", step) and "from_json" in step
    ]


def test_good_ones_alone_are_parsed_in_one_step(spark: SparkSession) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
    # Not out of a list, whose rows Spark computes on while it plans.
    rows = spark.range(9).selectExpr("id AS n", "CAST(concat('{\"flight\":', id, '}') AS BINARY) AS payload")
    good = "_error IS NULL"
    observed = decoder.decode_and_observe(
        rows, lambda passing, _: ObservedFigures(row_count_aggregate("read")).observe(passing)
    )
    assert not parsing(observed.where(good))
    # What a filter costs that nothing keeps above the parse: Spark asks it first, and parses for it.
    assert parsing(decoder.decode(rows).where(good))
