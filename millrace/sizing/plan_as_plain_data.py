"""A plan as plain data, for scripts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_jsonable_python

from millrace.sizing.plan_model import CostItem, Plan
from millrace.sizing.planning import total_cost

VERSION = 1


def plan_as_plain_data(plan: Plan) -> dict[str, Any]:
    """Return a plan as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``version`` (1; another number means another format), ``environment``, ``region``,
        ``prices`` (ISO date), ``streams``, ``clusters``, ``jobs`` by name, ``shared``,
        ``warnings``, ``left_out`` (costs that are not in the bill) and ``total``. A figure is an object of ``value``, ``unit``, ``why``,
        ``origin`` (``computed`` or ``pinned``), ``assumed``, ``formula`` and ``inputs`` (each an object, or the key of another
        figure), or null if there is none. A cost is an object of ``usd_month``, ``assumed`` and ``items``.
    """
    document, costs = _as_plain_data(plan), plan.cost_items_by_key
    document["shared"] = _cost_section(plan.shared)
    for section in ("streams", "clusters", "jobs"):
        for name, member in document[section].items():
            member["cost"] = _cost_section(costs[f"{section}.{name}"])
    return {"version": VERSION, **document, "total": _as_plain_data(total_cost(plan))}


def _cost_section(lines: Sequence[CostItem]) -> dict[str, Any]:
    return {
        "usd_month": sum(line.usd for line in lines),
        "assumed": any(line.assumed for line in lines),
        "items": _as_plain_data(lines),
    }


def _as_plain_data(value: object) -> Any:
    return to_jsonable_python(value, fallback=lambda each: each() if callable(each) else dict(each))
