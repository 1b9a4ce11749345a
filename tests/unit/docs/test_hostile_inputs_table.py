"""Each hostile input of the page names an existing test."""

from __future__ import annotations

import re

import pytest

from tests.unit.docs.test_security_page import ROOT, TEST, functions_in

PAGE = (ROOT / "docs/internals/hostile.md").read_text(encoding="utf-8")
ROWS = [line for line in PAGE.splitlines() if line.startswith("| ") and not line.startswith("| input")]


@pytest.mark.parametrize("row", ROWS, ids=[row.split("|")[1].strip()[:40] for row in ROWS])
def test_each_row_names_a_test_that_is_there(row: str) -> None:
    *_, last = (cell.strip() for cell in re.split(r"(?<!\\)\|", row.strip().strip("|")))
    ((file, test),) = TEST.findall(last)
    assert (ROOT / file).is_file(), file
    assert test in functions_in(file), f"{file}::{test}"


def test_there_are_rows() -> None:
    assert len(ROWS) > 20
