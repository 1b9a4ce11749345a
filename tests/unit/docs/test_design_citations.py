"""Citations of design pages name an existing page and section."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DESIGN = ROOT / "docs" / "design"
CITATION = re.compile(r"(?<![\w-])design/([\w-]+\.md)(?:#([\w-]+))?")
SIBLING = re.compile(r"\]\((?:([\w-]+\.md))?(?:#([\w-]+))?\)")
NUMBER = re.compile(r"\bADR\b|\badr/|\[0[0-6]\d\d\]")
SUFFIXES = {".md", ".py", ".yaml", ".yml", ".toml"}


@cache
def anchors(page: Path) -> frozenset[str]:
    """Anchors of a page's headings, as GitHub and MkDocs make them; each heading once."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    made = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
    assert len(set(made)) == len(made), page.name
    return frozenset(made)


def lost(file: Path) -> list[str]:
    """Citations of a file that lead nowhere, and numbers of records that are no more."""
    text = file.read_text(encoding="utf-8")
    cited = CITATION.findall(text)
    if file.parent == DESIGN:
        cited += [(page or file.name, section) for page, section in SIBLING.findall(text)]
    wrong = [
        f"{page}#{section}"
        for page, section in cited
        if not (DESIGN / page).is_file() or (section and section not in anchors(DESIGN / page))
    ]
    return wrong + NUMBER.findall(text)


def test_every_citation_leads_to_a_section() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    files = [ROOT / name for name in listed.stdout.split("\0") if Path(name).suffix in SUFFIXES]
    texts = [file for file in files if file.is_file() and file != Path(__file__)]
    assert sum(len(CITATION.findall(file.read_text(encoding="utf-8"))) for file in texts) > 100
    result = {str(file.relative_to(ROOT)): lost(file) for file in texts}
    assert {name: wrong for name, wrong in result.items() if wrong} == {}


def test_each_page_and_each_earlier_number_is_in_the_index() -> None:
    index = (DESIGN / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^- \[.+\]\((.+)\)$", index, re.MULTILINE)) == sorted(
        page.name for page in DESIGN.glob("*.md") if page.name != "README.md"
    )
    numbers = re.findall(r"^\|(\d{4})\|\[.+\]\([\w-]+\.md#[\w-]+\)\|$", index, re.MULTILINE)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 101


@pytest.mark.parametrize(
    "text", ["design/nothing.md", "`docs/design/landing.md#nowhere`", "as in ADR 0200", "docs/adr/0200.md"]
)
def test_a_wrong_citation_is_noticed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "page.md"
    file.write_text(text)
    assert lost(file)
