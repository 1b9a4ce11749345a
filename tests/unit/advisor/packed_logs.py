"""A real event log of Spark 3.5, compressed with each codec of Spark."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path

import cramjam
import xxhash
import zstandard

from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs

DATA = Path(__file__).parent / "data"
REAL = DATA / "flights-3.5.zstd"
TEXT = zstandard.ZstdDecompressor().decompressobj().decompress(REAL.read_bytes())


def history_of(path):
    return read_history(find_event_logs(str(path))[0])


def lz4_block(text: bytes, *, raw: bool = False) -> bytes:
    """A block of lz4-java, with its checksum."""
    data = text if raw else bytes(cramjam.lz4.compress_block(text, store_size=False))
    checksum = xxhash.xxh32_intdigest(text, seed=0x9747B28C) & 0x0FFFFFFF
    return struct.pack("<8sBIII", b"LZ4Block", 0x15 if raw else 0x25, len(data), len(text), checksum) + data


def lz4(text: bytes) -> bytes:
    """lz4-java's block stream: packed blocks, a raw one, and the empty one at the end."""
    out = b""
    for at in range(0, len(text), 30_000):
        piece = text[at : at + 30_000]
        out += lz4_block(piece)
    out += struct.pack("<8sBIII", b"LZ4Block", 0x15, 0, 0, 0)
    return out


def snappy(text: bytes) -> bytes:
    blocks = [
        bytes(cramjam.snappy.compress_raw(text[at : at + 30_000])) for at in range(0, len(text), 30_000)
    ]
    return (
        b"\x82SNAPPY\x00" + struct.pack(">II", 1, 1) + b"".join(len(b).to_bytes(4, "big") + b for b in blocks)
    )


PACKED = {
    "plain": lambda text: text,
    "zstd": lambda text: (
        zstandard.ZstdCompressor().compress(text[:300_000])
        + zstandard.ZstdCompressor().compress(text[300_000:])
    ),
    "gz": gzip.compress,
    "lz4": lz4,
    "snappy": snappy,
}


def _stream(data: bytes) -> io.BufferedReader:
    return io.BufferedReader(io.BytesIO(data))
