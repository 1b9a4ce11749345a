"""``python -m tests.supply secrets|bill|audit``: what must not be in the project, what it is made of, what is known against that."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from millrace.etl import __version__
from millrace.sandbox.programs.toolchain import ROOT, npm_command
from tests.supply import vulnerability_audit
from tests.supply.bill_of_materials import bill
from tests.supply.pinned_parts import parts
from tests.supply.secret_scan import find, harmless, tracked
from tests.supply.vulnerability_audit import Known, LookUpError

LISTS = ROOT / "toolchain" / "policy"


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(prog="python -m tests.supply", description=__doc__)
    verbs = reading.add_subparsers(dest="verb", required=True)
    verbs.add_parser("secrets", help="ends with 1 where a tracked file holds one")
    writing = verbs.add_parser("bill", help="writes the bill of materials, CycloneDX 1.4")
    writing.add_argument("--out", type=Path, default=ROOT / "dist" / "millrace.cdx.json")
    verbs.add_parser("audit", help="ends with 1 where something is known, or where nobody could be asked")
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what is asked for; return the exit status."""
    options = parser().parse_args(arguments)
    if options.verb == "secrets":
        return secrets()
    if options.verb == "bill":
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(bill(ROOT, __version__), encoding="utf-8")
        say(f"{options.out}: {len({part.purl for part in parts(ROOT)})} parts")
        return 0
    return known_vulnerabilities()


def secrets() -> int:
    """Look into every tracked file."""
    result, list_ = find(ROOT, tracked(ROOT)), LISTS / "secrets.yaml"
    known = {each.digest for each in harmless(list_)}
    wrong = [each for each in result if each.digest not in known]
    gone = known - {each.digest for each in result}
    for each in wrong:
        say(f"{each.at}:{each.line}: {each.kind} (digest {each.digest})")
    for digest in sorted(gone):
        say(f"{list_.name}: {digest} is not found any more")
    say(f"secrets: {len(wrong)} unexplained, {len(result) - len(wrong)} harmless, {len(gone)} out of date")
    return int(bool(wrong or gone))


def known_vulnerabilities() -> int:
    """Ask every database; one that cannot be asked fails the audit."""
    known = vulnerability_audit.excused(LISTS / "vulnerabilities.yaml")
    asked: dict[str, Callable[[], Iterator[Known]]] = {
        "Python": lambda: vulnerability_audit.python(ROOT, vulnerability_audit.pip_audit(ROOT)),
        "Node": lambda: vulnerability_audit.node(ROOT, npm_command()),
        "jars": lambda: vulnerability_audit.jars(ROOT),
    }
    knowns: list[Known] = []
    failed = False
    for what, ask in asked.items():
        try:
            knowns += ask()
        except LookUpError as error:
            failed = True
            say(f"{what}: could not be looked up: {error}")
    wrong = vulnerability_audit.open_ones(knowns, known, datetime.now(UTC).date())
    for each in wrong:
        mended = f"; mended in {each.mended_in}" if each.mended_in else ""
        say(f"{each.package} {each.version} ({each.where}): {each.id}{mended}")
    gone = [] if failed else vulnerability_audit.forgotten(knowns, known)
    for entry in gone:
        say(f"vulnerabilities.yaml: {entry.id} of {entry.package} excuses nothing any more")
    say(
        f"audit: {len(wrong)} known and not excused, {len(known)} excused, {'NOT COMPLETE' if failed else 'complete'}"
    )
    return int(failed or bool(wrong) or bool(gone))


def say(line: str) -> None:
    """Write a line for people and scripts."""
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
