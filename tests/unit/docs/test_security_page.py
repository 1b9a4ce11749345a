"""Each line of SECURITY.md names existing tests, or has a reason here why no test can show it."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
ROW = re.compile(
    r"^\| (?P<what>.+?) \| (?P<whom>.+?) \| (?P<by>.+) \| (?P<shown>`tests/.+`) \|$", re.MULTILINE
)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")

ROWS = [match.groupdict() for match in ROW.finditer(PAGE)]

NO_TEST = {
    "Write to the maintainers": "how people answer",
    "Millrace deploys into your account": "what is not there has no test; each row below is a part of it",
    "Each control of the templates": "names its test, which removes them",
    "Your own code": "what is not protected",
    "Each line is somebody": "the head of the table of threats",
    "The workers of a Glue job": "what is not protected",
    "A way out by DNS": "what is not protected",
    "A way out through AWS": "what is not protected",
    "The way out of a job without a VPC": "what is not protected",
    "The entry script and JVM jars": "what is not protected",
    "Arguments that a job does not have": "what is not protected",
    "Payloads in memory": "what is not protected",
    "A principal that may change roles": "what is not protected",
    "The sandbox": "what is not protected",
    "The history server": "what is not protected",
    "Names of things": "what is not protected",
    "Every dependency is pinned": "tests/unit/supply/test_supply.py, and below",
    "make bill": "a command",
    "The first writes": "tests/unit/supply/test_supply.py",
}
"""Begin of every paragraph and item beside the table's lines, and why it has no line of its own."""


@cache
def functions_in(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("row", ROWS, ids=[f"{each['what']}, {each['whom']}" for each in ROWS])
def test_each_line_names_tests_that_are_there(row: dict[str, str]) -> None:
    named = TEST.findall(row["shown"])
    assert len(named) == row["shown"].count("`") // 2 > 0
    for file, test in named:
        assert (ROOT / file).is_file(), file
        assert test in functions_in(file), f"{file}::{test}"


def test_no_line_stands_outside() -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("|")]
    assert len(lines) == len(ROWS) + 4  # head and rule of both tables
    text = re.sub(r"^\|.*$", "", PAGE, flags=re.MULTILINE)
    parts = [
        re.sub(r"\s+", " ", re.sub(r"^[\s*#-]+", "", part))
        for part in re.split(r"\n\s*\n|\n(?=- )", text)
        if part.strip() and not part.lstrip().startswith("#")
    ]
    for part in parts:
        assert any(part.startswith(begin) for begin in NO_TEST), part
    for begin in NO_TEST:
        assert any(part.startswith(begin) for part in parts), begin


def test_the_core_imports_what_the_page_says() -> None:
    allowed = {
        *sys.stdlib_module_names,
        "millrace",
        "pyspark",
        "py4j",
        "boto3",
        "botocore",
        "numpy",
        "orjson",
        "pyarrow",
    }
    for file in (ROOT / "etl").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [str(node.module)]
            else:
                continue
            assert {name.partition(".")[0] for name in names} <= allowed, file


def test_nothing_uses_the_default_group() -> None:
    """In the templates of an environment with everything: none refers to the group that a VPC brings."""
    for file in (ROOT / "tests/template/golden").glob("*.yaml"):
        assert "DefaultSecurityGroup" not in file.read_text(encoding="utf-8"), file
