"""A plan as plain data, for scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from typing import Any

from millrace.sizing.model import CostItem, Plan
from millrace.sizing.planning import total

VERSION = 1


def to_json(plan: Plan) -> dict[str, Any]:
    """Return a plan as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``version`` (1; another number means another format), ``environment``, ``region``,
        ``prices`` (ISO date), ``streams``, ``clusters``, ``jobs`` by name, ``shared``,
        ``warnings``, ``left_out`` (costs that are not in the bill) and ``total``. A figure is an object of ``value``, ``unit``, ``why``,
        ``origin`` (``computed`` or ``pinned``) and ``assumed``, or null if there is
        none. A cost is an object of ``usd_month``, ``assumed`` and ``items``.
    """
    document = _plain(plan)
    document["shared"] = _cost(plan.shared)
    sections: tuple[tuple[str, Mapping[str, Any]], ...] = (
        ("streams", plan.streams),
        ("clusters", plan.clusters),
        ("jobs", plan.jobs),
    )
    for section, members in sections:
        for name, member in members.items():
            document[section][name]["cost"] = _cost(member.cost)
    return {"version": VERSION, **document, "total": _plain(total(plan))}


def _cost(items: Iterable[CostItem]) -> dict[str, Any]:
    lines = tuple(items)
    return {
        "usd_month": sum(line.usd for line in lines),
        "assumed": any(line.assumed for line in lines),
        "items": [_plain(line) for line in lines],
    }


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value.isoformat() if isinstance(value, date) else value
