"""A number with a huge exponent becomes a dead letter before it is parsed; other numbers keep their values.

What it would take is counted in bytes that the JVM allocates: a decimal of a million digits is written out for its column.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from millrace.etl.formats import avro
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.formats import AvroFormat, CsvFormat
from tests.protobuf_without_protoc import varint
from tests.spark.formats.test_decode_json import allocated_by, decode

DDL = """
price DECIMAL(9,2), `naïve` DECIMAL(9,2), `a/b` DECIMAL(9,2), prices ARRAY<DECIMAL(9,2)>, by MAP<STRING,DECIMAL(9,2)>,
grid ARRAY<ARRAY<DECIMAL(9,2)>>, item STRUCT<cost: DECIMAL(38,18), name: STRING>, items ARRAY<STRUCT<cost: DECIMAL(9,2)>>,
ratio DOUBLE, id STRING, big BIGINT, at TIMESTAMP, day DATE, n INT
"""
FEW = 8 << 20
"""Bytes that a record may take; a decimal of two million digits takes many times as many."""

WILD: dict[str, bytes] = {
    "exponent": b'{"price":1e2000000}',
    "small": b'{"price":1e-2000000}',
    "capital, sign, fraction": b'{"price":-1.5E+2000000}',
    "as text": b'{"price":"1e2000000"}',
    "as small text": b'{"price":"-1.5e-2000000"}',
    "as text in other digits": '{"price":"1e２００００００"}'.encode(),
    "as text in other digits, each escaped": b'{"price":"1e\\uff12\\uff10\\uff10\\uff10\\uff10\\uff10\\uff10"}',
    "as text, the letter escaped": b'{"price":"1\\u00652000000"}',
    "as text, a digit escaped": b'{"price":"1e\\u0032000000"}',
    "zeros before it": b'{"price":1e0000002000000}',
    "blanks about it": b'{ "price" :\n 1e2000000\t}',
    "a line behind it": b'{"price":1e2000000}\n',
    "blanks behind it": b'{"price":1e2000000} ',
    "the name escaped": b'{"\\u0070rice":1e2000000}',
    "the name written otherwise": b'{"na\\u00efve":1e2000000}',
    "a slash in the name escaped": b'{"a\\/b":1e2000000}',
    "the first of two": b'{"price":1e2000000,"price":1}',
    "the last of two": b'{"price":1,"price":1e2000000}',
    "an item": b'{"prices":[1,2.5,1e-2000000]}',
    "an item as text": b'{"prices":[1,"1e-2000000"]}',
    "an item of an item": b'{"grid":[[1],[1e2000000]]}',
    "a value of a map": b'{"by":{"e":1,"f":1e2000000}}',
    "inside": b'{"item":{"cost":1e2000000,"name":"x"}}',
    "inside a list": b'{"items":[{"cost":1},{"cost":1e2000000}]}',
    "before a cut": b'{"price":1e2000000,"n":',
    "before a wrong type": b'{"price":1e2000000,"n":"x"}',
    "after a wrong type": b'{"n":"x","price":1e2000000}',
    "inside, before a wrong type": b'{"item":{"cost":1e2000000,"name":"x"},"items":5}',
    "before a second": b'{"price":1e2000000}{}',
    "among texts that look so": b'{"id":"1e9999999","price":1e2000000}',
    "behind a quote that is none": b'{"id":"\\"","price":1e2000000}',
    "half a million digits as text": b'{"price":"' + b"9" * 500_000 + b'"}',
    "half a million digits": b'{"price":' + b"9" * 500_000 + b"}",
}

HARMLESS: dict[str, tuple[bytes, Mapping[str, Any]]] = {
    "an exponent": (b'{"price":1.25e3}', {"price": Decimal("1250.00")}),
    "a small one": (b'{"price":1e-300}', {"price": Decimal("0.00")}),
    "as text": (b'{"price":"1.25E+3"}', {"price": Decimal("1250.00")}),
    "as text in other digits": ('{"price":"１２"}'.encode(), {"price": Decimal("12.00")}),
    "zeros": (b'{"price":0.000}', {"price": Decimal("0.00")}),
    "digits": (b'{"item":{"cost":12345678901234567.123456789012345678}}', {}),
    "in a field without a name": (b'{"price":1,"x":1e2000000}', {"price": Decimal("1.00")}),
    "in a name": (b'{"price":1,"1e2000000":1}', {"price": Decimal("1.00")}),
    "in a text": (b'{"price":1,"id":"12e4567"}', {"id": "12e4567"}),
    "in a text, the price odd": (
        b'{"price":"1\\u0030","id":"12e4567"}',
        {"price": Decimal(10), "id": "12e4567"},
    ),
    "in a quoted text, the price odd": (
        b'{"price":"1\\u0030","id":"\\"1e99999\\""}',
        {"price": Decimal(10), "id": '"1e99999"'},
    ),
    "in a text that looks like a name, the price odd": (
        b'{"price":"1\\u0030","id":"price\\":1e99999"}',
        {"price": Decimal(10), "id": 'price":1e99999'},
    ),
    "in a double, the price odd": (b'{"price":"1\\u0030","ratio":1e-99999}', {"ratio": 0.0}),
    "as a key, the price odd": (b'{"price":"1\\u0030","by":{"1e99999":1}}', {"by": {"1e99999": Decimal(1)}}),
    "no value": (b'{"price":null,"prices":[],"by":{}}', {"price": None, "prices": [], "by": {}}),
}


@pytest.fixture(scope="module")
def decoder(spark: SparkSession) -> JsonDecoder:
    return JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))


def costs(
    spark: SparkSession, decoder: Decoder, payloads: Sequence[bytes]
) -> Iterator[tuple[bytes, Row, int]]:
    """Each payload with its row and the bytes that the JVM allocated for it, beside those for the first one.

    Other threads allocate too, and now and then: where it comes to more than a few, the least of three is what it takes.
    """

    def measure(payload: bytes) -> tuple[Row, int]:
        rows: list[Row] = []
        cost = allocated_by(spark, lambda: rows.extend(decode(spark, decoder, [payload])))
        return rows[0], cost

    plain = min(measure(payloads[0])[1] for _ in range(3))
    for payload in payloads:
        row, cost = measure(payload)
        for _ in range(2):
            if cost - plain > FEW:
                cost = min(cost, measure(payload)[1])
        yield payload, row, cost - plain


@pytest.mark.slow
def test_a_number_out_of_range_is_a_dead_letter_that_costs_nothing(
    spark: SparkSession, decoder: JsonDecoder
) -> None:
    decode(spark, decoder, [b"{}", b"x", b'{"price":"x"}'])
    found, names = {}, ["", *WILD]
    for name, (payload, row, cost) in zip(names, costs(spark, decoder, [b"x", *WILD.values()]), strict=True):
        if bytes(row["_bytes"] or b"") != payload or row["_error"] is None or cost > FEW + 300 * len(payload):
            found[name] = (row["_stage"], row["_error"], cost)
    assert found == {}


@pytest.mark.slow
def test_the_reason_names_the_field(spark: SparkSession, decoder: JsonDecoder) -> None:
    rows = decode(spark, decoder, [WILD[n] for n in ("exponent", "inside", "before a cut")])
    assert [(r["_stage"], r["_error"]) for r in rows] == [
        ("schema", "wrong type, or a number out of range: price"),
        ("schema", "wrong type, or a number out of range: item.cost"),
        ("decode", "not exactly one JSON object"),
    ]


def test_other_numbers_are_what_they_were(spark: SparkSession, decoder: JsonDecoder) -> None:
    rows = decode(spark, decoder, [payload for payload, _ in HARMLESS.values()])
    for (name, (_, values)), row in zip(HARMLESS.items(), rows, strict=True):
        assert row["_error"] is None, (name, row)
        assert {f: row[f] for f in values} == values, name


digits = st.text("0123456789", min_size=1, max_size=8) | st.sampled_from(["0" * 50 + "1", "9" * 120])
exponents = st.sampled_from(
    ["", "", "e0", "e1", "E-2", "e+003", "e-99", "e998", "e-2000000", "E+2000000", "e00002000000"]
)
numbers = st.builds(
    lambda sign, whole, part, exponent: sign + (whole.lstrip("0") or "0") + part + exponent,
    st.sampled_from(["", "-"]),
    digits,
    st.just("") | digits.map(lambda d: f".{d}"),
    exponents,
)
texts = numbers | st.sampled_from(
    ["x", "", "1e", "12e4567", 'price":1e99999', "}", '"', "1e99999 ", "\uff11", "1e\uff12\uff10\uff10\uff10"]
)


def written(text: str, escaped: int) -> str:
    """A JSON text of which every so many letters are escapes."""
    return "".join(
        f"\\u{ord(c):04x}" if escaped and n % escaped == 0 else json.dumps(c, ensure_ascii=False)[1:-1]
        for n, c in enumerate(text)
    )


quoted = st.builds(lambda text, escaped: f'"{written(text, escaped)}"', texts, st.integers(0, 3))
value = numbers | quoted | st.sampled_from(["null", "true", "{}", "[1e5]"])
names = st.builds(
    written,
    st.sampled_from(["price", "price", "id", "ratio", "x", "1e2000000"]),
    st.sampled_from([0, 0, 0, 1, 2]),
)
objects = st.lists(st.tuples(names, value), max_size=5).map(
    lambda members: "{" + ",".join(f'"{name}":{each}' for name, each in members) + "}"
)


def as_column(value: Any) -> Decimal | None:
    """What ``DECIMAL(9,2)`` has of a number or a text; fails where it is none."""
    if value is None:
        return None
    if isinstance(value, str) and not re.fullmatch(r"[-+]?[\d.]+([eE][-+]?\d+)?", value):
        raise ValueError(value)
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise ValueError(value)
    number = Decimal(value)
    if abs(number.as_tuple().exponent) > 1_900_000:  # type: ignore[arg-type]
        raise ValueError(value)
    with localcontext(prec=2000):
        rounded = number.quantize(Decimal("0.01"), ROUND_HALF_UP)
    if abs(rounded) >= 10_000_000:
        raise ValueError(value)
    return rounded


def wanted(payload: str) -> Decimal | None:
    """The price in a record; each one that was given for it counts."""
    pairs = json.loads(payload, parse_float=Decimal, object_pairs_hook=list)
    for name, each in pairs:
        if name == "ratio" and (isinstance(each, bool) or not isinstance(each, int | Decimal | None)):
            raise ValueError(payload)
    ratios = [each for name, each in pairs if name == "ratio"]
    if ratios and ratios[-1] is not None and math.isinf(float(ratios[-1])):
        raise ValueError(payload)
    found = [as_column(each) for name, each in pairs if name == "price"]
    return found[-1] if found else None


@hypothesis.settings(max_examples=5, suppress_health_check=list(hypothesis.HealthCheck), deadline=None)
@hypothesis.given(st.lists(objects, min_size=200, max_size=200))
@pytest.mark.slow
def test_whatever_the_numbers_are(spark: SparkSession, payloads: list[str]) -> None:
    decoder = JsonDecoder(parse_ddl_schema(spark, "price DECIMAL(9,2), id STRING, ratio DOUBLE", "test.ddl"))
    rows: list[Row] = []
    cost = allocated_by(spark, lambda: rows.extend(decode(spark, decoder, [p.encode() for p in payloads])))
    assert cost < len(payloads) * FEW
    wrong = []
    for payload, row in zip(payloads, rows, strict=True):
        found = (row["price"], row["_stage"])
        try:
            good = found == (wanted(payload), None)
        except (ValueError, InvalidOperation):
            good = found == (None, "schema") and bytes(row["_bytes"]) == payload.encode()
        if not good:
            wrong.append((payload, found, row["_error"]))
    assert wrong == []


CSV = "price DECIMAL(9,2), id STRING, ratio DOUBLE, m INT"
WILD_CSV = [
    b"1e2000000,x,1,1",
    b"1e-2000000,x,1,1",
    b'"1e-2000000",x,1,1',
    "1e２００００００,x,1,1".encode(),
    b"9" * 500_000 + b",x,1,1",
    b"1e2000000,x,1",
    b"1e2000000,x,1,1\n1,x,1,1",
]
HARMLESS_CSV: dict[bytes, tuple[Any, ...]] = {
    b"1.239,1e2000000,1e308,1": (Decimal("1.24"), "1e2000000", 1e308, 1),
    b"1,x,Inf,1": (Decimal("1.00"), "x", float("inf"), 1),
    b"1,1e400,-Inf,1": (Decimal("1.00"), "1e400", float("-inf"), 1),
    b"1,x,-Infinity,1": (Decimal("1.00"), "x", float("-inf"), 1),
    b"1,x,1e-400,1": (Decimal("1.00"), "x", 0.0, 1),
    b'"+1.25e3",x,,': (Decimal("1250.00"), "x", None, None),
    b"1e-300,,,": (Decimal("0.00"), None, None, None),
    b".5,,,": (Decimal("0.50"), None, None, None),
    b"-5.,,,": (Decimal("-5.00"), None, None, None),
    b",x,,": (None, "x", None, None),
}
NO_NUMBERS_CSV = [b" 1,,,", b"1 ,,,", b"e5,,,", b".,,,", b"1e,,,", b"12345678.5,,,", b"0x1,,,", b"NaN,,,"]


@pytest.mark.slow
def test_csv(spark: SparkSession) -> None:
    decoder = CsvDecoder(parse_ddl_schema(spark, CSV, "test.ddl"), CsvFormat(",", '"', ""))
    decode(spark, decoder, [b"1,x,1,1", b"x"])
    for payload, row, cost in costs(spark, decoder, [b"x", *WILD_CSV]):
        assert bytes(row["_bytes"]) == payload
        assert cost < FEW + 300 * len(payload), payload[:30]
    rows = decode(spark, decoder, [*HARMLESS_CSV, *NO_NUMBERS_CSV])
    good, bad = rows[: len(HARMLESS_CSV)], rows[len(HARMLESS_CSV) :]
    for row, values in zip(good, HARMLESS_CSV.values(), strict=True):
        assert (row["price"], row["id"], row["ratio"], row["m"]) == values, row
    assert [(r["_stage"], r["_error"]) for r in bad] == [("schema", "wrong type: price")] * len(bad)


AVSC = {
    "type": "record",
    "name": "Priced",
    "fields": [
        {
            "name": "price",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}],
        },
        {
            "name": "prices",
            "type": {
                "type": "array",
                "items": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            },
        },
        {"name": "rest", "type": "bytes"},
    ],
}


def length(number: int) -> bytes:
    return varint(number << 1)


def priced(price: bytes, item: bytes = b"\x01", rest: bytes = b"") -> bytes:
    parts = [
        b"\x02",
        length(len(price)),
        price,
        length(1),
        length(len(item)),
        item,
        b"\0",
        length(len(rest)),
        rest,
    ]
    return b"".join(parts)


@pytest.mark.slow
def test_avro(spark: SparkSession) -> None:
    decoder = avro.make_avro_decoder(
        spark, AvroFormat("none", None, None, None), json.dumps(AVSC), "test.avsc"
    )
    long = b"\x7f" * 1_000_000
    good = [priced(b"\x01\x02"), priced(b"\x01\x02", rest=long), priced(bytes(18) + b"\x01\x02", rest=long)]
    bad = [priced(long), priced(b"\x01", long), priced(long)[:-1]]
    wanted = [None, None, None, *["a decimal of more than 64 bytes"] * 2, "not one datum of the schema"]
    for error, (payload, row, cost) in zip(
        ["x", *wanted], costs(spark, decoder, [b"x", *good, *bad]), strict=True
    ):
        if error is None:
            assert (row["price"], row["_error"]) == (Decimal("2.58"), None)
        elif payload != b"x":
            assert row["_error"].startswith(error), row["_error"]
            assert bytes(row["_bytes"]) == payload
        assert cost < FEW + 60 * len(payload)


@pytest.mark.slow
def test_a_decimal_of_more_bytes_than_its_digits_is_no_other_number(spark: SparkSession) -> None:
    """Spark alone takes the last eight bytes of one of up to 18 digits: 2.58 for each of the first two items."""
    decoder = avro.make_avro_decoder(
        spark, AvroFormat("none", None, None, None), json.dumps(AVSC), "test.avsc"
    )
    over, beyond = b"\x01" + bytes(8) + b"\x01\x02", b"\x01" + bytes(17) + b"\x01\x02"
    long = "a decimal of more digits than the schema has"
    wanted = {
        priced(b"\x01\x02", over): long,
        priced(b"\x01\x02", beyond): long,
        priced(b"\x01\x02"): None,
        priced(bytes(18) + b"\x01\x02"): None,
        priced(b"\xfe\xfe"): None,
        priced(b"\xff" * 18 + b"\xfe\xfe"): None,
    }
    for payload, row, _ in costs(spark, decoder, list(wanted)):
        assert row["_error"] == wanted[payload]
        if row["_error"] is None:
            assert row["price"] in (Decimal("2.58"), Decimal("-2.58"))
        else:
            assert bytes(row["_bytes"]) == payload
