"""Compressed messages are decompressed up to the size limit; others are refused with the reason."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import zlib
from typing import Any

import cramjam
import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from millrace.etl.formats.decoding.decode_in_python_by_arrow import answers_in_parts
from millrace.etl.formats.decoding.decompress import (
    MAGIC,
    MOST_STREAMS,
    DecompressError,
    decompress,
)

LIMIT = 1_000_000


def frames(name: str, content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, name) as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def snappy(content: bytes) -> bytes:
    """The framing format: an identifier, then chunks of up to 64 KiB."""
    return bytes(cramjam.snappy.compress(content)) or bytes.fromhex(MAGIC["snappy"][0])


PACK = {
    "gzip": gzip.compress,
    "zlib": zlib.compress,
    "bzip2": bz2.compress,
    "zstd": lambda content: frames("zstd", content),
    "lz4": lambda content: frames("lz4", content),
    "snappy": snappy,
}
NAMES = sorted(PACK)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"{}", bytes(range(256)) * 1000])
def test_what_was_packed_comes_out(name: str, content: bytes) -> None:
    assert decompress(PACK[name](content), LIMIT) == content


@pytest.mark.parametrize("content", [b'{"id":1,"amount":100}', b"ab" * 40_000, bytes(range(256)) * 300])
def test_a_changed_bit_of_snappy_is_refused(content: bytes) -> None:
    """As another program refuses it: each chunk has a checksum."""
    packed = snappy(content)
    for at in range(80, 8 * len(packed), max(1, len(packed) // 15)):
        changed = bytearray(packed)
        changed[at // 8] ^= 1 << at % 8
        try:
            wanted = bytes(cramjam.snappy.decompress(bytes(changed)))
        except cramjam.DecompressionError:
            wanted = None
        try:
            found = decompress(bytes(changed), LIMIT)
        except DecompressError:
            found = None
        assert found in (wanted, None), at


@pytest.mark.parametrize("name", ["gzip", "bzip2", "zstd"])
def test_parts_one_behind_the_other_are_one_message(name: str) -> None:
    assert decompress(PACK[name](b"one ") + PACK[name](b"two"), LIMIT) == b"one two"


@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_is_not_opened(name: str) -> None:
    bomb = PACK[name](b"0" * 50_000_000)
    with pytest.raises(
        DecompressError, match=f"{name}: the message is larger than 1,000,000 bytes after decompression"
    ):
        decompress(bomb, LIMIT)


@pytest.mark.parametrize("name", NAMES)
def test_the_ceiling_itself_is_allowed(name: str) -> None:
    packed = PACK[name](b"x" * 70_000)
    assert len(decompress(packed, 70_000)) == 70_000
    with pytest.raises(DecompressError, match="larger than 69,999"):
        decompress(packed, 69_999)


@pytest.mark.parametrize("name", NAMES)
def test_cut_off_anywhere_it_is_refused(name: str) -> None:
    packed = PACK[name](bytes(range(256)) * 20)
    for end in {12, len(packed) // 2, len(packed) - 1}:
        with pytest.raises(DecompressError, match=name):
            decompress(packed[:end], LIMIT)


@pytest.mark.parametrize("name", ["gzip", "zlib", "bzip2"])
def test_something_behind_it_is_refused(name: str) -> None:
    with pytest.raises(DecompressError, match="5 unexpected bytes after the end"):
        decompress(PACK[name](b"{}") + b"extra", LIMIT)


@pytest.mark.parametrize("beginning", ["1f8b", "425a6839", "28b52ffd", "04224d18", "ff060000734e61507059"])
def test_what_only_begins_so_is_refused(beginning: str) -> None:
    with pytest.raises(DecompressError):
        decompress(bytes.fromhex(beginning) + b" and then text that is nothing of the kind", LIMIT)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"{}",
        b"BZ",
        b'{"a":1}',
        b"\xef\xbb\xbf{}",
        b"x\x01 text",
        b"x^2 + y^2",
        b"x\x9c text",
        b"x^2",
        b"x^2+1",
        b"x^a,b",
        b"\x78\x01",
    ],
)
def test_what_is_not_compressed_is_left_alone(message: bytes) -> None:
    assert decompress(message, LIMIT) == message


@hypothesis.given(st.binary(max_size=300), st.sampled_from(NAMES), st.integers(0, 2**16))
def test_whatever_is_spoiled_either_opens_or_is_refused(content: bytes, name: str, place: int) -> None:
    packed = bytearray(PACK[name](content))
    packed[place % len(packed)] ^= 1 + place % 255
    with contextlib.suppress(DecompressError):
        assert len(decompress(bytes(packed), LIMIT)) <= LIMIT


def test_open_messages_go_back_in_parts_of_so_many_bytes() -> None:
    given = [(b"a", 100), (b"b", 100), (None, 0), (b"c", 100), (b"d", 100)]
    assert list(answers_in_parts(given, 150)) == [[b"a", b"b"], [None, b"c", b"d"]]
    assert list(answers_in_parts([], 150)) == []


EMPTY = {
    **{name: PACK[name](b"") for name in ("gzip", "zlib", "bzip2", "zstd", "lz4")},
    "snappy": bytes.fromhex("01040000d8ea82a2"),
}


@pytest.mark.parametrize("name", ["gzip", "zlib", "bzip2", "snappy"])
def test_a_message_has_so_many_streams_at_most(name: str) -> None:
    begin = bytes.fromhex(MAGIC[name][0]) if name == "snappy" else b""
    most = MOST_STREAMS - (name == "snappy")
    assert decompress(begin + EMPTY[name] * most, LIMIT) == b""
    with pytest.raises(
        DecompressError,
        match=f"{name}: the message has more than 10,000 (compressed streams|chunks), the limit",
    ):
        decompress(begin + EMPTY[name] * (most + 1), LIMIT)


@pytest.mark.parametrize("name", ["zlib", "gzip", "bzip2"])
def test_each_stream_is_given_little_of_those_behind_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an opener is given, and leaves over, it copies."""
    copied = 0

    class Counting:
        def __init__(self, opener: Any) -> None:
            self.opener = opener

        def __getattr__(self, attribute: str) -> Any:
            nonlocal copied
            value = getattr(self.opener, attribute)
            copied += len(value) if isinstance(value, bytes) else 0
            return value

    module, factory = (bz2, "BZ2Decompressor") if name == "bzip2" else (zlib, "decompressobj")
    made = getattr(module, factory)
    monkeypatch.setattr(module, factory, lambda *given, **named: Counting(made(*given, **named)))
    assert decompress(PACK[name](b"x") * 5000, LIMIT) == b"x" * 5000
    assert copied < 5000 * (32 << 10)
