"""What decoders of every format share: the checks of a payload as such, and the shape of their result."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from etl.errors import StartError

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


def texts(kind: DataType, value: Column) -> Column | None:
    """Whether every text in a value, at any depth, is UTF-8; None for a kind that holds no text.

    Parameters
    ----------
    kind
        Of the value.
    value
        The column; one that is null holds no text.
    """
    found: Column | None = None
    if isinstance(kind, StringType):
        found = valid_text(value)
    elif isinstance(kind, ArrayType):
        inner = kind.elementType
        if texts(inner, value) is not None:
            found = F.forall(value, lambda each: _held(inner, each))
    elif isinstance(kind, MapType):
        keys, values = kind.keyType, kind.valueType
        found = F.forall(F.map_keys(value), lambda each: _held(keys, each))
        if texts(values, value) is not None:
            found = found & F.forall(F.map_values(value), lambda each: _held(values, each))
    elif isinstance(kind, StructType):
        parts = [texts(f.dataType, value.getField(f.name)) for f in kind.fields]
        for part in parts:
            if part is not None:
                found = part if found is None else found & part
    return None if found is None else value.isNull() | found


def _held(kind: DataType, value: Column) -> Column:
    judged = texts(kind, value)
    return F.lit(True) if judged is None else judged


def required(schema: StructType, record: Column, prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Dotted name and "is absent" of each NOT NULL field; inside a struct only where the struct is given."""
    for field in schema.fields:
        value = record.getField(field.name)
        if not field.nullable:
            yield prefix + field.name, record.isNotNull() & value.isNull()
        if isinstance(field.dataType, StructType):
            yield from required(field.dataType, value, f"{prefix}{field.name}.")


def judged(rows: DataFrame, schema: StructType, record: str, verdict: str) -> DataFrame:
    """Take a record apart that was decoded, or make a dead letter of it.

    Parameters
    ----------
    rows
        With ``payload`` and the two columns named next; other columns are kept.
    schema
        Of the record.
    record
        Name of a column that holds the record as a struct.
    verdict
        Name of a column of :data:`VERDICT_DDL`, null for a good record.

    Returns
    -------
    DataFrame
        As :meth:`etl.decoder.Decoder.decode` says.
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
        *([f"names that begin with _ are taken: {', '.join(taken)}"] if taken else []),
        *([f"names that clash: {', '.join(twice)}"] if twice else []),
    ]
    if problems:
        raise StartError(f"{where}: {'; '.join(problems)}")
    return schema
