"""The page of test programs names each of them; tests/unit/docs/test_documented_commands.py parses its commands."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/internals/programs.md").read_text(encoding="utf-8") + (ROOT / "Makefile").read_text()
PARTS = {"tests.faults.synthesise_shop"}
"""Programs that another one starts."""


def test_each_program_is_on_the_page() -> None:
    files = [file for folder in ("faults", "performance") for file in (ROOT / "tests" / folder).glob("*.py")]
    programs = {
        f"tests.{file.parent.name}" + ("" if file.stem == "__main__" else f".{file.stem}")
        for file in files
        if '__name__ == "__main__"' in file.read_text(encoding="utf-8")
    }
    assert len(programs) > 20
    assert sorted(name for name in programs - PARTS if f"python -m {name}" not in PAGE) == []
