"""Files that CONTRIBUTING names exist, and the hooks start installed programs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
LISTS = ("A sink", "A payload format", "A source", "An engine version", "A price", "An alarm")


def files(heading: str) -> list[str]:
    """Files of a list, in its first column."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n## ")[0].split("\n### ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row)]


@pytest.mark.parametrize("heading", LISTS)
def test_the_files_of_a_list_are_there(heading: str) -> None:
    named = files(heading)
    assert len(named) >= 5
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert any(name.startswith("tests/") for name in named)
    assert any(name.startswith("docs/") for name in named)


def hooks() -> list[dict[str, Any]]:
    result = YAML(typ="safe").load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [each["repo"] for each in result["repos"]] == ["local"]
    return [hook for each in result["repos"] for hook in each["hooks"]]


def test_hooks_start_pinned_programs() -> None:
    pins = (ROOT / "toolchain/dev.txt").read_text()
    packages = {"ruff": "ruff", "lint-imports": "import-linter", "python": "pytest"}
    assert {hook["id"] for hook in hooks()} >= {"ruff", "format", "imports"}
    for hook in hooks():
        program = Path(shlex.split(hook["entry"])[0])
        assert hook["language"] == "system"
        assert program.parent == Path(".venv/bin")
        assert re.search(rf"^{packages[program.name]}==", pins, re.MULTILINE)
        assert (ROOT / program).exists()
