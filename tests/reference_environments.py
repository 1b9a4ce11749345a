"""Prints the table of the reference environments in docs/plan.md: dollars, verdict and the most expensive part of each.

.. code-block:: console

   python -m tests.reference_environments
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from millrace.config import load
from millrace.sizing import plan, total
from millrace.sizing.simulation.expected_cost import with_expected
from millrace.sizing.simulation.self_check import self_check

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


def rows() -> list[tuple[str, float, str, str]]:
    """Name, dollars, verdict at the peak and when traffic rises, and the sum of workers."""
    found = []
    for file in FILES:
        environment = load(file, ROOT)
        sized = with_expected(environment, plan(environment))
        kept = all(each.meets_sla for each in self_check(environment, sized))
        late = any(job.late_at_rise for job in sized.jobs.values())
        workers = ", ".join(f"{job.max_workers.value} {job.worker}" for job in sized.jobs.values())
        state = "kept" if kept and not late else "at risk" if kept else "missed"
        found.append((file.stem, total(sized).value, state, workers))
    return found


def table() -> Iterator[str]:
    """The table's lines."""
    yield "| environment | before | now | verdict | workers |"
    yield "|---|---:|---:|---|---|"
    found = rows()
    for name, usd, state, workers in found:
        link = f"[{name}](../tests/reference/{name}.yaml)"
        yield f"| {link} | ${BEFORE[name]:,.2f} | ${usd:,.2f} | {state} | {workers} |"
    yield f"| in sum | ${sum(BEFORE.values()):,.2f} | ${sum(usd for _, usd, _, _ in found):,.2f} | | |"


def parser() -> argparse.ArgumentParser:
    """No options."""
    return argparse.ArgumentParser(
        prog="python -m tests.reference_environments", description="The table of docs/plan.md."
    )


if __name__ == "__main__":
    parser().parse_args()
    sys.stdout.writelines(f"{line}\n" for line in table())
