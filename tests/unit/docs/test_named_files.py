"""Files that the docs name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millrace.cli.plan.init_project import new_project_texts_by_path

ROOT = Path(__file__).parents[3]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def named(page: Path) -> set[str]:
    """Paths in the repository in code spans, and targets of links."""
    text = page.read_text()
    spans = re.findall(
        r"`((?:tests|millrace|etl|infra|docs|toolchain|environments|pipelines)/[\w/.\-]*\w/?)`", text
    )
    links = [
        str(Path(page.parent, target).relative_to(ROOT))
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    ]
    return {*spans, *links}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    made = new_project_texts_by_path("my-streams")  # by `millrace init`
    missing = sorted(name for name in named(page) if not (ROOT / name).exists() and name not in made)
    assert missing == []


def test_a_wrong_name_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "of-no-page.md"
    assert not page.exists()
    wrong = tmp_path / "page.md"
    wrong.write_text("See `tests/unit/nothing.py`.")
    assert named(wrong) == {"tests/unit/nothing.py"}
