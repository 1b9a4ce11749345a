"""Condition of an erasure: the records of a person, checked before any change, also as a text search in bytes without columns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, StructType

from ..formats.decoding.decoder_output_and_checks import CHANGE
from ..record.errors import describe_error

_CHANGES_WITH_TIME = re.compile(r"Current\w*|Now|LocalTimestamp|.*UserDefined.*")
"""Expressions that Spark calls deterministic although their value changes between statements."""

_TOLD = ("string", "byte", "short", "integer", "long", "decimal")
"""Types whose values a payload holds as they are written in SQL."""

_WORD = "A-Za-z0-9_@+-"
"""Characters of addresses and ids; also a dot, unless it ends a sentence."""


class ErasureConditionError(ValueError):
    """Condition that is invalid for every table."""


@dataclass(frozen=True)
class ErasureCondition:
    """An SQL condition on the columns of a table.

    Parameters
    ----------
    where
        SQL, as the user wrote it.
    """

    spark: SparkSession
    where: str

    @cached_property
    def _parsed_expression(self) -> Any:
        session: Any = self.spark._jsparkSession
        return session.sessionState().sqlParser().parseExpression(self.where)

    def raise_if_invalid(self) -> None:
        """Refuse a condition that is wrong for every table.

        Raises
        ------
        ErasureConditionError
            It is not SQL, names no column, or has a subquery.
        """
        try:
            nodes = list(_all_nodes(self._parsed_expression))
        except (CapturedException, Py4JJavaError) as error:
            raise ErasureConditionError(
                f"the condition is not valid in Spark SQL: {first_line_of_error(error)}"
            ) from error
        if any("Subquery" in _node_type(node) or _node_type(node) == "Exists" for node in nodes):
            raise ErasureConditionError(
                "the condition has a subquery; write the values themselves into the condition"
            )
        if not self.columns:
            raise ErasureConditionError(
                "the condition names no column, so it is true for every record or for none"
            )

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of a table that it names; for a field in a struct, the struct."""
        return tuple(dict.fromkeys(self._columns_by_place.values()))

    @property
    def _columns_by_place(self) -> dict[int, str]:
        """The column named at each place of the text."""
        nodes = list(_all_nodes(self._parsed_expression))
        # In a lambda each name is of this type, also that of a column.
        own = {
            str(argument.nameParts().head())
            for node in nodes
            if _node_type(node) == "LambdaFunction"
            for argument in _children(node)[1:]
        }
        return {
            int(n.origin().startIndex().get()): name
            for n in nodes
            if _node_type(n) in ("UnresolvedAttribute", "UnresolvedNamedLambdaVariable")
            and ((name := str(n.nameParts().head())) not in own or _node_type(n) == "UnresolvedAttribute")
        }

    def missing_columns(self, schema: StructType) -> tuple[str, ...]:
        """Return the columns that a table does not have."""
        have = {name.lower() for name in schema.fieldNames()}
        return tuple(name for name in self.columns if name.lower() not in have)

    def problem(self, schema: StructType) -> str | None:
        """Return the error of the condition for the columns of one table, all of which exist; None if it is valid."""
        # Rows without statistics, so that Spark's conclusions are about the condition alone.
        rows = self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), schema)
        try:
            kind = rows.select(F.expr(self.where)).schema[0].dataType
            if not isinstance(kind, BooleanType):
                return f"the condition has type {kind.simpleString()}; it must be BOOLEAN"
            checked = rows.where(F.expr(self.where))
            expression = checked._jdf.queryExecution().analyzed().expressions().head()
            unsteady = [k for k in map(_node_type, _all_nodes(expression)) if _CHANGES_WITH_TIME.fullmatch(k)]
            if unsteady or not expression.deterministic():
                return "the condition may change its value between statements; write the value in place of the function"
            if _is_known_empty(rows.where(~F.coalesce(F.expr(self.where), F.lit(False)))):
                return "the condition is true of every record"
            if _is_known_empty(checked):
                return "the condition is true of no record"
        except (CapturedException, Py4JJavaError) as error:
            return first_line_of_error(error)
        return None

    @property
    def sql(self) -> str:
        """The condition in parentheses, never null; the line break ends a trailing comment."""
        return f"coalesce(({self.where}\n), false)"

    def row_sql(self, schema: StructType) -> str:
        """Return the condition on a row of a table, or on the row before its change, which has the value that an update removes.

        Returns
        -------
        str
            SQL, never null.
        """
        # A table of the user's own may have another column of this name.
        row = _field_type(_field_type(schema, CHANGE), "before")
        if not isinstance(row, StructType):
            return self.sql
        names = {name.lower() for name in row.fieldNames()}
        before, where = f"{CHANGE}.before", self.where
        # From the end, so that the places in front stay where they are.
        for at, name in sorted(self._columns_by_place.items(), reverse=True):
            if name.lower() in names:
                where = f"{where[:at]}{before}.{where[at:]}"
        return f"({self.sql} OR ({before} IS NOT NULL AND coalesce(({where}\n), false)))"

    def byte_search_sql(self, *columns: str, words: bool) -> str | None:
        """Return the condition on columns of bytes: equality with a value means that they contain the value's text.

        Parameters
        ----------
        *columns
            SQL of type BINARY.
        words
            True if a value must be a complete word, as in JSON, CSV and text; in binary formats it may be next to
            any byte.

        Returns
        -------
        str or None
            SQL, never null; None if there is no value to search: other comparisons than ``=`` and ``IN`` cannot be
            checked by text. If such a comparison is combined with an equality by ``AND``, the equality alone decides.
        """
        return _text_search_sql(self._parsed_expression, columns, words)


def _text_search_sql(node: Any, columns: tuple[str, ...], words: bool) -> str | None:
    kind, children = _node_type(node), _children(node)
    if kind in ("And", "Or"):
        sides = [
            result for child in children if (result := _text_search_sql(child, columns, words)) is not None
        ]
        # In `a OR b` a side that cannot be checked is ignored; in `a AND b` the other side decides.
        return f"({f' {kind.upper()} '.join(sides)})" if sides else None
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        values = [value for child in children if (value := _literal_text(child)) is not None]
        places = [_contains_text_sql(column, value, words) for value in values for column in columns]
        return f"({' OR '.join(places)})" if places else None
    return None


def _literal_text(node: Any) -> str | None:
    """Return a literal's text; None for any other node, and for a text of less than two characters."""
    if _node_type(node) != "Literal" or node.value() is None:
        return None
    # A timestamp is stored as a number, and true or a single character is in every payload.
    text = str(node.value()) if node.dataType().typeName() in _TOLD else ""
    return text if len(text) > 1 else None


def _contains_text_sql(column: str, value: str, words: bool) -> str:
    # Bytes are compared as Latin-1, which has a character for each byte.
    pattern = "".join(map(_json_spellings_pattern, value))
    if words:
        pattern = f"(?<![.{_WORD}])(?:{pattern})(?![{_WORD}]|[.][{_WORD}])"
    # In digits, because the meaning of a backslash in SQL depends on the session (spark.sql.parser.escapedStringLiterals).
    digits = pattern.encode().hex()
    return f"coalesce(decode({column}, 'ISO-8859-1') RLIKE decode(unhex('{digits}'), 'UTF-8'), false)"


def _json_spellings_pattern(character: str) -> str:
    """Return a pattern of a character in all forms that JSON allows: writers differ in what they escape, and in the case of digits."""
    units = character.encode("utf-16-be").hex()
    coded = "".join(rf"\\u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    short = re.escape(r"\/" if character == "/" else json.dumps(character)[1:-1])
    return f"(?:{re.escape(character.encode().decode('latin-1'))}|{coded}|{short})"


def _is_known_empty(rows: DataFrame) -> bool:
    """Check that Spark knows, without an action, that no row is left."""
    most = rows._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(most.isDefined()) and int(most.get()) == 0


def _field_type(kind: DataType | None, name: str) -> DataType | None:
    """Return the type of a struct's field; None if there is none."""
    return kind[name].dataType if isinstance(kind, StructType) and name in kind.fieldNames() else None


def _all_nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in _children(tree):
        yield from _all_nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _node_type(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def first_line_of_error(error: CapturedException | Py4JJavaError) -> str:
    """Return the first line of an error of Spark."""
    return next((line.strip() for line in describe_error(error).splitlines() if line.strip()), "not SQL")
