"""Items of DynamoDB out of a row's JSON, within what the service takes."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pyspark.sql.types import BinaryType, DoubleType, FloatType, StructType

from ..base import DELETED
from .python_tasks import UnfitError as UnfitError

ITEM_BYTES = 400 * 1024
"""Largest item, names of attributes included (DynamoDB developer guide, "Quotas")."""

KEY_BYTES, SORT_BYTES = 2048, 1024
"""Longest partition and sort key (the same page)."""

DIGITS = 38
LARGEST, SMALLEST = Decimal("9.9999999999999999999999999999999999999E+125"), Decimal("1E-130")
"""What a number may be (DynamoDB developer guide, "Supported data types")."""


def attribute(value: Any) -> dict[str, Any] | None:
    """A JSON value in DynamoDB's form; None for null, which is left out.

    Parameters
    ----------
    value
        Decoded with numbers as ``Decimal``.

    Raises
    ------
    UnfitError
        A number that is too long, too large or too small.
    """
    if value is None:
        return None
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, Decimal):
        # Not normalize(), which rounds to the 28 digits of Python's own context.
        digits = "".join(map(str, value.as_tuple().digits))
        if len(digits.strip("0")) > DIGITS:
            raise UnfitError(f"a number of more than {DIGITS} digits")
        if value and not SMALLEST <= abs(value) <= LARGEST:
            raise UnfitError(f"a number outside {SMALLEST:E} to {LARGEST:.1E}")
        return {"N": str(value)}
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, list):
        return {"L": [{"NULL": True} if item is None else attribute(item) for item in value]}
    return {"M": {name: item for name, each in value.items() if (item := attribute(each)) is not None}}


def size_of(value: dict[str, Any]) -> int:
    """Bytes of an attribute's value, as DynamoDB counts them, or a few more.

    "DynamoDB item sizes and formats" of the developer guide: text in UTF-8, a byte for two digits and one or
    two more, one for a boolean, three and one for each element for lists and maps.
    """
    ((kind, content),) = value.items()
    if kind == "S":
        return len(content.encode())
    if kind == "N":
        return len(content) // 2 + 3
    if kind == "B":
        return len(content)
    if kind == "L":
        return 3 + sum(1 + size_of(item) for item in content)
    if kind == "M":
        return 3 + sum(1 + len(name.encode()) + size_of(item) for name, item in content.items())
    return 1


@dataclass(frozen=True)
class Form:
    """How rows become items.

    Attributes
    ----------
    binary
        Fields of the row that hold bytes, which JSON has in base64.
    floating
        Fields whose NaN and infinities JSON has as text.
    keyed
        Whether rows are results, known by ``_id`` alone.
    """

    binary: frozenset[str]
    floating: frozenset[str]
    keyed: bool

    @classmethod
    def of(cls, schema: StructType) -> Form:
        """From the columns of the rows."""
        return cls(
            frozenset(f.name for f in schema.fields if isinstance(f.dataType, BinaryType)),
            frozenset(f.name for f in schema.fields if isinstance(f.dataType, FloatType | DoubleType)),
            "_source" not in schema.fieldNames(),
        )

    @property
    def key(self) -> tuple[str, ...]:
        """Attributes of the table's key: partition key, sort key."""
        return ("_id",) if self.keyed else ("_id", "_source")

    def item(self, text: str, more: Mapping[str, Any] | None = None) -> tuple[dict[str, Any], int]:
        """An item out of a row's JSON, and its size in bytes.

        Parameters
        ----------
        more
            Attributes that it has beside.

        Raises
        ------
        UnfitError
            It cannot be one.
        """
        item: dict[str, Any] = dict(more or {})
        for name, value in json.loads(text, parse_float=Decimal, parse_int=Decimal).items():
            if name == DELETED:
                continue
            if name in self.binary:
                item[name] = {"B": base64.b64decode(value)}
            elif name in self.floating and isinstance(value, str):
                raise UnfitError(f"{name} is {value}: DynamoDB has no such number")
            elif (formed := attribute(value)) is not None:
                item[name] = formed
        for name, longest in zip(self.key, (KEY_BYTES, SORT_BYTES), strict=False):
            length = len(item.get(name, {}).get("S", "").encode())
            if not 0 < length <= longest:
                raise UnfitError(f"{name} has {length} bytes; a key has 1 to {longest}")
        size = sum(len(name.encode()) + size_of(value) for name, value in item.items())
        if size > ITEM_BYTES:
            raise UnfitError(f"an item of {size} bytes; the most is {ITEM_BYTES}")
        return item, size
