"""Decompression of event logs, piece by piece: all of Spark's codecs, and logs that are still written.

The first bytes tell the codec, so a log that was renamed or copied under another name is read too. zstd has
frames; lz4, lzf and snappy come in the framing of the Java libraries that Spark uses (lz4-java's block stream,
compress-lzf's chunks, snappy-java's stream).
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import cramjam
import zstandard

PIECE = 64 * 1024
"""Bytes read at a time."""

_SLICE = 512
"""Compressed bytes unpacked at a time: zstd makes up to 32 KiB of each (a 128 KiB block takes four), so up to 16 MiB of these."""

_LZ4_HEADER = struct.Struct("<8sBIII")
_LZ4_RAW, _LZ4_PACKED = 0x10, 0x20
_XERIAL_HEADER = 16
_BLOCK_LIMIT = 32 * 1024 * 1024
"""Largest block of Spark's codecs, compressed or not; a longer one is damage (lz4-java: 32 MiB at most)."""


class TruncatedDataError(Exception):
    """The data ends, or is damaged, before its codec's end; the data before that point was yielded."""


class _Frame(Protocol):
    """Decompressor of one frame of zstd, or one member of gzip."""

    @property
    def eof(self) -> bool:
        """True after the end of the frame."""

    @property
    def unused_data(self) -> bytes:
        """Data after the end of the frame."""

    def decompress(self, data: bytes, /) -> bytes:
        """Unpack more data."""


def unpack(stream: io.BufferedReader) -> Iterator[bytes]:
    """Yield a log's text in pieces.

    Raises
    ------
    TruncatedDataError
        After the last piece that could be unpacked.
    """
    head = stream.peek(8)
    for magic, codec in _CODECS.items():
        if head.startswith(magic):
            yield from codec(stream)
            return
    while piece := stream.read(PIECE):
        yield piece


def _exactly(stream: io.BufferedReader, size: int) -> bytes:
    if size > _BLOCK_LIMIT:
        raise TruncatedDataError(f"a block of {size} bytes")
    data = stream.read(size)
    if len(data) < size:
        raise TruncatedDataError("ends inside a block")
    return data


def _frames(
    stream: io.BufferedReader, opened: Callable[[], _Frame], broken: type[Exception]
) -> Iterator[bytes]:
    """Unpack one frame (zstd) or member (gzip) after the other: an append to a file starts a new one."""
    frame, fed = opened(), False
    while held := stream.read(PIECE):
        for at in range(0, len(held), _SLICE):
            data = held[at : at + _SLICE]
            while data:
                fed = True
                try:
                    piece = frame.decompress(data)
                except broken as error:
                    raise TruncatedDataError(str(error)) from error
                if piece:
                    yield piece
                data = b""
                if frame.eof:
                    data = frame.unused_data
                    frame, fed = opened(), False
    if fed:
        raise TruncatedDataError("ends inside a frame")


def _lz4(stream: io.BufferedReader) -> Iterator[bytes]:
    while head := stream.read(_LZ4_HEADER.size):
        if len(head) < _LZ4_HEADER.size:
            raise TruncatedDataError("ends inside a block")
        magic, token, packed, size, _ = _LZ4_HEADER.unpack(head)
        if magic != b"LZ4Block" or size > _BLOCK_LIMIT:
            raise TruncatedDataError("no block where one should be")
        data = _exactly(stream, packed)
        method = token & 0xF0
        if method == _LZ4_RAW:
            yield data
        elif method == _LZ4_PACKED:
            try:
                yield bytes(cramjam.lz4.decompress_block(data, output_len=size))
            except cramjam.DecompressionError as error:
                raise TruncatedDataError(str(error)) from error
        else:
            raise TruncatedDataError(f"a block of method {method}")


def _snappy(stream: io.BufferedReader) -> Iterator[bytes]:
    _exactly(stream, _XERIAL_HEADER)
    while head := stream.read(4):
        if len(head) < 4:
            raise TruncatedDataError("ends inside a block")
        data = _exactly(stream, int.from_bytes(head, "big"))
        try:
            # Checked first: the decompressor allocates whatever length a block claims.
            if cramjam.snappy.decompress_raw_len(data) > _BLOCK_LIMIT:
                raise TruncatedDataError("a block that claims more than any has")
            yield bytes(cramjam.snappy.decompress_raw(data))
        except cramjam.DecompressionError as error:
            raise TruncatedDataError(str(error)) from error


def _lzf(stream: io.BufferedReader) -> Iterator[bytes]:
    while head := stream.read(5):
        if len(head) < 5 or head[:2] != b"ZV":
            raise TruncatedDataError("no chunk where one should be")
        length = int.from_bytes(head[3:5], "big")
        if head[2] == 0:
            yield _exactly(stream, length)
        else:
            size = int.from_bytes(_exactly(stream, 2), "big")
            yield _lzf_chunk(_exactly(stream, length), size)


def _lzf_chunk(data: bytes, size: int) -> bytes:
    """Decode one chunk: runs of literals, and copies of what was written up to 8 KiB before (LibLZF's format)."""
    out = bytearray()
    at = 0
    try:
        while at < len(data):
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            back = len(out) - ((control & 0x1F) << 8) - data[at] - 1
            at += 1
            if back < 0:
                raise TruncatedDataError("a chunk points before its begin")
            for place in range(back, back + length + 2):  # may overlap what it writes
                out.append(out[place])
            if len(out) > size:
                break
    except IndexError as error:
        raise TruncatedDataError("ends inside a chunk") from error
    if len(out) != size:
        raise TruncatedDataError("a chunk of another length than it says")
    return bytes(out)


_CODECS: dict[bytes, Callable[[io.BufferedReader], Iterator[bytes]]] = {
    b"\x28\xb5\x2f\xfd": partial(
        _frames, opened=lambda: zstandard.ZstdDecompressor().decompressobj(), broken=zstandard.ZstdError
    ),
    b"LZ4Block": _lz4,
    b"\x82SNAPPY\x00": _snappy,
    b"ZV": _lzf,
    b"\x1f\x8b": partial(_frames, opened=lambda: zlib.decompressobj(wbits=31), broken=zlib.error),
}
