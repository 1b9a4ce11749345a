"""Compressed single messages: found by their first bytes, decompressed up to a limit, otherwise passed through.

=========  =======================  ==========================================================
format     first bytes              as
=========  =======================  ==========================================================
gzip       ``1f 8b``                one or several members
zlib       ``78 01/5e/9c/da``       deflate with zlib's header
bzip2      ``BZh1`` to ``BZh9``     one or several streams
zstd       ``28 b5 2f fd``          frames
lz4        ``04 22 4d 18``          frames (not Kafka's own blocks, which the client decompresses)
snappy     ``ff 06 00 00 73 4e ..`` the framing format; raw snappy has no mark and is not detected
=========  =======================  ==========================================================

Other messages can also begin with zlib's two bytes, texts (``x^2``) and binary ones. Such a message is passed through if
it is plain text or no byte of it can be decompressed. Any other message that cannot be decompressed completely (cut off,
another format than its mark says, larger than the limit) is a dead letter of the stage ``decompress``, with
its original bytes. Only Python can do this, so it is an Arrow function, and records without such a
mark are not sent to it.
"""

from __future__ import annotations

import bz2
import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from ...launch.protobuf.wire_format import read_varint
from ...services.python_task_start import skip_reading_zip_directories
from ..base import DecoderWrapper
from .decode_in_python_by_arrow import answers_in_parts, can_return_arrow_columns
from .worker_batch_limit import run_in_portions

STAGE = "decompress"

MAGIC = {
    "gzip": ("1F8B",),
    "zlib": ("7801", "785E", "789C", "78DA"),
    "bzip2": tuple(f"425A683{level}" for level in range(1, 10)),
    "zstd": ("28B52FFD",),
    "lz4": ("04224D18",),
    "snappy": ("FF060000734E61507059",),
}
"""First bytes of each format, in hexadecimal (RFC 1952, RFC 1950, bzip2, RFC 8878, LZ4 frame, snappy framing)."""

_LONGEST = max(len(mark) for marks in MAGIC.values() for mark in marks) // 2
_STEP = 64 * 1024
_TAKEN = 16 * 1024
_BLOCK = 4096

MOST_STREAMS = 10_000
"""Most streams (for snappy, chunks) in a message, one after the other. An empty stream takes eight bytes and a decompressor."""

MOST_BYTES = 64 << 20
"""Most decompressed bytes in one returned Arrow batch: one of its columns holds 2 GiB at most. Thousands of small
messages can exceed that, and Spark limits batches by rows alone."""


class DecompressError(Exception):
    """A compressed message that cannot be decompressed, or only beyond the limit."""


class _BrokenStreamError(DecompressError):
    """A stream without its end, or followed by other bytes; ``opened`` is the number of decompressed bytes."""

    def __init__(self, reason: str, opened: int) -> None:
        super().__init__(reason)
        self.opened = opened


def decompress(message: bytes, limit: int) -> bytes:
    """Decompress a message of any format.

    Parameters
    ----------
    message
        Message as it arrived.
    limit
        Most bytes that it may have after decompression.

    Returns
    -------
    bytes
        The content; the message itself if it does not begin like a format of :data:`MAGIC`.

    Raises
    ------
    DecompressError
        The message begins like a format but is not valid, is cut off, is followed by other bytes, or exceeds the limit.
    """
    beginning = message[:_LONGEST].hex().upper()
    name = next((n for n, marks in MAGIC.items() if beginning.startswith(marks)), None)
    if name is None:
        return message
    try:
        if name in ("gzip", "zlib", "bzip2"):
            return _decompress_streams(name, message, limit)
        return _decompress_frames(name, message, limit)
    except _BrokenStreamError as error:
        if name == "zlib" and (not error.opened or _is_utf8(message)):
            return message
        raise
    except ImportError as error:
        raise DecompressError(
            f"{name}: messages cannot be decompressed, because this engine lacks the Python package pyarrow"
        ) from error
    except (zlib.error, OSError, ValueError) as error:
        if name == "zlib":
            return message
        # Arrow's own errors are ValueErrors and OSErrors.
        raise DecompressError(
            f"the message starts like {name} but cannot be decompressed: {str(error).splitlines()[0]}"
        ) from error


def _decompress_streams(name: str, message: bytes, limit: int) -> bytes:
    """Decompress one stream after the other; each call returns a limited part, so a bomb is never expanded."""
    content, at = bytearray(), 0
    for _ in range(MOST_STREAMS):
        at = _append_stream_and_return_end(name, message, at, content, limit)
        if at == len(message):
            return bytes(content)
        if not message[at : at + 4].hex().upper().startswith(MAGIC[name]):
            raise _BrokenStreamError(
                f"{name}: {len(message) - at:,} unexpected bytes after the end of the compressed data",
                len(content),
            )
    raise DecompressError(f"{name}: the message has more than {MOST_STREAMS:,} compressed streams, the limit")


def _append_stream_and_return_end(name: str, message: bytes, at: int, content: bytearray, limit: int) -> int:
    """Append the content of a stream, and return the position after it."""
    opener: Any = bz2.BZ2Decompressor() if name == "bzip2" else zlib.decompressobj(wbits=47)
    rest = b""
    while not opener.eof:
        wanted = opener.needs_input if name == "bzip2" else not rest
        if wanted:
            # The decompressor copies the bytes after the end of a stream, so it gets only a few at a time.
            rest = message[at : at + _TAKEN]
            at += len(rest)
        part = opener.decompress(rest, _STEP)
        stuck = not rest and not part
        rest = b"" if name == "bzip2" else opener.unconsumed_tail
        content += part
        if len(content) > limit:
            raise DecompressError(
                f"{name}: the message is larger than {limit:,} bytes after decompression, the limit"
            )
        if stuck and not opener.eof:
            raise _BrokenStreamError(
                f"{name}: the message is incomplete: it ends after {len(content):,} decompressed bytes",
                len(content),
            )
    return at - len(opener.unused_data)


def _is_utf8(message: bytes) -> bool:
    try:
        message.decode()
    except UnicodeDecodeError:
        return False
    return True


def _decompress_frames(name: str, message: bytes, limit: int) -> bytes:
    import pyarrow as pa

    parts = _snappy_chunks(message) if name == "snappy" else _decompressed_parts(pa, name, message)
    content = bytearray()
    for part in parts:
        content += part
        if len(content) > limit:
            raise DecompressError(
                f"{name}: the message is larger than {limit:,} bytes after decompression, the limit"
            )
    return bytes(content)


def _decompressed_parts(pa: Any, name: str, message: bytes) -> Iterator[bytes]:
    with pa.CompressedInputStream(pa.BufferReader(message), name) as stream:
        while part := stream.read(_STEP):
            yield part


def _snappy_chunks(message: bytes) -> Iterator[bytes]:
    """Yield the chunks of the framing format: one byte of type, three of length, for data four of checksum."""
    import pyarrow as pa

    at = 0
    for _ in range(MOST_STREAMS):
        kind, end = message[at], at + 4 + int.from_bytes(message[at + 1 : at + 4], "little")
        if len(message) < end or at + 4 > len(message):
            raise DecompressError(
                f"snappy: the message is incomplete: it ends inside the chunk at byte {at:,}"
            )
        data = message[at + 8 : end]
        if kind == 0x00:
            size, _ = read_varint(data[:5], 0)
            if size > _STEP:  # the format allows no more in a chunk
                raise DecompressError(
                    f"snappy: the size of a chunk is {size:,} bytes, which the format does not allow"
                )
            data = pa.Codec("snappy").decompress(data, size, asbytes=True)
        if kind <= 0x01:
            if _masked_crc32c(data) != int.from_bytes(message[at + 4 : at + 8], "little"):
                raise DecompressError(f"snappy: the chunk at byte {at:,} does not have its checksum")
            yield data
        elif kind <= 0x7F:
            raise DecompressError(f"snappy: the chunk at byte {at:,} has the unknown type {kind:#x}")
        at = end
        if at == len(message):
            return
    raise DecompressError(f"snappy: the message has more than {MOST_STREAMS:,} chunks, the limit")


@cache
def _crc32c_by_distance() -> Any:
    """Return what each byte adds to a CRC-32C (polynomial 0x82F63B78) by its distance from the end of a block."""
    import numpy as np

    table: Any = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> 1) ^ (table & 1) * np.uint32(0x82F63B78)
    rows = [table]
    while len(rows) < _BLOCK:
        rows.append((rows[-1] >> 8) ^ table[rows[-1] & 0xFF])
    return np.array(rows)


def _masked_crc32c(data: bytes) -> int:
    """Return the checksum of a chunk (snappy's ``framing_format.txt``, section 3); no library on every engine has it."""
    import numpy as np

    by_distance, found = _crc32c_by_distance(), 0xFFFFFFFF
    for begin in range(0, len(data), _BLOCK):
        block = np.frombuffer(data, np.uint8, min(_BLOCK, len(data) - begin), begin).copy()
        carried = min(4, len(block))
        block[:carried] ^= np.frombuffer(found.to_bytes(4, "little"), np.uint8, carried)
        added = by_distance[np.arange(len(block) - 1, -1, -1), block]
        found = int(np.bitwise_xor.reduce(added)) ^ found >> 8 * carried
    found ^= 0xFFFFFFFF
    return ((found >> 15 | found << 17) + 0xA282EAD8) & 0xFFFFFFFF


_OPENED = StructType([StructField("content", BinaryType()), StructField("error", StringType())])

Answer = tuple[bytes | None, str | None]


def _function_to_content_or_error(limit: int) -> Callable[[bytes | None], Answer]:
    def decompress_one(message: bytes | None) -> Answer:
        if message is None:
            return None, None
        try:
            return decompress(bytes(message), limit), None
        except DecompressError as error:
            return None, str(error)

    return decompress_one


def decompress_function(limit: int, *, arrow: bool, most: int = MOST_BYTES) -> Callable[[Column], Column]:
    """Return the Spark SQL function from a message to ``content`` and ``error``.

    Parameters
    ----------
    limit
        Most bytes of a message after decompression.
    arrow
        True to send messages by Arrow, which needs pandas on the engine.
    most
        Most decompressed bytes that are returned at once, plus one message.
    """
    each = _function_to_content_or_error(limit)
    if not arrow:
        # PySpark 4.1 looks for Arrow's types in annotations, and warns that these are none.
        each.__annotations__.clear()
        return F.udf(each, _OPENED).asNondeterministic()
    pd: Any = importlib.import_module("pandas")

    def decompress_batches(batches: Any) -> Any:
        skip_reading_zip_directories()
        for messages in batches:
            sized = ((answer, len(answer[0] or b"")) for answer in map(each, messages))
            for part in answers_in_parts(sized, most):
                yield pd.DataFrame(part, columns=["content", "error"])

    # PySpark derives the kind of function from its annotations, which are strings in this module.
    decompress_batches.__annotations__ = {"batches": Iterator[pd.Series], "return": Iterator[pd.DataFrame]}
    function: Any = pandas_udf(decompress_batches, _OPENED)  # type: ignore[call-overload]
    made: Callable[[Column], Column] = function.asNondeterministic()
    return made


def with_decompressed_column(
    rows: DataFrame, message: Column, limit: int, *, arrow: bool, most: int = MOST_BYTES
) -> DataFrame:
    """Add ``_opened``, the result of :func:`decompress_function`; Python gets only a bounded portion at a time.

    Parameters
    ----------
    rows
        Kept as they are.
    message
        Bytes to decompress; null is skipped.
    limit, arrow, most
        See :func:`decompress_function`.
    """
    function = decompress_function(limit, arrow=arrow, most=most)
    return run_in_portions(
        rows, lambda given: given.withColumn("_opened", function(message)), by_arrow=arrow, handed=message
    )


@dataclass(frozen=True)
class DecompressingDecoder(DecoderWrapper):
    """Decoder of messages that may be compressed, each on its own.

    Parameters
    ----------
    limit
        Most bytes of a message after decompression.
    arrow
        See :func:`decompress_function`; the default is what this engine supports.
    """

    limit: int
    arrow: bool = field(default_factory=can_return_arrow_columns)

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decompress, then decode; a dead letter keeps the original bytes."""
        marked = F.when(_compressed_start_condition(), F.col("payload"))
        content_of = with_decompressed_column(
            rows.withColumn("_came", F.col("payload")), marked, self.limit, arrow=self.arrow
        )
        content = F.when(_compressed_start_condition(), F.col("_opened.content")).otherwise(F.col("payload"))
        failed = F.col("_failed")
        decoded = self.decoder.decode(
            content_of.select(
                *(c for c in rows.columns if c != "payload"),
                "_came",
                F.col("_opened.error").alias("_failed"),
                content.alias("payload"),
            )
        )
        error = F.coalesce(failed, F.col("_error"))
        ours = {
            "_bytes": F.when(error.isNotNull(), F.col("_came")),
            "_stage": F.when(failed.isNotNull(), F.lit(STAGE)).otherwise(F.col("_stage")),
            "_error": error,
        }
        # For some formats no payload is a delete.
        ours |= {name: F.when(failed.isNull(), F.col(f"`{name}`")) for name in self.schema.fieldNames()}
        return decoded.select(
            *(
                ours[c].alias(c) if c in ours else F.col(f"`{c}`")
                for c in decoded.columns
                if c not in ("_came", "_failed")
            )
        )


def _compressed_start_condition() -> Column:
    """Return a condition: the payload begins like a compressed one."""
    beginning = F.hex(F.substring("payload", 1, _LONGEST))
    marks = [mark for each in MAGIC.values() for mark in each]
    return F.coalesce(beginning.rlike(f"^({'|'.join(marks)})"), F.lit(False))
