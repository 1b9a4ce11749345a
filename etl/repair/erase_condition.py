"""The condition of an erasure: which records are a person's, checked before anything is done, and as text for bytes that have no columns."""

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
from pyspark.sql.types import BooleanType, StructType

from ..record.errors import describe

_CHANGES_WITH_TIME = re.compile(r"Current\w*|Now|LocalTimestamp|.*UserDefined.*")
"""Expressions that Spark calls deterministic, and that are another value in the next statement."""

_TOLD = ("string", "byte", "short", "integer", "long", "decimal")
"""Types whose values a payload holds as they are written in SQL."""

_WORD = "A-Za-z0-9_@+-"
"""What addresses and ids are made of; a point, too, unless a sentence ends with it."""


class ConditionError(ValueError):
    """A condition that is not one, whatever the table."""


@dataclass(frozen=True)
class Condition:
    """An SQL condition on the columns of a table.

    Parameters
    ----------
    where
        As the user wrote it.
    """

    spark: SparkSession
    where: str

    @cached_property
    def _tree(self) -> Any:
        session: Any = self.spark._jsparkSession
        return session.sessionState().sqlParser().parseExpression(self.where)

    def check(self) -> None:
        """Refuse what is wrong in every table.

        Raises
        ------
        ConditionError
            It is not SQL, names no column, or asks other tables.
        """
        try:
            nodes = list(_nodes(self._tree))
        except (CapturedException, Py4JJavaError) as error:
            raise ConditionError(f"not an SQL condition: {first_line(error)}") from error
        if any("Subquery" in _kind(node) or _kind(node) == "Exists" for node in nodes):
            raise ConditionError("it has a subquery; write the values into the condition")
        if not self.columns:
            raise ConditionError("it names no column, so it is true of every record or of none")

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Columns of a table that it names; of a field in a struct the struct."""
        found = [str(n.nameParts().head()) for n in _nodes(self._tree) if _kind(n) == "UnresolvedAttribute"]
        return tuple(dict.fromkeys(found))

    def missing_columns(self, schema: StructType) -> tuple[str, ...]:
        """Columns that a table has not got."""
        have = {name.lower() for name in schema.fieldNames()}
        return tuple(name for name in self.columns if name.lower() not in have)

    def problem(self, schema: StructType) -> str | None:
        """What is wrong with it on the columns of one table, all of which are there; None for nothing."""
        # Rows that Spark knows nothing of, so that what it finds out is found out about the condition.
        rows = self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), schema)
        try:
            kind = rows.select(F.expr(self.where)).schema[0].dataType
            if not isinstance(kind, BooleanType):
                return f"the condition has type {kind.simpleString()}; it must be BOOLEAN"
            asked = rows.where(F.expr(self.where))
            expression = asked._jdf.queryExecution().analyzed().expressions().head()
            unsteady = [k for k in map(_kind, _nodes(expression)) if _CHANGES_WITH_TIME.fullmatch(k)]
            if unsteady or not expression.deterministic():
                return "the condition may change its value between statements; write the value in place of the function"
            if _none(rows.where(~F.coalesce(F.expr(self.where), F.lit(False)))):
                return "the condition is true of every record"
            if _none(asked):
                return "the condition is true of no record"
        except (CapturedException, Py4JJavaError) as error:
            return first_line(error)
        return None

    @property
    def sql(self) -> str:
        """In brackets, never null; a comment at its end ends with its line."""
        return f"coalesce(({self.where}\n), false)"

    def text(self, *columns: str, words: bool) -> str | None:
        """The condition on columns of bytes: equality with a value is that the value's text is in them.

        Parameters
        ----------
        *columns
            SQL of type BINARY.
        words
            Whether a value must stand by itself, not in a longer word: so it is in JSON, CSV and text; in binary formats any
            byte may stand beside it.

        Returns
        -------
        str or None
            SQL, never null; None where no value is to be found: of comparisons other than ``=`` and ``IN`` nothing can be
            told by text. Where such a comparison stands beside an equality (``AND``), the equality decides alone.
        """
        return _text(self._tree, columns, words)


def _text(node: Any, columns: tuple[str, ...], words: bool) -> str | None:
    kind, children = _kind(node), _children(node)
    if kind in ("And", "Or"):
        sides = [found for child in children if (found := _text(child, columns, words)) is not None]
        # Of `a OR b` a side that cannot be told is missed; of `a AND b` the other decides.
        return f"({f' {kind.upper()} '.join(sides)})" if sides else None
    if kind in ("EqualTo", "EqualNullSafe", "In"):
        values = [value for child in children if (value := _value(child)) is not None]
        places = [_holds(column, value, words) for value in values for column in columns]
        return f"({' OR '.join(places)})" if places else None
    return None


def _value(node: Any) -> str | None:
    """A literal's text; None for anything else, and for one without a character."""
    if _kind(node) != "Literal" or node.value() is None:
        return None
    # A moment is a number inside, and true is in every payload, as is a single character.
    text = str(node.value()) if node.dataType().typeName() in _TOLD else ""
    return text if len(text) > 1 else None


def _holds(column: str, value: str, words: bool) -> str:
    # As JSON may write it, too. Bytes are compared as Latin-1, which has a character for each byte.
    spellings = dict.fromkeys((value, _escaped(value), _escaped(value).replace("/", "\\/")))
    pattern = "|".join(re.escape(each.encode().decode("latin-1")) for each in spellings)
    if words:
        pattern = f"(?<![.{_WORD}])(?:{pattern})(?![{_WORD}]|[.][{_WORD}])"
    literal = "".join(f"\\u{ord(c):04x}" if not c.isalnum() or ord(c) > 126 else c for c in pattern)
    return f"coalesce(decode({column}, 'ISO-8859-1') RLIKE '{literal}', false)"


def _escaped(value: str) -> str:
    return json.dumps(value)[1:-1]


def _none(rows: DataFrame) -> bool:
    """Whether Spark knows without looking that no row is left."""
    most = rows._jdf.queryExecution().optimizedPlan().maxRows()
    return bool(most.isDefined()) and int(most.get()) == 0


def _nodes(tree: Any) -> Iterator[Any]:
    yield tree
    for child in _children(tree):
        yield from _nodes(child)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def first_line(error: CapturedException | Py4JJavaError) -> str:
    """What is said first by an error of Spark."""
    return next((line.strip() for line in describe(error).splitlines() if line.strip()), "not SQL")
