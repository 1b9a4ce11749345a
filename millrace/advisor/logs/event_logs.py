"""Search for event logs: a file, a folder or a prefix in S3, in Glue's, EMR's, the sandbox's and Spark's own layout.

A log is one file, or a folder ``eventlog_v2_APP`` of rolled parts ``events_1_APP``, ``events_2_APP`` and so on, of
which Spark may have compacted the older ones into ``events_2_APP.compact``. EMR Serverless writes the second kind below
``applications/ID/jobs/ID/sparklogs/``. A suffix names the codec; a log that is still written ends in ``.inprogress``. A
compacted part that is still written, or was left so, is no part.
"""

from __future__ import annotations

import io
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from millrace.advisor.logs.codecs import PIECE, DamagedDataError, TruncatedDataError, decompress_log
from millrace.config.aws.pagination import list_all
from millrace.config.document.problems import wrong_option_error

S3_RANGE = 8 * 1024 * 1024
"""Bytes of one request to S3: each range is retried by itself, so a lost connection costs no more."""

LONGEST_LINE = 16 * 1024 * 1024
"""Longest line in bytes: a longer one is a plan without figures, or damage; it is skipped and never held in memory."""

MOST_TIMES, AT_LEAST = 250, 256 * 1024 * 1024
"""Limit of a log's unpacked size: this multiple of its size on disk, and at least so many bytes, as event logs shrink ten- to
hundredfold. The rest is not read.
"""

_SHORT_LINE = 128
"""Minimum number of bytes that a line counts for: no event is shorter, and each costs time."""

_HEAD = 1000
"""Bytes that show whether a file is a log."""

_PART = re.compile(
    r"events_(?P<index>\d+)_(?P<app>.+?)(?P<codec>\.(zstd|lz4|snappy))?(?P<compact>\.compact)?"
)
_FOLDER = "eventlog_v2_"
_NO_LOG = re.compile(
    r"appstatus_.*|\..*|_.*|.*\.(crc|json|log|html|txt|tmp)|std(out|err)(\.gz)?|.*\.(jar|py|zip|parquet|compact\.inprogress)"
)
_NAMED = re.compile(
    r"(local-\d+|application_\d+_\d+(_\d+)?|app-\d+-\d+|jr_[0-9a-f]+|spark-[0-9a-z-]+)(\..*)?"
)
"""Names that Spark's masters, YARN, Kubernetes and Glue give to logs: their content needs no check."""

_STATUS, _RUNNING = "appstatus_", ".inprogress"


@dataclass(frozen=True)
class LogFile:
    """One file or object.

    Attributes
    ----------
    path
        Path below the searched place, with slashes.
    size
        Bytes.
    modified
        Epoch seconds.
    open
        Opens it for reading.
    asked
        Whether the caller named the file itself; its name is not checked then.
    """

    path: str
    size: int
    modified: float
    open: Callable[[], io.BufferedReader]
    asked: bool = False

    @property
    def name(self) -> str:
        """Last part of its path."""
        return self.path.rpartition("/")[2]


@dataclass(frozen=True)
class EventLog:
    """The log of one application.

    Attributes
    ----------
    name
        Its file's or folder's path, without codec and ``.inprogress``.
    files
        In the order in which they were written.
    lost
        Whether earlier parts were deleted or compacted.
    finished
        Whether a file beside its parts tells that the application has ended.
    """

    name: str
    files: tuple[LogFile, ...]
    lost: bool
    finished: bool = False

    @property
    def modified_at(self) -> float:
        """Time of the last change, in epoch seconds."""
        return max(each.modified for each in self.files)

    @property
    def size(self) -> int:
        """Compressed size in bytes."""
        return sum(each.size for each in self.files)


def find_event_logs(place: str, client: Any = None) -> tuple[EventLog, ...]:
    """Find the event logs at a place, the newest first.

    Parameters
    ----------
    place
        A file, a folder or ``s3://BUCKET/PREFIX``; subfolders are searched, too.
    client
        S3 client of boto3; made by its default rules when left out.

    Raises
    ------
    ConfigurationError
        Nothing is there, or nothing that is an event log.
    """
    files = tuple(_files_in_s3(place, client) if place.startswith("s3://") else _files_on_disk(Path(place)))
    logs = sorted(_group_rolled_parts(files), key=lambda each: each.modified_at, reverse=True)
    if not logs:
        raise wrong_option_error(
            "PATH",
            place,
            "an event log of Spark, or a folder or prefix that holds some: plain, or compressed with zstd, "
            "gzip, lz4 or snappy as Spark writes them. Raw snappy cannot be told "
            "from other data: decompress it first",
        )
    return tuple(logs)


def _open_file(file: Path) -> io.BufferedReader:
    try:
        return file.open("rb")
    except OSError as error:
        allowed = f"a file that you have permission to read ({error.strerror})"
        raise wrong_option_error("PATH", str(file), allowed) from error


def _files_on_disk(path: Path) -> Iterator[LogFile]:
    if path.is_file():
        inside = path.parent.name + "/" if path.parent.name.startswith(_FOLDER) else ""
        yield LogFile(
            inside + path.name,
            path.stat().st_size,
            path.stat().st_mtime,
            partial(_open_file, path),
            asked=True,
        )
    elif path.is_dir():
        begin = path.parent if path.name.startswith(_FOLDER) else path
        for file in sorted(path.rglob("*")):
            if file.is_file():
                stat = file.stat()
                yield LogFile(
                    file.relative_to(begin).as_posix(), stat.st_size, stat.st_mtime, partial(_open_file, file)
                )
    else:
        raise wrong_option_error("PATH", str(path), "an existing file or folder, or s3://BUCKET/PREFIX")


@contextmanager
def aws_errors_as_wrong_option(option: str, value: str, allowed: str) -> Iterator[None]:
    """Raise errors of boto3 as the error of the option that names what is looked up."""
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise wrong_option_error(option, value, f"{allowed} ({error})") from error


def _files_in_s3(place: str, client: Any) -> Iterator[LogFile]:
    if client is None:
        import boto3

        client = boto3.client("s3")
    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    begin = prefix.rstrip("/").rpartition("/")[0]
    begin = begin + "/" if begin else ""
    with aws_errors_as_wrong_option("PATH", place, "a bucket and prefix that you have permission to read"):
        for each in list_all(client, "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix.rstrip("/")):
            key = each["Key"]
            if key != prefix.rstrip("/") and not key.startswith(prefix.rstrip("/") + "/" * bool(prefix)):
                continue  # ``flights-2`` is not below ``flights``
            reader = partial(_open_s3_object, client, bucket, key, each["Size"])
            name, written = key.removeprefix(begin), each["LastModified"].timestamp()
            yield LogFile(name, each["Size"], written, reader, asked=key == prefix)


class _S3ObjectStream(io.RawIOBase):
    """An object of S3 as a file, read once from its start to the end that it had when it was listed."""

    def __init__(self, client: Any, bucket: str, key: str, size: int) -> None:
        self._client, self._bucket, self._key, self._size = client, bucket, key, size
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        # The first range is small: often only the first bytes are necessary.
        size = min(len(buffer) if self._read else PIECE, len(buffer), self._size - self._read)
        if not size:
            return 0
        byte_range = f"bytes={self._read}-{self._read + size - 1}"
        place = f"s3://{self._bucket}/{self._key}"
        with aws_errors_as_wrong_option("PATH", place, "an object that can be read to its end"):
            answer = self._client.get_object(Bucket=self._bucket, Key=self._key, Range=byte_range)
            buffer[:size] = answer["Body"].read()
        self._read += size
        return size


def _open_s3_object(client: Any, bucket: str, key: str, size: int) -> io.BufferedReader:
    return io.BufferedReader(_S3ObjectStream(client, bucket, key, size), S3_RANGE)


def _group_rolled_parts(files: Iterable[LogFile]) -> Iterator[EventLog]:
    """Group rolled parts; every other file is a log by itself, unless its name or its first bytes exclude it."""
    rolled: dict[str, list[tuple[int, bool, LogFile]]] = defaultdict(list)
    finished = set()
    for file in files:
        folder, _, name = file.path.rpartition("/")
        part = _PART.fullmatch(name)
        if name.startswith(_STATUS) and not name.endswith(_RUNNING):
            finished.add(folder)
        if part and not _NO_LOG.fullmatch(name) and folder.rpartition("/")[2].startswith(_FOLDER):
            rolled[folder].append((int(part["index"]), bool(part["compact"]), file))
        elif (
            file.size
            and (file.asked or not _NO_LOG.fullmatch(name))
            and (_NAMED.fullmatch(name) or _is_event_log(file))
        ):
            shown = re.sub(r"\.(zstd|lz4|snappy|gz)$", "", file.path.removesuffix(_RUNNING))
            yield EventLog(shown, (file,), lost=False)
    for folder, parts in rolled.items():
        yield _rolled_log(folder, parts, finished=folder in finished)


def _is_event_log(file: LogFile) -> bool:
    """Check the first bytes: an event log begins with the version of Spark that writes it, or with an event.

    A file that is named itself may lack its beginning, so that it begins inside a line.
    """
    head = b""
    try:
        with file.open() as stream:
            for piece in decompress_log(stream):
                head += piece
                if len(head) >= (LONGEST_LINE if file.asked else _HEAD) or (
                    file.asked and b'\n{"Event":"' in head
                ):
                    break
    except DamagedDataError as error:
        if file.asked and not head:
            raise wrong_option_error(
                "PATH", file.path, f"an event log that can be decompressed ({error})"
            ) from error
    except TruncatedDataError:
        pass
    begins = b'"SparkListenerLogStart"' in head[:_HEAD] or head.startswith(b'{"Event":"')
    return begins or (file.asked and b'\n{"Event":"' in head)


def _rolled_log(folder: str, parts: Sequence[tuple[int, bool, LogFile]], *, finished: bool) -> EventLog:
    """Order parts by their numbers; a compacted part replaces all parts before it.

    Of two files of one part, as a program that unpacks may leave them, the first is read.
    """
    once = {each[:2]: each for each in reversed(parts)}
    numbered = sorted(once.values(), key=lambda each: each[:2])
    compacted = max((index for index, compact, _ in numbered if compact), default=0)
    needed_parts = [each for each in numbered if each[0] > compacted or (each[0] == compacted and each[1])]
    lost = (
        bool(compacted)
        or needed_parts[0][0] > 1
        or any(b[0] > a[0] + 1 for a, b in itertools.pairwise(needed_parts))
    )
    return EventLog(folder, tuple(each[2] for each in needed_parts), lost, finished)


@dataclass
class LogLines:
    """The lines of a log, one after the other.

    Attributes
    ----------
    log
        The log.
    cut_off
        Whether the last file ended inside a line or a block; known after the last line.
    ended_at
        Why reading stopped before the end: damaged data, or a log that unpacks to more than its limit; ``None`` after a
        complete read.
    """

    log: EventLog
    cut_off: bool = False
    ended_at: str | None = None
    _left: int = field(init=False, default=0, repr=False)

    def __iter__(self) -> Iterator[bytes]:
        most = self._left = max(AT_LEAST, MOST_TIMES * self.log.size)
        for file in self.log.files:
            with file.open() as stream:
                try:
                    yield from self._lines_of_stream(stream)
                except DamagedDataError as error:
                    self.ended_at = f"{file.name} is damaged ({error}), and not read from there on"
            if self._left < 0:
                self.ended_at = f"it unpacks to more than {most >> 20:,} MiB"
                return

    def _lines_of_stream(self, stream: io.BufferedReader) -> Iterator[bytes]:
        held: list[bytes] = []
        length = 0
        try:
            for piece in decompress_log(stream):
                self._left -= max(len(piece), _SHORT_LINE * piece.count(b"\n"))
                if self._left < 0:
                    return
                first, *others = piece.split(b"\n")
                if length <= LONGEST_LINE:
                    held.append(first)
                length += len(first)
                if not others:
                    continue
                yield from self._joined_line_unless_too_long(held, length)
                *lines, last = others
                yield from filter(None, lines)
                held, length = [last], len(last)
        except TruncatedDataError:
            self.cut_off = True
            return
        # A log that is still written may end anywhere; a complete last line has its line feed.
        if length:
            self.cut_off = True
            yield from self._joined_line_unless_too_long(held, length)

    def _joined_line_unless_too_long(self, chunks: list[bytes], length: int) -> Iterator[bytes]:
        """Yield the line that its chunks make; an empty one, which no parser reads, in the place of one that is too long."""
        if length:
            yield b"" if length > LONGEST_LINE else b"".join(chunks)
