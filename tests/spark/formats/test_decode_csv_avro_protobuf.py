"""CSV, text, Avro and Protobuf records are decoded or become dead letters with their bytes."""

from __future__ import annotations

import csv
import io
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro

from millrace.etl.formats import avro, protobuf
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.csv import MOST_DELIMITERS, CsvDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.formats.text import TextDecoder
from millrace.etl.launch.formats import AvroFormat, CsvFormat
from millrace.etl.record.errors import StartError
from tests import protobuf_sample
from tests import protobuf_without_protoc as pb
from tests.spark.formats import test_decode_json

CSV_DDL = "carrier STRING NOT NULL, flight INT NOT NULL, delay DOUBLE, at TIMESTAMP, fare DECIMAL(9,2), flag BOOLEAN"
COMMA = CsvFormat(",", '"', "")

AVSC: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": ["null", "string"], "default": None},
        {"name": "flight", "type": ["null", "int"], "default": None},
        {"name": "delay", "type": ["null", "double"], "default": None},
        {"name": "legs", "type": ["null", {"type": "array", "items": "string"}], "default": None},
    ],
}
OLDER: dict[str, Any] = {**AVSC, "fields": AVSC["fields"][:2]}
PLAIN = AvroFormat("none", None, None, None)
UUID = "0b5c6d2e-9c1a-4b6e-8d53-0a4a3c2b1d00"


def decode(spark: SparkSession, decoder: Decoder, payloads: Sequence[bytes | None]) -> list[Row]:
    decoded = test_decode_json.decode(spark, decoder, payloads)
    assert [r["n"] for r in decoded] == list(range(len(payloads))), "every row once"
    return decoded


def faults(
    decoder: Decoder, rows: Sequence[Row], wanted: Mapping[str, tuple[bytes | None, str, str]]
) -> dict[str, Row]:
    """Rows that are not the dead letters that they should be."""
    found = {}
    for (name, (payload, stage, error)), row in zip(wanted.items(), rows, strict=True):
        kept = None if row["_bytes"] is None else bytes(row["_bytes"])
        nulls = all(row[f] is None for f in decoder.schema.fieldNames())
        if not (kept == payload and row["_stage"] == stage and error in (row["_error"] or "") and nulls):
            found[name] = row
    return found


def values(row: Row, decoder: Decoder) -> dict[str, Any]:
    assert (row["_error"], row["_stage"], row["_bytes"]) == (None, None, None), row
    return {f: row[f] for f in decoder.schema.fieldNames()}


@pytest.fixture(scope="module")
def of_csv(spark: SparkSession) -> CsvDecoder:
    return CsvDecoder(parse_ddl_schema(spark, CSV_DDL, "test.ddl"), COMMA)


GOOD_CSV = b"AA,1,2.5,2013-01-01T05:00:00Z,1.239,true"
BAD_CSV: dict[str, tuple[bytes | None, str, str]] = {
    "tombstone": (None, "decode", "null payload"),
    "empty": (b"", "decode", "empty record"),
    "blank": (b" \n", "decode", "not one record of 6 columns"),
    "a column less": (b"AA,1,2.5,,1", "decode", "not one record of 6 columns"),
    "a column more": (GOOD_CSV + b",x", "decode", "not one record of 6 columns"),
    "two records": (GOOD_CSV + b"\n" + GOOD_CSV, "decode", "not one record"),
    "two records, the first a column longer": (GOOD_CSV + b",x\n" + GOOD_CSV, "decode", "not one record"),
    "a header and a record": (b"carrier,flight,delay,at,fare,flag\n" + GOOD_CSV, "decode", "not one record"),
    "a quote that does not close": (b'"AA,1,2.5,,1,true', "decode", "not one record"),
    "not UTF-8": (b"\xff" + GOOD_CSV, "decode", "not UTF-8"),
    "a byte order mark": (b"\xef\xbb\xbf" + GOOD_CSV, "decode", "a NUL or a byte order mark"),
    "a comment before it": (b"\0 x\n" + GOOD_CSV, "decode", "a NUL or a byte order mark"),
    "more columns than the parser has": (b"," * 30_000, "decode", f"more than {MOST_DELIMITERS:,}"),
    "text for int": (b"AA,one,2.5,,1,true", "schema", "wrong type: flight"),
    "beyond 32 bits": (b"AA,3000000000,2.5,,1,true", "schema", "wrong type: flight"),
    "two wrong": (b"AA,1,late,,1,maybe", "schema", "wrong type: delay, flag"),
    "text for time": (b"AA,1,2.5,yesterday,1,true", "schema", "wrong type: at"),
    "decimal overflow": (b"AA,1,2.5,,12345678901,true", "schema", "wrong type: fare"),
    "no carrier": (b",1,2.5,,1,true", "schema", "no value for a required field: carrier"),
    "two missing": (b",,2.5,,1,true", "schema", "required field: carrier, flight"),
}
TAKEN_CSV: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (GOOD_CSV, {"carrier": "AA", "flight": 1, "delay": 2.5, "fare": Decimal("1.24"), "flag": True}),
    "a line feed behind it": (GOOD_CSV + b"\r\n", {"carrier": "AA", "flag": True}),
    "nulls": (b"AA,1,,,,", {"delay": None, "at": None, "fare": None, "flag": None}),
    "quoted": (b'"A,""A""\nA",1,,,,', {"carrier": 'A,"A"\nA'}),
    "a quote inside": (b'5" nail,1,,,,', {"carrier": '5" nail'}),
    "a backslash": (b'"C:\\",1,,,,', {"carrier": "C:\\"}),
    "emoji": ("✈\U0001f600,1,,,,".encode(), {"carrier": "✈\U0001f600"}),
    "1 MiB": (b"A" * (1 << 20) + b",1,,,,", {"carrier": "A" * (1 << 20)}),
}


def test_csv(spark: SparkSession, of_csv: CsvDecoder) -> None:
    payloads = [p for p, _, _ in BAD_CSV.values()] + [p for p, _ in TAKEN_CSV.values()]
    rows = decode(spark, of_csv, payloads)
    assert faults(of_csv, rows[: len(BAD_CSV)], BAD_CSV) == {}
    for (name, (_, wanted)), row in zip(TAKEN_CSV.items(), rows[len(BAD_CSV) :], strict=True):
        found = values(row, of_csv)
        assert {k: found[k] for k in wanted} == wanted, name


def test_csv_as_others_write_it(spark: SparkSession) -> None:
    options = CsvFormat(";", "'", "NA")
    decoder = CsvDecoder(parse_ddl_schema(spark, "a STRING, b INT, c STRING", "test.ddl"), options)
    [row, empty, bad] = decode(spark, decoder, [b"'x;''y';NA;NA", b"'';1;", b"x,1,y"])
    assert values(empty, decoder) == {"a": "", "b": 1, "c": None}
    assert values(row, decoder) == {"a": "x;'y", "b": None, "c": None}
    assert bad["_stage"] == "decode"


def test_text(spark: SparkSession) -> None:
    decoder = TextDecoder(parse_ddl_schema(spark, "line STRING", "test.ddl"))
    rows = decode(spark, decoder, ["ä\n\0".encode(), b"", None, b"\xc0\xaf"])
    assert [values(r, decoder)["line"] for r in rows[:2]] == ["ä\n\0", ""]
    assert [(r["_stage"], r["_error"]) for r in rows[2:]] == [
        ("decode", "null payload (a tombstone)"),
        ("decode", "not UTF-8"),
    ]
    assert bytes(rows[3]["_bytes"]) == b"\xc0\xaf"


FLIGHTS = [("AA", 1, 2.5, ["JFK", "LAX"]), (None, None, None, None), ("ä", 2, None, [])]


@pytest.fixture(scope="module")
def data(spark: SparkSession) -> list[bytes]:
    """Flights as Spark's own ``to_avro`` writes them."""
    rows = spark.createDataFrame(FLIGHTS, "carrier STRING, flight INT, delay DOUBLE, legs ARRAY<STRING>")
    written = rows.select(to_avro(F.struct("*"), json.dumps(AVSC)).alias("datum")).collect()
    return [bytes(r["datum"]) for r in written]


@pytest.fixture(scope="module")
def of_avro(spark: SparkSession) -> avro.AvroDecoder:
    return avro.make_avro_decoder(spark, PLAIN, json.dumps(AVSC), "flight.avsc")


def long(value: int) -> bytes:
    """Avro's variable-length number."""
    coded, out = (value << 1) ^ (value >> 63), bytearray()
    while coded > 0x7F:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*out, coded])


def test_avro(spark: SparkSession, of_avro: avro.AvroDecoder, data: list[bytes]) -> None:
    rows = decode(spark, of_avro, data)
    assert [tuple(values(r, of_avro).values()) for r in rows] == FLIGHTS
    full = data[0]
    bad: dict[str, tuple[bytes | None, str, str]] = {
        "tombstone": (None, "decode", "null payload"),
        "empty": (b"", "decode", "empty record"),
        **{f"cut off at {n}": (full[:n], "decode", "not one datum") for n in range(1, len(full))},
        "a byte behind it": (full + b"\0", "decode", "bytes after the datum"),
        "two": (full + full, "decode", "bytes after the datum"),
        "the end of its frame behind it": (full + b"x" * 16, "decode", "bytes after the datum"),
        "a branch that is none": (b"\x08" + full[1:], "decode", "not one datum"),
        "JSON": (b'{"carrier":"AA"}', "decode", "not one datum"),
        # Each would take the executor with it, were there no limits.
        "a text of 2 GiB": (b"\x02" + long((1 << 31) - 9), "decode", "not one datum"),
        "a text of 1 GiB": (b"\x02" + long(1 << 30) + b"abc", "decode", "not one datum"),
        "2,000,000,000 items": (b"\0\0\0\x02" + long(2_000_000_000), "decode", "not one datum"),
        "a text of a negative length": (b"\x02" + long(-1), "decode", "not one datum"),
        "a text that is not UTF-8": (b"\x02\x02\xff\0\0\0", "decode", "not UTF-8"),
        "one inside an array": (b"\0\0\0\x02\x02\x02\xff\0", "decode", "not UTF-8"),
    }
    assert faults(of_avro, decode(spark, of_avro, [p for p, _, _ in bad.values()]), bad) == {}


def test_no_text_of_an_avro_map_is_replaced(spark: SparkSession) -> None:
    maps = [{"name": n, "type": {"type": "map", "values": t}} for n, t in (("a", "int"), ("b", "string"))]
    decoder = avro.make_avro_decoder(
        spark, PLAIN, json.dumps({"type": "record", "name": "r", "fields": maps}), "maps.avsc"
    )
    bad: dict[str, tuple[bytes | None, str, str]] = {
        "a key of numbers": (b"\x02\x02\xff\x02\0\0", "decode", "not UTF-8"),
        "a key of texts": (b"\0\x02\x02\xff\x02b\0", "decode", "not UTF-8"),
        "a value": (b"\0\x02\x02b\x02\xff\0", "decode", "not UTF-8"),
    }
    good, *others = decode(
        spark, decoder, [b"\x02\x02a\x02\0\x02\x02b\x02c\0", *(p for p, _, _ in bad.values())]
    )
    assert values(good, decoder) == {"a": {"a": 1}, "b": {"b": "c"}}
    assert faults(decoder, others, bad) == {}


def test_limits_are_set_in_the_jvm_that_decodes(
    spark: SparkSession, of_avro: avro.AvroDecoder, data: list[bytes]
) -> None:
    jvm: Any = spark._jvm
    system = jvm.java.lang.System
    name = "org.apache.avro.limits.string.maxLength"
    system.clearProperty(name)
    decode(spark, of_avro, data)
    assert system.getProperty(name) == str(avro.LONGEST_VALUE)


def framed(framing: str, identity: int | bytes, datum: bytes) -> bytes:
    if framing == "confluent":
        assert isinstance(identity, int)
        return b"\0" + identity.to_bytes(4, "big") + datum
    assert isinstance(identity, bytes)
    return b"\x03\0" + identity + datum


def test_avro_of_several_writers(spark: SparkSession, of_avro: avro.AvroDecoder, data: list[bytes]) -> None:
    writers = {"7": json.dumps(AVSC), "300": json.dumps(OLDER)}
    decoder = avro.AvroDecoder(of_avro.schema, json.dumps(AVSC), "confluent", writers)
    older = b"\x02\x04AA\x02\x0a"
    rows = decode(spark, decoder, [framed("confluent", 7, data[0]), framed("confluent", 300, older)])
    assert [tuple(values(r, decoder).values()) for r in rows] == [FLIGHTS[0], ("AA", 5, None, None)]
    bad: dict[str, tuple[bytes | None, str, str]] = {
        "without a header": (data[0], "decode", "no header of confluent framing"),
        "a header cut off": (b"\0\0\0", "decode", "no header"),
        "an unknown schema": (framed("confluent", 8, data[0]), "schema", "unknown schema id: 8"),
        "the other writer's": (framed("confluent", 300, data[0]), "decode", "bytes after the datum"),
        "nothing behind the header": (framed("confluent", 7, b""), "decode", "not one datum"),
    }
    assert faults(decoder, decode(spark, decoder, [p for p, _, _ in bad.values()]), bad) == {}


def test_avro_in_glues_framing(spark: SparkSession, of_avro: avro.AvroDecoder, data: list[bytes]) -> None:
    decoder = avro.AvroDecoder(of_avro.schema, json.dumps(AVSC), "glue", {UUID: json.dumps(AVSC)})
    known = bytes.fromhex(UUID.replace("-", ""))
    [row, *others] = decode(
        spark,
        decoder,
        [
            framed("glue", known, data[0]),
            framed("glue", bytes(16), data[0]),
            b"\x03\x05" + known + data[0],
            framed("confluent", 1, data[0]),
        ],
    )
    assert tuple(values(row, decoder).values()) == FLIGHTS[0]
    assert [(r["_stage"], r["_error"]) for r in others] == [
        ("schema", "unknown schema id: 00000000-0000-0000-0000-000000000000"),
        ("decode", "compressed inside Glue's framing, and the query has no decompress_up_to"),
        ("decode", "no header of glue framing"),
    ]


@pytest.mark.slow
def test_avro_compressed_inside_glues_framing(
    spark: SparkSession, of_avro: avro.AvroDecoder, data: list[bytes]
) -> None:
    decoder = avro.AvroDecoder(
        of_avro.schema, json.dumps(AVSC), "glue", {UUID: json.dumps(AVSC)}, open_up_to=200
    )
    head, packed = b"\x03\x05" + bytes.fromhex(UUID.replace("-", "")), zlib.compress(data[0])
    large = zlib.compress(b"\x02" + long(500) + b"x" * 500 + b"\0\0\0")
    [row, plain, *others] = decode(
        spark,
        decoder,
        [head + packed, b"\x03\0" + head[2:] + data[0], head + large, head + packed[:-3], head + data[0]],
    )
    assert tuple(values(row, decoder).values()) == tuple(values(plain, decoder).values()) == FLIGHTS[0]
    assert [(r["_stage"], r["_error"][:25]) for r in others] == [
        ("decompress", "zlib: the message is larg"),
        ("decompress", "zlib: the message is inco"),
        ("decompress", "not zlib, as Glue's heade"),
    ]


REFUSED_AVRO = {
    "no JSON": ("{", "end-of-input"),
    "a record that holds itself": (
        json.dumps({**AVSC, "fields": [{"name": "next", "type": ["null", "Flight"]}]}), "recursive",
    ),
    "an array of itself": (
        json.dumps({**AVSC, "fields": [{"name": "a", "type": {"type": "array", "items": "Flight"}}]}), "recursive",
    ),
    "an array of nothing": (
        json.dumps({**AVSC, "fields": [{"name": "a", "type": {"type": "array"}}]}), "Array has no items type",
    ),
    "a map of nothing": (json.dumps({**AVSC, "fields": [{"name": "a", "type": {"type": "map"}}]}), "Map has no values type"),
    "a field that is a text": (json.dumps({**AVSC, "fields": ["carrier"]}), "No field name"),
    "a name that is no text": (
        json.dumps({**AVSC, "fields": [{"name": "a", "type": {"type": "enum", "name": ["E"]}}]}), "No name in schema",
    ),
    "a record without fields": (
        json.dumps({**AVSC, "fields": [{"name": "a", "type": {"type": "record", "name": "R"}}]}), "Record has no fields",
    ),
    "a name of ours": (json.dumps({**AVSC, "fields": [{"name": "_id", "type": "int"}]}), "_id"),
    "an unknown type": (json.dumps({**AVSC, "fields": [{"name": "a", "type": "number"}]}), "number"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED_AVRO)
def test_an_avro_schema_that_does_not_fit_is_refused(spark: SparkSession, name: str) -> None:
    text, message = REFUSED_AVRO[name]
    with pytest.raises(StartError, match=f"(?is)^flight.avsc: .*{message}"):
        avro.make_avro_decoder(spark, PLAIN, text, "flight.avsc")


@pytest.mark.parametrize("by_arrow", [True, False])
def test_protobuf(spark: SparkSession, by_arrow: bool) -> None:
    message = protobuf.make_protobuf_decoder(
        protobuf_sample.DESCRIPTOR, protobuf_sample.NAME, "order.desc"
    ).message
    decoder = protobuf.ProtobufDecoder(message, by_arrow)
    rows = decode(spark, decoder, [protobuf_sample.FULL, b""])
    for row, wanted in zip(rows, (protobuf_sample.VALUES, protobuf_sample.NOTHING), strict=True):
        found = values(row, decoder)
        found["customer"] = found["customer"] and found["customer"].asDict()
        found["scan"] = bytes(found["scan"])
        found["at"] = wanted["at"]  # compared below: PySpark hands times over in the zone of this machine
        assert found == wanted
    at = F.col("at").cast("double")
    frame = spark.createDataFrame([(bytearray(protobuf_sample.FULL),)], "payload BINARY")
    assert decoder.decode(frame).select(at).first()[0] == 1_700_000_000.25
    bad: dict[str, tuple[bytes | None, str, str]] = {
        "tombstone": (None, "decode", "null payload"),
        "cut off": (protobuf_sample.FULL[:-1], "decode", "truncated inside"),
        "another type": (b"\x0a\x01x", "schema", "wrong type: id"),
    }
    assert faults(decoder, decode(spark, decoder, [p for p, _, _ in bad.values()]), bad) == {}


@dataclass(frozen=True)
class Fuzzed:
    """A decoder, and good payloads to spoil."""

    decoder: Decoder
    seeds: tuple[bytes, ...]


@pytest.fixture(scope="module")
def fuzzed(
    spark: SparkSession, of_csv: CsvDecoder, of_avro: avro.AvroDecoder, data: list[bytes]
) -> dict[str, Fuzzed]:
    writers = {"7": json.dumps(AVSC), "8": json.dumps(OLDER)}
    registered = avro.AvroDecoder(of_avro.schema, json.dumps(AVSC), "confluent", writers)
    of_text = TextDecoder(parse_ddl_schema(spark, "line STRING", "test.ddl"))
    of_protobuf = protobuf.make_protobuf_decoder(
        protobuf_sample.DESCRIPTOR, protobuf_sample.NAME, "order.desc"
    )
    return {
        "csv": Fuzzed(of_csv, (GOOD_CSV, *(p for p, _ in list(TAKEN_CSV.values())[:-1]))),
        "text": Fuzzed(of_text, ("ä€\U0001f600".encode(),)),
        "avro": Fuzzed(of_avro, tuple(data)),
        "confluent": Fuzzed(registered, tuple(framed("confluent", 7, d) for d in data)),
        "protobuf": Fuzzed(of_protobuf, (protobuf_sample.FULL, b"")),
    }


def spoiled(seeds: Sequence[bytes]) -> st.SearchStrategy[bytes]:
    """Any bytes; good payloads; and good ones that were cut, lengthened, glued and changed in places."""
    good = st.sampled_from(list(seeds))
    anything = st.binary(max_size=12)
    changed = st.builds(
        lambda base, at, new: base[: at % (len(base) + 1)] + new + base[at % (len(base) + 1) + len(new) :],
        good, st.integers(0, 500), anything,
    )  # fmt: skip
    cut = st.builds(lambda base, at: base[: at % (len(base) + 1)], good, st.integers(0, 500))
    marks = st.text(alphabet=",\"'\n\r\0;\\ aÄ1", max_size=20).map(str.encode)
    return good | anything | changed | cut | marks | st.builds(bytes.__add__, good, anything | good | marks)


@pytest.mark.parametrize("name", ["csv", "text", "avro", "confluent", "protobuf"])
def test_any_bytes_come_out_once_good_or_kept(
    spark: SparkSession, fuzzed: Mapping[str, Fuzzed], name: str
) -> None:
    decoder, seeds = fuzzed[name].decoder, fuzzed[name].seeds

    # One job of Spark's for some hundred records: what hypothesis draws is a whole batch.
    @hypothesis.settings(
        max_examples=1, suppress_health_check=list(hypothesis.HealthCheck), database=None,
        phases=[hypothesis.Phase.generate],
    )  # fmt: skip
    @hypothesis.given(st.lists(st.none() | spoiled(seeds), min_size=150, max_size=250))
    def batches(payloads: list[bytes | None]) -> None:
        rows = decode(spark, decoder, [*payloads, *seeds])
        for payload, row in zip([*payloads, *seeds], rows, strict=True):
            if row["_error"] is None:
                assert (row["_stage"], row["_bytes"]) == (None, None)
                assert payload is not None
                check(name, payload, row)
            else:
                assert row["_stage"] in ("decode", "schema")
                assert (None if row["_bytes"] is None else bytes(row["_bytes"])) == payload
                assert all(row[f] is None for f in decoder.schema.fieldNames())
        assert all(row["_error"] is None for row in rows[len(payloads) :])

    batches()


def check(name: str, payload: bytes, row: Row) -> None:
    """Hold a good record against another reader of its format."""
    # What follows a closing quote, and a carriage return alone, are read in different ways by different readers.
    if name == "csv" and not set(payload) & set(b'"\r'):
        [fields] = [r for r in csv.reader(io.StringIO(payload.decode(), newline="")) if r]
        assert (len(fields), fields[0], int(fields[1])) == (6, row["carrier"], row["flight"])
    elif name == "text":
        assert row["line"].encode() == payload
    elif name == "protobuf":
        message = protobuf.make_protobuf_decoder(
            protobuf_sample.DESCRIPTOR, protobuf_sample.NAME, "order.desc"
        ).message
        again = pb.reader(message)(payload)
        assert (again["id"], again["title"], again["tags"]) == (row["id"], row["title"], row["tags"])
