"""Each recipe is a file beside those of a new project: it loads, and it plans."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from millrace.cli.plan.init import files
from millrace.config import load
from millrace.sizing import plan
from tests.tls import Authority

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "docs" / "how-to"
RECIPES = sorted(each for each in FOLDER.glob("*.md") if each.name != "index.md")
FILE = re.compile(r"^```\w+\n(?:#|--|//) (\S+)\n(.*?)^```", re.M | re.S)


def recipe(page: Path) -> dict[str, str]:
    """Files of a recipe by their paths, which the first line of each block names."""
    return dict(FILE.findall(page.read_text()))


WITH_FILES = [page for page in RECIPES if recipe(page)]


def project(folder: Path, page: Path) -> Path:
    """Write a new project, and the recipe's files in it."""
    for name, text in {**files("my-streams"), **recipe(page)}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in re.findall(r"authorities: (\S+)", page.read_text()):
        (folder / name).write_bytes(Authority("a region").pem)
    return folder


@pytest.mark.parametrize("page", WITH_FILES, ids=lambda page: page.stem)
def test_a_recipe_plans(page: Path, tmp_path: Path) -> None:
    root = project(tmp_path, page)
    for path in recipe(page):
        if path.endswith(".py"):
            ast.parse((root / path).read_text())
    for name in [Path(path).stem for path in recipe(page) if path.startswith("environments/")] or ["dev"]:
        assert plan(load(name, root=root)).jobs


def test_there_are_twenty() -> None:
    assert len(RECIPES) >= 20
    assert len(WITH_FILES) > len(RECIPES) / 2


def test_the_list_has_each_once() -> None:
    listed = re.findall(r"\]\(([\w-]+\.md)\)", (FOLDER / "index.md").read_text())
    assert sorted(listed) == [page.name for page in RECIPES]
