"""Each JSON record is decoded or becomes a dead letter with its bytes; none stops the job."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.base import Decoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.record.errors import StartError
from tests.run import examples

DDL = """
carrier STRING NOT NULL, flight INT NOT NULL, delay DOUBLE, at TIMESTAMP, day DATE, fare DECIMAL(9,2),
big BIGINT, flag BOOLEAN, legs ARRAY<INT>, crew STRUCT<name: STRING NOT NULL, age: INT>, tags MAP<STRING,INT>
"""
GOOD = b'{"carrier":"AA","flight":1'


@pytest.fixture(scope="module")
def decoder(spark: SparkSession) -> JsonDecoder:
    return JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))


def decode(spark: SparkSession, decoder: Decoder, payloads: Sequence[bytes | None]) -> list[Row]:
    numbered = [(i, None if p is None else bytearray(p)) for i, p in enumerate(payloads)]
    rows = spark.createDataFrame(numbered, "n INT, payload BINARY")
    return sorted(decoder.decode(rows).collect(), key=lambda r: r["n"])


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


BAD: dict[str, tuple[bytes | None, str, str]] = {
    "tombstone": (None, "decode", "null payload"),
    "empty": (b"", "decode", "empty record"),
    "blank": (b" \n ", "decode", "not exactly one JSON object"),
    "text": (b"hello", "decode", "not exactly one"),
    "truncated": (GOOD + b',"delay":', "decode", "not exactly one"),
    "cut": (GOOD, "decode", "not exactly one"),
    "array": (b"[" + GOOD + b"}]", "decode", "not exactly one"),
    "scalar": (b"5", "decode", "not exactly one"),
    "json null": (b"null", "decode", "not exactly one"),
    "invalid UTF-8 inside text": (b'{"carrier":"\xff\xfe","flight":1}', "decode", "not UTF-8"),
    "invalid UTF-8 after an escape": (b'{"carrier":"\\n\xff","flight":1}', "decode", "not UTF-8"),
    "overlong UTF-8": (b'{"carrier":"\xc0\xaf","flight":1}', "decode", "not UTF-8"),
    "surrogate": (b'{"carrier":"\xed\xa0\x80","flight":1}', "decode", "not UTF-8"),
    "byte order mark": (b"\xef\xbb\xbf" + GOOD + b"}", "decode", "not exactly one"),
    "UTF-16": ('{"carrier":"AA","flight":1}'.encode("utf-16"), "decode", "not UTF-8"),
    "NUL after": (GOOD + b"}\x00", "decode", "not exactly one"),
    "NUL inside": (b'{"carrier":"A\x00A","flight":1}', "decode", "not exactly one"),
    "two objects": (GOOD + b"}" + GOOD + b"}", "decode", "not exactly one"),
    "two lines": (GOOD + b"}\n" + GOOD + b"}", "decode", "not exactly one"),
    "two with comma": (GOOD + b"}," + GOOD + b"}", "decode", "not exactly one"),
    "a brace too many": (GOOD + b"}}", "decode", "not exactly one"),
    "a bracket too many": (GOOD + b"}]", "decode", "not exactly one"),
    "our own end": (GOOD + b'}],"end":1}', "decode", "not exactly one"),
    "our own bracket": (GOOD + b'}],"k":[{}', "decode", "not exactly one"),
    "our own end, an array before": (GOOD + b',"legs":[1]}],"end":1,"k":[{}', "decode", "not exactly one"),
    "our own brace": (GOOD + b'}],"end":1},"k":{"a":{}', "decode", "not exactly one"),
    "an end of its own": (GOOD + b',"_end":1}{}', "decode", "not exactly one"),
    "an end in the second": (GOOD + b'}{"_end":1}', "decode", "not exactly one"),
    "an end after a comma": (GOOD + b'},"_end":1}', "decode", "not exactly one"),
    "the brace of an inner one": (GOOD + b',"crew":{"name":"Ada"}', "decode", "not exactly one"),
    "a brace in a text": (b'{"flight":1,"carrier":"A}', "decode", "not exactly one"),
    "a brace after a comma": (GOOD + b",}", "decode", "not exactly one"),
    "a comma alone": (b"{,}", "decode", "not exactly one"),
    "a brace for a bracket": (GOOD + b',"legs":[1}', "decode", "not exactly one"),
    "garbage after": (GOOD + b"} xyz", "decode", "not exactly one"),
    "comment after": (GOOD + b"} // x", "decode", "not exactly one"),
    "member after": (GOOD + b'},"x":2', "decode", "not exactly one"),
    "single quotes": (b"{'carrier':'AA','flight':1}", "decode", "not exactly one"),
    "NaN": (GOOD + b',"delay":NaN}', "decode", "not exactly one"),
    "Infinity": (GOOD + b',"delay":-Infinity}', "decode", "not exactly one"),
    "leading zeros": (GOOD + b',"delay":007}', "decode", "not exactly one"),
    "2,000 digits": (GOOD + b',"delay":' + b"9" * 2000 + b"}", "decode", "not exactly one"),
    "nested 1,000": (GOOD + b',"x":' + nested(1000) + b"}", "decode", "not exactly one"),
    "nested 100,000": (GOOD + b',"x":' + nested(100_000) + b"}", "decode", "not exactly one"),
    "text for int": (b'{"carrier":"AA","flight":"one"}', "schema", "wrong type: flight"),
    "digits as text": (b'{"carrier":"AA","flight":"1"}', "schema", "wrong type: flight"),
    "fraction for int": (b'{"carrier":"AA","flight":1.5}', "schema", "wrong type: flight"),
    "beyond 32 bits": (b'{"carrier":"AA","flight":3000000000}', "schema", "wrong type: flight"),
    "beyond 64 bits": (GOOD + b',"big":99999999999999999999}', "schema", "wrong type: big"),
    "two wrong": (b'{"carrier":"AA","flight":"x","flag":"y"}', "schema", "wrong type: flight, flag"),
    "NaN as text": (GOOD + b',"delay":"NaN"}', "schema", "wrong type: delay"),
    "decimal overflow": (GOOD + b',"fare":12345678901.1}', "schema", "wrong type: fare"),
    "month 13": (GOOD + b',"at":"2013-13-01 05:00:00"}', "schema", "wrong type: at"),
    "text for time": (GOOD + b',"at":"yesterday"}', "schema", "wrong type: at"),
    "text for date": (GOOD + b',"day":"x"}', "schema", "wrong type: day"),
    "text for flag": (GOOD + b',"flag":"true"}', "schema", "wrong type: flag"),
    "text in array": (GOOD + b',"legs":[1,"x"]}', "schema", "wrong type"),
    "text in map": (GOOD + b',"tags":{"a":"x"}}', "schema", "wrong type"),
    "text in struct": (
        GOOD + b',"crew":{"name":"Ada","age":"x"}}',
        "schema",
        "wrong type: crew.age",
    ),
    "scalar for struct": (GOOD + b',"crew":5}', "schema", "wrong type: crew"),
    "missing": (b'{"carrier":"AA"}', "schema", "required field: flight"),
    "two missing": (b"{}", "schema", "required field: carrier, flight"),
    "null": (b'{"carrier":null,"flight":1}', "schema", "required field: carrier"),
    "renamed": (b'{"Carrier":"AA","flight":1}', "schema", "required field: carrier"),
    "missing in struct": (GOOD + b',"crew":{"age":7}}', "schema", "required field: crew.name"),
}

TAKEN: dict[str, tuple[bytes, dict[str, Any]]] = {
    "plain": (GOOD + b"}", {"carrier": "AA", "flight": 1, "delay": None}),
    "white space around": (b"\n " + GOOD + b"} \r\n", {"flight": 1}),
    "a line": (GOOD + b"}\n", {"flight": 1}),
    "a line of another system": (GOOD + b"}\r\n", {"flight": 1}),
    "blanks before the brace": (GOOD + b" \n }", {"flight": 1}),
    "members named like our own": (GOOD + b',"_end":"x","_corrupt":"y"}', {"flight": 1}),
    "extra fields": (GOOD + b',"x":{"y":[1]}}', {"flight": 1}),
    "duplicate keys: the last": (b'{"carrier":"AA","flight":1,"flight":2}', {"flight": 2}),
    "number for text": (b'{"carrier":5,"flight":1}', {"carrier": "5"}),
    "object for text": (b'{"carrier":{"a":[1]},"flight":1}', {"carrier": '{"a":[1]}'}),
    "escaped NUL": (b'{"carrier":"A\\u0000A","flight":1}', {"carrier": "A\0A"}),
    "replacement character itself": ('{"carrier":"\ufffd","flight":1}'.encode(), {"carrier": "\ufffd"}),
    "emoji": ('{"carrier":"✈\U0001f600","flight":1}'.encode(), {"carrier": "✈\U0001f600"}),
    "int for double": (GOOD + b',"delay":517}', {"delay": 517.0}),
    "decimal rounded": (GOOD + b',"fare":1.239}', {"fare": Decimal("1.24")}),
    "empty struct parts": (GOOD + b',"crew":null,"legs":[]}', {"crew": None, "legs": []}),
    "nested 900": (GOOD + b',"x":' + nested(900) + b"}", {"flight": 1}),
    "1 MiB": (b'{"carrier":"' + b"A" * (1 << 20) + b'","flight":1}', {"carrier": "A" * (1 << 20)}),
}


def test_each_bad_record_is_a_dead_letter_with_its_bytes_and_reason(
    spark: SparkSession, decoder: JsonDecoder
) -> None:
    rows = decode(spark, decoder, [payload for payload, _, _ in BAD.values()])
    problems = {}
    for (name, (payload, stage, error)), row in zip(BAD.items(), rows, strict=True):
        kept = None if row["_bytes"] is None else bytes(row["_bytes"])
        nulls = all(row[f] is None for f in decoder.schema.fieldNames())
        if not (kept == payload and row["_stage"] == stage and error in (row["_error"] or "") and nulls):
            problems[name] = row
    assert problems == {}


def test_each_good_record_is_decoded(spark: SparkSession, decoder: JsonDecoder) -> None:
    rows = decode(spark, decoder, [payload for payload, _ in TAKEN.values()])
    for (name, (_, values)), row in zip(TAKEN.items(), rows, strict=True):
        assert (row["_error"], row["_stage"], row["_bytes"]) == (None, None, None), name
        assert {k: row[k] for k in values} == values, name


def test_times_are_utc(spark: SparkSession, decoder: JsonDecoder) -> None:
    texts = [
        "1970-01-01 00:00:00",
        "9999-12-31T23:59:59Z",
        "2013-01-01T05:00:00+02:00",
        "2013-01-01 05:00:00",
    ]
    payloads: list[bytes | None] = [GOOD + f',"at":"{t}"}}'.encode() for t in texts]
    numbered = spark.createDataFrame(list(enumerate(payloads)), "n INT, payload BINARY")
    rows = decoder.decode(numbered).selectExpr("n", "unix_seconds(at) AS s").orderBy("n").collect()
    assert [r["s"] for r in rows] == [0, 253402300799, 1357009200, 1357016400]


TIMES = [
    "2013-01-01T10:00:00Z", "2013-01-01 10:00:00.123456Z", "2013-01-01T10:00:00.1234567Z", "2013-01-01T24:00:00Z",
    "2013-02-30T10:00:00Z", "2013-01-01T10:00:00", "2013-01-01T10:00:00+02:00", "2013-01-01T10:00:00+02:00Z",
    "2013-01-01T10:00:1ZZ", "2013-01-01T10:00:00Z ", " 2013-01-01T10:00:00Z", "2013-01-01T10:00:00Z\n", "2013",
    "2013-01", "2013-1-1", "20130101", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "12013-01-01", "",
    "2013-01-01T10:00:00 Europe/Paris", "2013-01-01T10:00:00 nowhere", "T10:00", "now", "null", "-2013-01-01", "5",
]  # fmt: skip
NO_TEXTS = [
    "5",
    "-5",
    "0",
    "2013",
    "123E-5",
    "1234-5",
    "1.5",
    "1e3",
    "true",
    "null",
    "{}",
    "[1]",
    '{"2013-01-01":1}',
]


@pytest.mark.slow
def test_times_are_as_from_json_reads_them(spark: SparkSession, decoder: JsonDecoder) -> None:
    """The quick way for times in common forms agrees with Spark's parser; what has no day, or no year of four digits, is none."""
    values = [*map(json.dumps, TIMES), *NO_TEXTS]
    options = {"columnNameOfCorruptRecord": "corrupt"}
    parsed = F.from_json(F.col("payload").cast("string"), "at TIMESTAMP, corrupt STRING", options)
    rows = spark.createDataFrame(
        [(n, bytearray(f'{{"carrier":"AA","flight":1,"at":{v}}}'.encode())) for n, v in enumerate(values)],
        "n INT, payload BINARY",
    )
    # Python has no year 0.
    at, good = F.unix_micros("at"), F.col("_error").isNull()
    found = decoder.decode(rows).orderBy("n").select(at, good).collect()
    wanted = rows.orderBy("n").select(F.unix_micros(parsed["at"]), parsed["corrupt"].isNull()).collect()
    refused = map(
        json.dumps, ("T10:00", "0000-01-01T00:00:00Z", "-2013-01-01", "12013-01-01", "2013", "2013-01")
    )
    differ = {v: tuple(f) for v, f, w in zip(values, found, wanted, strict=True) if tuple(f) != tuple(w)}
    assert differ == dict.fromkeys(refused, (None, False))
    assert sum(good for _, good in wanted) > 10


def allocated_by(spark: SparkSession, action: Callable[[], object]) -> int:
    """Bytes that the threads of the JVM allocate meanwhile: says how often something is done, however slowly.

    Thread by thread, as what one had allocated that ends is in no sum any more.
    """
    jvm: Any = spark._jvm
    beans = jvm.java.lang.management.ManagementFactory.getThreadMXBean()

    def by_thread() -> dict[int, int]:
        threads = beans.getAllThreadIds()
        return dict(zip(threads, beans.getThreadAllocatedBytes(threads), strict=True))

    before = by_thread()
    action()
    return sum(max(0, taken - max(0, before.get(thread, 0))) for thread, taken in by_thread().items())


@pytest.mark.slow
def test_a_record_is_parsed_once_and_a_bad_one_a_few_times(spark: SparkSession) -> None:
    """What is allocated tells: an expression that Spark does not share is parsed again for each of 30 fields."""
    ddl = ", ".join(f"f{n} INT NOT NULL" for n in range(30))
    decoder = JsonDecoder(parse_ddl_schema(spark, ddl, "wide.ddl"))
    numbers = {f"f{n}": n for n in range(30)}
    payloads = {"good": numbers, "bad": numbers | {"f29": "x"}}

    def records(payload: str, count: int) -> DataFrame:
        rows = spark.range(count).select(F.lit(payload).cast("binary").alias("payload"), "id")
        # Not a constant: Spark would parse that while it plans.
        return rows.select(F.when(F.col("id") >= 0, F.col("payload")).alias("payload"))

    def bytes_for(payload: str, what: Callable[[DataFrame], DataFrame]) -> int:
        """For some thousand records: what many take over what few do, as planning is the same.

        Other threads allocate too, and now and then: the least of three is what it takes.
        """

        def once(count: int) -> int:
            return allocated_by(
                spark, what(records(payload, count)).write.format("noop").mode("overwrite").save
            )

        few, many = (min(once(count) for _ in range(3)) for count in (100, 8000))
        return many - few

    def parsed(rows: DataFrame) -> DataFrame:
        # Of a text that is made for the parse, as the decoder makes it: it sets its own end behind the record.
        text = F.concat(F.col("payload").cast("string"), F.lit(" "))
        return rows.select(F.from_json(text, decoder.schema))

    # A good record is parsed once and judged: 2.2 times what its parse takes; parsed twice it would be 3.2. A bad one is
    # parsed by the quick way, by the exact one and for its diagnosis. The first run of all loads classes.
    for (name, fields), most in zip(payloads.items(), (2.5, 8), strict=True):
        text = json.dumps(fields)
        bytes_for(text, parsed)
        assert bytes_for(text, decoder.decode) < most * bytes_for(text, parsed), name


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
records = st.one_of(
    st.binary(max_size=60),
    st.text().map(lambda t: t.encode("utf-8", "surrogatepass")),
    st.builds(lambda v: json.dumps(v).encode(), json_like),
    st.builds(
        lambda c, f, x, cut: json.dumps({"carrier": c, "flight": f, "x": x}).encode()[: -cut or None],
        st.text() | st.integers(),
        st.integers(-(2**40), 2**40) | st.text(max_size=3),
        json_like,
        st.sampled_from([0, 0, 0, 1, 2]),
    ),
    st.lists(
        st.sampled_from([GOOD, b"{", b"}", b"[", b"]", b",", b'"', b"\n", b'"x":1', b'"_end":1']), max_size=6
    ).map(b"".join),
)


def one_object(payload: bytes) -> dict[str, Any] | None:
    """What Python makes of it, which takes more for a number than JSON does."""

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    try:
        value = json.loads(payload.decode(), parse_constant=refuse)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


@hypothesis.settings(max_examples=examples(6), suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(st.lists(records, min_size=60, max_size=120))
def test_any_bytes_are_either_good_or_kept(
    spark: SparkSession, decoder: JsonDecoder, payloads: list[bytes]
) -> None:
    rows = decode(spark, decoder, list(payloads))
    assert len(rows) == len(payloads)
    for payload, row in zip(payloads, rows, strict=True):
        value = one_object(payload)
        if row["_error"] is None:
            assert value is not None
            assert isinstance(row["flight"], int)
            assert value["flight"] == row["flight"]
        else:
            assert bytes(row["_bytes"]) == payload
            assert row["_stage"] == ("decode" if value is None else "schema")


@pytest.mark.parametrize(
    ("ddl", "message"),
    [
        ("carrier STRING, _error STRING", "names that begin with _ are reserved: _error"),
        ("carrier STRING, Carrier INT", "clash: Carrier, carrier"),
        ("carrier STRNG", "not a schema"),
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(spark: SparkSession, ddl: str, message: str) -> None:
    with pytest.raises(StartError, match=f"^test.ddl: .*{message}"):
        parse_ddl_schema(spark, ddl, "test.ddl")


@pytest.mark.slow
def test_a_number_for_a_text_is_as_sent_under_any_name(spark: SparkSession) -> None:
    """Names that a sender may or must escape, as PHP writes ``content\\/type``."""
    names = ("content/type", 'a"b', "a\\b", "tab\tand.dot", "é")
    ddl = ", ".join(f"`{name}` STRING" for name in names)
    decoder = JsonDecoder(
        parse_ddl_schema(spark, f"{ddl}, st STRUCT<{ddl.replace(' STRING', ': STRING')}>", "test.ddl")
    )
    keys = [json.dumps(name, ensure_ascii=False) for name in names]
    forms = [
        dict(zip(names, given, strict=True))
        for given in (keys, [k.replace("/", r"\/") for k in keys], map(json.dumps, names))
    ]
    for number in ("1.10", "1e400", "-0", '{"a":1.10}'):
        given = [(name, form[name]) for form in forms for name in names]
        payloads = [
            text.encode()
            for _, key in given
            for text in (f"{{{key}: {number}}}", f'{{"st": {{{key} :{number}}}}}')
        ]
        rows = decode(spark, decoder, payloads)
        found = [
            (row[name], nested["st"][name])
            for (name, _), row, nested in zip(given, rows[::2], rows[1::2], strict=True)
        ]
        assert found == [(number, number)] * len(given)
