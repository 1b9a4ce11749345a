"""Payloads with the values that independent parsers read: the table of ``docs/formats.md``, and input of its test.

JSON is judged by Python's ``json`` with ``decimal`` and ``datetime``, CSV by Python's ``csv``, Avro by fastavro. Protobuf is
judged by Google's own parser, in ``tests/spark/formats/test_protobuf_by_google.py``. Where the core is stricter or looser than its judge
the case is in :data:`DISAGREEMENTS`, with the value by hand and the reason.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, cast

import fastavro

from millrace.etl.launch.formats import CsvFormat
from tests import protobuf_without_protoc as pb
from tests.independent_conversions import (
    Judge,
    Number,
    data,
    day,
    decimal,
    double,
    flag,
    listed,
    local,
    mapped,
    moment,
    raised,
    single,
    struct,
    whole,
    written,
)

DEAD = "dead letter"
COMMA = CsvFormat(",", '"', "")


TYPES: Mapping[str, tuple[str, Judge]] = {
    "TINYINT": ("tinyint", whole(8)),
    "SMALLINT": ("smallint", whole(16)),
    "INT": ("int", whole(32)),
    "BIGINT": ("bigint", whole(64)),
    "DECIMAL(10,2)": ("decimal", decimal(10, 2)),
    "DECIMAL(38,18)": ("long_decimal", decimal(38, 18)),
    "FLOAT": ("single", single),
    "DOUBLE": ("double", double),
    "BOOLEAN": ("boolean", flag),
    "BINARY": ("data", data),
    "DATE": ("day", day),
    "TIMESTAMP": ("moment", moment()),
    "TIMESTAMP_NTZ": ("local", local),
    "TIMESTAMP COMMENT 'epoch milliseconds'": ("millis", moment(3)),
    "TIMESTAMP COMMENT 'epoch nanoseconds'": ("nanos", moment(9)),
    "STRING": ("text", written),
    "ARRAY<STRING>": ("texts", listed(written)),
    "MAP<STRING, STRING>": ("by", mapped(written)),
    "ARRAY<DECIMAL(10,2)>": ("prices", listed(decimal(10, 2))),
    "ARRAY<TIMESTAMP>": ("moments", listed(moment())),
    "STRUCT<id: STRING, n: TINYINT, day: DATE>": ("item", struct(id=written, n=whole(8), day=day)),
    "ARRAY<STRUCT<at: TIMESTAMP_NTZ, data: BINARY, ok: BOOLEAN>>": (
        "items",
        listed(struct(at=local, data=data, ok=flag)),
    ),
    "MAP<STRING, ARRAY<FLOAT>>": ("singles", mapped(listed(single))),
}
"""Types of a schema, each with its column and its judge."""

DDL = ", ".join(f"{name} {kind}" for kind, (name, _) in TYPES.items())
CSV_TYPES = {kind: each for kind, each in TYPES.items() if "<" not in kind and kind != "BINARY"}
CSV_DDL = ", ".join(f"{name} {kind}" for kind, (name, _) in CSV_TYPES.items())

_TIMES = (
    '"2024-02-29"', '"2024-02-30"', '"20240101"', '"24"', '"12:30"', '"9:5"', '"T00:00"', '"2024-01-01Tjunk"',
    '"2024-01-01T25:00:00Z"', '"2024-01-01T10:00:00Z"', '"2024-01-01T10:00:00+02:00"', '"0000-01-01"', '"12024-01-01"',
    '"0001-01-01T00:00:00+05:00"', '"9999-12-31T23:59:59-05:00"', "0", "1700000000", "-62135596801", "253402300799",
    "253402300800", "1700000000000", "1700000000000000", "1700000000000000001", "9300000000000000000", "1.5", "true",
)  # fmt: skip
JSON: Mapping[str, Sequence[str]] = {
    "TINYINT": ("127", "-128", "128", "200", "255", "-129", '"5"', "1.0"),
    "SMALLINT": ("32767", "32768", "65535"),
    "INT": ("-0", "1e2", "2147483648", '"1"', "true"),
    "BIGINT": ("9223372036854775807", "9223372036854775808"),
    "DECIMAL(10,2)": (
        "1.005", "1e2", "123456789", '"12.34"', '"+1.5"', '"1e2"', '"12,34"', '"1.234,56"', '",,,5,"', '"1\\u002c5"',
        '" 1"', '"NaN"', '"0x1"', '""', "true",
    ),
    "DECIMAL(38,18)": (
        "12345678901234567890.1234567890123456785", "99999999999999999999.9999999999999999995", '"1e19"', "1e20",
    ),
    "FLOAT": (
        "0.1", "16777217", "3.4028235e38", "3.4028236e38", "1e-50", '"1"', "1.00000005960464477539062500000001",
    ),
    "DOUBLE": ("1e400", "1e-400", "0.1", '"1.5"', "12345678901234567890", "1.7976931348623159e308", "9007199254740993"),
    "BOOLEAN": ("true", "false", '"true"', "1", "0", '""', "[]"),
    "BINARY": (
        '"aGk="', '""', '"+/+/"', '"aGlo\\naGk="', '"aGk"', '"aGk=aGk="', '"-_-_"', '"!!!"', '"h\u00e9h\u00e9"', "1", "true", '["aGk="]',
    ),
    "DATE": _TIMES,
    "TIMESTAMP": (
        *_TIMES, '"2024-07-01T10:00:00 Europe/Paris"', '"2024-07-01T10:00:00 Australia/ACT"', '"2024-07-01T10:00:00 GMT"', '"2024-07-01T10:00:00 BST"',
        '"2024-07-01T10:00:00 IST"', '"2024-07-01T10:00:00 PST"', '"9999-12-31T10:00:00 CST"', '"2024-01-01T10:00Z"', '"2024-01-01T10:00"', '"2024-07"', '"2024"',
    ),
    "TIMESTAMP_NTZ": (
        '"2024-01-01T10:00:00"', '"2024-01-01 10:00:00.1234567"', '"2024-01-01"', '"2024-01-01T10:00:00Z"',
        '"2024-01-01T10:00:00+02:00"', '"2024-02-30"', '"20240101"', '"12:30"', '"T00:00"', '"now"', '"10000-01-01"', '"2024-07"', "1700000000",
    ),
    "TIMESTAMP COMMENT 'epoch milliseconds'": ("1700000000123", '"2024-01-01T10:00:00Z"', "1700000000000000", "5", '"2024"'),
    "TIMESTAMP COMMENT 'epoch nanoseconds'": ("1700000000123456789", "-1"),
    "STRING": (
        "1.10", "1e400", "-0", "12345678901234567890.123456789", "1E5", "true", '"1.10"', '"0"', '"\\"Infinity\\""',
        '"{\\"e\\":\\"\\\\ud83d\\\\ude00\\",\\"n\\":1.10}"', '{"a": 1.10, "b": [1e400, "1.0"]}', '{"e": "\U0001f600\\\\"}',
        '"\\ud83d\\ude00"', '"a\\ud83d"', '"a\\\\ud83d"', '"\\ude00\\ud83d"', "[]", '{"a":{"-1":-0}}', '"\\u00e9 1.50"',
    ),
    "ARRAY<STRING>": ('[1.10, "1.10", -0, {"a": 1e400}, null]'.replace(", null", ""), "[1.0]"),
    "MAP<STRING, STRING>": ('{"a": 1.10, "1.0": "x"}', '{"a\\ud83d": "x", "a\\ud83e": "y"}', '{"a": "x", "a": "y"}'),
    "ARRAY<DECIMAL(10,2)>": ('["1,5"]', '[1.005, "2"]'),
    "ARRAY<TIMESTAMP>": ('["12:30"]', '["2024-01-01T10:00:00Z", 5]', "[1700000000000]"),
    "STRUCT<id: STRING, n: TINYINT, day: DATE>": (
        '{"id": 1.10, "day": "2024-01-01"}', '{"n": 200}', '{"day": "24"}', "[]", '"x"', '{"n": 1, "n": 2}', '{"n": "x", "n": 2}',
    ),
    "ARRAY<STRUCT<at: TIMESTAMP_NTZ, data: BINARY, ok: BOOLEAN>>": (
        '[{"at": "2024-01-01T10:00:00", "data": "aGk=", "ok": true}, {}]', '[{"at": "12:30"}]', '[{"data": "!"}]',
        '[{"ok": "true"}]', '{"ok": true}',
    ),
    "MAP<STRING, ARRAY<FLOAT>>": ('{"a": [0.5], "b": []}', '{"a": [1e39]}', '{"a": ["NaN"]}', '{"a": 1}', "[]"),
}  # fmt: skip
"""Values of members, by the type of their column."""

CSV: Mapping[str, Sequence[str]] = {
    "TINYINT": ("127", "200"),
    "INT": ("1.0", "2147483648"),
    "DECIMAL(10,2)": ("1.005", "1.25e+00", "5E0", "1.5E-0001", '"12,34"', '"1.234,56"'),
    "FLOAT": ("0.1", "1e39", "1f"),
    "DOUBLE": ("1.5", "1e400", "1d", "0x1p3", "1.5F", "Infinity", "-Inf", " 1.5", "infinity"),
    "BOOLEAN": ("true", "FALSE", "1", "yes", " true"),
    "DATE": (
        "2024-02-29",
        "20240101",
        "24",
        "2024-01-01Tjunk",
        "2024-01-01T25:00:00Z",
        "2024-01-01T10:00:00Z",
    ),
    "TIMESTAMP": ("2024-01-01T10:00:00Z", "12:30", "9:5", "T00:00", "1700000000", "12024-01-01"),
    "TIMESTAMP_NTZ": ("2024-01-01T10:00:00", "2024-01-01T10:00:00Z", "12:30"),
    "TIMESTAMP COMMENT 'epoch milliseconds'": ("1700000000123", "1700000000000000"),
    "STRING": (
        "1.10",
        '"a ""b"", c"',
        '"a\nb"',
        '"a\r\nb"',
        "a\nb",
        "a\rb",
        '"x"z',
        '"x\\"1"',
        '5" nail',
        "\\",
        ' "y"',
    ),
}
"""Texts of columns, by their type."""

ALONE = ("x\ny", "x\ry", '"x\ny"', '"x"z', "x\r\n", '"x', 'x"', '""""', "\n")
"""CSV of a single ``STRING`` column."""

DISAGREEMENTS: Mapping[tuple[str, str, str], tuple[Any, str]] = {
    ("json", "DATE", '"2024-01-01T10:00:00+02:00"'): (
        date(2024, 1, 1),
        "the day as it is written, in any zone",
    ),
    ("json", "STRING", '"a\\ud83d"'): (DEAD, "Python keeps half a character"),
    ("json", "STRING", '"\\ude00\\ud83d"'): (DEAD, "Python keeps half a character"),
    ("json", "MAP<STRING, STRING>", '{"a\\ud83d": "x", "a\\ud83e": "y"}'): (
        DEAD,
        "Python keeps half a character",
    ),
    ("json", "MAP<STRING, STRING>", '{"a": "x", "a": "y"}'): (
        DEAD,
        "a map cannot hold both, and readers of tables differ in which they find",
    ),
    ("json", "DECIMAL(10,2)", '" 1"'): (DEAD, "Python ignores blanks"),
    ("json", "TIMESTAMP", '"2024-01-01T10:00Z"'): (DEAD, "a zone stands behind seconds"),
    ("json", "BINARY", '"aGk=aGk="'): (b"hihi", "two texts of base64, of which Python takes none or one"),
    ("json", "FLOAT", "1.00000005960464477539062500000001"): (
        1.0000001192092896,
        "Python rounds twice, by way of DOUBLE",
    ),
    ("json", "STRUCT<id: STRING, n: TINYINT, day: DATE>", '{"n": "x", "n": 2}'): (
        DEAD,
        "Python sees the last value only",
    ),
    ("csv", "DOUBLE", "Infinity"): (float("inf"), "CSV has no numbers; this one is written so"),
    ("csv", "DOUBLE", "-Inf"): (float("-inf"), "CSV has no numbers; this one is written so"),
    ("csv", "DOUBLE", " 1.5"): (1.5, "CSV has no numbers; blanks around one do not count"),
    ("csv", "STRING", '"x"z'): (DEAD, "Python joins what follows a closing quote"),
    ("csv", "STRING", '"x\\"1"'): (DEAD, "Python joins what follows a closing quote"),
    ("csv alone", "STRING", '"x"z'): (DEAD, "Python joins what follows a closing quote"),
    ("csv alone", "STRING", '"x'): (DEAD, "Python takes the end of the text for a quote"),
    ("csv alone", "STRING", "\n"): (None, "an empty column is null"),
}
"""Values by hand, each with the reason."""


def judged(form: str, kind: str, text: str, read: Callable[[str], Any]) -> Any:
    """The value of a column, or :data:`DEAD`."""
    if (form, kind, text) in DISAGREEMENTS:
        return DISAGREEMENTS[form, kind, text][0]
    try:
        return TYPES[kind][1](read(text))
    except (ValueError, TypeError, OverflowError, InvalidOperation, csv.Error, AttributeError, KeyError):
        return DEAD


def read_json(text: str) -> Any:
    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=raised)


def read_cell(kind: str) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        [row] = csv.reader(io.StringIO(f"{text},x", newline=""))
        [cell, _] = row
        if kind == "BOOLEAN":
            return {"true": True, "false": False}.get(cell.lower(), cell)
        number = re.fullmatch(r"-?\d+(\.\d+)?([eE][-+]?\d+)?", cell)
        epoch = "epoch" in kind or not kind.startswith("TIMESTAMP")
        return Number(cell) if number and epoch and kind != "DATE" else cell

    return read


def read_alone(text: str) -> Any:
    [[cell]] = csv.reader(io.StringIO(text, newline=""), strict=False)
    return cell


_AVRO_TYPES: Mapping[str, Any] = {
    "i": "int",
    "flag": "boolean",
    "millis": {"type": "long", "logicalType": "timestamp-millis"},
    "micros": {"type": "long", "logicalType": "timestamp-micros"},
    "day": {"type": "int", "logicalType": "date"},
    "price": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
    "flags": {"type": "array", "items": "boolean"},
    "ints": {"type": "map", "values": "int"},
}
AVSC: dict[str, Any] = {
    "type": "record",
    "name": "Values",
    "fields": [
        *({"name": n, "type": ["null", kind], "default": None} for n, kind in _AVRO_TYPES.items()),
        {"name": "on", "type": "boolean", "default": True},
    ],
}


def varint(value: int) -> bytes:
    coded, out = (value << 1) ^ (value >> 127), bytearray()
    while coded > 0x7F:
        out.append(coded & 0x7F | 0x80)
        coded >>= 7
    return bytes([*out, coded])


@dataclass(frozen=True)
class Datum:
    """A value of a field, as bytes after the index of its branch."""

    field: str
    said: str
    data: bytes

    @property
    def payload(self) -> bytes:
        return b"".join(
            (b"\2" + self.data if each["name"] == self.field else b"\1" if each["name"] == "on" else b"\0")
            for each in AVSC["fields"]
        )


AVRO = (
    *(Datum("i", f"{n:,}", varint(n)) for n in (2**31 - 1, -(2**31), 2**31, 2**32, 2**33 + 5, 2**40)),
    *(Datum("flag", f"byte {n}", bytes([n])) for n in (0, 1, 2, 255)),
    *(
        Datum("millis", f"{n:,}", varint(n))
        for n in (1_700_000_000_000, 1_700_000_000_000_000, -62_135_596_800_000, -62_135_596_800_001)
    ),
    *(
        Datum("micros", f"{n:,}", varint(n))
        for n in (1_700_000_000_000_000, 1_700_000_000_000_000_000, -2_208_988_800_000_001)
    ),
    *(
        Datum("day", f"{n:,}", varint(n))
        for n in (19_723, 2_932_896, 2_932_897, -719_162, -719_163, 2**32 + 19_723)
    ),
    *(Datum("price", n.hex(), bytes([len(n) << 1]) + n) for n in (b"\x0f\x42\x3f", b"\x0f\x42\x40")),
    *(Datum("flags", f"byte {n}", b"\4\1" + bytes([n, 0])) for n in (0, 2)),
    *(Datum("ints", f"{n:,}", b"\2\2a" + varint(n) + b"\0") for n in (7, 2**32)),
)


def judged_avro(datum: Datum) -> Any:
    """What fastavro reads, if a value of the type is written with these bytes."""
    try:
        found = cast(Any, fastavro.schemaless_reader(io.BytesIO(datum.payload), AVSC, None))
        again = io.BytesIO()
        fastavro.schemaless_writer(again, AVSC, found)
    except (ValueError, OverflowError, EOFError, IndexError):
        return DEAD
    value = found[datum.field]
    if isinstance(value, Decimal) and abs(value) >= 10**4:
        return DEAD
    return value if again.getvalue() == datum.payload else DEAD


def shown(value: Any) -> Any:
    """A value with times and days as Spark casts them to texts."""
    if isinstance(value, datetime):
        text = f"{value:%Y-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
        return f"{value.year:04}-{text.partition('-')[2]}"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return f"0x{value.hex()}"
    if isinstance(value, list):
        return list(map(shown, value))
    return {name: shown(each) for name, each in value.items()} if isinstance(value, dict) else value


ONEOF = pb.descriptor_set(
    pb.file(
        "oneof.proto",
        "values",
        [
            pb.message("Inner", [pb.Declared("a", 1, pb.INT32), pb.Declared("b", 2, pb.INT32)]),
            pb.message(
                "Either",
                [
                    pb.Declared("number", 1, pb.INT32, oneof=0),
                    pb.Declared("text", 2, pb.STRING, oneof=0),
                    pb.Declared("inner", 3, pb.MESSAGE, of="values.Inner", oneof=0),
                ],
                oneofs=["either"],
            ),
        ],
    )
)
"""Descriptor of a message with a ``oneof``."""

_INNER = (pb.block(3, pb.number(1, 5)), pb.block(3, pb.number(2, 6)))
PROTOBUF: Mapping[str, tuple[bytes, Any]] = {
    "number 3, then text x": (pb.number(1, 3) + pb.block(2, "x"), {"text": "x"}),
    "text x, then number 0": (pb.block(2, "x") + pb.number(1, 0), {"number": 0}),
    "inner a 5, then inner b 6": (b"".join(_INNER), {"inner": {"a": 5, "b": 6}}),
    "inner a 5, number 3, then inner b 6": (
        _INNER[0] + pb.number(1, 3) + _INNER[1],
        {"inner": {"a": 0, "b": 6}},
    ),
    "inner of an open field, then number 3": (pb.block(3, b"\x08") + pb.number(1, 3), DEAD),
    "two halves of inner a 5": (pb.block(3, b"\x08") + pb.block(3, b"\5"), DEAD),
}
"""Messages with several members of a ``oneof``, or parts of one, and their only field."""


def table() -> str:
    """The tables of ``docs/formats.md``."""
    rows: list[tuple[str, str, list[tuple[str, Any]]]] = [
        *(
            ("json", kind, [(t, judged("json", kind, t, read_json)) for t in texts])
            for kind, texts in JSON.items()
        ),
        *(
            ("csv", kind, [(t, judged("csv", kind, t, read_cell(kind))) for t in texts])
            for kind, texts in CSV.items()
        ),
        ("csv", "a single STRING", [(t, judged("csv alone", "STRING", t, read_alone)) for t in ALONE]),
        *(
            (
                "avro",
                _said_type(kind),
                [(each.said, judged_avro(each)) for each in AVRO if each.field == name],
            )
            for name, kind in _AVRO_TYPES.items()
        ),
        ("protobuf", "oneof", [(said, value) for said, (_, value) in PROTOBUF.items()]),
    ]
    lines = ["| format | type | payload → value | dead letter |", "|---|---|---|---|"]
    for form, kind, cases in rows:
        good = ", ".join(f"{code(text)} → {code(shown(value))}" for text, value in cases if value != DEAD)
        bad = ", ".join(code(text) for text, value in cases if value == DEAD)
        lines.append(f"| {form} | {code(kind)} | {good} | {bad} |")
    lines += [
        "",
        "| format | type | payload | value | why not as the other parser |",
        "|---|---|---|---|---|",
    ]
    for (form, kind, text), (value, why) in DISAGREEMENTS.items():
        found = value if value == DEAD else code(shown(value))
        lines.append(f"| {form.split()[0]} | {code(kind)} | {code(text)} | {found} | {why} |")
    return "\n".join(lines)


def code(value: Any) -> str:
    """A value as code, with signs for line breaks and blanks at its ends."""
    as_json = value is None or isinstance(value, bool | list | dict)
    text = json.dumps(value, default=str, ensure_ascii=False) if as_json else str(value)
    text = text.replace("\r", "␍").replace("\n", "␊")
    text = f"␠{text[1:]}" if text.startswith(" ") else text
    return f"`{text}`"


def _said_type(kind: Any) -> str:
    if not isinstance(kind, dict):
        return str(kind)
    inner = kind.get("items", kind.get("values"))
    return f"{kind['type']} of {inner}" if inner else str(kind["logicalType"])
