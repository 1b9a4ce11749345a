"""The policy scan fails for a finding without a reason, and for an exception without a finding."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from pydantic import ValidationError
from rich.console import Console

from tests.policy import scan
from tests.policy.accepted_findings import Accepted, Finding, accepted, stale, unexplained

pytestmark = pytest.mark.slow

LAKE = Finding("checkov", "CKV_AWS_21", "storage/Lake", "versions")
VERSIONS = Accepted(check="CKV_AWS_21", at="storage/Lake", reason="a reason of twenty letters")


def run(names: list[str]) -> tuple[int, str]:
    out = io.StringIO()
    status = scan.main(names, console=Console(file=out, width=200))
    return status, out.getvalue()


def test_an_entry_covers_its_check_at_its_construct_and_below() -> None:
    below = Finding("checkov", "CKV_AWS_21", "storage/Lake/Policy", "versions")
    beside = Finding("checkov", "CKV_AWS_21", "storage/Lakes", "versions")
    other = Finding("checkov", "CKV_AWS_18", "storage/Lake", "logs")
    assert unexplained([LAKE, below, beside, other], [VERSIONS]) == [beside, other]


def test_an_entry_that_covers_nothing_is_told() -> None:
    assert stale([LAKE], [VERSIONS]) == []
    assert stale([], [VERSIONS]) == [VERSIONS]


def test_an_entry_needs_a_reason(tmp_path: Path) -> None:
    file = tmp_path / "accepted.yaml"
    file.write_text("- {check: CKV_AWS_21, at: storage/Lake, reason: so}\n")
    with pytest.raises(ValidationError, match="reason"):
        accepted(file)


def test_an_environment_that_does_not_exist() -> None:
    status, said = run(["prdo"])
    assert status == 2
    assert "prdo" in said
    assert "prod" in said


def test_every_finding_of_an_environment_is_explained() -> None:
    status, said = run(["minimal"])
    assert "UNEXPLAINED" not in said
    assert status == 0, said


def test_an_unexplained_finding_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "accepted.yaml"
    lines = scan.ACCEPTED.read_text().split("- check: CKV_AWS_21\n  at: storage/Checkpoints\n")
    assert len(lines) == 2
    file.write_text(lines[0] + lines[1].split("\n", 1)[1])
    monkeypatch.setattr(scan, "ACCEPTED", file)
    status, said = run(["minimal"])
    assert status == 1
    assert "UNEXPLAINED" in said
    assert "1 unexplained" in said
