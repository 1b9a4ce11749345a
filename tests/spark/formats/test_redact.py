"""Redacted fields reach no column of good rows and no bytes of dead letters."""

from __future__ import annotations

import json

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import Row, SparkSession

from millrace.etl.formats.decoding.redact import WITHHELD, RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema

DDL = "carrier STRING NOT NULL, flight INT, email STRING, card STRUCT<number: STRING>"
SECRET = "kim7731"


@pytest.fixture(scope="module")
def decoder(spark: SparkSession) -> RedactingDecoder:
    return RedactingDecoder(JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl")), ("email", "card"))


def decode(spark: SparkSession, decoder: RedactingDecoder, payloads: list[bytes | None]) -> list[Row]:
    numbered = [(i, None if p is None else bytearray(p)) for i, p in enumerate(payloads)]
    rows = spark.createDataFrame(numbered, "n INT, payload BINARY")
    return sorted(decoder.decode(rows).collect(), key=lambda r: r["n"])


def test_a_good_record_lacks_the_fields_only(spark: SparkSession, decoder: RedactingDecoder) -> None:
    payload = {"carrier": "AA", "flight": 1, "email": SECRET, "card": {"number": SECRET}}
    [row] = decode(spark, decoder, [json.dumps(payload).encode()])
    assert row.asDict() == {
        "n": 0,
        "carrier": "AA",
        "flight": 1,
        "email": None,
        "card": None,
        "_bytes": None,
        "_stage": None,
        "_error": None,
    }


CUT = {
    b'{"email":"kim7731","flight":"x","carrier":"AA"}': b'{"email":null,"flight":"x","carrier":"AA"}',
    b'{"flight":"x", "email" : "kim7731" }': b'{"flight":"x", "email" : null }',
    b'{"flight":"x","email":"a\\"kim7731","n":1}': b'{"flight":"x","email":null,"n":1}',
    b'{"flight":"x","card":{"number":"kim7731"}}': b'{"flight":"x","card":null',
    b'{"flight":"x","email":["kim7731"],"n":1}': b'{"flight":"x","email":null',
    b'{"carrier":"AA","email":"kim77': b'{"carrier":"AA","email":null',
    b'{"carrier":"AA","email":"x"kim7731,"n":1': b'{"carrier":"AA","email":null',
    b'{"carrier":"AA","email":7731,"flight":"x"}': b'{"carrier":"AA","email":null,"flight":"x"}',
    b"{'carrier':'AA','email':'kim7731'}": b"{'carrier':'AA','email':null}",
    b"{carrier:AA,email:kim7731 and more, of it}": b"{carrier:AA,email:null",
    b'{"EMAIL":"kim7731"}': b'{"EMAIL":null}',
    b'{"email":\n"kim\n7731"}': b'{"email":\nnull}',
    b'{"flight":"x","email_hash":"h","n":1}': b'{"flight":"x","email_hash":"h","n":1}',
    b'{"flight":"x","email"/**/:"kim7731","n":1}': b'{"flight":"x","email"null',
    b'{"flight":"x","email" // x\n:"kim7731","n":1}': b'{"flight":"x","email"null',
    b'{"flight":"x","email":/**/"kim7731","n":1}': b'{"flight":"x","email":null',
    b'{"flight":"x",`email`:"kim7731"}': b'{"flight":"x",`email`:null}',
    b'{"flight":"x","email","kim7731"}': b'{"flight":"x","email"null',
    b'{"flight":"x","email" "kim7731"}': b'{"flight":"x","email"null',
    b'{"flight":"x","email";"kim7731"}': b'{"flight":"x","email"null',
    b'{"flight":"x","email"=>"kim7731"}': b'{"flight":"x","email"=null',
    b'{"flight":"x",email kim7731}': b'{"flight":"x",emailnull',
    b'{"flight":"x","a":"{\\"email\\":\\"kim7731\\"}"}': b'{"flight":"x","a":"{\\"emailnull',
    '{"flight":"x",“email”:"kim7731"}'.encode(): '{"flight":"x",“emailnull'.encode(),
    '{"flight":"x","e\u017fmail":1,"email\u00a0":"kim7731"}'.encode(): '{"flight":"x","e\u017fmail":1,"emailnull'.encode(),
    b'{"flight":"x","n":"caf\\u00e9","email":"kim7731"}': b'{"flight":"x","n":"caf\\u00e9","email":null}',
    b'{"flight":"x","n":"a\\u0026b, c"}': b'{"flight":"x","n":"a\\u0026b, c"}',
}
HELD = [
    b"email=kim7731",
    b'["email","kim7731"]',
    b'{"email":"kim7731\xff"}',
    b'{"\\u0065mail":"kim7731","flight":"x"}',
    b'{"flight":"x","\\u0065mail"/**/:"kim7731"}',
    b'{"flight":"x","\\u0065mail","kim7731"}',
    b'{"flight":"x","em\\u0041il" "kim7731"}',
    b'{"flight":"x",`\\x65mail`:"kim7731"}',
    b'{"flight":"x",em\\u{61}il kim7731}',
    '{"email":"kim7731"}'.encode("utf-16"),
]


def test_a_dead_letter_keeps_what_is_not_redacted(spark: SparkSession, decoder: RedactingDecoder) -> None:
    rows = decode(spark, decoder, list(CUT))
    assert {p: bytes(r["_bytes"]) for p, r in zip(CUT, rows, strict=True)} == CUT
    assert all(r["_error"] and WITHHELD not in r["_error"] for r in rows)


def test_bytes_in_which_a_name_could_hide_are_withheld(
    spark: SparkSession, decoder: RedactingDecoder
) -> None:
    rows = decode(spark, decoder, [*HELD, None, b""])
    assert [r["_bytes"] for r in rows] == [None] * (len(HELD) + 1) + [b""]
    assert [r["_error"].endswith(WITHHELD) for r in rows] == [True] * len(HELD) + [False] * 2


def test_a_long_value_is_cut_like_a_short_one(spark: SparkSession, decoder: RedactingDecoder) -> None:
    long = b'{"flight":"x","email":"' + b'\\"' * 500_000 + b'","carrier":"AA"}'
    [row] = decode(spark, decoder, [long])
    assert bytes(row["_bytes"]) == b'{"flight":"x","email":null,"carrier":"AA"}'


LONG = 1 << 20
"""Bytes of a dead letter. One look for each of them to the end of the others would be 10^12 steps."""

REPEATED = [
    b"\\u",
    b'"\\u0"',
    b'"\\u0"/*',
    b'"\\u0" ',
    b"\\u0065",
    b"\\u0065mai",
    b'"email',
    b"email ",
    b'email"/*',
    b'"email": "x" ',
    b'"email":"x",',
    b'"email":1e',
    b'\\"',
    b"'",
    b"`",
    b" ",
    b"\\",
]


@pytest.mark.slow
@pytest.mark.parametrize("part", REPEATED)
def test_a_long_dead_letter_takes_as_long_as_many_short_ones(
    spark: SparkSession, decoder: RedactingDecoder, part: bytes
) -> None:
    """What is not linear does not come to its end before the time that pytest gives each test."""
    payload = b'{"flight":"x",' + part * (LONG // len(part))
    [row] = decode(spark, decoder, [payload])
    assert row["_error"]


@hypothesis.settings(max_examples=8, suppress_health_check=list(hypothesis.HealthCheck))
@hypothesis.given(data=st.data())
@pytest.mark.slow
def test_no_member_of_the_name_survives_whatever_is_broken(
    spark: SparkSession, decoder: RedactingDecoder, data: st.DataObject
) -> None:
    """A record with the secret, cut, glued or spoiled anywhere behind the field's name: it is not there any more."""
    payloads = []
    for _ in range(200):
        value = data.draw(st.sampled_from([SECRET, [SECRET], {"a": SECRET}, {"a": {"b": [1, SECRET]}}]))
        others = data.draw(
            st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3)
        )
        members = [*others.items()]
        members.insert(data.draw(st.integers(0, len(members))), ("email", value))
        text = json.dumps(dict(members), ensure_ascii=data.draw(st.booleans()))
        name_ends = text.index('"email"') + len('"email"')
        gap = data.draw(
            st.sampled_from(["", " ", "/**/", "/*:*/ ", "//x\n", "#x\n", ",", ";", "\0", "\u00a0"])
        )
        quote = data.draw(st.sampled_from(['"', '"', "'", "`", ""]))
        text = text[: name_ends - 7] + f"{quote}email{quote}{gap}" + text[name_ends:]
        name_ends += len(gap) - 2 + 2 * len(quote)
        at = data.draw(st.integers(name_ends + 1, len(text)))
        spoiled = data.draw(st.sampled_from(["", "}", '"', ",", "\x00", "]]", ' "x":1']))
        text = text[:at] + spoiled + (text[at:] if data.draw(st.booleans()) else "")
        payloads.append(text.encode("utf-8", "surrogatepass"))
    for payload, row in zip(payloads, decode(spark, decoder, payloads), strict=True):
        assert SECRET not in str(row.asDict()), payload
