"""Stateful operators of a query, from Spark's plan: a transform may group, join or drop duplicates as well."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


def stateful_operators(rows: DataFrame) -> tuple[str, ...]:
    """Name the stateful operators of a streaming plan, each with the columns that define the layout of its state.

    Parameters
    ----------
    rows
        A streaming DataFrame, before it is started.

    Returns
    -------
    tuple of str
        From the sink to the sources, such as ``Aggregate by carrier string``. A computed column, such as a
        window, is followed by a digest of its expression. Spark's column numbers are left out: they differ
        from one start to the next.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return tuple(_operator_descriptions(plan))


def _operator_descriptions(node: Any) -> Iterator[str]:
    name = _java_class_name(node)
    if name == "Aggregate":
        yield f"Aggregate by {_columns_text(node.groupingExpressions(), node.child())}"
    elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
        yield f"{name} by {_columns_text(node.keys(), node.child())}"
    elif name == "Join":
        sides = (node.left(), node.right())
        if all(side.isStreaming() for side in sides):
            # Complete rows of both sides wait for their partners.
            sides_text = " with ".join(_columns_text(side.output()) for side in sides)
            yield f"{node.joinType().sql()} join of {sides_text}"
    elif "MapGroupsWithState" in name or "InPandasWithState" in name:
        yield f"{name} by {_columns_text(node.groupingAttributes())}"
    for child in _elements(node.children()):
        if child.isStreaming():
            yield from _operator_descriptions(child)


def _columns_text(expressions: Any, below: Any = None) -> str:
    return ", ".join(_column_text(each, below) for each in _elements(expressions))


def _column_text(expression: Any, below: Any) -> str:
    kind = expression.dataType().simpleString()
    if _java_class_name(expression) != "AttributeReference":
        return f"{expression.sql()} {kind}"
    made = None if below is None else _projected_expression(expression, below)
    digest = "" if made is None else f" #{hashlib.sha256(made.encode()).hexdigest()[:8]}"
    return f"{expression.name()} {kind}{digest}"


def _projected_expression(column: Any, node: Any) -> str | None:
    """Return the expression of a column in the projections below, down to the next operator with several inputs, or None."""
    while True:
        if _java_class_name(node) == "Project":
            for each in _elements(node.projectList()):
                if _java_class_name(each) == "Alias" and each.exprId().id() == column.exprId().id():
                    return str(each.child().sql())
        children = _elements(node.children())
        if len(children) != 1:
            return None
        node = children[0]


def _elements(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _java_class_name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
