"""Finds files of a checkpoint that are cut short or overwritten, before Spark stumbles over them.

Spark writes these files whole or not at all, but a disk that lost its power, a copy that was broken off or a hand may leave
a part of one. Spark's own errors then name a line of JSON and no way out, and of some parts it makes another query.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import SparkSession

from etl import hadoop
from etl.errors import DamageError, without_frames
from etl.hadoop import Entry

_VERSION = re.compile(r"v\d+")
_SPOILED = ("ChecksumException", "not UTF-8")

_VERSIONED = re.compile(r"(\d+)(?:_\w+)?\.(?:changelog|delta|snapshot|zip)")
_COPIED = re.compile(r"Copied (\S+) to \S+,? expected (\d+) bytes, found (\d+) bytes")
"""What Spark says of a table file of RocksDB that has another size than its snapshot says."""

_READS_STATE = re.compile(
    r"StateStore\$\.get|\.getLoadedMapForStore|\.RocksDB\.load|\.RocksDBFileManager\.load"
)
"""In a stack: a task was given its store (``StateStore.get`` in Spark 3.5 to 4), and failed while that was read."""

_ZIP, _ZIP_END, _ZIP_LENGTH = b"PK", b"PK\x05\x06", 22
"""How an archive begins, and how the end of one without a comment, with its length (PKWARE's APPNOTE, 4.3.16)."""

_LZ4, _LZ4_LENGTH = b"LZ4Block", 21
"""A stream of ``LZ4BlockOutputStream`` ends with an empty block: its magic, a byte, and three numbers."""


def check(spark: SparkSession, location: str) -> None:
    """Read those files of a query's checkpoint that its next start reads.

    Parameters
    ----------
    spark
        Whose file systems are used.
    location
        URL or path of the query's checkpoint.

    Raises
    ------
    DamageError
        A file is not what Spark wrote; names it.
    OSError
        A file could not be read.
    """
    there = set(hadoop.names(spark, location))
    if "metadata" in there:
        _read(spark, f"{location}/metadata", _identity)
    planned = _newest(spark, f"{location}/offsets") if "offsets" in there else []
    shape: Sequence[bool] = ()
    # The newest last: it has as many sources as the one before, each in the same form.
    for batch in planned[-2:]:
        shape = _read(spark, f"{location}/offsets/{batch}", lambda text: _offsets(text, shape))  # noqa: B023 - called at once
    for batch in _newest(spark, f"{location}/commits")[-1:] if "commits" in there else []:
        try:
            _read(spark, f"{location}/commits/{batch}", _commit)
        except DamageError as error:
            raise DamageError(
                f"{error}; deleting it is safe: batch {batch} comes again, and the sink leaves out what it has of it"
            ) from error


def spoiled(error: OSError) -> bool:
    """Whether a file was read, and is not what was written."""
    return any(word in str(error) for word in _SPOILED)


def is_of_state(text: str) -> bool:
    """Whether an error's text, with what tasks said, may be about a state: its files are many, and not looked at for others.

    What failed for another reason has classes of a state in its stack all the same, but not those that read one.
    """
    said = without_frames(text)
    return (
        any(word in said for word in ("StateStore", "RocksDB", "/state/", "EOFException"))
        or _READS_STATE.search(text) is not None
    )


def check_state(spark: SparkSession, location: str, text: str = "") -> None:
    """Look for a file of a query's state that is cut short, which Spark tells by an end of file, without the file's name.

    Parameters
    ----------
    spark, location
        As for :func:`check`.
    text
        Of the error: of a table file of RocksDB it does name the file.

    Raises
    ------
    DamageError
        A file that the next batch reads has not the end that Spark gave it; names it.
    OSError
        A file could not be read.
    """
    if (copied := _COPIED.search(text)) is not None:
        raise DamageError(
            f"the file {copied[1]} of the query's state is cut short: {copied[3]} of {copied[2]} bytes"
        )
    for operator in _folders(spark, f"{location}/state"):
        for partition in _folders(spark, f"{location}/state/{operator}"):
            folder = f"{location}/state/{operator}/{partition}"
            held = hadoop.entries(spark, folder)
            _check_store(spark, folder, held)
            # Of a join four stores, each in a folder of its own.
            for store in held:
                if store.size is None and not store.name.startswith((".", "_")):
                    place = f"{folder}/{store.name}"
                    _check_store(spark, place, hadoop.entries(spark, place))


def _check_store(spark: SparkSession, folder: str, held: Sequence[Entry]) -> None:
    """Check the schema of a store, its last snapshot, and what was changed since; of each file the end is read."""
    schemas = [entry.name for entry in held if entry.name == "_metadata"]
    if schemas and "schema" in hadoop.names(spark, f"{folder}/_metadata"):
        schema = hadoop.read_bytes(spark, f"{folder}/_metadata/schema")
        # Two schemas in JSON with lengths before them.
        if not schema or schema.count(b"{") != schema.count(b"}"):
            raise DamageError(
                f"the file {folder}/_metadata/schema of the query's state is cut short: {len(schema)} bytes"
            )
    versions = [
        (int(found[1]), entry.name, entry.size)
        for entry in held
        if entry.size is not None and (found := _VERSIONED.fullmatch(entry.name)) is not None
    ]
    since = max((version for version, name, _ in versions if name.endswith((".zip", ".snapshot"))), default=0)
    for version, name, size in sorted(versions):
        if version < since:
            continue
        url = f"{folder}/{name}"
        if not _ends(spark, url, size):
            raise DamageError(f"the file {url} of the query's state is cut short: {size} bytes")


def _ends(spark: SparkSession, url: str, size: int) -> bool:
    """Whether a file of a state ends as it was written; of compressions that do not tell, whether there is any of it."""
    begin, end, length = (_ZIP, _ZIP_END, _ZIP_LENGTH) if url.endswith(".zip") else (_LZ4, _LZ4, _LZ4_LENGTH)
    if not size:
        return False
    if size >= length and hadoop.read_part(spark, url, size - length, len(end)) == end:
        return True
    # Only of a file that does not end so is it asked by what it was written.
    head = hadoop.read_part(spark, url, 0, min(size, len(begin)))
    return head != begin[: len(head)] and not url.endswith(".zip")


def _folders(spark: SparkSession, url: str) -> list[str]:
    return [name for name in hadoop.names(spark, url) if name.isdecimal()]


def _newest(spark: SparkSession, folder: str) -> list[int]:
    return sorted(int(name) for name in hadoop.names(spark, folder) if name.isdecimal())


def _read(spark: SparkSession, url: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(hadoop.read_text(spark, url))
    except OSError as error:
        if not spoiled(error):
            raise
        raise DamageError(f"the file {url} is damaged: {error}") from error
    except ValueError as error:
        raise DamageError(f"the file {url} is not what Spark wrote, or a part of it only: {error}") from error


def _identity(text: str) -> None:
    found = json.loads(text)
    if not isinstance(found, dict) or not isinstance(found.get("id"), str):
        raise ValueError("it has no id")


def _offsets(text: str, before: Sequence[bool]) -> list[bool]:
    """Read an entry of the offset log; of which of its sources the position is JSON.

    A connector whose source is closed may write positions in a form of its own, which nobody else reads
    (``docs/kinesis.md``): such a line is as good as any, where it is not a part of JSON and the entry before had none.
    """
    metadata, *sources = _lines(text) or [""]
    if not sources or len(sources) < len(before):
        raise ValueError(f"it ends after {len(_lines(text)) + 1} lines")
    json.loads(metadata)
    return [_position(line, place < len(before) and before[place]) for place, line in enumerate(sources)]


def _position(line: str, is_json: bool) -> bool:
    if line in ("-", ""):
        return is_json  # nothing was read yet
    if is_json or line.startswith(("{", "[")):
        json.loads(line)
        return True
    try:
        json.loads(line)
    except ValueError:
        return False
    return True


def _commit(text: str) -> None:
    for line in _lines(text):
        json.loads(line)


def _lines(text: str) -> list[str]:
    """Lines of a log's entry behind its version."""
    first, *rest = text.splitlines() or [""]
    if not _VERSION.fullmatch(first):
        raise ValueError("it does not begin with a version" if text else "it is empty")
    return rest
