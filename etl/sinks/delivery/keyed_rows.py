"""Rows with a key, of which a later one replaces an earlier one."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    DataType,
    DoubleType,
    FloatType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ...formats.decoding.decoder_output_and_checks import (
    CHANGE,
    all_leaves_condition,
    all_texts_utf8_condition,
    contains_type,
    with_replaced_leaves,
)
from ...formats.decoding.decoder_per_topic import COLUMN as ROUTE
from ...record.envelope import CARRIED, COLUMNS
from ...record.errors import StartError
from ..base import DELETED, JSON_OPTIONS, ORDER
from .record_order import POSITION, latest_row_of_each_id, order_prefix


def newest_of_each_key(
    rows: DataFrame, key: tuple[str, ...], name: str, order: str | None = None
) -> DataFrame:
    """Return the last record of each key, in the order of :mod:`etl.sinks.delivery.record_order`.

    Parameters
    ----------
    rows
        Rows of a transform: the user's own columns, ``_position`` and :data:`~etl.sinks.base.DELETED`.
    key
        Names of columns.
    name
        Name of the transform, for messages.
    order
        Column that decides before the position; None for none.

    Returns
    -------
    DataFrame
        ``_id`` (the key as JSON), the user's columns, :data:`~etl.sinks.base.DELETED`: true if the record
        deletes, the record's order, and ``_lanes``: true if the order of the key's records is only that of their arrival.

    Raises
    ------
    StartError
        A column of the key or order is missing or of a wrong type, or a name that begins with ``_`` is not one of the
        landing table.
    """
    theirs = user_columns(rows, key, name)
    held = F.struct(*(F.col(f"`{f.name}`") for f in theirs), F.coalesce(DELETED, F.lit(False)).alias(DELETED))
    identity, prefix = result_identity(rows.schema, key), order_prefix(rows.schema, order, name)
    result = latest_row_of_each_id(
        rows.select(identity.alias("_id"), "_position", held.alias("_row"), prefix.alias("_prefix"))
    )
    # Without a column that decides, keys of several lanes are counted.
    return result.select("_id", "_row.*", ORDER, (F.col("_lanes") & F.lit(order is None)).alias("_lanes"))


def user_columns(rows: DataFrame, key: tuple[str, ...], name: str) -> list[StructField]:
    """Return the user's own columns of rows with a key; parameters and errors as in :func:`newest_of_each_key`."""
    lacking = [c for c in key if c not in rows.columns]
    if lacking:
        raise StartError(
            f"transform {name}: its result lacks the columns {', '.join(lacking)}, which latest_by names"
        )
    theirs = [f for f in rows.schema.fields if not f.name.startswith("_")]
    ours = {*COLUMNS, *CARRIED, "_hash", ROUTE, DELETED, CHANGE}
    if taken := sorted(c for c in rows.columns if c.startswith("_") and c not in ours):
        raise StartError(
            f"transform {name}: columns {', '.join(taken)} must not begin with _, which is reserved in results with "
            "latest_by; rename them"
        )
    if copies := [f.name for f in theirs if f.dataType.simpleString() == POSITION.simpleString()]:
        raise StartError(
            f"transform {name}: {', '.join(copies)} is a copy of _position, which may only order records "
            "with latest_by; read the offset or sequence number from the last part of _id"
        )
    return theirs


def result_identity(schema: StructType, key: tuple[str, ...]) -> Column:
    """Return the ``_id`` of a result: its key as JSON, with -0.0 as the equal 0.0.

    Times have milliseconds, like the bounds of windows. They have microseconds if a time in the key is not a full
    millisecond, as two such keys would otherwise be equal. So would two texts that are not UTF-8, such as binary keys
    of Kafka as text: JSON has the same character for all invalid bytes. Then the names of columns that hold text, at any
    depth, end with ``(base64)``, and texts are their bytes.

    Parameters
    ----------
    key
        Names of columns.
    """
    kinds = {name: schema[name].dataType for name in key}
    values = {
        name: with_replaced_leaves(kind, F.col(f"`{name}`"), None, _is_float, _with_one_zero)
        for name, kind in kinds.items()
    }
    whole, kind = _struct_of(values), StructType([schema[name] for name in key])
    result = F.to_json(whole)
    coarse = all_leaves_condition(kind, whole, _full_millisecond_condition)
    if coarse is not None:
        result = F.when(~coarse, F.to_json(whole, dict(JSON_OPTIONS))).otherwise(result)
    valid = all_texts_utf8_condition(kind, whole)
    if valid is not None:
        plain = {
            f"{name} (base64)" if contains_type(kinds[name], _is_text) else name: texts_as_bytes(
                kinds[name], value
            )
            for name, value in values.items()
        }
        result = F.when(~valid, F.to_json(_struct_of(plain), dict(JSON_OPTIONS))).otherwise(result)
    return result


def texts_as_bytes(kind: DataType, value: Column) -> Column:
    """Return a value with the bytes of its texts: JSON has the same character for all invalid ones."""
    return with_replaced_leaves(kind, value, None, _is_text, lambda _, text, __: text.cast("binary"))


def type_in_identity(kind: DataType) -> str:
    """Describe a type of a key or order: equal for types whose equal values have equal identities and orders.

    Those are whole numbers and decimals of the same scale. A float and a double are not: as JSON 0.1 is another number.

    Examples
    --------
    >>> type_in_identity(StructType().add("a", "integer").add("b", "decimal(9,2)"))
    'struct<a:number with 0 decimals,b:number with 2 decimals>'
    """
    whole = re.sub(
        r"(^|[:<,])(tinyint|smallint|int|bigint)(?=[,>]|$)", r"\1decimal(_,0)", kind.simpleString()
    )
    return re.sub(r"decimal\(\w+,(\d+)\)", r"number with \1 decimals", whole)


def _struct_of(values: Mapping[str, Column]) -> Column:
    return F.struct(*(value.alias(name) for name, value in values.items()))


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def _is_float(kind: DataType) -> bool:
    return isinstance(kind, FloatType | DoubleType)


def _with_one_zero(kind: DataType, value: Column, _: Column) -> Column:
    return F.when(value == 0, F.lit(0.0).cast(kind)).otherwise(value)


def _full_millisecond_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: a time is a full millisecond; None for a type that is no time."""
    if isinstance(kind, TimestampType | TimestampNTZType):
        return F.unix_micros(value.cast("timestamp")) % 1000 == 0
    return None


def first_timestamp_of_key(schema: StructType, key: tuple[str, ...]) -> str | None:
    """Return the first timestamp of a key: a table of results is partitioned by its day, and looked up by its range."""
    kinds = {field.name: field.dataType for field in schema.fields}
    return next((c for c in key if isinstance(kinds[c], TimestampType)), None)
