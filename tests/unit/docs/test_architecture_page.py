"""Files and functions that ARCHITECTURE.md names exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "ARCHITECTURE.md").read_text()
LONGEST = 15
WALKS = (
    "The path of a record, from a topic to a derived table",
    "The path of a key, from YAML to the template",
)
PLACES = {"millrace.etl": "etl", "millrace.infra": "infra"}
"""Packages whose folders lie elsewhere than their names say."""


def walk(title: str) -> list[str]:
    """The files of a walk, in its order."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"^\d+\. `([\w./]+)`", section, re.MULTILINE)


def file_of(module: str) -> str | None:
    """A module's file, from the root; None for what is no module of ours."""
    for package, folder in PLACES.items():
        if module == package or module.startswith(f"{package}."):
            module = folder + module.removeprefix(package)
    path = module.replace(".", "/")
    result = (f"{path}.py", f"{path}/__init__.py")
    return next((each for each in result if (ROOT / each).is_file()), None)


def package_of(file: str) -> list[str]:
    """The package that a file's relative imports begin in."""
    parts = list(Path(file).parent.parts)
    return ["millrace", *parts] if parts and parts[0] in ("etl", "infra") else parts


def imported(file: str) -> Iterator[str]:
    """Files that a file imports; through a package's own file also those that the names come from."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if isinstance(node, ast.Import):
            result = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            home = package_of(file)
            above = home[: len(home) - node.level + 1] if node.level else []
            module = ".".join([*above, *filter(None, [node.module])])
            result = [(module, alias.name) for alias in node.names]
        else:
            continue
        for module, name in result:
            whole = file_of(f"{module}.{name}") if name else None
            target = whole or file_of(module)
            if target is None:
                continue
            yield target
            if whole is None and target.endswith("__init__.py") and target != file:
                yield from given_on(target, name)


def given_on(package: str, name: str) -> Iterator[str]:
    """Files that a package's own file has a name from."""
    for node in ast.walk(ast.parse((ROOT / package).read_text())):
        if isinstance(node, ast.ImportFrom) and any(alias.name == name for alias in node.names):
            home = package_of(package)
            above = home[: len(home) - node.level + 1] if node.level else []
            target = file_of(".".join([*above, *filter(None, [node.module])]))
            if target is not None:
                yield target


def loaded(file: str) -> Iterator[str]:
    """Files that a registry in a file names, as ``module:Name``; and environments, where a file reads their folder."""
    for node in ast.walk(ast.parse((ROOT / file).read_text())):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if node.value == "environments":
            yield from (str(each.relative_to(ROOT)) for each in (ROOT / "environments").glob("*.yaml"))
        if pattern := re.fullmatch(r"\.\.(\w+)\.\{kind\}([\w.]*)", node.value):
            below = "*" + pattern[2].replace(".", "/") + ".py"
            yield from (str(each.relative_to(ROOT)) for each in (ROOT / "etl" / pattern[1]).glob(below))
        named = re.fullmatch(r"([\w.]+):\w+", node.value)
        if named is not None:
            module = named[1]
            target = file_of(f"millrace.etl{module}" if module.startswith(".") else module)
            if target is not None:
                yield target


def reached(file: str) -> set[str]:
    """All that a file leads to in one step."""
    return {*imported(file), *loaded(file)} if file.endswith(".py") else set()


def loose(files: list[str]) -> list[str]:
    """Those that no file before them leads to."""
    known: set[str] = set()
    result = []
    for place, file in enumerate(files):
        if place and file not in known:
            result.append(file)
        known |= reached(file)
    return result


@pytest.mark.parametrize("title", WALKS)
def test_a_walk_is_short_and_connected(title: str) -> None:
    files = walk(title)
    assert 10 <= len(files) <= LONGEST
    assert len(set(files)) == len(files)
    assert loose(files) == []


def test_a_walk_with_a_gap_is_noticed() -> None:
    files = walk(WALKS[0])
    assert loose([*files[:3], "millrace/cli/plan/plan_and_validate.py", *files[3:]]) == [
        "millrace/cli/plan/plan_and_validate.py"
    ]
    assert loose(["app.py", "etl/sinks/kafka.py"]) == ["etl/sinks/kafka.py"]


def test_what_the_page_names_is_there() -> None:
    names = {
        name
        for name in re.findall(r"`([\w./]+(?:/|\.py|\.yaml|\.md))`", PAGE)
        if "KIND" not in name and "NAME" not in name
    }
    assert len(names) > 50
    assert sorted(name for name in names if not (ROOT / name).exists()) == []


def test_every_folder_of_the_product_has_a_line() -> None:
    table = PAGE.split("## Folders\n")[1].split("\n## ")[0]
    listed = set(re.findall(r"`([\w/]+)/`", table))
    folders = {
        str(path.parent.relative_to(ROOT))
        for top in ("etl", "infra", "millrace")
        for path in (ROOT / top).rglob("*.py")
        if not path.is_relative_to(ROOT / "millrace/etl") and not path.is_relative_to(ROOT / "millrace/infra")
    }
    assert sorted(folders - listed - {"millrace"}) == []


def test_folders_stay_small() -> None:
    files: dict[Path, int] = {}
    for top in ("etl", "infra", "millrace"):
        for path in (ROOT / top).rglob("*.py"):
            files[path.parent] = files.get(path.parent, 0) + 1
    modules = {folder: count - (folder / "__init__.py").exists() for folder, count in files.items()}
    assert {str(folder): count for folder, count in modules.items() if count > 13} == {}
    assert sorted(path.name for path in (ROOT / "etl").glob("*.py")) == ["__init__.py", "main.py"]
