"""Change events for test traffic: inserts, updates and deletes of rows whose keys come again."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

from pyspark.sql.types import DataType, DateType, StructType

from millrace.config.formats.change_format_base import ChangeFormat
from millrace.config.formats.debezium import DebeziumFormat
from millrace.etl.formats.decoding.times import UNITS
from millrace.sandbox.payloads import PayloadSpoiler, PayloadWriters, to_plain_value
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.schemas import ddl_and_pyspark_types
from millrace.sandbox.schemas.traffic_values import Values

KEYS = 100
"""Rows that there are at most."""

_STEP = 37
"""Has no divisor in common with :data:`KEYS`, so that every key comes once in a hundred records."""

Operation = Literal["insert", "update", "delete"]


def make_payload_writers(form: ChangeFormat, path: Path, name: str = "public.traffic") -> PayloadWriters:
    """Return the writers of events of a table; the first field that is NOT NULL is the key.

    Raises
    ------
    SandboxError
        Events in Avro.
    """
    if isinstance(form, DebeziumFormat) and form.payload == "avro":
        raise SandboxError(
            "test records of Debezium in Avro can neither be generated nor read from a file; send events of a connector "
            "to the sandbox's brokers, or events in JSON to a query without `payload: avro`"
        )
    schema = ddl_and_pyspark_types.read_ddl_file(path)
    place = name.rpartition(".")[::2]
    table = _ChangingTable(next((f.name for f in schema if not f.nullable), schema.fieldNames()[0]))
    write = _debezium_event if isinstance(form, DebeziumFormat) else _dms_event

    def encode_next_change(values: Values) -> bytes:
        number, operation, before, after = table.change_next_row(values)
        rows = [None if row is None else _values_of_format(form, schema, row) for row in (before, after)]
        return json.dumps(
            write(place, number, operation, *rows), separators=(",", ":"), ensure_ascii=False
        ).encode()

    spoil = PayloadSpoiler(StructType([]), encode_next_change, lambda payload, _: payload[:-1])
    return PayloadWriters(schema, encode_next_change, spoil)


@dataclass
class _ChangingTable:
    """Rows of a table and the number of its last change."""

    key: str
    rows: dict[Any, Values] = field(default_factory=dict)
    keys: dict[int, Any] = field(default_factory=dict)
    number: int = 0

    def change_next_row(self, values: Values) -> tuple[int, Operation, Values | None, Values | None]:
        """Change the row of the next key, each fifth time by its deletion; return number, operation, and the row before and after."""
        self.number += 1
        place = self.number * _STEP % KEYS
        key = self.keys.setdefault(place, values[self.key])
        # Generated keys repeat: two places may have one, and then one row.
        before = self.rows.pop(key, None)
        if before is not None and self.number // KEYS % 5 == 4:
            return self.number, "delete", before, None
        after = self.rows[key] = {**values, self.key: key}
        return self.number, "insert" if before is None else "update", before, after


def _values_of_format(form: ChangeFormat, schema: StructType, values: Values) -> Mapping[str, Any]:
    if not isinstance(form, DebeziumFormat):
        return {name: _plain_value(value) for name, value in values.items()}
    return {
        f.name: _wire_value(form, f.dataType, str(f.metadata.get("comment", "")), values[f.name])
        for f in schema
    }


def _wire_value(form: DebeziumFormat, kind: DataType, comment: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_wire_value(form, kind.elementType, comment, each) for each in value]  # type: ignore[attr-defined]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(kind, DateType):
        return None if value is None else (value - date(1970, 1, 1)).days
    if (
        isinstance(value, datetime)
        and (digits := UNITS.get(comment.lower().removeprefix("epoch "))) is not None
    ):
        return int(value.timestamp()) * 10**digits
    if isinstance(value, Decimal) and form.decimals == "precise":
        number = int(value.scaleb(kind.scale))  # type: ignore[attr-defined]
        size = number.bit_length() // 8 + 1
        return base64.b64encode(number.to_bytes(size, signed=True)).decode()
    return str(value) if isinstance(value, Decimal) and form.decimals == "string" else _plain_value(value)


def _plain_value(value: Any) -> Any:
    return json.loads(json.dumps(value, default=to_plain_value))


def _debezium_event(
    name: tuple[str, ...], number: int, operation: Operation, before: Any, after: Any
) -> Mapping[str, Any]:
    schema, table = name
    source = {"connector": "postgresql", "name": "traffic", "db": "traffic", "schema": schema, "table": table}
    millis = int(datetime.now(UTC).timestamp() * 1000)
    place = {"ts_ms": millis, "snapshot": "false", "lsn": number, "sequence": f'["{number - 1}","{number}"]'}
    rows = {"before": before, "after": after, "source": {**source, **place}}
    return {**rows, "op": {"insert": "c"}.get(operation, operation[0]), "ts_ms": millis, "transaction": None}


def _dms_event(
    name: tuple[str, ...], number: int, operation: Operation, before: Any, after: Any
) -> Mapping[str, Any]:
    schema, table = name
    metadata = {
        "timestamp": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "record-type": "data",
        "operation": operation,
        "partition-key-type": "primary-key",
        "schema-name": schema,
        "table-name": table,
        "transaction-id": number,
    }
    return {"data": before if after is None else after, "metadata": metadata}
