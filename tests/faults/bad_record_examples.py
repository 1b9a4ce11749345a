"""List of invalid and of unusual but valid records, shared with the tests of decoders."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

from tests.spark.formats.test_decode_json import BAD, DDL, GOOD, TAKEN

__all__ = ["DDL", "KEYS", "good", "spoiled", "taken"]

KEYS = (
    "a/b",
    "..",
    "a=b",
    "two words",
    "\U0001f600",
    "x" * 300,
    "-",
    "\u00e4\u20ac",
    "%2F",
    "'; DROP TABLE x",
)

_COMPRESSED = gzip.compress(GOOD + b"}")


def good(number: int) -> bytes:
    return GOOD + b',"big":' + str(number).encode() + b"}"


def spoiled() -> Iterator[tuple[str, bytes | None, str]]:
    """Name, payload and kind of every record that must become a dead letter."""
    for name, (payload, stage, _) in BAD.items():
        yield name, payload, stage
    yield "compressed", _COMPRESSED, "decode"
    yield "compressed, cut", _COMPRESSED[:-7], "decode"
    yield "declared compressed, and is not", b"\x1f\x8b" + GOOD + b"}", "decode"
    yield "compression bomb", gzip.compress(bytes(20 << 20)), "decode"
    yield "an aggregate's beginning only", bytes.fromhex("f3899ac2") + b"nothing behind it", "decode"


def taken() -> Iterator[tuple[str, bytes, None]]:
    """Name and payload of every odd record that must land as a good one."""
    for name, (payload, _) in TAKEN.items():
        yield name, payload, None
    for text in ("a/../b", "k=v", "two words", "\U0001f600", "y" * 300):
        yield f"carrier {text[:10]}", b'{"carrier":"' + text.encode() + b'","flight":1}', None
    for at in (
        '"1970-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59Z"',
        '"2013-01-01T05:00:00-11:00"',
        "0",
        "253402300799",
    ):
        yield f"at {at}", GOOD + b',"at":' + at.encode() + b"}", None
    yield "sent twice", good(7), None
    yield "sent twice, again", good(7), None
