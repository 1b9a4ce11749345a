"""Planned cost and billed cost, subject by subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.sizing.cost import HOURS
from millrace.sizing.plan_model import Plan


@dataclass(frozen=True)
class PlannedAndPaid:
    """Planned and billed cost of one subject, for the same days.

    Attributes
    ----------
    subject
        ``jobs.NAME``, ``streams.NAME`` or ``shared``: all costs without a tag of either, including Kafka clusters.
    planned, paid
        USD.
    """

    subject: str
    planned: float
    paid: float

    @property
    def difference(self) -> float:
        """Billed cost above the plan."""
        return self.paid - self.planned


def planned_and_paid(plan: Plan, paid: Mapping[str, float], days: int) -> tuple[PlannedAndPaid, ...]:
    """Return planned and billed cost of each subject.

    Parameters
    ----------
    plan
        Its month has 730 hours.
    paid
        USD by subject; a job or stream that is not in the plan is shown with a planned cost of 0.
    days
        Number of billed days.
    """
    share = days * 24 / HOURS
    usd = {key: sum(line.usd for line in items) for key, items in plan.cost_items_by_key.items()}
    planned = {key: usd[key] for of in ("jobs.", "streams.") for key in usd if key.startswith(of)}
    planned["shared"] = usd["shared"] + sum(usd[f"clusters.{name}"] for name in plan.clusters)
    subjects = (*planned, *(each for each in paid if each not in planned))
    return tuple(
        PlannedAndPaid(each, planned.get(each, 0.0) * share, paid.get(each, 0.0)) for each in subjects
    )
