"""The shape of what every decoder gives, and checks that all formats need: text, required fields, tombstones."""

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
"""Of a verdict; a null one is that of a good record."""


def reason(stage: str, error: Column | str) -> Column:
    """A verdict: stage and error of a dead letter."""
    text = F.lit(error) if isinstance(error, str) else error
    return F.struct(F.lit(stage).alias("stage"), text.alias("error")).cast(VERDICT_DDL)


def valid_text(value: Column) -> Column:
    """Whether bytes or a text are UTF-8. Spark replaces what is not; that does not survive the way there and back.

    A cast takes bytes as they are, and ``encode`` replaces, in Spark 3 and 4 alike. ``decode`` does so in Spark 3 only:
    from 4.0 on it ends the whole batch with MALFORMED_CHARACTER_CODING (SPARK-48658).
    """
    return F.encode(value.cast("string"), "UTF-8") == value.cast("binary")


Leaf = Callable[[DataType, Column], "Column | None"]
"""What is to hold of a value that has no parts; None of a kind of which nothing is asked."""


def texts(kind: DataType, value: Column) -> Column | None:
    """Whether every text in a value, at any depth, is UTF-8; None for a kind that holds no text.

    Parameters
    ----------
    value
        The column; one that is null holds no text.
    """
    return holds_for_all(kind, value, lambda k, v: valid_text(v) if isinstance(k, StringType) else None)


def holds_for_all(kind: DataType, value: Column, leaf: Leaf) -> Column | None:
    """Whether something holds of everything in a value, at any depth; None for a kind of which nothing is asked.

    Parameters
    ----------
    value
        The column; of one that is null it holds.
    leaf
        What is asked.
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
    """:func:`every` of one element, as a function of it alone: Spark counts the parameters."""

    def asked(value: Column) -> Column:
        judged = holds_for_all(kind, value, leaf)
        return F.lit(True) if judged is None else judged

    return asked


def required(
    schema: StructType, value_of: Callable[[str], Column], given: Column, prefix: str = ""
) -> Iterator[tuple[str, Column]]:
    """Dotted name and "is absent" of each NOT NULL field; inside a struct only where the struct is given.

    Parameters
    ----------
    schema
        Of the record, or of a struct in it.
    value_of
        A field's value, by its name.
    given
        Whether the record or struct is there at all.
    prefix
        Of the names.
    """
    for field in schema.fields:
        value = value_of(field.name)
        if not field.nullable:
            yield prefix + field.name, given & value.isNull()
        if isinstance(field.dataType, StructType):
            yield from required(field.dataType, value.getField, value.isNotNull(), f"{prefix}{field.name}.")


def decoded_or_dead_letter(rows: DataFrame, schema: StructType, record: str, verdict: str) -> DataFrame:
    """Take a record apart that was decoded, or make a dead letter of it.

    Parameters
    ----------
    rows
        With ``payload`` and the two columns named next; other columns are kept.
    record
        Name of a column that holds the record as a struct.
    verdict
        Name of a column of :data:`VERDICT_DDL`, null for a good record.

    Returns
    -------
    DataFrame
        As :meth:`etl.formats.base.Decoder.decode` says.
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
    """Give the schema back if a table can have these columns.

    Raises
    ------
    StartError
        No field, a name that begins with ``_`` (those are ours), or two that differ in case only.
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
