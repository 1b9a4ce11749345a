"""Duration of tests in the last run: ``python -m tests.slowest_tests``, by file, or by test with ``--tests``.

Reads the reports that :mod:`tests.run` leaves. A file's time includes what its fixtures set up and take down.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.table import Table

from tests.run import SANDBOXES


@dataclass(frozen=True)
class Timed:
    """One test of a report.

    Attributes
    ----------
    part
        That ran it (:class:`tests.suite_parts.Part`).
    file, name
        The module without ``tests.``, and the test in it.
    seconds
        Set-up and tear-down included.
    """

    part: str
    file: str
    name: str
    seconds: float


def read(report: Path) -> Iterator[Timed]:
    """Read the tests of one report."""
    for case in ElementTree.parse(report).iter("testcase"):
        yield Timed(
            report.stem,
            case.get("classname", "").removeprefix("tests."),
            case.get("name", ""),
            float(case.get("time", "0")),
        )


def rows(tests: Sequence[Timed], *, single: bool) -> list[tuple[str, str, int, float]]:
    """Add up by file, or list tests: part, what, number of tests and seconds, the longest first."""
    result: dict[tuple[str, str], list[float]] = defaultdict(list)
    for each in tests:
        result[each.part, f"{each.file}::{each.name}" if single else each.file].append(each.seconds)
    listed = [(part, what, len(seconds), sum(seconds)) for (part, what), seconds in result.items()]
    return sorted(listed, key=lambda row: -row[3])


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.slowest_tests", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--tests", action="store_true", help="by test, not by file")
    parser.add_argument("--most", type=int, default=40, help="rows")
    asked = parser.parse_args(arguments)
    tests = [each for report in sorted(SANDBOXES.glob("*.xml")) for each in read(report)]
    table = Table("part", "what", "tests", "seconds")
    for part, what, count, seconds in rows(tests, single=asked.tests)[: asked.most]:
        table.add_row(part, what, str(count), f"{seconds:.1f}")
    Console(width=None if sys.stdout.isatty() else 180).print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
