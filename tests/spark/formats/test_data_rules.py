"""Data rules: records that break them are treated as declared and counted, with and without routes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from millrace.config.formats import KINDS
from millrace.etl.formats import avro, protobuf, schema_files
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.changes import debezium
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.decoding.data_rules import STAGE, broken_rule_count_aggregates, decoder_with_rules
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.formats import CsvFormat, JsonFormat
from millrace.etl.launch.settings import RuleSettings, SourceRouteSettings
from millrace.etl.record.errors import StartError, describe_error
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from tests import protobuf_without_protoc as pb
from tests.spark.formats.test_decode_csv_avro_protobuf import AVSC, PLAIN
from tests.spark.queries import test_direct, test_routed_direct
from tests.spark.source_batches import DDL, KAFKA, Events, frame, good, ids, kafka_rows, lander

Names = Callable[[str], Table]


def rule(name: str, where: str, action: Any, landed: str | None = None) -> RuleSettings:
    return RuleSettings(name, where, landed or where, action)


EARLY = rule("early", "delay < 2", "warn")
EVEN = rule("even", "flight % 2 = 0", "dead-letter")
SMALL = rule("small", "flight < 4 AND _key IS NOT NULL", "dead-letter")
NO_SEVEN = rule("no_seven", "flight <> 7", "fail")


def unknown_delay(flight: int) -> bytes:
    return json.dumps({"carrier": "AA", "flight": flight}).encode()


def test_each_broken_rule_is_counted_and_dead_letters_keep_their_bytes(
    spark: SparkSession, table: Names
) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, rules=(EARLY, EVEN, SMALL, NO_SEVEN))
    payloads = [good(0), good(1), good(2), unknown_delay(2), good(5), good(6), b"{broken", None]
    for batch in range(2):
        write(frame(spark, kafka_rows(0, 0, payloads)), batch)
    first, again = events.all()
    # A delay that is null breaks the rule, and what is a dead letter warns no more.
    assert first["rules"] == {"early": 1, "even": 2, "small": 2}
    assert [first[each] for each in ("read", "landed", "good", "bad")] == [8, 8, 3, 5]
    # Counted once: the second time nothing is landed.
    assert again["rules"] == {"early": 0, "even": 0, "small": 0}
    rows = {r["_position"].lstrip("0") or "0": r for r in spark.table(str(landing)).collect()}
    told = {
        n: (r["_stage"], r["_error"], bytes(r["_bytes"])) for n, r in rows.items() if r["_stage"] == STAGE
    }
    assert told == {
        "1": (STAGE, "even", good(1)),
        "4": (STAGE, "even, small", good(5)),
        "5": (STAGE, "small", good(6)),
    }
    assert all(rows[n]["flight"] is None and rows[n]["carrier"] is None for n in told)
    assert [rows[n]["flight"] for n in ("0", "2", "3")] == [0, 2, 2]
    assert rows["6"]["_stage"] == "decode"


def test_a_record_that_must_not_be_fails_the_batch_before_it_is_committed(
    spark: SparkSession, table: Names
) -> None:
    landing = table("landing")
    write = lander(spark, landing, Events(), rules=(NO_SEVEN, EVEN))
    with pytest.raises((Py4JJavaError, CapturedException)) as failed:
        write(frame(spark, kafka_rows(0, 0, [good(1), good(7)])), 0)
    assert "rule no_seven (action fail) is broken by record flights-topic/0/1" in describe_error(failed.value)
    assert ids(spark, landing) == []


@pytest.mark.slow
def test_what_breaks_no_rule_any_more_is_replayed(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    lander(spark, landing, events, rules=(EVEN,))(frame(spark, kafka_rows(0, 0, [good(1), good(2)])), 0)
    decoder = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
    for rules, settled in (((EVEN,), 0), ((), 1)):
        replayer = DeadLetterReplayer(
            "land", landing, events.reporter, "flights", decoder_with_rules(spark, decoder, rules)
        )
        assert replayer(spark, ReplayRequest("land", (), None)) == 0
        assert events.last()["good"] == settled
    rows = spark.table(str(landing)).where("_error IS NULL").collect()
    assert sorted(r["flight"] for r in rows) == [1, 2]


def test_redacted_fields_are_not_in_dead_letters_of_a_rule(spark: SparkSession, table: Names) -> None:
    landing, events = table("landing"), Events()
    write = lander(spark, landing, events, rules=(EVEN,))
    write.decoder = RedactingDecoder(write.decoder, ("carrier",))
    write(frame(spark, kafka_rows(0, 0, [good(1), good(2)])), 0)
    assert events.last()["rules"] == {"even": 1}
    (bad,) = spark.table(str(landing)).where("_error IS NOT NULL").collect()
    assert json.loads(bytes(bad["_bytes"])) == {"carrier": None, "flight": 1, "delay": 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("rules", [(EARLY,), (EARLY, EVEN)])
def test_a_direct_query(
    spark: SparkSession, table: Names, tmp_path: Path, rules: tuple[RuleSettings, ...]
) -> None:
    pipe = test_direct.Pipeline(spark, table, tmp_path)
    route = SourceRouteSettings(None, None, KAFKA, JsonFormat(), "test.ddl", None, (), rules=rules)
    pipe.director = replace(
        pipe.director,
        decoder=decoder_with_rules(spark, pipe.decoder, rules),
        rules=broken_rule_count_aggregates([route]),
    )
    pipe.batch(0, 0, [good(1), good(4), good(6), b"{"])
    acting = len(rules) == 2
    assert pipe.events.last()["rules"] == {"early": 2} | ({"even": 1} if acting else {})
    assert pipe.bad() == [
        *([("flights-topic/0/0", good(1))] if acting else []),
        ("flights-topic/0/3", b"{"),
    ]


@pytest.mark.slow
def test_routes(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    pipe = test_routed_direct.Pipeline(spark, table, tmp_path)
    long = rule("long", "length(text) > 6", "warn", "length(`gates`.text) > 6")
    known = rule("known", "text <> 'gate 1'", "dead-letter", "`gates`.text <> 'gate 1'")
    gates, clicks = pipe.router.routes
    rules = (long, known)
    router = replace(
        pipe.router, routes=(replace(gates, decoder=decoder_with_rules(spark, gates.decoder, rules)), clicks)
    )
    route = SourceRouteSettings(
        "gates", "gates", test_routed_direct.GATES, JsonFormat(), "x", None, (), rules=rules
    )
    pipe.director = replace(pipe.director, decoder=router, rules=broken_rule_count_aggregates([route]))
    rows = [
        *(test_routed_direct.record("gates", "gates", n, f"gate {n}".encode()) for n in range(3)),
        test_routed_direct.record("gates", "gates", 3, b"gate 13"),
        test_routed_direct.record("web", "web.clicks", 0, b"gate 1"),
    ]
    pipe.batch(0, rows, 4, test_routed_direct.web(1))
    assert pipe.events.last()["rules"] == {"gates.long": 2, "gates.known": 1}
    assert pipe.bad() == {"gates/0/1": (STAGE, b"gate 1")}


def with_none_of_its_fields(
    spark: SparkSession, folder: Path
) -> Iterator[tuple[str, Decoder, str, list[bytes], list[bytes]]]:
    """Name of a format, its decoder and the rule; payloads with some of the schema's fields, and with none."""
    ddl = folder / "row.ddl"
    ddl.write_text("carrier STRING, `air time` INT, legs ARRAY<STRING>")
    row = schema_files.parse_ddl_schema(spark, ddl.read_text(), "row.ddl")
    none = [
        b"{}",
        b'{"error": "no such flight"}',
        b'{"data": {"carrier": "AA"}}',
        b'{"Carrier": "AA"}',
        b'{"carrier": null}',
    ]
    some = [b'{"air time": 0}', b'{"legs": [], "x": 1}', b'{"carrier": ""}']
    yield "json", JsonDecoder(row), str(KINDS["json"](kind="json").any_field_set_condition(ddl)), some, none
    where = KINDS["debezium"](kind="debezium").any_field_set_condition(ddl)
    changes = [b'{"op": "c", "after": %b}' % each for each in (some[0], none[1])]
    yield "debezium", ChangeDecoder(row, debezium.debezium_envelope()), str(where), changes[:1], changes[1:]
    ddl.write_text("carrier STRING, `air time` INT")
    csv = CsvDecoder(
        schema_files.parse_ddl_schema(spark, ddl.read_text(), "row.ddl"), CsvFormat(",", '"', "")
    )
    yield "csv", csv, str(KINDS["csv"](kind="csv").any_field_set_condition(ddl)), [b"AA,", b",0"], [b","]
    avsc = folder / "row.avsc"
    avsc.write_text(json.dumps(AVSC))
    found = avro.make_avro_decoder(spark, PLAIN, avsc.read_text(), "row.avsc")
    yield (
        "avro",
        found,
        str(KINDS["avro"](kind="avro").any_field_set_condition(avsc)),
        [b"\0\2\0\0\0"],
        [b"\0" * 4],
    )
    fields = [
        pb.Declared("name", 1, pb.STRING), pb.Declared("n", 2, pb.SINT64), pb.Declared("rate", 3, pb.DOUBLE),
        pb.Declared("kind", 4, pb.ENUM, of="f.Kind"), pb.Declared("tags", 5, pb.STRING, pb.REPEATED),
        pb.Declared("on", 6, pb.BOOL), pb.Declared("raw", 7, pb.BYTES),
        pb.Declared("mode", 9, pb.ENUM, of="f.Row.Mode"), pb.Declared("less", 10, pb.FLOAT),
    ]  # fmt: skip
    message = pb.message("Row", fields, enums=[pb.enum("Mode", {"OFF": 0, "ON": 1})])
    desc = folder / "row.desc"
    desc.write_bytes(
        pb.descriptor_set(pb.file("row.proto", "f", [message], enums=[pb.enum("Kind", {"ANY": 0, "ONE": 1})]))
    )
    some = [
        pb.block(1, "a"),
        pb.number(2, 3),
        pb.fixed(3, "<d", 0.5),
        pb.number(4, 1),
        pb.block(5, "x"),
        pb.number(6, 1),
        pb.block(7, b"\0"),
        pb.number(9, 1),
    ]
    none = [b"", pb.block(11, "of another message"), pb.number(2, 0), pb.fixed(3, "<d", 0.0)]
    where = (
        KINDS["protobuf"]
        .model_validate({"kind": "protobuf", "message": "f.Row"})
        .any_field_set_condition(desc)
    )
    yield (
        "protobuf",
        protobuf.make_protobuf_decoder(desc.read_bytes(), "f.Row", "row.desc"),
        str(where),
        some,
        none,
    )


@pytest.mark.slow
def test_records_with_none_of_the_fields_are_counted_in_every_format(
    spark: SparkSession, tmp_path: Path
) -> None:
    found, wanted = {}, {}
    for form, decoder, where, some, none in with_none_of_its_fields(spark, tmp_path):
        implied = rule("any_field", where, "warn")
        route = SourceRouteSettings(None, None, KAFKA, JsonFormat(), "test.ddl", None, (), rules=(implied,))
        rows = decoder_with_rules(spark, decoder, (implied,)).decode(
            frame(spark, kafka_rows(0, 0, [*some, *none, None]))
        )
        [row] = rows.agg(*broken_rule_count_aggregates([route]), F.expr("count(_error) AS bad")).collect()
        found[form], wanted[form] = (row["rule any_field"], row["bad"]), (len(none), form != "debezium")
    assert found == wanted
    (tmp_path / "row.ddl").write_text("carrier STRING, n INT NOT NULL")
    assert KINDS["json"](kind="json").any_field_set_condition(tmp_path / "row.ddl") is None
    assert KINDS["text"](kind="text").any_field_set_condition(tmp_path / "row.ddl") is None


@pytest.mark.parametrize(
    ("where", "told"),
    [
        ("no_such > 1", "no_such"),
        ("flight + 1", "has type int; it must be BOOLEAN"),
        ("flight >", "PARSE_SYNTAX_ERROR"),
    ],
)
def test_a_condition_that_spark_cannot_evaluate_stops_the_start(
    spark: SparkSession, where: str, told: str
) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
    with pytest.raises(StartError, match=told):
        decoder_with_rules(spark, decoder, (rule("bad", where, "warn"),))
