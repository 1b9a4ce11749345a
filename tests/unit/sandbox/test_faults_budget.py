"""The fault suite within a budget: choice of the next part, results kept, and the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import run_within_budget
from tests.faults.run_within_budget import Part

PROGRAM = """\
import sys, time
print("a line", flush=True)
try:
    time.sleep(float(sys.argv[1]))
except KeyboardInterrupt:
    print("ended what it had started")
    raise SystemExit(3)
print("2 of 2 | exact")
raise SystemExit(int(sys.argv[2]))
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "program.py").write_text(PROGRAM)
    monkeypatch.setattr(run_within_budget, "ROOT", tmp_path)
    monkeypatch.setattr(run_within_budget, "STATE", tmp_path / "state.jsonl")
    monkeypatch.setattr(run_within_budget, "LOGS", tmp_path / "logs")
    monkeypatch.setattr(run_within_budget, "PAGE", tmp_path / "page.md")
    (tmp_path / "page.md").write_text(
        f"before\n{run_within_budget.BEGIN}\nold\n{run_within_budget.END}\nafter\n"
    )
    parts = tuple(
        Part(name, f"promise {name}", ("program", "0", status, name), 0.1)
        for name, status in (("one", "0"), ("two", "1"), ("three", "0"))
    )
    monkeypatch.setattr(run_within_budget, "PARTS", parts)
    return tmp_path


def test_parts_that_never_ran_come_first_then_the_oldest(suite: Path) -> None:
    one, two, _ = run_within_budget.PARTS
    for part in (two, one, two):
        run_within_budget.play(part, 0.1)
    assert [part.name for part in run_within_budget.order()] == ["three", "one", "two"]
    assert len(run_within_budget.played()) == 2


def test_a_part_that_misses_is_in_the_table(suite: Path) -> None:
    for part in run_within_budget.PARTS[:2]:
        run_within_budget.play(part, 0.1)
    run_within_budget.write_page()
    page = (suite / "page.md").read_text()
    assert page.startswith("before\n")
    assert page.endswith("after\n")
    assert "old" not in page
    rows = [line for line in page.splitlines() if line.startswith("| promise o") or "promise two" in line]
    assert [("held" in row, "**MISSED**" in row) for row in rows] == [(True, False), (False, True)]
    assert all("2 of 2 / exact |" in row for row in rows)
    assert (suite / "logs" / "two.log").read_text().splitlines()[0] == "a line"


def test_what_the_page_has_counts_as_run_on_another_machine(suite: Path) -> None:
    for part in run_within_budget.PARTS[:2]:
        run_within_budget.play(part, 0.1)
    run_within_budget.write_page()
    page = (suite / "page.md").read_text()
    run_within_budget.STATE.unlink()
    assert [part.name for part in run_within_budget.order()] == ["three", "one", "two"]
    run_within_budget.write_page()
    assert (suite / "page.md").read_text() == page
    run_within_budget.play(run_within_budget.PARTS[0], 0.1)
    assert [part.name for part in run_within_budget.order()] == ["three", "two", "one"]
    assert set(run_within_budget.played()) == {"one", "two"}


def test_the_page_is_read_as_it_is_written() -> None:
    text = run_within_budget.PAGE.read_text()
    rows = text.split(run_within_budget.BEGIN)[1].split(run_within_budget.END)[0].strip().splitlines()[2:]
    assert len(run_within_budget.on_page(text)) == len(rows) > 0


def test_a_part_that_is_late_may_end_what_it_started(suite: Path) -> None:
    late = run_within_budget.play(Part("one", "", ("program", "600", "0"), 0.04), 0.0)
    assert late.status == run_within_budget.LATE
    assert late.figures == "not at its end after 0 minutes; ended what it had started"
