"""Run kinds of tests; print one closing line for each and what took how long.

``python -m tests.run unit template spark integration``. The kinds are told apart by
what they may touch: see CONTRIBUTING.md. Integration tests mostly wait for servers and
state machines, the others mostly compute: so they run beside each other, in two lanes,
and what they print appears kind by kind, as if they had run in turn.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parent
LANES = (("unit", "template", "spark"), ("integration",))
KINDS = tuple(kind for lane in LANES for kind in lane)


@dataclass(frozen=True)
class Result:
    """How one kind ended.

    Attributes
    ----------
    status
        pytest's exit status; 5 where no test passed, since such a kind proves nothing.
    line
        The closing line.
    seconds
        Wall time, beside the other lane.
    """

    status: int
    line: str
    seconds: float


def run(kind: str, scratch: Path) -> Result:
    """Run one kind; what it prints goes to ``scratch/KIND.log``."""
    started = time.monotonic()
    report = scratch / f"{kind}.xml"
    command = [
        *(sys.executable, "-u", "-m", "pytest", "-q", TESTS / kind),
        *(f"--junitxml={report}", "--durations=10"),
    ]
    with _log(scratch, kind).open("wb") as log:
        status = subprocess.run(
            command, cwd=TESTS.parent, stdout=log, stderr=subprocess.STDOUT, check=False
        ).returncode
    suites = list(ElementTree.parse(report).iter("testsuite")) if report.exists() else []
    count = {
        name: sum(int(s.get(name, "0")) for s in suites)
        for name in ("tests", "failures", "errors", "skipped")
    }
    failed = count["failures"] + count["errors"]
    passed = count["tests"] - failed - count["skipped"]
    if status == 0 and passed == 0:
        status = 5
    skipped = f", {count['skipped']} skipped" if count["skipped"] else ""
    return Result(status, f"{kind}: {passed} passed, {failed} failed{skipped}", time.monotonic() - started)


def main(kinds: list[str]) -> int:
    """Run the kinds and print the closing lines together."""
    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        sys.stderr.write(f"unknown kind {', '.join(unknown)}: one of {', '.join(KINDS)}\n")
        return 2
    started = time.monotonic()
    interrupted = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(LANES)) as lanes:
        scratch = Path(folder)
        ends: dict[str, Future[Result]] = {kind: Future() for kind in kinds}
        for lane in LANES:
            lanes.submit(_run_lane, [kind for kind in lane if kind in kinds], scratch, ends, interrupted)
        try:
            for kind, end in ends.items():
                _follow(_log(scratch, kind), end)
        except KeyboardInterrupt:
            interrupted.set()
            raise
        results = {kind: end.result() for kind, end in ends.items()}
    sys.stdout.write("\n" + "".join(f"{kind} took {r.seconds:.0f} s\n" for kind, r in results.items()))
    sys.stdout.write(f"all took {time.monotonic() - started:.0f} s\n")
    sys.stdout.write("".join(f"{r.line}\n" for r in results.values()))
    return max(r.status for r in results.values())


def _log(scratch: Path, kind: str) -> Path:
    return scratch / f"{kind}.log"


def _run_lane(
    kinds: list[str], scratch: Path, ends: dict[str, Future[Result]], interrupted: threading.Event
) -> None:
    for kind in kinds:
        try:
            ends[kind].set_result(run(kind, scratch))
        except Exception as error:
            # Whoever waits for this kind raises it; a kind left without an end would be waited for for ever.
            ends[kind].set_exception(error)
        # Ctrl-C reaches pytest and this program in the same moment: let the word arrive.
        if interrupted.wait(0.5):
            return


def _follow(log: Path, end: Future[Result]) -> None:
    """Print what a kind writes, from its first line to its end."""
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
