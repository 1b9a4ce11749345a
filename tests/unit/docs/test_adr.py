"""Each decision has number, title, date and status, and the index names it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adr import FOLDER, INDEX, decision, decisions, index


def test_the_index_is_of_the_files() -> None:
    assert INDEX.read_text(encoding="utf-8") == index(), "run python -m tests.adr --write"


def test_numbers_are_given_once() -> None:
    numbers = [each.number for each in decisions()]
    assert len(set(numbers)) == len(numbers) > 80


def test_what_took_a_decisions_place_says_so() -> None:
    followed = [(each, name) for each in decisions() for name in each.successors]
    assert followed
    for each, name in followed:
        later = (FOLDER / name).read_text(encoding="utf-8")
        assert each.file in later, f"{name} does not mention {each.number}, whose place it takes"


@pytest.mark.parametrize(
    "text",
    [
        "# 0001 No point\n\nDate: 2026-11-21. Status: accepted.\n",
        "# 0001. No date\n\nStatus: accepted.\n",
        "# 0001. Another word\n\nDate: 2026-11-21. Status: fine.\n",
        "# 0002. Another number\n\nDate: 2026-11-21. Status: accepted.\n",
    ],
)
def test_a_head_without_them_is_noticed(text: str, tmp_path: Path) -> None:
    file = tmp_path / "0001-test.md"
    file.write_text(text)
    with pytest.raises(AssertionError, match="0001-test"):
        decision(file)
