"""Common output of all decoders, and checks that all formats need: text, required fields, tombstones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from ...launch.formats import names_that_clash
from ...record.errors import StartError

TOMBSTONE = "null payload (a tombstone)"
EMPTY = "empty record"
NOT_UTF8 = "not UTF-8"

CHANGE = "_change"
"""Column of a landing table of change events: operation, table, place and time of a change, and the row before it."""

VERDICT_DDL = "struct<stage:string,error:string>"
"""Type of a verdict, which is null for a good record."""


def dead_letter_verdict(stage: str, error: Column | str) -> Column:
    """Make a verdict: stage and error of a dead letter."""
    text = F.lit(error) if isinstance(error, str) else error
    return F.struct(F.lit(stage).alias("stage"), text.alias("error")).cast(VERDICT_DDL)


def valid_utf8_condition(value: Column) -> Column:
    """Return a condition: bytes or a text are UTF-8. Java's strings replace invalid bytes, so they differ after a round trip.

    ``split`` into one part makes the trip by Java's vector instructions. Spark 4 validates byte by byte (``encode``), which took
    0.8 µs of CPU for a record of 350 bytes, and its ``decode`` fails the complete batch (SPARK-48658).
    """
    text = value.cast("string")
    return F.split(text, "\1", 1).getItem(0) == text


Leaf = Callable[[DataType, Column], "Column | None"]
"""Condition on a value without parts, or on a map; None for a type without a condition."""


def all_texts_utf8_condition(kind: DataType, value: Column) -> Column | None:
    """Return a condition: every text in a value, at any depth, is UTF-8. None for a type without text.

    Parameters
    ----------
    value
        The column; null meets the condition.
    """
    return all_leaves_condition(
        kind, value, lambda k, v: valid_utf8_condition(v) if isinstance(k, StringType) else None
    )


def all_leaves_condition(kind: DataType, value: Column, leaf: Leaf) -> Column | None:
    """Return a condition on every part of a value, at any depth; None for a type without a condition.

    Parameters
    ----------
    value
        The column; null meets the condition.
    leaf
        Condition on each part without parts, and on each map.
    """
    found: Column | None = None
    if isinstance(kind, ArrayType):
        if all_leaves_condition(kind.elementType, value, leaf) is not None:
            found = F.forall(value, _condition_function_for_element(kind.elementType, leaf))
    elif isinstance(kind, MapType):
        found = leaf(kind, value)
        for part, taken in ((kind.keyType, F.map_keys), (kind.valueType, F.map_values)):
            if all_leaves_condition(part, value, leaf) is not None:
                found = _and_ignoring_none(
                    found, F.forall(taken(value), _condition_function_for_element(part, leaf))
                )
    elif isinstance(kind, StructType):
        for field in kind.fields:
            found = _and_ignoring_none(
                found, all_leaves_condition(field.dataType, value.getField(field.name), leaf)
            )
    else:
        found = leaf(kind, value)
    return None if found is None else value.isNull() | found


def evaluate_once(value: Column, then: Callable[[Column], Column]) -> Column:
    """Apply a function to a value that is evaluated once.

    A lambda is the only way to name a value inside an expression; as a column, every good record
    would carry it too.
    """
    return F.transform(F.array(value), then).getItem(0)


def _and_ignoring_none(one: Column | None, other: Column | None) -> Column | None:
    return other if one is None else one if other is None else one & other


def _condition_function_for_element(kind: DataType, leaf: Leaf) -> Callable[[Column], Column]:
    """Return :func:`all_leaves_condition` as a function of one element only: Spark counts the parameters."""

    def element_condition(value: Column) -> Column:
        result = all_leaves_condition(kind, value, leaf)
        return F.lit(True) if result is None else result

    return element_condition


def types_within(kind: DataType) -> Iterator[DataType]:
    """Yield a type and all types in it, at any depth, the outer ones first."""
    yield kind
    if isinstance(kind, StructType):
        parts = [f.dataType for f in kind.fields]
    else:
        parts = [p for p in (getattr(kind, n, None) for n in ("elementType", "keyType", "valueType")) if p]
    for part in parts:
        yield from types_within(part)


def contains_type(kind: DataType, matches: Callable[[DataType], bool]) -> bool:
    """Check that a type is a wanted one, or has one in it, at any depth."""
    return any(map(matches, types_within(kind)))


def field_names_of_type(kind: DataType, matches: Callable[[DataType], bool], name: str = "") -> Iterator[str]:
    """Yield the field of each wanted part without parts: its own name, or that of the array or map that holds it."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from field_names_of_type(field.dataType, matches, field.name)
    elif matches(kind):
        yield name
    for part in ("elementType", "valueType"):
        if inner := getattr(kind, part, None):
            yield from field_names_of_type(inner, matches, name)


def with_replaced_leaf_types(kind: DataType, leaf: Callable[[DataType], DataType]) -> DataType:
    """Return a type with other types for its values without parts, at any depth; keys of maps keep theirs."""
    if isinstance(kind, ArrayType):
        return ArrayType(with_replaced_leaf_types(kind.elementType, leaf))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, with_replaced_leaf_types(kind.valueType, leaf))
    if isinstance(kind, StructType):
        return StructType(
            [StructField(f.name, with_replaced_leaf_types(f.dataType, leaf)) for f in kind.fields]
        )
    return leaf(kind)


def distinct_keys_condition(value: Column) -> Column:
    """Return a condition: a map has each name once. Spark's parser of JSON keeps all of them, and readers differ in which they find."""
    return (F.size(value) < 2) | (F.size(F.array_distinct(F.map_keys(value))) == F.size(value))


Rebuild = Callable[[DataType, Column, Column], Column]
"""Makes a value without parts, of the same value in two readings of a record."""


def with_replaced_leaves(
    kind: DataType, value: Column, other: Column | None, replaced: Callable[[DataType], bool], leaf: Rebuild
) -> Column:
    """Return a value in which each wanted part, at any depth, is made anew.

    Parameters
    ----------
    value, other
        The value in two readings of a record; ``other`` may lack what has no wanted part. None for one reading. With two, a map
        that has a name twice is null.
    """
    if not contains_type(kind, replaced):
        return value

    def rebuilt_part(part: DataType, one: Column, two: Column | None) -> Column:
        return with_replaced_leaves(part, one, two, replaced, leaf)

    if isinstance(kind, ArrayType):
        if other is None:
            return F.transform(value, lambda one: rebuilt_part(kind.elementType, one, None))
        return F.zip_with(value, other, lambda one, two: rebuilt_part(kind.elementType, one, two))
    if isinstance(kind, MapType):
        if other is None:
            return F.transform_values(value, lambda _, one: rebuilt_part(kind.valueType, one, None))
        # By place: to look for each name takes quadratic time. Both readings have the same names in the same order.
        values = F.zip_with(
            F.map_values(value), F.map_values(other), lambda one, two: rebuilt_part(kind.valueType, one, two)
        )
        alike = (F.size(value) == F.size(other)) & distinct_keys_condition(value)
        return F.when(alike, F.map_from_arrays(F.map_keys(value), values))
    if isinstance(kind, StructType):
        parts = (
            with_replaced_leaves(
                f.dataType, value[f.name], None if other is None else other[f.name], replaced, leaf
            ).alias(f.name)
            for f in kind.fields
        )
        return F.when(value.isNotNull(), F.struct(*parts))
    return leaf(kind, value, value if other is None else other)


def required_field_absences(
    schema: StructType, value_of: Callable[[str], Column], present: Column, prefix: str = ""
) -> Iterator[tuple[str, Column]]:
    """Yield name (dotted) and "is absent" of each NOT NULL field; a field in a struct counts only if the struct is present.

    Parameters
    ----------
    schema
        Schema of the record, or of a struct in it.
    value_of
        Returns a field's value by its name.
    present
        Condition: the record or struct is present.
    prefix
        Prefix of the names.
    """
    for field in schema.fields:
        value = value_of(field.name)
        if not field.nullable:
            yield prefix + field.name, present & value.isNull()
        if isinstance(field.dataType, StructType):
            yield from required_field_absences(
                field.dataType, value.getField, value.isNotNull(), f"{prefix}{field.name}."
            )


def verdict_naming_fields(text: str, wrong: Iterable[tuple[str, Column]]) -> Column | None:
    """Return the verdict with the names of the wrong fields after a text, null if none is wrong; None without a field.

    Parameters
    ----------
    wrong
        Name of each field, and the condition that it is wrong.
    """
    named = [F.when(condition, F.lit(name)) for name, condition in wrong]
    if not named:
        return None
    names = F.concat_ws(", ", *named)
    return F.when(names != "", dead_letter_verdict("schema", F.concat(F.lit(text), names)))


def missing_fields_verdict(
    schema: StructType, value_of: Callable[[str], Column], present: Column
) -> Column | None:
    """Return the verdict on a record without a value for a NOT NULL field; parameters as in :func:`required_field_absences`."""
    absences = required_field_absences(schema, value_of, present)
    return verdict_naming_fields("no value for a required field: ", absences)


def decoded_or_dead_letter(
    rows: DataFrame, schema: StructType, record: str, verdict: str, values: Mapping[str, Column] | None = None
) -> DataFrame:
    """Split a decoded record into columns, or make a dead letter of it.

    Parameters
    ----------
    rows
        With ``payload`` and the two columns below; other columns are kept.
    record
        Name of a column that holds the record as a struct.
    verdict
        Name of a column of :data:`VERDICT_DDL`, null for a good record.
    values
        The fields, in columns whose names begin with ``_made_``; None for those of the record.

    Returns
    -------
    DataFrame
        As in :meth:`etl.formats.base.Decoder.decode`.
    """
    good = F.col(verdict).isNull()
    fields = {f.name: F.col(record).getField(f.name) for f in schema.fields} | dict(values or {})
    internal = ("payload", record, verdict)
    return rows.select(
        *(F.col(f"`{c}`") for c in rows.columns if c not in internal and not c.startswith("_made_")),
        *(F.when(good, value).alias(name) for name, value in fields.items()),
        F.when(~good, F.col("payload")).alias("_bytes"),
        F.col(verdict)["stage"].alias("_stage"),
        F.col(verdict)["error"].alias("_error"),
    )


def schema_with_checked_names(schema: StructType, where: str) -> StructType:
    """Return the schema if a table can have these columns.

    Raises
    ------
    StartError
        The schema has a name that begins with ``_`` (reserved), or at any depth a struct that no file can hold: see
        :func:`reasons_type_not_storable`.
    """
    taken = sorted(n for n in schema.fieldNames() if n.startswith("_"))
    problems = [f"names that begin with _ are reserved: {', '.join(taken)}"] if taken else []
    problems += reasons_type_not_storable(schema)
    if problems:
        raise StartError(f"{where}: {'; '.join(problems)}")
    return schema


def reasons_type_not_storable(schema: StructType) -> Iterator[str]:
    """Yield why no table can hold rows: a struct without fields, an empty name, names that differ in case only.

    At the top level also a name with a backtick: Spark's names of columns are quoted with it.
    """
    for kind in types_within(schema):
        if isinstance(kind, StructType):
            top, names = kind is schema, kind.fieldNames()
            if not names:
                yield "it has no fields" if top else "a struct without fields"
            if twice := names_that_clash(names):
                yield f"names that clash: {', '.join(twice)}"
            if odd := sorted({n for n in names if not n or (top and "`" in n)}):
                yield f"names that are empty or hold a backtick: {', '.join(map(repr, odd))}"
