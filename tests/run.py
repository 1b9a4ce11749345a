"""Run kinds of tests; print a result per kind, and the slowest tests.

``python -m tests.run unit template spark integration``: all but those marked ``slow``;
``--slow today`` with the share of them that is due on this day, ``--slow all`` with
all. The kinds are told apart by what they may touch: see CONTRIBUTING.md. Three parts run beside each other, and the next one
begins where one ends; what they print appears part by part, as if they had run in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

from millrace.config.engines.versions import LINES
from millrace.sandbox.programs.toolchain import installed_spark_line, spark_submit_variables
from tests.suite_parts import AT_ONCE, KINDS, PARTS, Part

TESTS = Path(__file__).parent
SANDBOXES = TESTS.parent / ".millrace" / "tests"
FAULTS = "faults"
"""Marks a test that throws a fault at something that runs: each is counted in a line of its own."""
SLOW = "slow"
"""Marks a test that takes long and guards what quicker ones guard too, in part: see CONTRIBUTING.md."""
SLOWLY = "SLOW"
"""Variable of the environment that says which of them run: none, today's, or all, as where it is not set."""
DAYS = 24
"""In which every slow test is due once."""
T = TypeVar("T")


def day() -> int:
    """Today's number."""
    return datetime.now(UTC).toordinal()


def in_turn(values: Sequence[T], number: int) -> list[T]:
    """All values where every slow test runs; elsewhere ``number`` of them, and the next ones after `DAYS`."""
    if os.environ.get(SLOWLY, "all") == "all":
        return list(values)
    first = day() // DAYS * number
    return [values[(first + each) % len(values)] for each in range(number)]


def examples(most: int) -> int:
    """Number of examples for a property: all where every slow test runs and on one day of `DAYS`, or a third."""
    whole = os.environ.get(SLOWLY, "all") == "all" or day() % DAYS == most % DAYS
    return most if whole else most // 3


FIRST_COMPILER = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
"""No JVM of a test runs long enough to earn back what the second compiler takes: a third of all CPU time."""


ARCHIVE = SANDBOXES / f"spark-{version('pyspark')}.jsa"
"""Spark's classes, loaded and verified (class-data sharing, JEP 350): a JVM takes half the CPU time to its first query."""
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
"""A JVM of another class path or Java leaves the archive aside, and would say so on its standard output."""


@dataclass(frozen=True)
class Result:
    """How one part ended.

    Attributes
    ----------
    status
        pytest's exit status; 5 where no test passed, since such a part proves nothing; 128 and the signal's number
        where one ended it.
    passed, failed, skipped
        Tests; errors count as failed.
    seconds
        Wall time, beside two other parts.
    faults, faults_seconds
        Of the tests, those that throw faults, and what they took, set-up included.
    tests
        Seconds of each test by module and name, set-up included.
    """

    status: int
    passed: int
    failed: int
    skipped: int
    seconds: float
    faults: int
    faults_seconds: float
    tests: Mapping[str, float] = field(default_factory=dict)


def java_options() -> str:
    """Options of every JVM of the tests."""
    # One that names an archive which is not there shares not even the classes of Java itself.
    shared = f"-XX:SharedArchiveFile={ARCHIVE} {SILENT}" if ARCHIVE.exists() else ""
    return f"{FIRST_COMPILER} {shared}".strip()


def share_classes() -> None:
    """Write the archive where it is missing; where that fails, tests only take longer."""
    if ARCHIVE.exists():
        return
    SANDBOXES.mkdir(parents=True, exist_ok=True)
    written = ARCHIVE.with_suffix(".new")
    options = f"{FIRST_COMPILER} -XX:ArchiveClassesAtExit={written} {SILENT}"
    subprocess.run(
        (sys.executable, "-m", "tests.jvm_class_archive_workload"),
        env={**os.environ, "JDK_JAVA_OPTIONS": options},
        cwd=TESTS.parent,
        capture_output=True,
        check=False,
    )
    if written.exists():
        written.rename(ARCHIVE)


def run(part: Part, scratch: Path, slow: str) -> Result:
    """Run one part; what it prints goes to a log in ``scratch``."""
    started = time.monotonic()
    SANDBOXES.mkdir(parents=True, exist_ok=True)
    report = SANDBOXES / f"{part.name}.xml"
    report.unlink(missing_ok=True)
    python = spark_submit_variables(LINES[part.line])["PYSPARK_PYTHON"] if part.line else sys.executable
    command: list[str | Path] = [
        *(python, "-u", "-m", "pytest", "-q"),
        *(TESTS / path for path in part.paths),
        *(f"--ignore={TESTS / path}" for path in part.without),
        *part.options,
        f"--junitxml={report}",
    ]
    # Each part has a sandbox of its own, as two cannot work in one; its logs stay there.
    environment = {
        **os.environ,
        "MILLRACE_SANDBOX": str(SANDBOXES / part.name),
        SLOWLY: slow,
        "JDK_JAVA_OPTIONS": f"{java_options()} {os.environ.get('JDK_JAVA_OPTIONS', '')}".strip(),
    }
    with _log(scratch, part).open("wb") as log:
        status = subprocess.run(
            command, cwd=TESTS.parent, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode
    suites = list(ElementTree.parse(report).iter("testsuite")) if report.exists() else []
    tests = {
        f"{case.get('classname', '').removeprefix('tests.')}::{case.get('name')}": float(
            case.get("time", "0")
        )
        for suite in suites
        for case in suite.iter("testcase")
    }
    count = {
        name: sum(int(s.get(name, "0")) for s in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    thrown = [
        float(case.get("time", "0"))
        for suite in suites
        for case in suite.iter("testcase")
        if any(each.get("name") == FAULTS for each in case.iter("property"))
    ]
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    if status < 0:
        # As shells do: below zero, the status would be less than that of a part that is well.
        status = 128 - status
    elif status == 0 and passed == 0:
        status = 5
    seconds = time.monotonic() - started
    return Result(status, passed, failed, count["skipped"], seconds, len(thrown), sum(thrown), tests)


def parts_of(parts: Iterable[Part], kinds: list[str], slow: str) -> list[Part]:
    """Choose the parts that run."""
    chosen = [part for part in parts if part.kind in kinds and (slow != "none" or not part.turns)]
    if slow == "today":
        chosen = [
            replace(part, paths=part.paths[day() % part.turns :][:1]) if part.turns else part
            for part in chosen
        ]
    return [part for part in chosen if part.paths]


def main(arguments: list[str]) -> int:
    """Run the kinds and print the closing lines together."""
    parser = argparse.ArgumentParser(prog="python -m tests.run")
    parser.add_argument("kinds", nargs="+", choices=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--slow", choices=("none", "today", "all"), default="none")
    asked = parser.parse_args(arguments)
    kinds, slow = asked.kinds, asked.slow
    started = time.monotonic()
    interrupted = threading.Event()
    # On another line than the default one (make test-spark SPARK=4.1), all parts run on that.
    lines = {"", *LINES} if installed_spark_line().is_default_line else {""}
    parts = [part for part in parts_of(PARTS, kinds, slow) if part.line in lines]
    if any(part.kind in ("spark", "integration") for part in parts):
        share_classes()
    # A line that is not due costs no download.
    others = {part.line for part in parts} - {""}
    if others:
        stamps = [f".millrace/stamps/spark-{line}" for line in sorted(others)]
        subprocess.run(["make", *stamps], cwd=TESTS.parent, check=True)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        scratch = Path(folder)
        ends = {part: pool.submit(_run_next, part, slow, scratch, interrupted) for part in parts}
        try:
            for part, end in ends.items():
                _follow(_log(scratch, part), end)
        except KeyboardInterrupt:
            interrupted.set()
            raise
        results = {part: end.result() for part, end in ends.items()}
    lines = [
        *_slowest(results.values()),
        "",
        *(
            f"{part.name} took {result.seconds:.0f} s"
            + (f" and ended with status {result.status}" if result.status else "")
            for part, result in results.items()
        ),
        f"all took {time.monotonic() - started:.0f} s",
        f"faults among them: {sum(r.faults for r in results.values())} tests, "
        f"{sum(r.faults_seconds for r in results.values()):.0f} s",
        *_by_line(results),
        *(
            _closing_line(kind, [r for part, r in results.items() if part.kind == kind])
            for kind in dict.fromkeys(part.kind for part in results)
        ),
    ]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return max(r.status for r in results.values())


def _slowest(results: Iterable[Result]) -> Iterator[str]:
    """List the modules and the tests that took longest, of all parts together."""
    tests = Counter[str]()
    for result in results:
        tests.update(result.tests)
    modules = Counter[str]()
    for name, seconds in tests.items():
        modules[name.partition("::")[0]] += seconds
    for title, counted, number in (("modules", modules, 15), ("tests", tests, 30)):
        yield f"slowest {title}:"
        yield from (
            f"  {seconds:6.1f} s  {name}" for name, seconds in counted.most_common(number) if seconds >= 1
        )


def _by_line(results: dict[Part, Result]) -> Iterator[str]:
    """Say what the core's tests came to on each line of Spark."""
    python = ".".join(map(str, sys.version_info[:2]))
    core = {part: result for part, result in results.items() if part.kind == "spark"}
    for name in dict.fromkeys(part.line for part in core):
        line = LINES[name] if name else installed_spark_line()
        of = [result for part, result in core.items() if part.line == name]
        yield _closing_line(f"Spark {line.spark}, Scala {line.scala}, Python {python}", of)


def _closing_line(kind: str, results: list[Result]) -> str:
    skipped = sum(r.skipped for r in results)
    counts = f"{sum(r.passed for r in results)} passed, {sum(r.failed for r in results)} failed"
    return f"{kind}: {counts}" + (f", {skipped} skipped" if skipped else "")


def _log(scratch: Path, part: Part) -> Path:
    return scratch / f"{part.name}.log"


def _run_next(part: Part, slow: str, scratch: Path, interrupted: threading.Event) -> Result:
    # Ctrl-C reaches the pytest of the part before and this program in the same moment: let the word arrive.
    if interrupted.wait(0.5):
        raise CancelledError
    return run(part, scratch, slow)


def _follow(log: Path, end: Future[Result]) -> None:
    """Print what a part writes, from its first line to its end."""
    shown = 0
    while True:
        ended = end.done()
        if log.exists():
            with log.open("rb") as source:
                source.seek(shown)
                new = source.read()
            shown += len(new)
            sys.stdout.buffer.write(new)
            sys.stdout.flush()
        if ended:
            return
        time.sleep(0.2)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
