"""DDL schemas without Spark: ``carrier STRING NOT NULL, legs ARRAY<INT>`` to PySpark's types and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from millrace.config.formats import ddl

_NAMES: Mapping[str, DataType] = {
    "boolean": BooleanType(),
    "tinyint": ByteType(),
    "smallint": ShortType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "binary": BinaryType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "timestamp_ntz": TimestampNTZType(),
}


def parse_ddl(text: str) -> StructType:
    """Return the schema of a DDL text.

    Parameters
    ----------
    text
        Fields as in ``CREATE TABLE``, with ``NOT NULL`` and ``COMMENT``.

    Raises
    ------
    millrace.config.formats.ddl.DdlError
        The text is not valid; the message has the position.

    Examples
    --------
    >>> parse_ddl("a INT NOT NULL, b ARRAY<STRING>").simpleString()
    'struct<a:int,b:array<string>>'
    """
    return spark_struct(ddl.parse_ddl(text))


def spark_struct(fields: Iterable[ddl.DdlField]) -> StructType:
    """Return the schema of DDL fields."""
    return StructType(
        [
            StructField(
                each.name,
                _spark_type(each.kind),
                each.nullable,
                {"comment": each.comment} if each.comment else None,
            )
            for each in fields
        ]
    )


def _spark_type(kind: ddl.DdlType) -> DataType:
    if kind.name == "struct":
        return spark_struct(kind.fields)
    if kind.name == "array":
        return ArrayType(_spark_type(kind.parts[0]))
    if kind.name == "map":
        key, value = kind.parts
        return MapType(_spark_type(key), _spark_type(value))
    return DecimalType(*kind.digits) if kind.name == "decimal" else _NAMES[kind.name]


def read_ddl_file(path: Path) -> StructType:
    """Return the schema of a file, as :func:`parse_ddl` does."""
    return parse_ddl(path.read_text(encoding="utf-8"))


def schema_as_ddl(schema: StructType) -> str:
    """Write a schema, one field a line; fields may be nested."""
    lines = (
        f"{_quoted_name(f.name)} {type_as_ddl(f.dataType)}{'' if f.nullable else ' NOT NULL'}{_comment_clause(f)}"
        for f in schema.fields
    )
    return ",\n".join(lines) + "\n"


def ddl_problems(text: str) -> list[str]:
    """Return why no payload can be decoded by a DDL text."""
    try:
        return list(ddl.ddl_field_problems(ddl.parse_ddl(text)))
    except ddl.DdlError as error:
        return [str(error)]


def _comment_clause(field: StructField) -> str:
    text = str(field.metadata.get("comment", "")).replace("'", "\\'")
    return f" COMMENT '{text}'" if text else ""


def type_as_ddl(kind: DataType, *, in_collection: bool = False) -> str:
    """Return a type as DDL, such as ``ARRAY<STRUCT<a: INT>>``; Spark keeps no NOT NULL inside of an array or map."""
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_as_ddl(kind.elementType, in_collection=True)}>"
    if isinstance(kind, MapType):
        value = type_as_ddl(kind.valueType, in_collection=True)
        return f"MAP<{type_as_ddl(kind.keyType)}, {value}>"
    if isinstance(kind, StructType):
        inner = (
            f"{_quoted_name(f.name)}: {type_as_ddl(f.dataType, in_collection=in_collection)}"
            f"{'' if f.nullable or in_collection else ' NOT NULL'}{_comment_clause(f)}"
            for f in kind.fields
        )
        return f"STRUCT<{', '.join(inner)}>"
    return kind.simpleString().upper()


def _quoted_name(name: str) -> str:
    return name if ddl.PLAIN_NAME.fullmatch(name) else f"`{name.replace('`', '``')}`"
