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
        From the sink to the sources, such as ``Aggregate of max(delay double) by carrier string``. A computed column, such
        as a window, is followed by a digest of its expression. Spark's column numbers are left out: they differ
        from one start to the next.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return tuple(_describe_operators(plan))


def _describe_operators(node: Any) -> Iterator[str]:
    name = _java_class_name(node)
    if name == "Aggregate":
        # Equal functions share their part of the state.
        functions = {
            each.sql(): _describe_function(each, node.child())
            for each in _aggregate_functions(node.aggregateExpressions())
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
            keys = " and ".join(_describe_equalities(node))
            yield f"{node.joinType().sql()} join of {sides_text}" + (f" on {keys}" if keys else "")
    elif "MapGroupsWithState" in name or "InPandasWithState" in name:
        yield f"{name} by {_describe_columns(node.groupingAttributes())}"
    for child in _list_of_scala_sequence(node.children()):
        if child.isStreaming():
            yield from _describe_operators(child)


def _aggregate_functions(expressions: Any) -> Iterator[Any]:
    """Yield the aggregate functions in expressions, at any depth, each with its filter."""
    for each in _list_of_scala_sequence(expressions):
        if _java_class_name(each) == "AggregateExpression":
            yield each
        else:
            yield from _aggregate_functions(each.children())


def _describe_function(aggregate: Any, below: Any) -> str:
    """Name a function with its arguments: their types define the layout of what it keeps, and what they are its meaning."""
    function, condition = aggregate.aggregateFunction(), aggregate.filter()
    arguments = (_describe_argument(each, below) for each in _list_of_scala_sequence(function.children()))
    where = f" where {condition.get().sql()}" if condition.isDefined() else ""
    return f"{function.prettyName()}({', '.join(arguments)}){where}"


def _describe_argument(argument: Any, below: Any) -> str:
    """As a column; a cast is left out, as of a column that became wider to its earlier type."""
    uncast = argument.child() if _java_class_name(argument) == "Cast" else argument
    return _describe_column(uncast, below, argument.dataType().simpleString())


def _describe_equalities(join: Any) -> Iterator[str]:
    """Name the columns by which a join finds the rows that wait; its other conditions may change."""
    conditions = [join.condition().get()] if join.condition().isDefined() else []
    left = join.left().outputSet()
    while conditions:
        condition = conditions.pop(0)
        name = _java_class_name(condition)
        sides = _list_of_scala_sequence(condition.children())
        if name == "And":
            conditions[:0] = sides
        elif name in ("EqualTo", "EqualNullSafe") and not any(side.references().isEmpty() for side in sides):
            if not sides[0].references().subsetOf(left):
                sides.reverse()
            yield f" {condition.symbol()} ".join(_describe_column(side, join) for side in sides)


def _describe_columns(expressions: Any, below: Any = None) -> str:
    return ", ".join(_describe_column(each, below) for each in _list_of_scala_sequence(expressions))


def _describe_column(expression: Any, below: Any, kind: str | None = None) -> str:
    kind = kind or expression.dataType().simpleString()
    if _java_class_name(expression) != "AttributeReference":
        return f"{expression.sql()} {kind}"
    made = None if below is None else _expression_of_column(expression, below)
    digest = "" if made is None else f" #{hashlib.sha256(made.encode()).hexdigest()[:8]}"
    return f"{expression.name()} {kind}{digest}"


def _expression_of_column(column: Any, node: Any) -> str | None:
    """Return the expression by which a column is computed below, or the other name under which it is read; None for neither."""
    first = column.name()
    while True:
        output = [each.exprId().id() for each in _list_of_scala_sequence(node.output())]
        children = _list_of_scala_sequence(node.children())
        if _java_class_name(node) == "Union":
            place = output.index(column.exprId().id())
            made = [_expression_of_column(child.output().apply(place), child) for child in children]
            return "; ".join(each or first for each in made) if any(made) else None
        for text, inner in _definitions_of_column(node, column.exprId().id(), output):
            if inner is None:
                return text
            column = inner
        below = [child for child in children if child.outputSet().contains(column)]
        if not below:
            return None if column.name() == first else str(column.name())
        node = below[0]


def _definitions_of_column(node: Any, column: int, output: list[int]) -> Iterator[tuple[str, Any]]:
    """Yield the text by which a node computes a column, with the column that it is but for its name or type; nothing if passed on."""
    name = _java_class_name(node)
    if name == "Project":
        for each in _list_of_scala_sequence(node.projectList()):
            if _java_class_name(each) == "Alias" and each.exprId().id() == column:
                yield str(each.child().sql()), _renamed_or_cast_column(each)
    elif name == "Expand" and column in output:
        # Of windows that overlap: a row in each of them.
        rows = _list_of_scala_sequence(node.projections())
        cells = [row.apply(output.index(column)) for row in rows]
        if any(_java_class_name(cell) != "AttributeReference" for cell in cells):
            yield "; ".join(cell.sql() for cell in cells), None
    elif name == "Generate":
        made = [each.exprId().id() for each in _list_of_scala_sequence(node.generatorOutput())]
        if column in made:
            yield f"{made.index(column)} of {node.generator().sql()}", None


def _renamed_or_cast_column(alias: Any) -> Any:
    """Return the column of an alias under another name or, with this name, in another type, such as of before it became wider."""
    inner = alias.child()
    cast = _java_class_name(inner) == "Cast"
    column = inner.child() if cast else inner
    own = _java_class_name(column) == "AttributeReference" and (not cast or column.name() == alias.name())
    return column if own else None


def _list_of_scala_sequence(sequence: Any) -> list[Any]:
    """Return the elements of a Scala sequence."""
    return [sequence.apply(number) for number in range(sequence.size())]


def _java_class_name(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
