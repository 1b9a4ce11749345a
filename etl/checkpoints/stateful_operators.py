"""What keeps state in a query, as Spark's own plan has it: a transform may group, join or drop duplicates as well."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame


def stateful(rows: DataFrame) -> tuple[str, ...]:
    """Name the operators of a streaming plan that keep state, each with what its state is laid out by.

    Parameters
    ----------
    rows
        A streaming DataFrame, before it is started.

    Returns
    -------
    tuple of str
        From the sink's side to the sources'; such as ``Aggregate by carrier string``. A column that is computed, such
        as a window, has a digest of how behind it. The numbers that Spark gives columns are left out: they differ
        from one start to the next.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return tuple(_walk(plan))


def _walk(node: Any) -> Iterator[str]:
    name = _class(node)
    if name == "Aggregate":
        yield f"Aggregate by {_columns(node.groupingExpressions(), node.child())}"
    elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
        yield f"{name} by {_columns(node.keys(), node.child())}"
    elif name == "Join":
        sides = (node.left(), node.right())
        if all(side.isStreaming() for side in sides):
            # Whole rows of both sides wait for their partners.
            held = " with ".join(_columns(side.output()) for side in sides)
            yield f"{node.joinType().sql()} join of {held}"
    elif "MapGroupsWithState" in name or "InPandasWithState" in name:
        yield f"{name} by {_columns(node.groupingAttributes())}"
    for child in _all(node.children()):
        if child.isStreaming():
            yield from _walk(child)


def _columns(expressions: Any, below: Any = None) -> str:
    return ", ".join(_column(each, below) for each in _all(expressions))


def _column(expression: Any, below: Any) -> str:
    kind = expression.dataType().simpleString()
    if _class(expression) != "AttributeReference":
        return f"{expression.sql()} {kind}"
    made = None if below is None else _made(expression, below)
    digest = "" if made is None else f" #{hashlib.sha256(made.encode()).hexdigest()[:8]}"
    return f"{expression.name()} {kind}{digest}"


def _made(column: Any, node: Any) -> str | None:
    """How a column is computed in the projections below, to the next operator with several inputs; None for one as it came."""
    while True:
        if _class(node) == "Project":
            for each in _all(node.projectList()):
                if _class(each) == "Alias" and each.exprId().id() == column.exprId().id():
                    return str(each.child().sql())
        children = _all(node.children())
        if len(children) != 1:
            return None
        node = children[0]


def _all(found: Any) -> list[Any]:
    """Elements of a Scala sequence."""
    return [found.apply(number) for number in range(found.size())]


def _class(thing: Any) -> str:
    return str(thing.getClass().getSimpleName())
