"""What keeps state in a query, as Spark's own plan has it: a transform may group, join or drop duplicates as well."""

from __future__ import annotations

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
        From the sink's side to the sources'; such as ``Aggregate by carrier string``. Names and types only:
        the numbers that Spark gives columns differ from one start to the next.
    """
    plan: Any = rows._jdf.queryExecution().analyzed()
    return tuple(_walk(plan))


def _walk(node: Any) -> Iterator[str]:
    name = str(node.getClass().getSimpleName())
    if name == "Aggregate":
        yield f"Aggregate by {_columns(node.groupingExpressions())}"
    elif name in ("Deduplicate", "DeduplicateWithinWatermark"):
        yield f"{name} by {_columns(node.keys())}"
    elif name == "Join":
        sides = (node.left(), node.right())
        if all(side.isStreaming() for side in sides):
            # Whole rows of both sides wait for their partners.
            held = " with ".join(_columns(side.output()) for side in sides)
            yield f"{node.joinType().sql()} join of {held}"
    elif "MapGroupsWithState" in name or "InPandasWithState" in name:
        yield f"{name} by {_columns(node.groupingAttributes())}"
    children = node.children()
    for number in range(children.size()):
        child = children.apply(number)
        if child.isStreaming():
            yield from _walk(child)


def _columns(expressions: Any) -> str:
    found = [expressions.apply(number) for number in range(expressions.size())]
    return ", ".join(
        f"{each.prettyName() if not _named(each) else each.name()} {_kind(each)}" for each in found
    )


def _named(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) in ("AttributeReference", "Alias")


def _kind(expression: Any) -> str:
    return str(expression.dataType().simpleString())
