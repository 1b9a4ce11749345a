"""Every format lands with compression, redaction and replay, as JSON does."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats import avro, avro_schemas
from millrace.etl.formats.base import Decoder, open_decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.decoding.decompress import DecompressingDecoder
from millrace.etl.formats.decoding.redact import WITHHELD, RedactingDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.formats import AvroFormat, CsvFormat, JsonFormat, ProtobufFormat, TextFormat
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from tests import protobuf_sample
from tests.http_servers import Handler, served
from tests.spark.formats.test_decode_csv_avro_protobuf import AVSC, OLDER, PLAIN, decode
from tests.spark.source_batches import Events, frame, kafka_rows, lander

pytestmark = pytest.mark.slow

# PySpark 3.5 compares versions of pandas in a way that Python calls old.

Names = Callable[[str], Table]

DDL = "carrier STRING, flight INT NOT NULL"
FLIGHT = b"\x02\x04AA\x02\x02\0\0"
"""AA 1, in Avro."""


def decoders(spark: SparkSession) -> dict[str, tuple[Decoder, bytes, bytes]]:
    """Of a text and of a binary format, each with a payload that is good and one that is not."""
    of_avro = avro.make_avro_decoder(spark, PLAIN, json.dumps(AVSC), "flight.avsc")
    of_csv = CsvDecoder(parse_ddl_schema(spark, DDL, "test.ddl"), CsvFormat(",", '"', ""))
    return {
        "csv": (of_csv, b"AA,1", b"{email=kim7731,1,2"),
        "avro": (of_avro, FLIGHT, b"{kim7731"),
    }


def test_compressed_ones_are_opened_and_fields_redacted(spark: SparkSession) -> None:
    for name, (inner, good, bad) in decoders(spark).items():
        field = inner.schema.fieldNames()[0]
        decoder = RedactingDecoder(
            DecompressingDecoder(inner, 1 << 20, arrow=False), (field,), readable=False
        )
        rows = decode(spark, decoder, [good, gzip.compress(good), bad, gzip.compress(good)[:-3], None])
        assert [r["_stage"] for r in rows] == [None, None, "decode", "decompress", "decode"], name
        # Nothing says where in such bytes the field would be.
        assert all(r["_bytes"] is None and r[field] is None for r in rows)
        assert all(r["_error"].endswith(WITHHELD) for r in rows[2:4])


def test_landed_and_replayed(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    decoder, good, bad = decoders(spark)["avro"]
    landing, events = table("landing"), Events()
    ddl = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in decoder.schema)
    write = dataclasses.replace(lander(spark, landing, events, ddl=ddl), decoder=decoder)
    write(frame(spark, kafka_rows(0, 0, [good, bad, None])), 0)
    assert events.accounts() == (3, 0, 3, 1, 2)
    corrected = tmp_path / "corrected.jsonl"
    line = {"id": "flights-topic/0/1", "payload_base64": base64.b64encode(good).decode()}
    corrected.write_text(json.dumps(line))
    replay = DeadLetterReplayer("land", landing, events.reporter, "flights", decoder)
    assert replay(spark, ReplayRequest("land", (), str(corrected))) == 0
    assert (events.last()["good"], events.last()["landed"]) == (1, 1)
    [row] = spark.table(str(landing)).where("_id = 'flights-topic/0/1#replay'").collect()
    assert (row["carrier"], row["flight"], row["_error"]) == ("AA", 1, None)


MONEY = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
MONEY = {"type": "record", "name": "shop.Money", "fields": [{"name": "sum", "type": MONEY}]}
OWNER = {"type": "record", "name": "shop.Owner", "fields": [{"name": "paid", "type": "shop.Money"}]}
SHOP = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "owner", "type": "shop.Owner"}, {"name": "due", "type": ["null", "shop.Money"]}],
}
REFERENCES = [
    {"name": "shop.Owner", "subject": "owner", "version": 4},
    {"name": "shop.Money", "subject": "money", "version": 1},
]
"""Of a schema that names two others, of which one names the other; of both the registry keeps one version."""


class Registry(Handler):
    """Answers as Confluent's registry does for one subject of two versions."""

    answers: ClassVar[dict[str, Any]] = {
        "/subjects/flights-value/versions": [1, 2],
        "/subjects/flights-value/versions/1": {"id": 7, "schema": json.dumps(OLDER)},
        "/subjects/flights-value/versions/2": {"id": 8, "schema": json.dumps(AVSC)},
        "/subjects/orders-value/versions": [1],
        "/subjects/orders-value/versions/1": {"id": 9, "schema": '{"type":"record","name":"Flight","fields":'
                                              '[{"name":"carrier","type":"int"}]}'},
        "/subjects/shops-value/versions": [1],
        "/subjects/shops-value/versions/1": {"id": 12, "schema": json.dumps(SHOP), "references": REFERENCES},
        "/subjects/owner/versions/4": {"id": 11, "schema": json.dumps(OWNER), "references": REFERENCES[1:]},
        "/subjects/money/versions/1": {"id": 10, "schema": json.dumps(MONEY)},
    }  # fmt: skip

    def do_GET(self) -> None:
        answer: Any = self.answers.get(self.path)
        if self.path.startswith("/subjects/guarded"):
            self.reply(401, b"")
            return
        self.reply(404 if answer is None else 200, json.dumps(answer).encode())


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with served(Registry) as url:
        yield url


def from_registry(spark: SparkSession, url: str, subject: str) -> avro.AvroDecoder:
    settings = AvroFormat("confluent", None, url, subject)
    return avro.make_avro_decoder(spark, settings, json.dumps(AVSC), "flight.avsc")


def test_a_registry_is_read_when_the_query_starts(spark: SparkSession, registry: str) -> None:
    decoder = from_registry(spark, f"{registry}/", "flights-value")
    rows = spark.createDataFrame([(bytearray(b"\0\0\0\0\x07\x02\x04AA\x02\x0a"),)], "payload BINARY")
    [row] = decoder.decode(rows).collect()
    assert (row["carrier"], row["flight"], row["delay"], row["_error"]) == ("AA", 5, None, None)


def test_a_schema_of_a_registry_may_name_types_of_others(spark: SparkSession, registry: str) -> None:
    owner = {**OWNER, "fields": [{"name": "paid", "type": MONEY}]}
    fields = [{"name": "owner", "type": owner}, {"name": "due", "type": ["null", "shop.Money"]}]
    settings = AvroFormat("confluent", None, registry, "shops-value")
    reader = json.dumps({**SHOP, "fields": fields})
    decoder = avro.make_avro_decoder(spark, settings, reader, "shop.avsc")
    rows = spark.createDataFrame([(bytearray(b"\0\0\0\0\x0c\x02\x64\x02\x02\x65"),)], "payload BINARY")
    [row] = decoder.decode(rows).collect()
    assert (row["owner"]["paid"]["sum"], row["due"]["sum"]) == (Decimal("1.00"), Decimal("1.01")), row


def test_a_registry_that_is_down_at_first_is_asked_again(
    spark: SparkSession, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replies = iter([503, 429])
    plain = Registry.do_GET

    def busy(self: Registry) -> None:
        code = next(replies, None)
        self.reply(code, b"") if code else plain(self)

    monkeypatch.setattr(Registry, "do_GET", busy)
    assert from_registry(spark, registry, "flights-value").writers
    assert next(replies, None) is None


def test_a_registry_that_does_not_answer_or_fit_stops_the_start(
    spark: SparkSession, registry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(avro_schemas, "START_SECONDS", 0.0)
    with pytest.raises(StartError, match=r"401 Unauthorized: a job has no login .* a folder of `writers`"):
        from_registry(spark, registry, "guarded")
    with pytest.raises(StartError, match="404"):
        from_registry(spark, registry, "none")
    with pytest.raises(
        StartError,
        match=r"writer 9: records written with this schema cannot be read with the schema of the query: .*lacking writer type: INT",
    ):
        from_registry(spark, registry, "orders-value")
    with pytest.raises(StartError, match=r"registry http://127\.0\.0\.1:1/"):
        from_registry(spark, "http://127.0.0.1:1", "flights-value")


def test_decoders_are_built_from_files(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "o.desc").write_bytes(protobuf_sample.DESCRIPTOR)
    (tmp_path / "f.avsc").write_text(json.dumps(AVSC))
    (tmp_path / "t.ddl").write_text("line STRING")
    made = [
        open_decoder(ProtobufFormat(protobuf_sample.NAME), spark, str(tmp_path / "o.desc")),
        open_decoder(PLAIN, spark, str(tmp_path / "f.avsc")),
        open_decoder(TextFormat(), spark, str(tmp_path / "t.ddl")),
        open_decoder(CsvFormat(",", '"', ""), spark, str(tmp_path / "t.ddl")),
        open_decoder(JsonFormat(), spark, str(tmp_path / "t.ddl")),
    ]
    assert [len(d.schema) for d in made] == [17, 4, 1, 1, 1]
    with pytest.raises(StartError, match="not UTF-8"):
        open_decoder(JsonFormat(), spark, str(tmp_path / "o.desc"))
    with pytest.raises(StartError, match="is not in the job's code archive"):
        open_decoder(JsonFormat(), spark, "nowhere/x.ddl")
