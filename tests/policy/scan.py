"""Scan the templates of environments: ``python -m tests.policy.scan [ENV ...]``, all of them without a name.

Ends with status 1 when there is a finding that ``toolchain/policy/accepted.yaml`` does not
explain, or an entry there that explains nothing.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from rich.console import Console
from rich.table import Table

from millrace.config import environment_names
from millrace.sandbox.programs.toolchain import ROOT
from tests.policy.accepted_findings import Accepted, Finding, accepted, stale, unexplained
from tests.policy.assembly import Assembly, SynthesisError, synthesise
from tests.policy.scanners import scan

ACCEPTED = ROOT / "toolchain" / "policy" / "accepted.yaml"
SCANNERS = ("cdk-nag", "cfn-lint", "checkov", "millrace")


def table(assembly: Assembly, findings: list[Finding], known: tuple[Accepted, ...]) -> Table:
    """Show one environment: what each scanner found, and why what is left stands."""
    resources = sum(len(template["Resources"]) for template in assembly.templates.values())
    shown = Table(
        title=f"{assembly.environment.name}: {len(assembly.templates)} templates, {resources} resources",
        title_justify="left",
    )
    for heading in ("scanner", "check", "at", "why it stands"):
        shown.add_column(heading, overflow="fold")
    open_findings = set(unexplained(findings, known))
    for scanner in SCANNERS:
        own = [finding for finding in findings if finding.scanner == scanner]
        if not own:
            shown.add_row(scanner, "-", "", "nothing found")
        for finding in own:
            if finding in open_findings:
                shown.add_row(scanner, finding.check, finding.at, f"[red]UNEXPLAINED[/] {finding.message}")
            else:
                reason = next(entry.reason for entry in known if entry.covers(finding))
                shown.add_row(scanner, finding.check, finding.at, reason)
    return shown


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("environments", nargs="*", help="names; all of them where none is given")
    return reading


def main(names: list[str], *, console: Console) -> int:
    """Scan the environments of some names; return the exit status."""
    existing = environment_names(ROOT)
    unknown = [name for name in names if name not in existing]
    if unknown:
        console.print(f"no environment {', '.join(unknown)}: there are {', '.join(existing)}")
        return 2
    started = time.monotonic()
    known = accepted(ACCEPTED)
    with tempfile.TemporaryDirectory() as scratch:
        try:
            assemblies = [synthesise(name, Path(scratch) / name) for name in names or existing]
        except SynthesisError as error:
            console.print(str(error))
            return 1
        result = scan(assemblies)
        for assembly in assemblies:
            console.print(table(assembly, result[assembly.environment.name], known))
    everything = [finding for findings in result.values() for finding in findings]
    failures = unexplained(everything, known)
    # An entry may stand for one environment: it is out of date only where all were looked at.
    forgotten = stale(everything, known) if set(result) == set(existing) else []
    for entry in forgotten:
        console.print(f"[red]accepted.yaml: {entry.check} at {entry.at} explains nothing any more[/]")
    counts = Counter(finding.scanner for finding in everything)
    console.print(
        f"policy: {len(result)} environments, {len(failures)} unexplained, "
        f"{len(everything) - len(failures)} accepted "
        f"({', '.join(f'{scanner} {counts[scanner]}' for scanner in SCANNERS)}), "
        f"{len(forgotten)} out of date, {time.monotonic() - started:.0f} s"
    )
    return 1 if failures or forgotten else 0


if __name__ == "__main__":
    given = parser().parse_args().environments
    raise SystemExit(main(given, console=Console(width=140 if not sys.stdout.isatty() else None)))
