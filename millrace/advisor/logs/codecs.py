"""Decompression of event logs, piece by piece: zstd, lz4 and snappy as Spark writes them, gzip, and logs that are still written.

The first bytes tell the codec, so a log that was renamed or copied under another name is read too. zstd has
frames; lz4 and snappy come in the framing of the Java libraries that Spark uses (lz4-java's block stream and
snappy-java's stream).
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cramjam
import xxhash
import zstandard

PIECE = 64 * 1024
"""Bytes read at a time."""

_SLICE = 512
"""Compressed bytes unpacked at a time: zstd makes up to 32 KiB of each (a 128 KiB block takes four), so up to 16 MiB of these."""

_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_LZ4_SEED, _LZ4_BITS = 0x9747B28C, 0x0FFFFFFF
"""Seed of lz4-java's checksum of a block, xxHash32, and its bits that are written (``LZ4BlockOutputStream``)."""

_XERIAL_HEADER = 16
_RAW_SNAPPY = re.compile(rb'[^{\n][^\n]{1,8}\{"Event":"')
"""Begin of a log in raw snappy: its length and the length of a literal come before the first event."""

_OTHERS = {
    b"BZh": "bzip2",
    b"\xfd7zXZ\x00": "xz",
    b"PK\x03\x04": "zip",
    b"\x02\x21\x4c\x18": "the old format of the lz4 command",
    b"\x04\x22\x4d\x18": "the format of the lz4 command",
    b"\xff\x06\x00\x00sNaPpY": "snappy's framing format",
    b"ZV": "lzf",
}
"""Formats that are named and not read, by their first bytes."""

_BLOCK_LIMIT = 32 * 1024 * 1024
"""Largest block of Spark's codecs, compressed or not; a longer one is damage (lz4-java: 32 MiB at most)."""


_BROKEN = (cramjam.DecompressionError, zstandard.ZstdError, zlib.error)


class TruncatedDataError(Exception):
    """The data ends before its codec's end; the data before that point was yielded."""


class DamagedDataError(Exception):
    """The data is not what its codec writes; the data before that point was yielded."""


def decompress_log(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield a log's text in pieces.

    Raises
    ------
    TruncatedDataError, DamagedDataError
        After the last piece that could be unpacked.
    """
    head = stream.peek(32)
    for magic, codec in _CODECS.items():
        if head.startswith(magic):
            try:
                yield from codec(stream)
            except _BROKEN as error:
                raise DamagedDataError(str(error)) from error
            return
    other = next((name for magic, name in _OTHERS.items() if head.startswith(magic)), "")
    if other or _RAW_SNAPPY.match(head):
        raise DamagedDataError(f"{other or 'raw snappy, which has no blocks'}: decompress it first")
    while piece := stream.read(PIECE):
        yield piece


def _read_exactly(stream: io.BufferedReader, size: int) -> bytes:
    if size > _BLOCK_LIMIT:
        raise DamagedDataError(
            f"the file has a block of {size} bytes, above the limit of {_BLOCK_LIMIT:,} bytes"
        )
    data = stream.read(size)
    if len(data) < size:
        raise TruncatedDataError("ends inside a block")
    return data


def _block_headers(stream: io.BufferedReader, size: int) -> Iterator[bytes]:
    """Yield what stands before each block; the caller reads the block."""
    while stream.peek(1):
        yield _read_exactly(stream, size)


def _decompress_zstd_or_gzip(stream: io.BufferedReader, opened: Callable[[], Any]) -> Iterator[bytes]:
    """Unpack one frame (zstd) or member (gzip) after the other: an append to a file starts a new one."""
    frame, fed = opened(), False
    while data := stream.read(_SLICE):
        while data:
            fed = True
            if piece := frame.decompress(data):
                yield piece
            data = frame.unused_data  # only behind the end of a frame
            if frame.eof:
                frame, fed = opened(), False
    if fed:
        raise TruncatedDataError("ends inside a frame")


def _decompress_spark_lz4(stream: io.BufferedReader) -> Iterator[bytes]:
    for head in _block_headers(stream, _LZ4_HEADER.size):
        magic, token, packed, size, checksum = _LZ4_HEADER.unpack(head)
        if magic != b"LZ4Block" or size > _BLOCK_LIMIT:
            raise DamagedDataError("the file is damaged: an lz4 block has a wrong header")
        data = _read_exactly(stream, packed)
        method = token & 0xF0
        if method == _LZ4_PACKED:
            data = bytes(cramjam.lz4.decompress_block(data, output_len=size))
        elif method != _LZ4_RAW:
            raise DamagedDataError(
                f"the file is damaged: an lz4 block has the unknown compression method {method}"
            )
        if size and xxhash.xxh32_intdigest(data, seed=_LZ4_SEED) & _LZ4_BITS != checksum:
            raise DamagedDataError("the file is damaged: an lz4 block has another checksum than its data")
        yield data


def _decompress_xerial_snappy(stream: io.BufferedReader) -> Iterator[bytes]:
    _read_exactly(stream, _XERIAL_HEADER)
    for head in _block_headers(stream, 4):
        data = _read_exactly(stream, int.from_bytes(head, "big"))
        # Checked first: the decompressor allocates whatever length a block claims.
        if cramjam.snappy.decompress_raw_len(data) > _BLOCK_LIMIT:
            raise DamagedDataError(
                f"a snappy block claims to be larger than the limit of {_BLOCK_LIMIT:,} bytes after decompression"
            )
        yield bytes(cramjam.snappy.decompress_raw(data))


_CODECS: dict[bytes, Callable[[io.BufferedReader], Iterator[bytes]]] = {
    b"\x28\xb5\x2f\xfd": partial(
        _decompress_zstd_or_gzip, opened=lambda: zstandard.ZstdDecompressor().decompressobj()
    ),
    b"LZ4Block": _decompress_spark_lz4,
    b"\x82SNAPPY\x00": _decompress_xerial_snappy,
    b"\x1f\x8b": partial(_decompress_zstd_or_gzip, opened=lambda: zlib.decompressobj(wbits=31)),
}
