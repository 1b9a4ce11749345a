"""Change events in the shapes that Debezium and AWS DMS document, for tests.

Debezium: ``documentation/modules/ROOT/pages/connectors/{postgresql,mysql,sqlserver,oracle}.adoc`` and
``transformations/event-flattening.adoc`` of github.com/debezium/debezium. AWS DMS: the pages "Using Amazon Kinesis Data Streams
as a target" (records of data and of control, ``BeforeImageSettings``) and "KinesisSettings" (details of transactions) of its guide.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

Event = dict[str, Any]


def moment(place: int) -> datetime:
    """Time of the change at a place of the log."""
    return datetime.fromtimestamp(1714000000, UTC) + timedelta(milliseconds=place)


def unscaled(value: str) -> str:
    """A NUMERIC as Connect's Decimal: the two's complement of the unscaled value, shortest, in base64."""
    number = int(value.replace(".", ""))
    return base64.b64encode(
        number.to_bytes((number + (number < 0)).bit_length() // 8 + 1, signed=True)
    ).decode()


def postgres(
    op: str, lsn: int | None, commit: int | None = None, snapshot: str = "false", **rows: Any
) -> Event:
    """An event of the PostgreSQL connector."""
    source = {
        "version": "3.0.5.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": round(moment(lsn or 0).timestamp() * 1000),
        "snapshot": snapshot,
        "db": "shop",
        "sequence": json.dumps([None if commit is None else str(commit), str(lsn)]),
        "schema": "public",
        "table": "orders",
        "txId": 555,
        "lsn": lsn,
        "xmin": None,
    }
    return {
        "before": None,
        "after": None,
        **rows,
        "source": source,
        "op": op,
        "ts_ms": 1714000000142,
        "transaction": None,
    }


def wrapped(event: Event | None) -> bytes:
    """What Connect's JsonConverter writes with ``schemas.enable``."""
    fields = [
        {"type": "struct", "fields": [{"type": "int64", "optional": False, "field": "id"}], "field": "after"}
    ]
    schema = {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": "shop.public.orders.Envelope",
        "version": 2,
    }
    return json.dumps({"schema": schema, "payload": event}, separators=(",", ":")).encode()


def dms(
    operation: str, at: str, data: Event | None = None, before: Event | None = None, **more: Any
) -> Event:
    """A record of AWS DMS, without the optional details of transactions unless ``more`` has them."""
    metadata = {
        "timestamp": at,
        "record-type": "data" if data is not None else "control",
        "operation": operation,
        "partition-key-type": "primary-key",
        "schema-name": "shop",
        "table-name": "orders",
        **more,
    }
    result: Event = {} if data is None else {"data": data}
    if before is not None:
        result["before-image"] = before
    return {**result, "metadata": metadata}
