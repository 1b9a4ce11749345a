"""Change events in Avro, as Debezium's connectors write them through Kafka Connect, against the same events in JSON.

The schemas are those of Debezium's guide (``documentation/modules/ROOT/pages/configuration/avro.adoc`` and ``connectors/postgresql.adoc``)
in the form that Confluent's ``AvroData`` gives them: names and parameters of Connect beside Avro's types. fastavro writes the datums.
"""

from __future__ import annotations

import base64
import io
import json
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import Row, SparkSession

from millrace.etl.formats import avro_schemas
from millrace.etl.formats.base import open_decoder
from millrace.etl.launch.formats import AvroFormat, DebeziumFormat
from millrace.etl.record.errors import StartError
from tests.spark.change_events import Event, postgres, unscaled

DDL = """id BIGINT NOT NULL, paid BOOLEAN, price DECIMAL(10,2), day DATE, at TIMESTAMP COMMENT 'epoch microseconds', zoned TIMESTAMP,
note STRING, tags ARRAY<STRING>, image BINARY"""
ROW: Event = {
    "id": 1, "paid": True, "price": Decimal("-12.34"), "day": 19723, "at": 1700000000123456, "zoned": "2024-01-01T10:00:00Z",
    "note": "é 1.50", "tags": ["a", None], "image": b"\0\1",
}  # fmt: skip
VALUES: Event = {
    **ROW, "day": date(2024, 1, 1), "at": datetime(2023, 11, 14, 22, 13, 20, 123456), "zoned": datetime(2024, 1, 1, 10),
}  # fmt: skip


def optional(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": ["null", {"type": kind, **more}], "default": None}


def connect(name: str) -> dict[str, Any]:
    return {"connect.version": 1, "connect.name": name}


DECIMAL = {
    "scale": 2, "precision": 10, "logicalType": "decimal", **connect("org.apache.kafka.connect.data.Decimal"),
    "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
}  # fmt: skip
COLUMNS: dict[str, dict[str, Any]] = {
    "id": {"type": "long"},
    "paid": optional("boolean"),
    "price": optional("bytes", **DECIMAL),
    "day": optional("int", **connect("io.debezium.time.Date")),
    "at": optional("long", **connect("io.debezium.time.MicroTimestamp")),
    "zoned": optional("string", **connect("io.debezium.time.ZonedTimestamp")),
    "note": optional("string"),
    "tags": optional("array", items=["null", "string"]),
    "image": optional("bytes"),
}
SNAPSHOT = {
    "type": "string",
    "connect.parameters": {"allowed": "true,last,false,incremental"},
    **connect("io.debezium.data.Enum"),
}


def envelope(columns: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Schema of the events of a table."""
    row = {"type": "record", "name": "Value", "connect.name": "shop.public.orders.Value"}
    row["fields"] = [{"name": name, **kind} for name, kind in columns.items()]  # type: ignore[assignment]
    texts = {name: {"type": "string"} for name in ("version", "connector", "name", "db", "schema", "table")}
    source = {
        **texts, "ts_ms": {"type": "long"}, "snapshot": {"type": [SNAPSHOT, "null"], "default": "false"},
        "sequence": optional("string"), **{name: optional("long") for name in ("txId", "lsn", "xmin")},
    }  # fmt: skip
    block = {
        "id": {"type": "string"},
        "total_order": {"type": "long"},
        "data_collection_order": {"type": "long"},
    }

    def record(name: str, namespace: str, fields: dict[str, Any]) -> dict[str, Any]:
        whole = [{"name": name, **kind} for name, kind in fields.items()]
        return {"type": "record", "name": name, "namespace": namespace, "fields": whole}

    fields = {
        "before": {"type": ["null", row], "default": None},
        "after": {"type": ["null", "Value"], "default": None},
        "source": {"type": record("Source", "io.debezium.connector.postgresql", source)},
        "transaction": {"type": ["null", record("block", "event", block)], "default": None},
        "op": {"type": "string"},
        "ts_ms": optional("long"),
    }
    return {**record("Envelope", "shop.public.orders", fields), "connect.name": "shop.public.orders.Envelope"}


def decimal(scale: int) -> dict[str, Any]:
    return optional(
        "bytes", **{**DECIMAL, "precision": 12, "scale": scale, "connect.parameters": {"scale": str(scale)}}
    )


NEWER = {name: kind for name, kind in COLUMNS.items() if name != "tags"} | {"added": optional("double")}
ALTERED = {
    "id": COLUMNS["id"], "price": decimal(4), "tags": optional("array", items=["null", decimal(3)["type"][1]]),
    "image": COLUMNS["image"],
}  # fmt: skip
FLAT = {
    "type": "record", "name": "Value", "namespace": "shop.public.orders",
    "fields": [{"name": n, **k} for n, k in {**COLUMNS, "__op": optional("string"), "__deleted": optional("string")}.items()],
}  # fmt: skip
KEY = {
    "type": "record",
    "name": "Key",
    "namespace": "shop.public.orders",
    "fields": [{"name": "id", "type": "long"}],
}
FEE = optional("bytes", **{**DECIMAL, "precision": 64, "connect.parameters": {"scale": "2"}})
"""Connect's ``Decimal.builder(scale)``, of ``money``, in Confluent's converter."""
SCHEMAS = {
    7: envelope(COLUMNS), 300: envelope(NEWER), 9: envelope(ALTERED), 20: FLAT, 21: KEY,
    22: envelope({"id": COLUMNS["id"], "fee": FEE}),
}  # fmt: skip


def datum(identity: int, event: Event) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMAS[identity]), event)
    return b"\0" + identity.to_bytes(4, "big") + out.getvalue()


def as_json(event: Event) -> bytes:
    """The event as Connect's JsonConverter writes it."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: plain(each) for name, each in value.items()}
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        return unscaled(str(value)) if isinstance(value, Decimal) else value

    return json.dumps(plain(event)).encode()


def decoded(
    spark: SparkSession, home: Path, form: DebeziumFormat, payloads: list[bytes | None], ddl: str = DDL,
    key: bytes = b"\0\0\0\0\1\2",
) -> list[Row]:  # fmt: skip
    file = home / "row.ddl"
    file.write_text(ddl)
    rows = [(n, None if p is None else bytearray(p), bytearray(key)) for n, p in enumerate(payloads)]
    frame = spark.createDataFrame(rows, "n INT, payload BINARY, _key BINARY")
    decoder = open_decoder(form, spark, str(file))
    found = decoder.decode(frame)
    assert found.columns == ["n", "_key", *decoder.schema.names, "_bytes", "_stage", "_error"]
    return sorted(found.collect(), key=lambda row: row["n"])


@pytest.fixture
def avro(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DebeziumFormat:
    folder = tmp_path / "shopwriters"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for identity, schema in SCHEMAS.items():
        (folder / f"{identity}.avsc").write_text(json.dumps(schema))
    monkeypatch.syspath_prepend(str(tmp_path))
    return DebeziumFormat(AvroFormat("confluent", "shopwriters", None, None), "precise", False)


@pytest.mark.slow
def test_events_in_avro_are_those_in_json(spark: SparkSession, tmp_path: Path, avro: DebeziumFormat) -> None:
    other = {**ROW, "paid": False, "price": Decimal("99999999.99"), "note": None, "image": b""}
    events = [
        postgres("c", 10, 5, after=ROW),
        postgres("u", 20, 15, before=ROW, after=other),
        postgres("r", 30, None, "true", after=other),
        postgres("d", 40, 35, before=other),
        postgres("t", 50, 45),
    ]
    events[0]["transaction"] = {"id": "555:10", "total_order": 1, "data_collection_order": 1}
    plain = DebeziumFormat(None, "precise", False)
    wanted = decoded(spark, tmp_path, plain, [as_json(each) for each in events])
    found = decoded(spark, tmp_path, avro, [datum(7, each) for each in events])
    assert found == wanted
    assert {name: found[0][name] for name in VALUES} == VALUES
    assert (found[0]["_change"]["transaction"], found[1]["_change"]["before"]["paid"]) == ("555:10", True)
    assert [row["_stage"] for row in found] == [None, None, None, "delete", "truncate"]


@pytest.mark.slow
@pytest.mark.parametrize("fee_type", ["DECIMAL(20,2)", "DECIMAL(20,4)"])
def test_a_decimal_of_more_digits_than_spark_has_prevents_no_start(
    spark: SparkSession, tmp_path: Path, avro: DebeziumFormat, fee_type: str
) -> None:
    numbers = Decimal("-12.34"), Decimal(10) ** 18, Decimal(10) ** 50
    payloads: list[bytes | None] = [
        datum(22, postgres("c", 10, 5, after={"id": 1, "fee": n})) for n in numbers
    ]
    rows = decoded(spark, tmp_path, avro, payloads, f"id BIGINT NOT NULL, fee {fee_type}")
    good = (numbers[0], None), (None, "wrong type: fee"), (None, "wrong type: fee")
    assert [(row["fee"], row["_error"]) for row in rows] == list(good)
    left_out = decoded(spark, tmp_path, avro, payloads, "id BIGINT NOT NULL")
    assert [(row["id"], row["_error"]) for row in left_out] == [(1, None)] * 3


@pytest.mark.slow
def test_each_writers_schema_reads_its_own_and_what_is_none_is_a_dead_letter(
    spark: SparkSession, tmp_path: Path, avro: DebeziumFormat
) -> None:
    newer = {name: value for name, value in ROW.items() if name != "tags"} | {"added": 1.5}
    good = datum(300, postgres("c", 10, 5, after=newer))
    text = datum(7, postgres("c", 10, 5, after=ROW)).replace("é".encode(), b"\xff\xfe")
    bad: dict[bytes, tuple[str, str]] = {
        good[:-1]: ("decode", "not one datum of the schema"),
        good + b"\0": ("decode", "unexpected bytes after the datum"),
        b"\0\0\0\0\7" + good[5:]: ("decode", ""),
        b"\0\0\0\0\x08" + good[5:]: ("schema", "unknown schema id: 8"),
        b"\1" + good[1:]: ("decode", "no header of confluent framing"),
        text: ("decode", "a text in it is not UTF-8"),
        b"": ("decode", "empty"),
    }
    first, null, *letters = decoded(spark, tmp_path, avro, [good, None, *bad])
    assert {name: first[name] for name in VALUES} == {**VALUES, "tags": None}
    assert (null["_stage"], null["_error"], null["_change"]["operation"]) == ("control", None, "control")
    for row, (payload, (stage, error)) in zip(letters, bad.items(), strict=True):
        assert (bytes(row["_bytes"]), row["_stage"], row["_change"]) == (payload, stage, None), row
        assert error in row["_error"]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [4, *(pytest.param(each, marks=pytest.mark.slow) for each in (2, 6))])
def test_a_decimal_has_the_scale_of_its_writer(
    spark: SparkSession, tmp_path: Path, avro: DebeziumFormat, scale: int
) -> None:
    ddl = f"id BIGINT NOT NULL, price DECIMAL(16,{scale}), tags ARRAY<DECIMAL(10,3)>, image BINARY"
    values = Decimal("12.34"), Decimal("-99999999.99"), Decimal(0), None
    before = [postgres("c", 10, 5, after={**ROW, "price": each}) for each in values]
    after = [
        postgres("c", 20, 15, after={"id": 1, "price": Decimal("12.3400"), "tags": [Decimal("0.125"), None]})
    ]
    payloads = [
        *(datum(7, each | {"after": each["after"] | {"tags": None}}) for each in before),
        *(datum(9, each) for each in after),
    ]
    found = decoded(spark, tmp_path, avro, payloads, ddl)
    assert [(row["price"], row["_error"]) for row in found] == [
        (each, None) for each in [*values, Decimal("12.34")]
    ]
    assert found[-1]["tags"] == [Decimal("0.125"), None]
    assert bytes(found[0]["image"]) == ROW["image"]


@pytest.mark.parametrize(
    "keys",
    [
        "of a registry",
        *(
            pytest.param(each, marks=pytest.mark.slow)
            for each in ("unknown", "of a folder", "not in the registry")
        ),
    ],
)
def test_a_flattened_delete_that_is_its_key_alone_is_not_lost(
    spark: SparkSession, tmp_path: Path, avro: DebeziumFormat, keys: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def registered(_: SparkSession, url: str, subject: str) -> dict[str, str]:
        if keys != "of a registry" and subject != "orders-value":
            raise StartError(f"registry {url}: 404 Not Found")
        return {"orders-value": {"20": json.dumps(FLAT)}, "orders-key": {"21": json.dumps(KEY)}}[subject]

    form = replace(avro, flattened=True)
    if keys.endswith("registry"):
        monkeypatch.setattr(avro_schemas, "writer_schemas_from_registry", registered)
        form = replace(form, avro=AvroFormat("confluent", None, "http://registry", "orders-value"))
    key = b"\0\0\0\0\x63\2" if keys == "unknown" else datum(21, {"id": 1})
    flat = {**ROW, "__op": "u", "__deleted": "false"}
    row, delete = decoded(spark, tmp_path, form, [datum(20, flat), None], key=key)
    assert ({name: row[name] for name in VALUES}, row["_change"]["operation"]) == (VALUES, "update")
    assert bytes(delete["_key"]) == key
    found = (
        delete["id"],
        delete["_stage"],
        delete["_error"],
        delete["_change"] and delete["_change"]["operation"],
    )
    number = int.from_bytes(key[1:5], "big")
    refused = (None, "schema", f"unknown schema id: {number}", None)
    assert found == ((1, "delete", None, "delete") if keys.startswith("of ") else refused)
