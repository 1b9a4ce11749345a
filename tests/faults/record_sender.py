"""Records of the fault rounds: small ones, spoiled ones, and aggregates of the Kinesis Producer Library, at a given rate."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.records.ledger import Ledger
from millrace.sandbox.records.producer import BackgroundThread, RecordProducer
from tests.steady_rate import yield_at_rate

DDL = "n BIGINT NOT NULL, text STRING"

DIRTY_SHARE = 0.005

MAGIC = bytes.fromhex("f3899ac2")
"""An aggregate begins with it (KPL's aggregation format)."""


def events(count: int, choose: random.Random, *, first: int = 0) -> Iterator[RecordToSend]:
    """Records with keys all over the hash range; a few broken, a few empty."""
    for n in range(first, first + count):
        key = f"{choose.getrandbits(64):x}".encode()
        if choose.random() >= DIRTY_SHARE:
            yield RecordToSend(key, json.dumps({"n": n, "text": "x" * choose.randrange(40)}).encode())
        elif choose.random() < 0.5:
            yield RecordToSend(key, b"", "empty")
        else:
            yield RecordToSend(key, b'{"n": ' + str(n).encode(), "broken")


@dataclass
class Feed:
    """Sends in a thread while the job runs, and stops at the end of the block."""

    producer: RecordProducer
    choose: random.Random
    sent: int = 0

    def backlog(self, count: int) -> None:
        """Send as fast as it goes."""
        self.producer.send(events(count, self.choose, first=self.sent), sent=lambda _: None)
        self.sent += count

    def flowing(self, *, per_second: float) -> BackgroundThread:
        """Send at a steady pace for as long as the block lasts."""
        source = events(10**9, self.choose, first=self.sent)

        def count(sent: int) -> None:
            self.sent += sent

        def send(stop: threading.Event) -> None:
            self.producer.send(yield_at_rate(source, per_second=per_second, stop=stop), sent=count)

        return BackgroundThread(send, "feed")


def aggregate(records: Sequence[tuple[str, bytes]]) -> bytes:
    """Pack records (key, payload) into one, in the published format of Kinesis' producer library."""
    keys = list(dict.fromkeys(key for key, _ in records))
    body = b"".join(_field(1, key.encode()) for key in keys)
    for key, payload in records:
        record = _varint(1 << 3) + _varint(keys.index(key)) + _field(3, payload)
        body += _field(3, record)
    return MAGIC + body + hashlib.md5(body, usedforsecurity=False).digest()


def _field(number: int, value: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def send_aggregate(client: Any, ledger: Ledger, stream: str, records: Sequence[tuple[str, bytes]]) -> None:
    """Send an aggregate and enter each of its records: in their order by key and payload, from 1 on."""
    number = client.put_record(StreamName=stream, PartitionKey=records[0][0], Data=aggregate(records))[
        "SequenceNumber"
    ]
    ordered = sorted(records, key=lambda r: (r[0].encode(), r[1]))
    for place, (_, payload) in enumerate(ordered, 1):
        ledger.add(f"{stream}/{number}/{place}", payload, None)
