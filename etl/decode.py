"""Payload to columns: every record comes out either decoded or as a dead letter with its reason.

A dead letter has a stage and an error:

``decode``
    A null payload (a Kafka tombstone), an empty record, bytes that are not UTF-8, or
    anything but exactly one JSON object. ``NaN`` and ``Infinity`` are not JSON.
``schema``
    A JSON object with a value of another type than the schema's, or without a value
    for a ``NOT NULL`` field.

What is taken: fields that the schema does not name are ignored; of a key given twice
the last value counts; a ``STRING`` field takes any value, as JSON text; a decimal is
rounded to its scale; whole numbers in a ``TIMESTAMP`` field are seconds of the epoch;
nesting to about 990 levels (the limit of the JSON parser is 1,000).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import (
    ArrayType,
    DataType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from pyspark.sql.utils import ParseException  # type: ignore[attr-defined]  # its home in Spark 3.3 to 4

from etl.errors import StartError

NOT_ONE = "not exactly one JSON object"

_OPTIONS = {
    "mode": "PERMISSIVE",
    "columnNameOfCorruptRecord": "corrupt",
    "allowNonNumericNumbers": "false",
    "allowSingleQuotes": "false",
}


def parse_schema(spark: SparkSession, ddl: str, name: str) -> StructType:
    """Read a DDL schema, such as ``carrier STRING NOT NULL, dep_time INT``.

    Parameters
    ----------
    spark
        Whose parser reads it.
    ddl
        The text.
    name
        Where the text came from, for messages.

    Raises
    ------
    StartError
        Not DDL, no field at all, a name that begins with ``_`` (those are ours), two
        names that differ in case only, or ``NOT NULL`` inside an array or a map,
        where it could not be kept.
    """
    try:
        schema = spark.createDataFrame([], ddl).schema
    except ParseException as error:
        raise StartError(f"{name}: not a schema: {_first_line(error)}") from error
    names = schema.fieldNames()
    taken = sorted({n for n in names if n.startswith("_")})
    lowered = [n.lower() for n in names]
    twice = sorted({n for n in names if lowered.count(n.lower()) > 1})
    hidden = sorted(f.name for f in schema.fields if _hides_required(f.dataType))
    problems = [
        *(["it has no fields"] if not names else []),
        *([f"names that begin with _ are taken: {', '.join(taken)}"] if taken else []),
        *([f"names that clash: {', '.join(twice)}"] if twice else []),
        *([f"NOT NULL inside an array or map cannot be kept: {', '.join(hidden)}"] if hidden else []),
    ]
    if problems:
        raise StartError(f"{name}: {'; '.join(problems)}")
    return schema


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _hides_required(kind: DataType, *, inside: bool = False) -> bool:
    if isinstance(kind, ArrayType):
        return _hides_required(kind.elementType, inside=True)
    if isinstance(kind, MapType):
        return _hides_required(kind.valueType, inside=True)
    if isinstance(kind, StructType):
        return any((inside and not f.nullable) or _hides_required(f.dataType, inside=inside) for f in kind)
    return False


def nullable(kind: StructType) -> StructType:
    """The same schema with every field, at every level of structs, allowed to be null."""
    return StructType(
        [
            StructField(f.name, nullable(f.dataType) if isinstance(f.dataType, StructType) else f.dataType)
            for f in kind.fields
        ]
    )


@dataclass(frozen=True)
class JsonDecoder:
    """Decodes JSON objects by Spark's own parser, in one pass and without Python.

    Spark's parser reads the first JSON value of a text and is content. So the payload is
    set between ``{"w":[`` and ``],"end":1}``: whatever follows the first object (a second
    one, a brace too many, a cut line glued to the next) then breaks the syntax, makes a second
    element, or hides ``end``. Only text with a closing bracket of its own can get out
    of that (``{…}],"k":[{…}``); such a payload is read once more between ``{"w":`` and
    ``,"end":1}``, which only a brace could leave. No text leaves both.

    Parameters
    ----------
    schema
        Of the object, from :func:`parse_schema`.
    """

    schema: StructType

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by the schema's columns and the dead letter's.

        Parameters
        ----------
        rows
            With a binary column ``payload``; other columns are kept.

        Returns
        -------
        DataFrame
            The other columns; the schema's columns (all null for a dead letter); ``_bytes``
            (the payload of a dead letter), ``_stage`` and ``_error`` (null for a good record).
        """
        kept = [c for c in rows.columns if c != "payload"]
        wrapped = F.concat(F.lit('{"w":['), F.col("text"), F.lit('],"end":1}'))
        texts = rows.select(*kept, "payload", F.col("payload").cast("string").alias("text"))
        decoded = texts.select("*", wrapped.alias("wrapped")).select(
            *kept,
            "payload",
            "text",
            "wrapped",
            F.from_json("wrapped", _wrap(nullable(self.schema)), _OPTIONS).alias("decoded"),
        )
        record = F.col("decoded.w").getItem(0)
        judged = decoded.select(*kept, "payload", record.alias("record"), self._verdict().alias("verdict"))
        bad = F.col("verdict").isNotNull()
        return judged.select(
            *kept,
            *(F.when(~bad, F.col("record").getField(f.name)).alias(f.name) for f in self.schema.fields),
            F.when(bad, F.col("payload")).alias("_bytes"),
            F.col("verdict.stage").alias("_stage"),
            F.col("verdict.error").alias("_error"),
        )

    def _verdict(self) -> Column:
        """Why a record is bad, or null. Branches are tried in turn, so that good ones pay little."""
        payload, decoded = F.col("payload"), F.col("decoded")
        record = decoded["w"].getItem(0)
        # Spark replaces invalid bytes in silence; they do not survive the way there and back.
        valid = F.encode(F.decode(payload, "UTF-8"), "UTF-8") == payload
        one = (F.size(decoded["w"]) == 1) & record.isNotNull() & decoded["end"].isNotNull()
        verdict = (
            F.when(payload.isNull(), _reason("decode", F.lit("null payload (a tombstone)")))
            .when(F.length(payload) == 0, _reason("decode", F.lit("empty record")))
            .when(~valid, _reason("decode", F.lit("not UTF-8")))
            .when(decoded["corrupt"].isNotNull() | ~F.coalesce(one, F.lit(False)), self._diagnosis(record))
            .when(
                F.col("text").contains("]") & self._braced["end"].isNull(),
                _reason("decode", F.lit(NOT_ONE)),
            )
        )
        required = list(_required(self.schema, record))
        if required:
            missing = F.filter(
                F.array(*(F.when(absent, F.lit(name)) for name, absent in required)),
                lambda n: n.isNotNull(),
            )
            verdict = verdict.when(
                reduce(lambda a, b: a | b, (absent for _, absent in required)),
                _reason(
                    "schema", F.concat(F.lit("no value for a required field: "), F.array_join(missing, ", "))
                ),
            )
        return verdict

    @property
    def _braced(self) -> Column:
        """The payload as a member instead of an element; its own content is checked and skipped."""
        braced = F.concat(F.lit('{"w":'), F.col("text"), F.lit(',"end":1}'))
        return F.from_json(braced, StructType([StructField("end", IntegerType())]), _OPTIONS)

    def _diagnosis(self, record: Column) -> Column:
        """Tell "not an object" from "wrong type": parse again, with any type allowed (bad records only)."""
        loose = F.from_json("wrapped", _wrap(MapType(StringType(), StringType())), _OPTIONS)
        members = loose["w"].getItem(0)
        is_object = (
            loose["corrupt"].isNull()
            & (F.size(loose["w"]) == 1)
            & members.isNotNull()
            & loose["end"].isNotNull()
        )
        refused = F.filter(
            F.array(
                *(
                    F.when(
                        members.getItem(f.name).isNotNull() & record.getField(f.name).isNull(), F.lit(f.name)
                    )
                    for f in self.schema.fields
                )
            ),
            lambda n: n.isNotNull(),
        )
        where = F.when(F.size(refused) > 0, F.array_join(refused, ", ")).otherwise(
            F.lit("inside a nested field")
        )
        return F.when(
            F.coalesce(is_object, F.lit(False)),
            _reason("schema", F.concat(F.lit("wrong type: "), where)),
        ).otherwise(_reason("decode", F.lit(NOT_ONE)))


def _wrap(element: DataType) -> StructType:
    return StructType(
        [
            StructField("w", ArrayType(element)),
            StructField("end", IntegerType()),
            StructField("corrupt", StringType()),
        ]
    )


def _reason(stage: str, error: Column) -> Column:
    return F.struct(F.lit(stage).alias("stage"), error.alias("error"))


def _required(schema: StructType, record: Column, prefix: str = "") -> Iterator[tuple[str, Column]]:
    """Dotted name and "is absent" of each NOT NULL field; inside a struct only where the struct is given."""
    for field in schema.fields:
        value = record.getField(field.name)
        if not field.nullable:
            yield prefix + field.name, record.isNotNull() & value.isNull()
        if isinstance(field.dataType, StructType):
            yield from _required(field.dataType, value, f"{prefix}{field.name}.")
