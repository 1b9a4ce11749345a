"""Refusals of PostgreSQL and OpenSearch quote a row, but no redacted field, in errors and dead letters."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.formats.decoding.decoder_per_topic import DecodingRoute, RoutingDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.sinks import JdbcSinkSettings, OpenSearchSinkSettings
from millrace.etl.queries import land
from millrace.etl.queries.direct import DirectBatchWriter, DirectRoute
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record import tables
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.jdbc import JdbcSink
from millrace.etl.sinks.opensearch import OpenSearchSink
from millrace.etl.sources.base import ReplayedLeg
from tests import postgres
from tests.opensearch import OpenSearch
from tests.spark.queries.test_routed_direct import GATES, WEB, record
from tests.spark.source_batches import Events, frame

pytestmark = pytest.mark.slow

SECRET = "kim7731"
DDL = "flight INT, email STRING, card STRUCT<number: STRING>"


def everything(rows: DataFrame) -> DataFrame:
    return rows.select(*CARRIED, "flight", "email", "card")


def of_person(source: str, topic: str, n: int, flight: int) -> tuple[Any, ...]:
    payload = {"flight": flight, "email": f"{SECRET}@example.org", "card": {"number": SECRET}}
    return record(source, topic, n, json.dumps(payload).encode())


@pytest.mark.parametrize("redacted", [("email", "card"), ()])
def test_what_a_service_says_of_a_row_it_refuses_has_nothing_of_redacted_fields(
    spark: SparkSession,
    table: Callable[[str], Table],
    tmp_path: Path,
    domain: OpenSearch,
    redacted: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """Without redaction the messages and letters have the values: what is looked for is there to be found."""
    plain = JsonDecoder(parse_ddl_schema(spark, DDL, "t.ddl"))
    decoder = RedactingDecoder(plain, redacted) if redacted else plain
    letters, events, index = table("letters"), Events(), f"people-{len(redacted)}"
    router = RoutingDecoder(
        (
            DecodingRoute("gates", "gates", "gates", decoder),
            DecodingRoute("clicks", "web", "web.clicks", decoder),
        )
    )
    tables.create_or_evolve_table(spark, letters, land.landing_table_schema(router.schema))
    compose = EnrichThenTransform((), everything, "everything")
    domain.create(index, 1, flight="short", email="short")
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"c"}')
    (checkpoint / "offsets" / "0").write_text('v1\n{}\n{"gates":{"0":2}}\n{"web.clicks":{"0":2}}')
    places = [Checkpoint(str(checkpoint), place) for place in range(2)]
    with postgres.running() as server:
        server.run("CREATE ROLE writer LOGIN PASSWORD 'own'; CREATE SCHEMA shop AUTHORIZATION writer")
        server.run(
            "SET ROLE writer; CREATE TABLE shop.people (_id text, _source text, _arrived_at timestamptz, "
            "_landed_at timestamptz, flight int CHECK (flight < 9), email varchar(90) NOT NULL, card jsonb, "
            "_written_at timestamptz, "
            "UNIQUE (_source, _id))"
        )
        settings = JdbcSinkSettings(server.url, "shop.people", "arn:of:a:secret", "us-east-1", 1, "off")
        jdbc = JdbcSink(settings, lambda: ("writer", "own"))
        jdbc.prepare(spark, compose.checked_sink_schema(spark, letters, "gates"))
        result = OpenSearchSink(OpenSearchSinkSettings(domain.endpoint, index, "us-east-1"))
        DirectBatchWriter(
            "people",
            router,
            (DirectRoute("gates", "gates", compose, jdbc), DirectRoute("clicks", "web", compose, result)),
            IcebergSink(letters),
            (ReplayedLeg((GATES,), places[0]), ReplayedLeg((WEB,), places[1])),
            places[0],
            events.reporter,
        )(
            frame(
                spark,
                [
                    of_person("gates", "gates", 0, 99),
                    of_person("gates", "gates", 1, 1),
                    of_person("web", "web.clicks", 0, 99_999),
                    of_person("web", "web.clicks", 1, 1),
                ],
            ),
            0,
        )
        held = repr(server.run("SELECT * FROM shop.people"))
    kept = spark.table(str(letters)).where("_error IS NOT NULL").collect()
    reasons = {row["_id"]: row["_error"] for row in kept}
    assert reasons["gates/0/0"].startswith(("23514", "23502"))
    assert reasons["web.clicks/0/0"].startswith("400: ")
    told = [repr(kept), held, repr(domain.documents(index)), repr(events.all()), *capfd.readouterr()]
    assert [SECRET in each for each in told[:1]] == [not redacted]
    assert redacted == () or not any(SECRET in each for each in told)
