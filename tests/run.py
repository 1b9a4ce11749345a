"""Run kinds of tests one after the other; print one closing line for each and what took how long.

``python -m tests.run unit template spark integration``. The kinds are told apart by
what they may touch: see CONTRIBUTING.md.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parent
KINDS = ("unit", "template", "spark", "integration")


def run(kind: str) -> tuple[int, str, float]:
    """Run one kind; give pytest's exit status, the closing line and the seconds."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            TESTS / kind,
            f"--junitxml={report}",
            "--durations=5",
        ]
        status = subprocess.run(command, cwd=TESTS.parent, check=False).returncode
        suites = list(ElementTree.parse(report).iter("testsuite")) if report.exists() else []
    count = {
        name: sum(int(s.get(name, "0")) for s in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    if status == 0 and passed == 0:
        status = 5  # a kind without a test proves nothing
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return status, f"{kind}: {passed} passed, {failed} failed{skipped}", time.monotonic() - started


def main(kinds: list[str]) -> int:
    """Run the kinds and print the closing lines together."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        sys.stderr.write(f"unknown kind {', '.join(unknown)}: one of {', '.join(KINDS)}\n")
        return 2
    results = [(kind, *run(kind)) for kind in kinds]
    sys.stdout.write("\n" + "".join(f"{kind} took {seconds:.0f} s\n" for kind, _, _, seconds in results))
    sys.stdout.write("".join(f"{line}\n" for _, _, line, _ in results))
    return max(status for _, status, _, _ in results)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
