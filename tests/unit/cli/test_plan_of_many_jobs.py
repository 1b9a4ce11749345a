"""Output of ``millrace plan`` for an environment of more jobs than anyone reads one by one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.plan.plan_tables import MANY_JOBS
from tests.performance.plan import large
from tests.unit.cli.test_command_output import millrace


@dataclass(frozen=True)
class Printed:
    """One plan, as a person and as a script reads it."""

    file: Path
    text: str
    document: dict[str, Any]


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Printed:
    """Plan an environment of as many jobs, some of which lack cores to catch up after an outage."""
    file = tmp_path_factory.mktemp("many") / "many.yaml"
    # Four streams a job, of rates at which some cores cannot catch up.
    file.write_text(large(4 * MANY_JOBS, MANY_JOBS))
    document = json.loads(millrace("plan", "--env", str(file), "--json").stdout)
    return Printed(file, millrace("plan", "--env", str(file)).stdout, document)


def test_each_of_many_jobs_has_a_row_and_each_item_of_the_bill_a_sum(plan: Printed) -> None:
    rows = plan.text.partition("\nJobs\n")[2].partition("\nDollars a month\n")[0].splitlines()
    assert (
        len([each for each in rows if re.match(r"  j\d+x ", each)]) == len(plan.document["jobs"]) == MANY_JOBS
    )
    sums: dict[str, float] = {}
    for job in plan.document["jobs"].values():
        for item in job["cost"]["items"]:
            sums[item["name"]] = sums.get(item["name"], 0) + item["usd"]
    bill = plan.text.partition("\nDollars a month\n")[2]
    jobs = bill.partition("  jobs ")[2].partition("  shared ")[0]
    cells = re.finditer(r"(\S.*?) +~?\$([\d,.]+)", jobs)
    printed = {each[1]: float(each[2].replace(",", "")) for each in cells}
    assert printed == pytest.approx(sums, abs=0.01)
    assert f"${plan.document['total']['value']:,.2f}" in bill


def test_notes_on_one_of_many_jobs_are_counted_and_stand_with_the_job(plan: Printed) -> None:
    of_jobs = [each for each in plan.document["warnings"] if each.startswith("jobs.")]
    assert f"its part of {len(of_jobs)} notes" in plan.text
    assert "Note: jobs." not in plan.text
    job = of_jobs[0].split(".")[1]
    block = millrace("plan", "--env", str(plan.file), "--explain", f"jobs.{job}").stdout
    assert block.startswith(f"{job}  ")
    assert re.findall("^Note: (.*)$", block, re.M) == [each for each in of_jobs if f".{job}." in each]


def test_a_job_is_explained_as_in_the_whole_plan() -> None:
    block = millrace("plan", "--env", "prod", "--explain", "jobs.flights").stdout
    assert block.partition("Note: ")[0] in millrace("plan", "--env", "prod").stdout
    document = json.loads(millrace("plan", "--env", "prod", "--explain", "jobs.flights", "--json").stdout)
    assert document == json.loads(millrace("plan", "--env", "prod", "--json").stdout)["jobs"]["flights"]
