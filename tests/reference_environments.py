"""Prints the table of the reference environments in docs/plan.md: cost, verdict and the most expensive part of each.

.. code-block:: console

   python -m tests.reference_environments
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from millrace.cli.plan.plan_and_validate import plan_keeps_all_slas, simulated_plan_with_warnings
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.config import Environment, load
from millrace.sizing import Plan, plan, total_cost
from millrace.sizing.alternatives.job_planner import PlansMade
from millrace.sizing.cost_saving_moves import CostSavingMove, find_moves

ROOT = Path(__file__).parents[1]
FILES = tuple(sorted((ROOT / "tests" / "reference").glob("*.yaml")))

BEFORE = {
    "ads": 12_976.69,
    "archive": 826.61,
    "bookings": 1_842.46,
    "changes-of-40-tables": 4_572.63,
    "devices": 842.66,
    "fraud": 1_112.37,
    "logs": 86_072.44,
    "many-small-streams": 2_521.70,
    "nightly-burst": 966.12,
    "startup-clicks": 339.20,
}
"""Dollars a month of the plans before the search, by environment."""


@dataclass(frozen=True)
class Row:
    """An environment: dollars of its plan and of its first move, the SLA's state, and the workers."""

    name: str
    usd: float
    state: str
    workers: str
    move: str
    usd_moved: float


def planned_with_moves(environment: Environment) -> tuple[Plan, tuple[CostSavingMove, ...]]:
    """A plan and its moves, which leave most of it as it is, as the command finds them."""
    sized = plan(environment, made := PlansMade())
    return sized, find_moves(environment, sized, plan_keeps_all_slas, made)


@cache
def loaded_with_moves(file: Path) -> tuple[Environment, Plan, tuple[CostSavingMove, ...]]:
    """An environment of this repository with its plan and its moves, which take seconds: for all that ask, once."""
    environment = load(file, ROOT)
    return environment, *planned_with_moves(environment)


def row(file: Path) -> Row:
    """The row of one environment."""
    environment, sized, (first, *_) = loaded_with_moves(file)
    state = plan_verdict(simulated_plan_with_warnings(environment, sized)).sla.state
    workers = ", ".join(f"{job.max_workers.value} {job.worker}" for job in sized.jobs.values())
    return Row(file.stem, total_cost(sized).value, state, workers, f"`{first.key}: {first.new}`", first.usd)


def table() -> Iterator[str]:
    """The table's lines."""
    yield "| environment | before | now | verdict | workers | first move | with it |"
    yield "|---|---:|---:|---|---|---|---:|"
    result = [row(file) for file in FILES]
    for each in result:
        link = f"[{each.name}](../tests/reference/{each.name}.yaml)"
        yield (
            f"| {link} | ${BEFORE[each.name]:,.2f} | ${each.usd:,.2f} | {each.state} | {each.workers} | {each.move} | "
            f"${each.usd_moved:,.2f} |"
        )
    sums = sum(BEFORE.values()), sum(each.usd for each in result), sum(each.usd_moved for each in result)
    yield f"| in sum | ${sums[0]:,.2f} | ${sums[1]:,.2f} | | | | ${sums[2]:,.2f} |"


def parser() -> argparse.ArgumentParser:
    """No options."""
    return argparse.ArgumentParser(
        prog="python -m tests.reference_environments", description="The table of docs/plan.md."
    )


if __name__ == "__main__":
    parser().parse_args()
    sys.stdout.writelines(f"{line}\n" for line in table())
