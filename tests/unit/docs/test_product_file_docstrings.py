"""The map of the product has a distinct line for each file."""

from __future__ import annotations

import ast
import re

import pytest

from tests import product_files as product_map

QUESTION = re.compile(r"(What|How|Whether|When|Where|Who|Why|Which)\b")


def test_each_file_stands_below_its_folder() -> None:
    lines = list(product_map.lines(["etl/sinks"]))
    folders = [line.strip().partition("/  ")[0] for line in lines if not line.startswith("  ")]
    assert folders == ["etl/sinks", "etl/sinks/delivery"]
    behind = next(place for place, line in enumerate(lines) if "etl/sinks/delivery/" in line)
    assert [line.split()[0] for line in lines[:behind] if "kafka" in line.split()[0]] == ["kafka.py"]
    assert [line.split()[0] for line in lines[behind:] if "kafka" in line.split()[0]] == ["kafka_tail.py"]


def test_no_folder_is_listed_twice_by_its_link() -> None:
    paths = list(map(str, product_map.files(["etl", "millrace"])))
    assert not [path for path in paths if path.startswith(("millrace/etl/", "millrace/infra/"))]
    assert "etl/main.py" in paths
    assert "millrace/cli/__init__.py" in paths


@pytest.mark.parametrize("place", ["etl", "infra", "millrace"])
def test_docstrings_begin_with_a_noun_or_a_verb(place: str) -> None:
    """A clause that begins with What, How or Whether makes the reader wait for its point."""
    for path in product_map.files([place]):
        for node in ast.walk(ast.parse((product_map.ROOT / path).read_text())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                said = ast.get_docstring(node) or ""
                assert not QUESTION.match(said), f"{path}: {said.splitlines()[0]}"


@pytest.mark.parametrize("place", ["etl"])
def test_every_file_says_what_it_is_for(place: str) -> None:
    said: dict[str, str] = {}
    for path in product_map.files([place]):
        line = product_map.first_line((product_map.ROOT / path).read_text())
        assert len(line.split()) >= 5, f"{path}: {line!r} says too little"
        assert line not in said, f"{path} says the same as {said.get(line)}"
        said[line] = str(path)


def test_a_file_that_says_nothing_is_empty() -> None:
    assert product_map.first_line("x = 1\n") == ""
    assert product_map.first_line('"""One.\n\nTwo.\n"""\n') == "One."


def test_statements_are_counted_without_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    source = '"""Says."""\n\nA = 1\n"""Of A."""\n\n\ndef one(x):\n    # why\n    if x:\n        return (\n            1\n        )\n'
    assert product_map.statements(source) == 4  # A, the function, the condition, the return
    assert product_map.statements('"""Nothing."""\n') == 0
    assert product_map.main(["--statements", "etl/sinks"]) == 0
    *folders, last = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in folders] == ["etl/sinks/", "etl/sinks/delivery/"]
    numbers = [int(line.split()[-1].replace(",", "")) for line in (*folders, last)]
    assert sum(numbers[:-1]) == numbers[-1]
