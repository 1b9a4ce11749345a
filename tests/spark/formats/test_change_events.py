"""Change events in the documented shapes of Debezium and AWS DMS, each decoded, or a dead letter, or a record that is no row.

Where each shape is from: :mod:`tests.spark.change_events`.
"""

from __future__ import annotations

import base64
import json
import random
import re
import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, localcontext
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millrace.config.formats import KINDS
from millrace.etl.formats import schema_files
from millrace.etl.formats.changes import debezium, dms
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.sandbox.payloads import payload_writers
from millrace.sandbox.schemas.traffic_values import RecordGenerator
from tests.spark.change_events import Event, postgres, unscaled, wrapped
from tests.spark.change_events import dms as of_dms

pytestmark = pytest.mark.slow

DDL = """id BIGINT NOT NULL, price DECIMAL(10,2), day DATE, at TIMESTAMP COMMENT 'epoch microseconds', zoned TIMESTAMP,
note STRING, tags ARRAY<STRING>, image BINARY, prices ARRAY<DECIMAL(6,1)>"""
ROW: Event = {
    "id": 1, "price": unscaled("-12.34"), "day": 19723, "at": 1700000000123456, "zoned": "2024-01-01T10:00:00Z",
    "note": "é 1.50", "tags": ["a"], "image": "AAE=", "prices": [unscaled("0.5"), None],
}  # fmt: skip
VALUES: Event = {
    "id": 1, "price": Decimal("-12.34"), "day": date(2024, 1, 1), "at": datetime(2023, 11, 14, 22, 13, 20, 123456),
    "zoned": datetime(2024, 1, 1, 10), "note": "é 1.50", "tags": ["a"], "image": b"\0\1", "prices": [Decimal("0.5"), None],
}  # fmt: skip
ABSENT = "__debezium_unavailable_value"


def sent(event: Any) -> bytes:
    return json.dumps(event).encode()


def decoded(
    spark: SparkSession, decoder: Any, payloads: Sequence[bytes | None], key: bytes | None = None
) -> list[Row]:
    rows = [(n, None if p is None else bytearray(p), key and bytearray(key)) for n, p in enumerate(payloads)]
    frame = spark.createDataFrame(rows, "n INT, payload BINARY, _key BINARY")
    return sorted(decoder.decode(frame).collect(), key=lambda row: row["n"])


def values(row: Row) -> Event:
    assert (row["_bytes"], row["_error"]) == (None, None), row
    return {name: row[name] for name in VALUES if row[name] is not None}


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> ChangeDecoder:
    return ChangeDecoder(schema_files.parse_ddl_schema(spark, DDL, "test.ddl"), debezium.debezium_envelope())


def test_debeziums_rows(spark: SparkSession, events: ChangeDecoder) -> None:
    old = {**ROW, "note": "old"}
    given = [
        sent(postgres("c", 5, 3, after=ROW)),
        wrapped(postgres("u", 6, 5, before=old, after=ROW)),
        wrapped(postgres("u", 6, 5, before=old, after={**ROW, "note": ABSENT, "tags": [ABSENT]})),
        wrapped(postgres("d", 7, 6, before={"id": 1, "price": None})),
        sent(postgres("r", 5, snapshot="last", after={"id": 2, "price": {"scale": 1, "value": unscaled("1.5")}})),
        sent(postgres("r", 5, 3, snapshot="incremental", after={"id": 2})),
    ]  # fmt: skip
    rows = decoded(spark, events, given)
    assert [values(each) for each in rows] == [
        VALUES, VALUES, {**VALUES, "note": "old"}, {"id": 1}, {"id": 2, "price": Decimal("1.50")}, {"id": 2},
    ]  # fmt: skip
    assert [row["_stage"] for row in rows] == [None, None, None, "delete", None, None]
    changes = [row["_change"] for row in rows]
    assert [each["operation"] for each in changes] == [
        "insert", "update", "update", "delete", "snapshot", "snapshot",
    ]  # fmt: skip
    assert changes[1]["before"]["note"] == "old"
    assert {each["table"] for each in changes} == {"public.orders"}
    assert [each["lane"].rpartition("/")[2] for each in changes] == ["", "", "", "", "snapshot", ""]
    assert changes[0]["position"] == f"{3:020}{5:020}{0:010}"


def test_records_of_debezium_that_are_no_rows(spark: SparkSession, events: ChangeDecoder) -> None:
    begin = {
        "status": "BEGIN",
        "id": "571:53195829",
        "event_count": None,
        "data_collections": None,
        "ts_ms": 1,
    }
    ddl = {
        "source": {"name": "shop"},
        "ts_ms": 1,
        "databaseName": "shop",
        "schemaName": "public",
        "ddl": None,
    }
    given = [
        None,
        b'{"schema":null,"payload":null}',
        sent({"ts_ms": 1714000000142}),
        wrapped({"ts_ms": 1714000000142}),
        sent(begin),
        sent({**begin, "status": "END", "event_count": 2}),
        sent({**ddl, "tableChanges": [{"type": "ALTER", "id": '"shop"."orders"', "table": {"columns": []}}]}),
        sent({**postgres("m", 5), "message": {"prefix": "p", "content": "AAE="}}),
        sent(postgres("t", 8, 7)),
    ]
    rows = decoded(spark, events, given)
    assert [values(each) for each in rows] == [{}] * len(given)
    assert [row["_stage"] for row in rows] == [*["control"] * (len(given) - 1), "truncate"]


LETTERS = {
    "no field of an event": ({}, "not a change event"),
    "another object": ({"error": "x"}, "not a change event"),
    "a heartbeat with more": ({"ts_ms": 5, "error": 1}, "not a change event"),
    "an operation of no connector": (postgres("x", 5, after=ROW), "not a change event"),
    "an insert of nothing": (postgres("c", 5), "without the row after it"),
    "a delete of nothing": (postgres("d", 5), "not even its key"),
    "no key": (postgres("c", 5, after={"note": "x"}), "no value for a required field: id"),
    "a value that was not logged": (
        postgres("u", 6, after={**ROW, "note": ABSENT, "tags": [ABSENT]}),
        "did not log (PostgreSQL: set REPLICA IDENTITY FULL): note, tags",
    ),
    "a decimal as text": (postgres("c", 5, after={"id": 1, "price": "12.34"}), "wrong type: price"),
    "a decimal as number": (postgres("c", 5, after={"id": 1, "price": 12.0}), "wrong type: price"),
    "too many digits": (
        postgres("c", 5, after={"id": 1, "price": unscaled("100000000.00")}),
        "wrong type: price",
    ),
    "far too many": (postgres("c", 5, after={"id": 1, "price": unscaled("9" * 60)}), "wrong type: price"),
    "in an array": (postgres("c", 5, after={"id": 1, "prices": ["x"]}), "wrong type: prices"),
    "a number without a unit": (postgres("c", 5, after={"id": 1, "zoned": 1700}), "wrong type: zoned"),
    "a day as text": (postgres("c", 5, after={"id": 1, "day": "2024-01-01"}), "wrong type: after.day"),
    "a day after the year 9999": (postgres("c", 5, after={"id": 1, "day": 2932897}), "wrong type: day"),
    "infinity of PostgreSQL": (
        postgres("c", 5, after={"id": 1, "at": 9223372036825200000}),
        "at (looks like nanoseconds)",
    ),
    "the hint of another column": (
        postgres("c", 5, after={"id": 1, "at": 1700000000123456, "zoned": "x"}),
        "wrong type: zoned",
    ),
    "nanoseconds": (
        postgres("c", 5, after={"id": 1, "at": 1700000000123456789}),
        "wrong type: at (looks like nanoseconds)",
    ),
    "a text for a number": (
        postgres("u", 5, after={"id": "x", "at": 1700000000123456789, "other": 1700000000123456789}),
        "wrong type: after.id",
    ),
    "a document of MongoDB": (postgres("c", 5, after='{"id": 1}'), "wrong type: after"),
}


def test_what_does_not_fit_is_a_dead_letter(spark: SparkSession, events: ChangeDecoder) -> None:
    given = [sent(event) for event, _ in LETTERS.values()]
    rows = decoded(spark, events, [*given, b"\xff", b"{"])
    found = {}
    for (name, (_, said)), payload, row in zip(LETTERS.items(), given, rows, strict=False):
        nulls = all(row[f] is None for f in [*VALUES, "_change"])
        if row["_bytes"] != payload or not (row["_error"] or "").endswith(said) or not nulls:
            found[name] = row
    assert found == {}
    assert [row["_error"] for row in rows[-2:]] == ["not UTF-8", "not exactly one JSON object"]


FOREVER = {"at": 9223372036825200000, "day": 2**31 - 1, "price": unscaled("9" * 30)}
"""PostgreSQL's infinity, and a number of more digits than its column."""


@pytest.mark.parametrize("of", ["debezium", "dms"])
def test_a_row_that_is_no_more_may_hold_what_no_type_holds(spark: SparkSession, of: str) -> None:
    row = schema_files.parse_ddl_schema(
        spark, DDL.replace("day DATE", "day DATE, made DATE NOT NULL"), "test.ddl"
    )
    decoder = ChangeDecoder(row, debezium.debezium_envelope() if of == "debezium" else dms.EVENTS)
    at = "2021-02-18T23:09:09.509179Z"
    if of == "debezium":
        good, never, unread = {**ROW, "made": 1}, {**ROW, "made": 1, **FOREVER}, {"made": 2**31 - 1}
        events = [
            postgres("u", 6, before=never, after=good),
            postgres("d", 7, before=never),
            postgres("u", 6, before={**never, **unread}, after=good),
            postgres("d", 7, before={**never, **unread}),
            postgres("u", 6, before=good, after=never),
        ]
    else:
        good, never, unread = (
            {"id": 1, "made": "1970-01-02"},
            {"id": 1, "made": "1970-01-02", "day": "0000-00-00"},
            {"made": "0000-00-00"},
        )
        events = [
            of_dms("update", at, good, never),
            of_dms("delete", at, never),
            of_dms("update", at, good, {**never, **unread}),
            of_dms("delete", at, {**never, **unread}),
            of_dms("update", at, never, good),
        ]
    updated, deleted, again, unknown, now = decoded(spark, decoder, [sent(each) for each in events])
    assert [each["_error"] for each in (updated, deleted, again)] == [None] * 3
    assert (updated["id"], updated["_change"]["before"]["id"], updated["_change"]["before"]["day"]) == (
        1,
        1,
        None,
    )
    assert (deleted["id"], deleted["made"], deleted["day"], deleted["_stage"]) == (
        1,
        date(1970, 1, 2),
        None,
        "delete",
    )
    assert unknown["_error"] == "wrong type: made"
    assert "day" in now["_error"]


MICRO, MILLI = "io.debezium.time.MicroTimestamp", "io.debezium.time.Timestamp"
OTHERWISE: dict[str, tuple[str, int, str, int]] = {
    "": (MICRO, 2, MICRO, 1),
    "price": (MICRO, 4, MICRO, 1),
    "at": (MILLI, 2, MICRO, 1),
    "made": (MICRO, 2, MILLI, 1),
    "prices": (MICRO, 2, MICRO, 3),
    "at, made, price, prices": (MILLI, 12, MILLI, 0),
}
"""Names and scales in an event's schema, by the columns that have others."""


@pytest.mark.parametrize("flattened", [False, True])
def test_another_scale_or_unit_in_the_events_schema_is_a_dead_letter(
    spark: SparkSession, flattened: bool
) -> None:
    """After ``ALTER TABLE``, or with a mistake in the DDL, another value would land."""
    micros = "TIMESTAMP COMMENT 'epoch microseconds'"
    row = schema_files.parse_ddl_schema(spark, f"{DDL}, made {micros}, scale STRING", "test.ddl")
    decoder = ChangeDecoder(row, debezium.debezium_envelope(flattened=flattened))

    def schema(at: str, price: int, made: str, prices: int) -> Event:
        def decimal(scale: int) -> Event:
            parameters = {"connect.decimal.precision": "12", "scale": str(scale)}
            return {
                "type": "bytes",
                "name": "org.apache.kafka.connect.data.Decimal",
                "parameters": parameters,
            }

        columns = [
            {
                "type": "int64",
                "name": at,
                "doc": 'a ] and { "quote"',
                "parameters": {"length": "3"},
                "field": "at",
            },
            {**decimal(7), "field": "other"},
            {**decimal(price), "default": "AAE=", "field": "price"},
            {"type": "array", "items": decimal(prices), "optional": True, "field": "prices"},
            {"type": "string", "field": "scale"},
            {"type": "string", "field": "payload"},
            {"type": "int64", "name": made, "version": 1, "field": "made"},
        ]
        rows = [{"type": "struct", "fields": columns, "field": part} for part in ("before", "after")]
        return {"type": "struct", "fields": columns if flattened else rows, "name": "Envelope"}

    values = {**ROW, "made": 1, "scale": '"scale":"4"},"field":"price"'}
    event = values | {"__op": "c"} if flattened else postgres("c", 5, after=values)
    payloads: list[bytes | None] = [
        json.dumps({"schema": schema(*given), "payload": event}, separators=form).encode()
        for given in OTHERWISE.values()
        for form in ((",", ":"), (" , ", " : "))
    ]
    found = [row["_error"] and row["_error"].partition(": ")[2] for row in decoded(spark, decoder, payloads)]
    assert [each and sorted(each.split(", ")) for each in found] == [
        name.split(", ") if name else None for name in OTHERWISE for _ in range(2)
    ]


def test_a_number_of_any_length_is_exact_or_refused(spark: SparkSession) -> None:
    row = schema_files.parse_ddl_schema(spark, "price DECIMAL(38,0)", "test.ddl")
    decoder = ChangeDecoder(row, debezium.debezium_envelope())
    edges = (*(1 << 8 * size - 1 for size in range(1, 18)), 10**38)
    numbers = [sign * each + more for each in edges for sign in (1, -1) for more in (-1, 0, 1)]
    given = [sent(postgres("c", 5, after={"price": unscaled(str(each))})) for each in numbers]
    found = [row["price"] for row in decoded(spark, decoder, given)]
    assert found == [Decimal(each) if abs(each) < 10**38 else None for each in numbers]


@pytest.mark.parametrize("kind", ["DECIMAL(10,2)", "DECIMAL(38,9)", "DECIMAL(18,0)"])
def test_a_number_without_quotes_is_no_base64(spark: SparkSession, kind: str) -> None:
    """Numbers of Oracle without digits behind the point, of which those of 4, 8 or 12 digits are base64, too; and their neighbours."""
    row = schema_files.parse_ddl_schema(spark, f"d {kind}, more ARRAY<{kind}>", "test.ddl")
    decoder = ChangeDecoder(row, debezium.debezium_envelope())
    scale = int(kind.rstrip(")").partition(",")[2])
    numbers = [
        sign * int("9876543210987654321"[:digits]) for digits in (1, 3, 4, 5, 8, 12, 16) for sign in (1, -1)
    ]
    payloads: list[bytes | None] = [
        sent(postgres("c", 5, after={"d": n, "more": [0, n]})).replace(b": ", between)
        for n in numbers
        for between in (b":", b" : ")
    ]
    largest = 10 ** (int(kind[8:].partition(",")[0]) - scale)
    found = [(each["d"], each["more"], each["_stage"]) for each in decoded(spark, decoder, payloads)]
    assert found == [
        (Decimal(n), [Decimal(0), Decimal(n)], None) if abs(n) < largest else (None, None, "schema")
        for n in numbers
        for _ in range(2)
    ]
    texts = ["1234", "12345678", "true", "1e10", "+/12"]
    quoted = [sent(postgres("c", 5, after={"d": text})) for text in texts]
    bare = [
        sent(postgres("c", 5, after={"d": 0})).replace(b'"d": 0', b'"d": ' + n)
        for n in (b"true", b"1e10", b"12E4")
    ]
    rows = decoded(spark, decoder, [*quoted, *bare])
    unscaled_values = [int.from_bytes(base64.b64decode(text), signed=True) for text in texts]
    assert [each["d"] for each in rows] == [
        *(Decimal(n).scaleb(-scale) if abs(n) < largest * 10**scale else None for n in unscaled_values),
        *[None] * len(bare),
    ]
    assert {each["_error"] for each in rows[len(texts) :]} == {"wrong type: d"}


def test_a_scale_of_its_own_that_no_number_has_is_a_dead_letter(spark: SparkSession) -> None:
    row = schema_files.parse_ddl_schema(spark, "d DECIMAL(38,18)", "test.ddl")
    scales = (2_147_483_647, 10_000_000, -2_147_483_648, -10_000_000, 1_000, 3, -3)
    given = [sent(postgres("c", 5, after={"d": {"scale": each, "value": "Dw=="}})) for each in scales]
    begun = time.monotonic()
    found = [row["d"] for row in decoded(spark, ChangeDecoder(row, debezium.debezium_envelope()), given)]
    assert found == [*[None] * 5, Decimal("0.015"), Decimal(15_000)]
    assert time.monotonic() - begun < 60, "all digits were written out"


def test_an_event_that_only_begins_as_a_wrapped_one_is_read_in_time(
    spark: SparkSession, events: ChangeDecoder
) -> None:
    """A record of 300 KB whose wrapper may end in 25,000 places; 30 KB took 5 s."""
    begun = time.monotonic()
    [row] = decoded(spark, events, [b'{"schema":{' + b'},"payload":' * 25_000 + b"x"])
    assert (row["_error"], time.monotonic() - begun < 60) == ("not exactly one JSON object", True)


ARRAYS = {
    "i ARRAY<INT>": [*ABSENT.encode()],
    "l ARRAY<BIGINT>": [*ABSENT.encode()],
    "d ARRAY<DATE>": [*ABSENT.encode()],
    "u ARRAY<STRING>": ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"],
    "t ARRAY<STRING>": [ABSENT],
    "b ARRAY<BINARY>": [base64.b64encode(ABSENT.encode()).decode()],
    "h MAP<STRING, STRING>": {ABSENT: ABSENT},
    "j STRING": f'{{"{ABSENT}":"{ABSENT}"}}',
}
"""What PostgreSQL's connector writes for an array or hstore that was not logged (``UnchangedToastedReplicationMessageColumn``)."""


def test_arrays_that_were_not_logged_are_those_before(spark: SparkSession) -> None:
    row = schema_files.parse_ddl_schema(spark, f"id INT, {', '.join(ARRAYS)}", "test.ddl")
    absent = {name.split()[0]: value for name, value in ARRAYS.items()}
    old: Event = {
        "i": [1],
        "l": [2],
        "d": [3],
        "u": ["x"],
        "t": ["y"],
        "b": ["AAE="],
        "h": {"a": "b"},
        "j": '{"a":"b"}',
    }
    given = [
        sent(postgres("u", 6, before={"id": 1, **old}, after={"id": 1, **absent})),
        sent(postgres("u", 6, after={"id": 1, **absent})),
        sent(postgres("u", 6, after={"id": 1, **old})),
    ]
    completed, letter, plain = decoded(spark, ChangeDecoder(row, debezium.debezium_envelope()), given)
    assert [completed[name] for name in absent] == [plain[name] for name in absent]
    assert letter["_error"].endswith(": " + ", ".join(absent))
    assert plain["_error"] is None


def test_rows_that_debezium_has_flattened(spark: SparkSession) -> None:
    row = schema_files.parse_ddl_schema(spark, DDL, "test.ddl")
    decoder = ChangeDecoder(row, debezium.debezium_envelope(flattened=True))
    given = [
        sent({**ROW, "__deleted": "false", "__op": "c", "__source_lsn": 7, "__table": "orders"}),
        wrapped({**ROW, "__lsn": 9}),
        sent({"id": 1, "price": None, "__deleted": "true"}),
        None,
        sent({"__deleted": "false"}),
        sent({"note": "x"}),
    ]
    rows = decoded(spark, decoder, given, key=wrapped({"id": 1}))
    assert [values(each) for each in rows[:4]] == [VALUES, VALUES, {"id": 1}, {"id": 1}]
    assert [each["_stage"] for each in rows] == [None, None, "delete", "delete", "decode", "schema"]
    assert [(each["_change"]["position"] or "")[-12:-10] for each in rows[:3]] == ["07", "09", ""]
    [alone] = decoded(spark, decoder, [None])
    assert alone["_stage"] == "control"


def test_records_of_dms(spark: SparkSession) -> None:
    row = schema_files.parse_ddl_schema(spark, DDL, "test.ddl")
    at, given_row = (
        "2021-02-18T23:09:09.509179Z",
        {**VALUES, "price": -12.34, "image": "0x0001", "prices": [0.5, None]},
    )
    given_row |= {"day": "2024-01-01", "at": "2023-11-14T22:13:20.123456Z", "zoned": "2024-01-01T10:00:00Z"}
    details = {
        "commit-timestamp": at,
        "stream-position": "0/1",
        "transaction-record-id": 1,
        "transaction-id": 5,
    }
    given = [
        sent(of_dms("load", at, given_row)),
        sent(of_dms("update", at, given_row, {"id": 3}, **details)),
        sent(of_dms("delete", at, {"id": 3})),
        sent(of_dms("create-table", at)),
        sent(of_dms("truncate-table", at)),
        sent({**of_dms("add-column", at), "control": {"table-def": {"columns": {}}}}),
        sent({"data": {"id": 1}}),
        sent(of_dms("insert", at, {"id": 1, "image": "xyz"})),
        sent(of_dms("refresh", at, {"id": 1})),
    ]
    rows = decoded(spark, ChangeDecoder(row, dms.EVENTS), given)
    assert [values(each) for each in rows[:6]] == [VALUES, VALUES, {"id": 3}, {}, {}, {}]
    assert [each["_stage"] for each in rows[:6]] == [None, None, "delete", "control", "truncate", "control"]
    assert rows[1]["_change"]["before"]["id"] == 3
    assert rows[1]["_change"]["transaction"] == "5"
    assert rows[0]["_change"]["at"] == datetime(2021, 2, 18, 23, 9, 9, 509179)
    assert [each["_error"] for each in rows[6:]] == [
        "not a change event",
        "wrong type: image",
        "not a change event",
    ]


def test_a_redacted_field_is_in_no_row(spark: SparkSession, events: ChangeDecoder) -> None:
    decoder = RedactingDecoder(events, ("note",))
    given = [sent(postgres("u", 6, before=ROW, after=ROW)), sent(postgres("c", 6, after={"note": "secret"}))]
    row, letter = decoded(spark, decoder, given)
    assert (row["note"], row["_change"]["before"]["note"], row["_change"]["before"]["id"]) == (None, None, 1)
    assert b"secret" not in letter["_bytes"]


BARE = "1234", "12345678", "true"


def of_base64(text: str, scale: int = 2) -> Decimal:
    return Decimal(int.from_bytes(base64.b64decode(text), signed=True)).scaleb(-scale)


@pytest.mark.parametrize("flattened", [False, True])
@pytest.mark.parametrize("form", ["plain", "wrapped"])
def test_quotes_are_those_of_the_field_itself(spark: SparkSession, form: str, flattened: bool) -> None:
    """The same digits or words stand without quotes elsewhere: in another field, in the schema, in a text, before the change."""
    ddl = """id BIGINT, flag BOOLEAN, note STRING, d DECIMAL(20,2), more ARRAY<DECIMAL(20,2)>, named MAP<STRING, DECIMAL(20,2)>,
    part STRUCT<d: DECIMAL(20,2), n: INT>"""
    row = schema_files.parse_ddl_schema(spark, ddl, "test.ddl")
    decoder = ChangeDecoder(row, debezium.debezium_envelope(flattened=flattened))
    rows: list[Event] = []
    for text in BARE:
        number = 1 if text == "true" else int(text)
        rows += [
            {"id": number, "flag": True, "note": f':{text},"d":{text}', "d": text},
            {"id": number, "more": [text, None, number], "flag": True},
            {"id": number, "named": {text: text, "b": number}, "flag": True},
            {"id": number, "part": {"d": text, "n": number}, "flag": True},
            {"d": number, "note": text, "part": {"d": number, "n": 1}, "named": {text: number}},
            {"d": {"scale": number % 3, "value": text}, "id": number},
        ]  # fmt: skip
    events: list[Event] = [
        {**each, "__op": "c"} if flattened else postgres("u", 5, 3, before={"d": 1234}, after=each)
        for each in rows
    ]
    given = [wrapped(each) if form == "wrapped" else sent(each) for each in events]
    found = decoded(spark, decoder, given)
    assert [each["_error"] for each in found] == [None] * len(given)
    for each, got in zip(rows, found, strict=True):

        def meant(value: Any) -> Decimal | None:
            if isinstance(value, dict):
                return of_base64(value["value"], value["scale"])
            return of_base64(value) if isinstance(value, str) else None if value is None else Decimal(value)

        assert got["d"] == meant(each.get("d")), each
        assert got["more"] == (each.get("more") and [meant(one) for one in each["more"]])
        assert got["named"] == (each.get("named") and {n: meant(one) for n, one in each["named"].items()})
        assert (got["part"] and got["part"]["d"]) == meant((each.get("part") or {}).get("d"))
        assert (got["id"], got["note"]) == (each.get("id"), each.get("note"))
        assert flattened or got["_change"]["before"]["d"] == 1234


def test_a_number_in_a_key_and_hexadecimal_digits(spark: SparkSession) -> None:
    flat = ChangeDecoder(
        schema_files.parse_ddl_schema(spark, "id DECIMAL(20,0)", "test.ddl"), debezium.debezium_envelope(flattened=True)
    )  # fmt: skip
    for key, number in (b'{"id": 1234}', Decimal(1234)), (b'{"id": "1234"}', of_base64("1234", 0)):
        [row] = decoded(spark, flat, [None], key)
        assert (row["id"], row["_stage"], row["_error"]) == (number, "delete", None)
    hexadecimal = ChangeDecoder(
        schema_files.parse_ddl_schema(spark, "id INT, b BINARY", "test.ddl"), dms.EVENTS
    )
    good = of_dms("insert", "2021-02-18T23:09:09Z", {"id": 1234, "b": "1234"})
    bad = of_dms("insert", "2021-02-18T23:09:09Z", {"id": 1, "b": 1234}, {"b": "1234"})
    rows = decoded(spark, hexadecimal, [sent(good), sent(bad)])
    assert [(each["b"], each["_error"]) for each in rows] == [(b"\x12\x34", None), (None, "wrong type: b")]


def test_a_number_with_its_own_scale_is_exact_or_refused(spark: SparkSession) -> None:
    """VariableScaleDecimal: with more places than the column has, it would be rounded."""
    row = schema_files.parse_ddl_schema(spark, "d DECIMAL(10,2)", "test.ddl")
    numbers = {
        ("1.234", 3): None, ("1.230", 3): Decimal("1.23"), ("-1.235", 3): None, ("0.000", 3): Decimal(0), ("0.001", 3): None,
        ("-12.3400000000000000000000000", 25): Decimal("-12.34"), ("-12.3400000000000000000000001", 25): None,
        ("-5", 0): Decimal(-5), ("0.99999", 5): None, ("100000000.0", 1): None,
    }  # fmt: skip
    events: list[Event] = [
        postgres("c", 5, after={"d": {"scale": scale, "value": unscaled(text)}}) for text, scale in numbers
    ]
    wanted = [*numbers.values(), Decimal(500), None, None, None]
    more: list[Any] = [
        {"scale": -2, "value": unscaled("5")}, {"scale": 0, "value": 1234}, {"scale": 0, "value": ""}, {"scale": 0, "value": "x!"},
    ]  # fmt: skip
    events += [postgres("c", 5, after={"d": each}) for each in more]
    rows = decoded(spark, ChangeDecoder(row, debezium.debezium_envelope()), [sent(each) for each in events])
    assert [each["d"] for each in rows] == wanted
    assert {each["_error"] for each, d in zip(rows, wanted, strict=True) if d is None} == {"wrong type: d"}


@pytest.mark.parametrize("scale", [0, 5, 38])
def test_decimals_are_those_of_twos_complement(spark: SparkSession, scale: int) -> None:
    choose = random.Random(scale)
    numbers = [choose.choice((1, -1)) * choose.randrange(10 ** choose.randrange(1, 39)) for _ in range(300)]
    numbers += [0, 127, 128, -128, -129, 255, 2**63, -(2**63), 10**38 - 1, -(10**38) + 1]
    row = schema_files.parse_ddl_schema(spark, f"d DECIMAL(38,{scale})", "test.ddl")
    payloads: list[bytes | None] = [sent(postgres("c", 5, after={"d": unscaled(str(n))})) for n in numbers]
    rows = decoded(spark, ChangeDecoder(row, debezium.debezium_envelope()), payloads)
    with localcontext(prec=99):
        assert [each["d"] for each in rows] == [Decimal(n).scaleb(-scale) for n in numbers]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["debezium", "dms"])
def test_traffic_for_the_schema_of_the_recipe(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / f"{kind}.md").read_text(encoding="utf-8")
    [ddl] = re.findall(r"^```sql\n(-- pipelines/orders/schemas/order_row.*?)^```", page, re.M | re.S)
    (tmp_path / "row.ddl").write_text(ddl)
    written = payload_writers(KINDS[kind](kind=kind), tmp_path / "row.ddl")
    made = RecordGenerator(written.schema, random.Random(3))
    now = datetime(2026, 5, 4, tzinfo=UTC)
    given = [written.encode(made.record(number, now)) for number in range(600)]
    row = schema_files.parse_ddl_schema(spark, ddl, kind)
    rows = decoded(
        spark, ChangeDecoder(row, dms.EVENTS if kind == "dms" else debezium.debezium_envelope()), given
    )
    assert [each["_error"] for each in rows if each["_error"]] == []
    assert {each["_change"]["operation"] for each in rows} == {"insert", "update", "delete"}
    assert 50 < len({each["order_id"] for each in rows}) <= 100
    there: set[str] = set()
    for key, operation in ((each["order_id"], each["_change"]["operation"]) for each in rows):
        assert (key in there) == (operation != "insert"), "as a database would make them"
        (there.discard if operation == "delete" else there.add)(key)
    assert rows[0]["updated_at"] in (None, now.replace(tzinfo=None))
