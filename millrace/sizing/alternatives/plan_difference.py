"""Comparison of two plans: sizes that differ, and the difference in cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MONEY = "USD/month"


@dataclass(frozen=True)
class PlanDifference:
    """One figure that differs.

    Attributes
    ----------
    key
        As in ``millrace plan --explain``; for dollars, the section that costs them, or ``total``.
    unit
        Unit of both values.
    before, after
        None if the plan has no such figure.
    """

    key: str
    unit: str
    before: float | str | None
    after: float | str | None

    @property
    def increase(self) -> float | None:
        """Value after minus value before; None if a value is not a number."""
        values = [0.0 if each is None else each for each in (self.before, self.after)]
        if any(isinstance(each, str) for each in values):
            return None
        before, after = map(float, values)
        return after - before


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[PlanDifference, ...]:
    """Return the differences between two plans.

    Parameters
    ----------
    before, after
        As returned by :func:`millrace.sizing.plan_as_plain_data.plan_as_plain_data`.

    Returns
    -------
    tuple
        Dollars first, the total before its parts, then sizes in the order of the plan. For a job, stream or cluster that only
        one plan has, only the dollars.
    """
    old, new = dict(_dollars_by_key(before)), dict(_dollars_by_key(after))
    changed = [
        PlanDifference(key, MONEY, old.get(key), new.get(key))
        for key in dict.fromkeys([*old, *new])
        if round(old.get(key) or 0.0, 2) != round(new.get(key) or 0.0, 2) or (key in old) != (key in new)
    ]
    figures = dict(_figures_by_key(before)), dict(_figures_by_key(after))
    both = [
        key
        for key in dict.fromkeys([*figures[0], *figures[1]])
        if _is_member_in_document(key, before) and _is_member_in_document(key, after)
    ]
    for key in both:
        one, other = figures[0].get(key), figures[1].get(key)
        if (one or other) and (one is None or other is None or one[0] != other[0]):
            unit = (other or one or ("", ""))[1]
            changed.append(
                PlanDifference(
                    key, unit, None if one is None else one[0], None if other is None else other[0]
                )
            )
    return tuple(changed)


def _dollars_by_key(document: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    yield "total", document["total"]["value"]
    for section in ("streams", "clusters", "jobs"):
        for name, member in document[section].items():
            yield f"{section}.{name}", member["cost"]["usd_month"]
    yield "shared", document["shared"]["usd_month"]


def _figures_by_key(document: Mapping[str, Any]) -> Iterator[tuple[str, tuple[float | str, str]]]:
    for section in ("streams", "clusters", "jobs"):
        for name, member in document[section].items():
            yield from _figures_below_key(member, f"{section}.{name}")


def _figures_below_key(value: Any, key: str) -> Iterator[tuple[str, tuple[float | str, str]]]:
    parts = value if isinstance(value, Mapping) else {}
    if {"value", "unit", "origin"} <= parts.keys():
        yield key, (parts["value"], parts["unit"])
        return
    for name, each in parts.items():
        if name == "worker" and isinstance(each, str):
            yield f"{key}.worker", (each, "")
        elif name not in (
            "cost",
            "choices",
            "expected_usd",
        ):  # follows from sizes, and is not simulated for a comparison
            yield from _figures_below_key(each, f"{key}.{name}")


def _is_member_in_document(key: str, document: Mapping[str, Any]) -> bool:
    section, name, *_ = key.split(".")
    return name in document[section]
