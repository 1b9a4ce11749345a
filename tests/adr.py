"""The index of the decisions: docs/adr/README.md, made from the heads of the files."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "docs" / "adr"
INDEX = FOLDER / "README.md"

_HEAD = re.compile(
    r"# (\d{4})\. (\S.*)\n\nDate: (\d{4}-\d{2}-\d{2})\. Status: ([^.]*(?:\.md\)[^.]*)*)\.(?: .*)?\n"
)
_STATUS = re.compile(r"accepted(; superseded in part by .+)?|superseded by .+")

_TOP = """# Decisions

One file each: what was decided, when and why. A decision that no longer holds stays, and names the one that took its place.
`python -m tests.adr --write` makes this table from the files.

| number | decision | date | status |
|---|---|---|---|
"""


@dataclass(frozen=True)
class Decision:
    """The head of a decision's file."""

    file: str
    number: str
    title: str
    date: str
    status: str

    @property
    def successors(self) -> list[str]:
        """Files of the decisions that took its place."""
        return re.findall(r"\]\(([^)]+)\)", self.status)


def decision(file: Path) -> Decision:
    """Read a decision's head: number and title, then its date and status."""
    head = _HEAD.match(file.read_text(encoding="utf-8"))
    assert head is not None, (
        f"{file.name} does not begin with '# NNNN. Title' and 'Date: YYYY-MM-DD. Status: …'"
    )
    number, title, date, status = head.groups()
    assert file.name.startswith(f"{number}-"), f"{file.name} says that it is {number}"
    assert _STATUS.fullmatch(status), f"{file.name}: status {status!r}"
    return Decision(file.name, number, title, date, status)


def decisions() -> list[Decision]:
    """All of them, by number."""
    return [decision(file) for file in sorted(FOLDER.glob("[0-9]*.md"))]


def index() -> str:
    """Make the text of the index."""
    return _TOP + "".join(
        f"| [{each.number}]({each.file}) | {each.title} | {each.date} | {each.status} |\n"
        for each in decisions()
    )


def parser() -> argparse.ArgumentParser:
    """Make the parser of this command."""
    made = argparse.ArgumentParser(prog="python -m tests.adr", description=__doc__)
    made.add_argument("--write", action="store_true", help="write the index; left out, print it")
    return made


if __name__ == "__main__":
    if parser().parse_args().write:
        INDEX.write_text(index(), encoding="utf-8")
    else:
        print(index(), end="")  # noqa: T201 - a command's output
