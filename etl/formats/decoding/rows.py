"""Common output of all decoders, and checks that all formats need: text, required fields, tombstones."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from ...record.errors import StartError

TOMBSTONE = "null payload (a tombstone)"
EMPTY = "empty record"
NOT_UTF8 = "not UTF-8"

VERDICT_DDL = "struct<stage:string,error:string>"
"""Type of a verdict, which is null for a good record."""


def reason(stage: str, error: Column | str) -> Column:
    """Make a verdict: stage and error of a dead letter."""
    text = F.lit(error) if isinstance(error, str) else error
    return F.struct(F.lit(stage).alias("stage"), text.alias("error")).cast(VERDICT_DDL)


def valid_text(value: Column) -> Column:
    """Return a condition: bytes or a text are UTF-8. Spark replaces invalid bytes, so they differ after a round trip.

    A cast keeps the bytes, and ``encode`` replaces invalid ones, in Spark 3 and 4. ``decode`` replaces in Spark 3 only:
    from 4.0 on it fails the complete batch with MALFORMED_CHARACTER_CODING (SPARK-48658).
    """
    return F.encode(value.cast("string"), "UTF-8") == value.cast("binary")


Leaf = Callable[[DataType, Column], "Column | None"]
"""Condition on a value without parts; None for a type without a condition."""


def texts(kind: DataType, value: Column) -> Column | None:
    """Return a condition: every text in a value, at any depth, is UTF-8. None for a type without text.

    Parameters
    ----------
    value
        The column; null meets the condition.
    """
    return holds_for_all(kind, value, lambda k, v: valid_text(v) if isinstance(k, StringType) else None)


def holds_for_all(kind: DataType, value: Column, leaf: Leaf) -> Column | None:
    """Return a condition on every part of a value, at any depth; None for a type without a condition.

    Parameters
    ----------
    value
        The column; null meets the condition.
    leaf
        Condition on each part.
    """
    found: Column | None = None
    if isinstance(kind, ArrayType):
        if holds_for_all(kind.elementType, value, leaf) is not None:
            found = F.forall(value, _asking(kind.elementType, leaf))
    elif isinstance(kind, MapType):
        for part, taken in ((kind.keyType, F.map_keys), (kind.valueType, F.map_values)):
            if holds_for_all(part, value, leaf) is not None:
                found = _both(found, F.forall(taken(value), _asking(part, leaf)))
    elif isinstance(kind, StructType):
        for field in kind.fields:
            found = _both(found, holds_for_all(field.dataType, value.getField(field.name), leaf))
    else:
        found = leaf(kind, value)
    return None if found is None else value.isNull() | found


def _both(one: Column | None, other: Column | None) -> Column | None:
    return other if one is None else one if other is None else one & other


def _asking(kind: DataType, leaf: Leaf) -> Callable[[Column], Column]:
    """Return :func:`holds_for_all` as a function of one element only: Spark counts the parameters."""

    def asked(value: Column) -> Column:
        judged = holds_for_all(kind, value, leaf)
        return F.lit(True) if judged is None else judged

    return asked


def required(
    schema: StructType, value_of: Callable[[str], Column], given: Column, prefix: str = ""
) -> Iterator[tuple[str, Column]]:
    """Yield name (dotted) and "is absent" of each NOT NULL field; a field in a struct counts only if the struct is present.

    Parameters
    ----------
    schema
        Schema of the record, or of a struct in it.
    value_of
        Returns a field's value by its name.
    given
        Condition: the record or struct is present.
    prefix
        Prefix of the names.
    """
    for field in schema.fields:
        value = value_of(field.name)
        if not field.nullable:
            yield prefix + field.name, given & value.isNull()
        if isinstance(field.dataType, StructType):
            yield from required(field.dataType, value.getField, value.isNotNull(), f"{prefix}{field.name}.")


def decoded_or_dead_letter(rows: DataFrame, schema: StructType, record: str, verdict: str) -> DataFrame:
    """Split a decoded record into columns, or make a dead letter of it.

    Parameters
    ----------
    rows
        With ``payload`` and the two columns below; other columns are kept.
    record
        Name of a column that holds the record as a struct.
    verdict
        Name of a column of :data:`VERDICT_DDL`, null for a good record.

    Returns
    -------
    DataFrame
        As in :meth:`etl.formats.base.Decoder.decode`.
    """
    good = F.col(verdict).isNull()
    return rows.select(
        *(F.col(f"`{c}`") for c in rows.columns if c not in ("payload", record, verdict)),
        *(F.when(good, F.col(record).getField(f.name)).alias(f.name) for f in schema.fields),
        F.when(~good, F.col("payload")).alias("_bytes"),
        F.col(verdict)["stage"].alias("_stage"),
        F.col(verdict)["error"].alias("_error"),
    )


def check_names(schema: StructType, where: str) -> StructType:
    """Return the schema if a table can have these columns.

    Raises
    ------
    StartError
        The schema has no field, a name that begins with ``_`` (reserved), or two names that differ in case only.
    """
    names = schema.fieldNames()
    taken = sorted(n for n in names if n.startswith("_"))
    lowered = [n.lower() for n in names]
    twice = sorted({n for n in names if lowered.count(n.lower()) > 1})
    problems = [
        *(["it has no fields"] if not names else []),
        *([f"names that begin with _ are reserved: {', '.join(taken)}"] if taken else []),
        *([f"names that clash: {', '.join(twice)}"] if twice else []),
    ]
    if problems:
        raise StartError(f"{where}: {'; '.join(problems)}")
    return schema
