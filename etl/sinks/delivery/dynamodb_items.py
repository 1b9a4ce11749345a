"""DynamoDB items from a row's JSON.

The service checks its own limits (of an item, a key, a number) and refuses rows beyond them, which become dead
letters. This module refuses values that it would store with another meaning, and rows that would fail a complete request.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
)

from ..base import DELETED
from .python_task_writes import UnsupportedRowError as UnsupportedRowError

TEXT_BYTES = 4 << 20
"""Largest row, as JSON. An item has 400 KB at most (DynamoDB developer guide, "Quotas"), which is 2.4 MB if each character
is an escape; larger rows would make a request that is refused completely."""


def to_dynamodb_value(value: Any) -> dict[str, Any] | None:
    """Return a JSON value in DynamoDB's form; None for null, which is left out.

    Parameters
    ----------
    value
        Value, decoded with numbers as ``Decimal``.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, Decimal):
        return {"N": str(value)}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, list):
        return {"L": [{"NULL": True} if item is None else to_dynamodb_value(item) for item in value]}
    return {
        "M": {name: item for name, each in value.items() if (item := to_dynamodb_value(each)) is not None}
    }


def first_nan_or_infinity(value: Any, kind: DataType | None) -> str | None:
    """Return the first NaN or infinity in a JSON value of a type, as Spark writes it; None if there is none."""
    if isinstance(kind, FloatType | DoubleType):
        return value if isinstance(value, str) else None
    result: Iterator[str | None] = iter(())
    if isinstance(kind, ArrayType):
        result = (first_nan_or_infinity(each, kind.elementType) for each in value or ())
    elif isinstance(kind, MapType):
        result = (first_nan_or_infinity(each, kind.valueType) for each in (value or {}).values())
    elif isinstance(kind, StructType):
        result = (first_nan_or_infinity((value or {}).get(f.name), f.dataType) for f in kind.fields)
    return next((each for each in result if each is not None), None)


@dataclass(frozen=True)
class RowToItemConverter:
    """Conversion of rows to items.

    Attributes
    ----------
    binary
        Fields of the row with bytes, which are base64 in JSON.
    floating
        Types of the fields that may hold floating-point numbers, at any depth: NaN and infinities are text in JSON.
    keyed
        True if rows are results, whose identity is ``_id`` alone.
    """

    binary: frozenset[str]
    floating: Mapping[str, DataType]
    keyed: bool

    @classmethod
    def for_columns(cls, schema: StructType) -> RowToItemConverter:
        """Make it from the columns of the rows."""
        return cls(
            frozenset(f.name for f in schema.fields if isinstance(f.dataType, BinaryType)),
            {
                f.name: f.dataType
                for f in schema.fields
                if not isinstance(f.dataType, StringType | BinaryType)
            },
            "_source" not in schema.fieldNames(),
        )

    @property
    def key(self) -> tuple[str, ...]:
        """Attributes of the table's key: partition key, sort key."""
        return ("_id",) if self.keyed else ("_id", "_source")

    def item_and_json_size(
        self, text: str, more: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], int]:
        """Return an item from a row's JSON, and the size of the JSON in bytes, which is about that of the item.

        Parameters
        ----------
        more
            Additional attributes.

        Raises
        ------
        UnsupportedRowError
            The row cannot be an item.
        """
        size = len(text.encode())
        if size > TEXT_BYTES:
            raise UnsupportedRowError(f"the item has {size} bytes; the limit is {TEXT_BYTES}")
        item: dict[str, Any] = dict(more or {})
        for name, value in json.loads(text, parse_float=Decimal, parse_int=Decimal).items():
            if name == DELETED:
                continue
            if name in self.binary:
                item[name] = {"B": base64.b64decode(value)}
            elif (odd := first_nan_or_infinity(value, self.floating.get(name))) is not None:
                raise UnsupportedRowError(
                    f"the value of {name} is {odd}, which DynamoDB cannot store as a number"
                )
            elif (formed := to_dynamodb_value(value)) is not None:
                item[name] = formed
        return item, size
