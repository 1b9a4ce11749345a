"""Protobuf messages become values or one clear reason, whatever the bytes."""

from __future__ import annotations

from functools import partial, reduce

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyspark.sql.types import StringType, StructType

from millrace.etl.formats import protobuf
from millrace.etl.formats.decoding import decode_in_python_by_arrow
from millrace.etl.formats.protobuf import DescriptorMismatchError
from millrace.etl.formats.protobuf_columns import message_columns
from millrace.etl.launch.protobuf.descriptor_file import find_message
from millrace.etl.launch.protobuf.wire_format import WireError
from millrace.etl.record.errors import StartError
from tests import protobuf_sample
from tests import protobuf_without_protoc as pb

ORDER = find_message(protobuf_sample.DESCRIPTOR, protobuf_sample.NAME)
read = pb.reader(ORDER)
read_old = pb.reader(find_message(protobuf_sample.DESCRIPTOR, "old.Old"))


def test_columns_are_those_of_the_message() -> None:
    assert (
        message_columns(ORDER).simpleString()
        == f"struct<{protobuf_sample.DDL.replace(' ', ':').replace(',:', ',')}>"
    )


def test_every_kind_of_field_is_read() -> None:
    assert read(protobuf_sample.FULL) == protobuf_sample.VALUES


def test_an_empty_payload_is_a_message_with_nothing_set() -> None:
    assert read(b"") == protobuf_sample.NOTHING


TAKEN = {
    "the last of two": (pb.number(1, 1) + pb.number(1, 2), {"id": 2}),
    "unpacked numbers": (pb.number(9, 3) + pb.number(9, 4), {"sizes": [-2, 2]}),
    "an unknown field": (pb.block(99, "x") + pb.number(1, 2), {"id": 2}),
    "an unknown group": (pb.varint(99 << 3 | 3) + pb.number(1, 9) + pb.varint(99 << 3 | 4), {"id": 0}),
    "an enum of no name": (pb.number(7, 5), {"state": "5"}),
    "a negative enum": (pb.number(7, -1), {"state": "LOST"}),
    "a message in two parts": (
        pb.block(8, pb.block(1, "Kim")) + pb.block(8, pb.number(2, 3)),
        {"customer": {"name": "Kim", "age": 3}},
    ),
    "a number in more bytes than it needs": (b"\x08\x81\x80\x00", {"id": 1}),
    "an entry without its value": (pb.block(11, pb.block(1, "oak")), {"stock": {"oak": 0}}),
}


@pytest.mark.parametrize("name", TAKEN)
def test_what_the_language_allows_is_taken(name: str) -> None:
    payload, values = TAKEN[name]
    assert read(payload) == protobuf_sample.NOTHING | values


BAD = {
    "cut off in a tag": (b"\x80", WireError, "truncated inside a varint"),
    "cut off in a text": (b"\x12\x05abc", WireError, "truncated inside field 2"),
    "a huge length": (b"\x12\xff\xff\xff\xff\x0f", WireError, "truncated inside field 2"),
    "field 0": (b"\x00\x01", WireError, "field number 0 is outside"),
    "wire type 7": (b"\x0f", WireError, "wire type 7"),
    "a number of eleven bytes": (b"\x08" + b"\xff" * 10 + b"\x01", WireError, "longer than ten bytes"),
    "the end of no group": (b"\x0c", WireError, "wire type 4"),
    "a group without its end": (b"\x9b\x06", WireError, "truncated inside a group"),
    "a text that is not UTF-8": (b"\x12\x01\xff", WireError, "not UTF-8"),
    "text in place of a number": (pb.block(1, "x"), DescriptorMismatchError, "wrong type: id"),
    "a number in place of text": (pb.number(2, 1), DescriptorMismatchError, "wrong type: title"),
    "a number in place of a message": (pb.number(8, 1), DescriptorMismatchError, "wrong type: customer"),
    "garbage in a message": (pb.block(8, b"\xff"), WireError, "truncated inside"),
    "a packed number cut off": (pb.block(9, b"\x80"), WireError, "truncated inside"),
    "the year 10000": (
        pb.block(12, pb.number(1, 253_402_300_800)),
        DescriptorMismatchError,
        "outside the years 1 to 9999",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_such_message_has_one_reason(name: str) -> None:
    payload, kind, text = BAD[name]
    with pytest.raises(kind, match=text):
        read(payload)


def test_a_required_field_must_be_there() -> None:
    assert read_old(pb.number(1, 3)) == {"n": 3, "text": None}
    with pytest.raises(DescriptorMismatchError, match="no value for a required field: n"):
        read_old(pb.block(2, "x"))


def test_an_entry_of_a_map_has_a_key_and_a_value_whatever_is_left_out() -> None:
    read_shelf = pb.reader(find_message(protobuf_sample.DESCRIPTOR, "old.Shelf"))
    full = pb.number(1, 4) + pb.block(2, pb.block(1, "nails"))
    entries = [full, pb.block(2, pb.block(1, "nuts")), pb.number(1, 5)]
    assert read_shelf(b"".join(pb.block(1, each) for each in entries)) == {
        "bins": {4: {"label": "nails"}, 0: {"label": "nuts"}, 5: {"label": None}}
    }


def test_a_message_in_very_many_parts_is_put_together() -> None:
    # Were all that came before copied with each part, this would be a hundred gigabytes.
    parts = [pb.block(8, pb.number(2, n & 0x7F)) for n in range(300_000)]
    assert read(b"".join([pb.block(8, pb.block(1, "Kim")), *parts]))["customer"] == {
        "name": "Kim",
        "age": 299_999 & 0x7F,
    }


@hypothesis.given(
    st.binary(max_size=60)
    | st.builds(lambda at: protobuf_sample.FULL[:at], st.integers(0, len(protobuf_sample.FULL)))
)
def test_any_bytes_are_read_or_refused(payload: bytes) -> None:
    try:
        values = read(payload)
    except (WireError, DescriptorMismatchError):
        return
    assert values.keys() == protobuf_sample.VALUES.keys()


def _nested(deep: int) -> bytes:
    """A message in a message, so many times."""
    return reduce(lambda inner, _: pb.message("a", [], nested=[inner]), range(deep), pb.message("a", []))


REFUSED = {
    "no such message": (
        protobuf_sample.DESCRIPTOR,
        "shop.Ordre",
        "no message shop.Ordre; its messages are .*shop.Order",
    ),
    "a message that holds itself": (protobuf_sample.DESCRIPTOR, "shop.Node", "shop.Node is recursive"),
    "an import that is missing": (
        pb.descriptor_set(protobuf_sample.FILES[1]),
        protobuf_sample.NAME,
        "--include_imports",
    ),
    "an enum field of no type": (
        pb.descriptor_set(pb.file("a.proto", "", [pb.message("a", [pb.Declared("x", 1, 14)])])),
        "a",
        "the file lacks the type of field a.x",
    ),
    "no descriptor file": (b"syntax = proto3", protobuf_sample.NAME, "not a Protobuf descriptor file"),
    "messages nested without end": (
        pb.descriptor_set(pb.file("deep.proto", "", [_nested(2000)])),
        "a.a",
        "messages are nested more than 100 deep",
    ),
    "an enum": (protobuf_sample.DESCRIPTOR, "shop.State", "no message shop.State"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_descriptor_that_does_not_fit_is_refused(name: str) -> None:
    data, message, text = REFUSED[name]
    with pytest.raises(StartError, match=f"^order.desc: .*{text}"):
        protobuf.make_protobuf_decoder(data, message, "order.desc")


LINES = find_message(protobuf_sample.DESCRIPTOR, "old.Shelf")
"""A message that holds others, of which an empty one takes two bytes."""


def test_a_payload_comes_to_so_many_values_at_most() -> None:
    wide = pb.block(9, b"\x02" * 1_000_000)
    for message, payload in ((LINES, b"\x0a\x00" * 300_000), (ORDER, wide)):
        one = protobuf.make_payload_decoder(message)
        (_, *why), values = one(payload)
        assert why == ["decode", "more than 1,000,000 values"]
        assert values <= protobuf.MOST_VALUES + 1_000_000
        assert one(b"")[0][1:] == (None, None), "the next one starts from the beginning"
    packed, _ = one(pb.block(9, b"\x02" * 900_000))
    assert packed[0] is not None
    assert packed[0]["sizes"] == [1] * 900_000


def test_values_go_back_in_batches_of_so_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_in_python_by_arrow, "MOST_VALUES", 100)
    payloads = [pb.block(9, b"\x02" * n) for n in (70, 1, 20, 3, 200, 4)]
    batch = pa.record_batch([pa.array(range(6)), pa.array(payloads, pa.binary())], ["n", "payload"])
    answer = (
        StructType()
        .add("record", message_columns(ORDER))
        .add("stage", StringType())
        .add("error", StringType())
    )
    # One without a row, as Spark may send it.
    parts = list(
        decode_in_python_by_arrow._function_over_arrow_batches(
            partial(protobuf.make_payload_decoder, ORDER), answer
        )([batch, batch.slice(0, 0)])
    )
    assert [part["n"].to_pylist() for part in parts] == [[0, 1], [2, 3, 4], [5]]
    result = [row["record"]["sizes"] for part in parts for row in part["_answer"].to_pylist()]
    assert result == [[1] * n for n in (70, 1, 20, 3, 200, 4)]
