"""An environment of hundreds of jobs stays within stack limits, and a change of one job changes one stack."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.model import Environment
from millrace.sizing.alarms import alarm_stacks
from tests.template.cloudformation_rules import Template
from tests.template.conftest import ROOT
from tests.template.test_export_changes import synthesised

pytestmark = pytest.mark.slow

JOB = """\
  j{0}:
    engine: glue
    latency: {1}
    rate: {{records_per_second_per_core: 5000, batch_overhead: 3s}}
    queries:
      land-{0}: {{kind: land, source: s{0}, table: t{0}_landed, schema: pipelines/flights/schemas/flight.ddl}}
"""
STREAM = "  s{0}: {{kind: kinesis, traffic: {{records_per_second: 100, record_size: 400B}}}}\n"


def many(folder: Path, jobs: int, *, slower: int | None = None) -> Environment:
    file = folder / "many.yaml"
    streams = "".join(STREAM.format(number) for number in range(jobs))
    text = "".join(JOB.format(n, "9m" if n == slower else "2m") for n in range(jobs))
    file.write_text(f'project: many\naccount: "111122223333"\nstreams:\n{streams}jobs:\n{text}')
    return load(str(file), root=ROOT)


def check_sizes(templates: dict[str, Template]) -> None:
    for name, template in templates.items():
        assert len(template["Resources"]) <= 500, name
        assert len(json.dumps(template, separators=(",", ":"))) <= 1_000_000, name


def differing(before: dict[str, Template], after: dict[str, Template]) -> set[str]:
    assert before.keys() == after.keys()
    return {name.removeprefix("many-many-") for name in before if before[name] != after[name]}


def test_a_change_of_one_job_changes_one_jobs_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a stack took no more alarms than a few jobs have."""
    monkeypatch.setattr(alarm_stacks, "MOST_IN_A_STACK", 30)
    monkeypatch.setattr(alarm_stacks, "_USUAL", 20)
    before, after = (synthesised(many(tmp_path, 8, slower=slower)) for slower in (None, 7))
    check_sizes(before)
    assert "many-many-observability-2" in before
    changed = differing(before, after)
    assert {name for name in changed if not name.startswith("observability")} == {"job-j7"}
    # The thresholds of its alarms, those of its stream, and its charts.
    assert len(changed) <= 4 < len(before) - 8


@pytest.mark.slow
def test_three_hundred_jobs_are_synthesised(tmp_path: Path) -> None:
    check_sizes(synthesised(many(tmp_path, 300)))
