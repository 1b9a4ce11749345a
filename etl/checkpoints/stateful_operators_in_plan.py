"""Stateful operators of a query, from Spark's plan: a transform may group, join or drop duplicates as well."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


def describe_stateful_operators(rows: DataFrame) -> tuple[str, ...]:
    """Name the stateful operators of a streaming plan, each with the columns that define the layout of its state.

    Parameters
    ----------
    rows
        A streaming DataFrame, before it is started.

    Returns
    -------
    tuple of str
        From the sink to the sources, such as ``Aggregate of max(double) by carrier string``. A computed column, such as a
        window, is followed by a digest of its expression. Spark's column numbers are left out: they differ
        from one start to the next.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return tuple(_describe_operators(plan))


def _describe_operators(node: Any) -> Iterator[str]:
    name = _java_class_name(node)
    if name == "Aggregate":
        # Equal functions share their part of the state.
        functions = {
            f.sql(): _describe_function(f) for f in _aggregate_functions(node.aggregateExpressions())
        }
        of = f" of {', '.join(functions.values())}" if functions else ""
        yield f"Aggregate{of} by {_describe_columns(node.groupingExpressions(), node.child())}"
    elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
        yield f"{name} by {_describe_columns(node.keys(), node.child())}"
    elif name == "Join":
        sides = (node.left(), node.right())
        if all(side.isStreaming() for side in sides):
            # Complete rows of both sides wait for their partners.
            sides_text = " with ".join(_describe_columns(side.output()) for side in sides)
            yield f"{node.joinType().sql()} join of {sides_text}"
    elif "MapGroupsWithState" in name or "InPandasWithState" in name:
        yield f"{name} by {_describe_columns(node.groupingAttributes())}"
    for child in _list_of_scala_sequence(node.children()):
        if child.isStreaming():
            yield from _describe_operators(child)


def _aggregate_functions(expressions: Any) -> Iterator[Any]:
    """Yield the aggregate functions in expressions, at any depth."""
    for each in _list_of_scala_sequence(expressions):
        if _java_class_name(each) == "AggregateExpression":
            yield each.aggregateFunction()
        else:
            yield from _aggregate_functions(each.children())


def _describe_function(function: Any) -> str:
    """Name a function with the types of its arguments: they define the layout of what it keeps."""
    types = (each.dataType().simpleString() for each in _list_of_scala_sequence(function.children()))
    return f"{function.prettyName()}({', '.join(types)})"


def _describe_columns(expressions: Any, below: Any = None) -> str:
    return ", ".join(_describe_column(each, below) for each in _list_of_scala_sequence(expressions))


def _describe_column(expression: Any, below: Any) -> str:
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
            for each in _list_of_scala_sequence(node.projectList()):
                if _java_class_name(each) == "Alias" and each.exprId().id() == column.exprId().id():
                    made = each.child()
                    if not _is_cast_of(made, column.name()):
                        return str(made.sql())
                    column = made.child()
                    break
        children = _list_of_scala_sequence(node.children())
        if len(children) != 1:
            return None
        node = children[0]


def _is_cast_of(expression: Any, name: str) -> bool:
    """Check for a cast of an equally named column, such as to the type of before the column became wider."""
    if _java_class_name(expression) != "Cast":
        return False
    column = expression.child()
    return _java_class_name(column) == "AttributeReference" and column.name() == name


def _list_of_scala_sequence(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _java_class_name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
