"""Print the product's files with the first line of each docstring, or count its statements: ``python -m tests.product_files``.

.. code-block:: console

   python -m tests.product_files etl/sinks
   python -m tests.product_files --statements etl
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("etl", "infra", "millrace", "pipelines")


def files(places: list[str]) -> Iterator[Path]:
    """Modules below some places, a folder's own file first, each once; a link to another folder is not followed."""
    result = {path for place in places for path in ((ROOT / place).rglob("*.py"))}
    for path in sorted(result, key=lambda each: (each.parent, each.name != "__init__.py", each.name)):
        if not any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(ROOT)):
            yield path.relative_to(ROOT)


def first_line(source: str) -> str:
    """What a module says of itself; empty where it says nothing."""
    said = ast.get_docstring(ast.parse(source)) or ""
    return said.partition("\n")[0]


def lines(places: list[str]) -> Iterator[str]:
    """The list: a line for each folder, and one below it for each of its files."""
    for path in files(places):
        source = (ROOT / path).read_text(encoding="utf-8")
        if path.name == "__init__.py":
            yield f"\n{path.parent}/  {first_line(source)}"
            continue
        yield f"  {path.name:<28} {len(source.splitlines()):>4}  {first_line(source)}"


def statements(source: str) -> int:
    """Logical statements of a module, those inside others too; documentation, comments and blank lines aside."""
    result = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt))
    return sum(not _documents(node) for node in result)


def _documents(node: ast.stmt) -> bool:
    """Whether it is a text that stands by itself: a docstring, or one behind a constant or a field."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def counts(places: list[str]) -> Iterator[str]:
    """The statements of each folder without those below it, and of all."""
    result: Counter[str] = Counter()
    for path in files(places):
        result[f"{path.parent}/"] += statements((ROOT / path).read_text(encoding="utf-8"))
    for name, count in (*sorted(result.items()), ("in total", result.total())):
        yield f"{name:<32} {count:>6,}"


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.product_files", description="The product, a line a file."
    )
    reading.add_argument(
        "place", nargs="*", default=list(PRODUCT), help="folder of the repository; all of the product"
    )
    reading.add_argument("--statements", action="store_true", help="count logical statements of each folder")
    return reading


def main(arguments: list[str]) -> int:
    """Print the list of what was asked for."""
    asked = parser().parse_args(arguments)
    result = counts(asked.place) if asked.statements else lines(asked.place)
    sys.stdout.write("\n".join(result).lstrip("\n") + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
