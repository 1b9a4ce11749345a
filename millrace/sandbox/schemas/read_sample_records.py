"""Sample records: the last of a Kafka topic, those that a Kinesis stream still has, or a file's."""

from __future__ import annotations

import csv
from codecs import BOM_UTF8
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from millrace.etl.formats.decoding.decompress import DecompressError, decompress
from millrace.etl.sources.kinesis.closed_shards import UnreadShardRest, list_shards, read_shard_pages
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.sandbox.programs.child_processes import SandboxError

_LARGEST = 64 << 20
_WAIT_SECONDS = 10.0


def read_last_topic_payloads(settings: Mapping[str, Any], topic: str, count: int) -> list[bytes]:
    """Read the last records of a topic, as many from each partition; no group's offsets change.

    Parameters
    ----------
    settings
        Settings of librdkafka, with the brokers.
    count
        Maximum number of records.

    Raises
    ------
    SandboxError
        The topic does not exist, or a broker does not answer.
    """
    own = {"group.id": "millrace-sample", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({**settings, **own})
    try:
        known = consumer.list_topics(topic, timeout=_WAIT_SECONDS).topics[topic]
        if known.error is not None:
            raise SandboxError(f"topic {topic}: {known.error.str()}")
        each = -(-count // len(known.partitions))
        wanted = 0
        starts = []
        for partition in known.partitions:
            low, high = consumer.get_watermark_offsets(
                TopicPartition(topic, partition), timeout=_WAIT_SECONDS
            )
            starts.append(TopicPartition(topic, partition, max(low, high - each)))
            wanted += min(each, high - low)
        consumer.assign(starts)
        payloads: list[bytes] = []
        while len(payloads) < min(wanted, count):
            if not (messages := consumer.consume(min(500, count - len(payloads)), timeout=_WAIT_SECONDS)):
                break  # compaction leaves gaps between offsets
            values = (m.value() for m in messages if m.error() is None)
            payloads += [value for value in values if value is not None]
        return payloads
    except KafkaException as error:
        raise SandboxError(f"topic {topic}: {error.args[0].str()}") from error
    finally:
        consumer.close()


def read_oldest_stream_payloads(client: Any, stream: str, count: int) -> list[bytes]:
    """Read records of a Kinesis stream, as many from each shard, from the oldest on.

    Parameters
    ----------
    client
        A boto3 client of Kinesis.
    count
        Maximum number of records.

    Raises
    ------
    SandboxError
        The stream does not exist.
    AwsError
        The service refuses, or cannot be reached.
    """
    with translating_aws_errors(f"cannot read stream {stream}"):
        try:
            shards = list_shards(client, stream)
        except client.exceptions.ResourceNotFoundException as error:
            raise SandboxError(f"stream {stream} does not exist") from error
        each = -(-count // len(shards))
        payloads: list[bytes] = []
        for shard in shards:
            records = chain.from_iterable(
                read_shard_pages(client, stream, UnreadShardRest(shard.id, None), limit=min(each, 1000))
            )
            payloads += [record["Data"] for record in islice(records, each)]
    return payloads[:count]


def decompress_all(payloads: list[bytes]) -> list[bytes]:
    """Return payloads decompressed; one that cannot be decompressed stays as it is, and counts as unreadable later."""

    def decompress_if_possible(payload: bytes) -> bytes:
        try:
            return decompress(payload, _LARGEST)
        except DecompressError:
            return payload

    return [decompress_if_possible(payload) for payload in payloads]


def read_nonempty_lines(path: Path, count: int, blanks: bytes = b" \t\r\n") -> list[bytes]:
    """Read the first lines of a file that are not empty, a record each.

    Parameters
    ----------
    blanks
        Characters of an empty line; of CSV only those of a line break, as a tab can be a record of empty columns.
    """
    with path.open("rb") as file:
        if file.peek(3).startswith(BOM_UTF8):
            file.seek(len(BOM_UTF8))
        return list(islice((line.rstrip(b"\r\n") for line in file if line.strip(blanks)), count))


def csv_header(path: Path, delimiter: str) -> list[str]:
    """Return the names in the first record of a CSV file; empty lines before it do not count.

    Parameters
    ----------
    path, delimiter
        The file, and the character between its columns.

    Raises
    ------
    SandboxError
        The file is not CSV in UTF-8.
    """
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return next(filter(None, csv.reader(file, delimiter=delimiter)), [])
    except UnicodeDecodeError as error:
        raise SandboxError(f"{path} is not UTF-8 text (byte {error.start})") from error
    except csv.Error as error:
        raise SandboxError(f"{path}: it is not CSV: {error}") from error


_DELIMITERS = "\t|;,"
"""Those that are rarely in values first."""


def guess_delimiter(payloads: Sequence[bytes], names: Sequence[str] | None) -> str:
    """Return the likely delimiter of columns: the one that makes the most records of as many columns as there are names.

    Without names, or with one, of as many columns as the first record has; then the one of most columns. A comma where nothing
    is clear.
    """
    lines = [payload.decode(errors="replace") for payload in payloads]

    def fitting_records_and_columns(delimiter: str) -> tuple[int, int]:
        rows = [len(row) for row in csv.reader(lines, delimiter=delimiter)]
        columns = len(names) if names and len(names) > 1 else max(rows[:1], default=0)
        return (rows.count(columns), columns) if columns > 1 else (0, 0)

    fits = {each: fitting_records_and_columns(each) for each in _DELIMITERS}
    best = max(fits, key=fits.__getitem__)
    return best if any(fits[best]) else ","
