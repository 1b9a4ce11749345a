"""Run the fault suite within a time budget: ``make faults BUDGET=10``, or ``python -m tests.faults.run_within_budget --minutes 10``.

Each part is a program of this folder. Parts that were never run come first, then those whose run is the oldest; a part that would
take longer than what is left is put off to the next time. What each
came to is kept (date, command, last line) and written as the table of docs/internals/fault-rounds.md by ``--page``, misses included. What
that table has counts as run, so that the suite goes on where it was on another machine too.
"""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.toolchain import ROOT, program_variables
from tests.faults.crashed_job import KINDS as CRASHED
from tests.faults.kill_deployed_jobs import ROUNDS as DEPLOYED
from tests.faults.moves_between_engines import ANY, VERSIONS
from tests.faults.round_list import ROUNDS

STATE = RUN / "faults-budget.jsonl"
LOGS = RUN / "faults-budget"
LATE = 124
"""Status of a part that was ended, as ``timeout`` has it."""

ENDING_SECONDS = 60.0
PAGE = ROOT / "docs" / "internals" / "fault-rounds.md"
HELD, MISSED = "held", "**MISSED**"
BEGIN, END = (
    "<!-- figures: python -m tests.faults.run_within_budget --page -->",
    "<!-- end of the figures -->",
)


@dataclass(frozen=True)
class Part:
    """One program and the promise that it tries.

    Attributes
    ----------
    minutes
        What it takes on two cores.
    """

    name: str
    promise: str
    command: tuple[str, ...]
    minutes: float


def _part(name: str, promise: str, command: str, minutes: float) -> Part:
    return Part(name, promise, tuple(shlex.split(command)), minutes)


PARTS = (
    *(
        _part(f"round {name}", "faults of Kinesis, its connector and its input", f"tests.faults --only {name} --records 5000", 2)
        for name in ROUNDS
    ),
    *(
        _part(f"crash points {name}", "every write is a crash point", f"tests.faults.crash_at_every_write --kind {name}", 35)
        for name in CRASHED
    ),
    *(
        _part(f"crash points in one process {kind}", "every write is a crash point", f"tests.faults.in_process_crash_points --kind {kind}", 7)
        for kind in ("latest", "state", "join")
    ),
    _part("full disk", "no space for checkpoints, shuffles or tables: reported, or survived", "tests.faults.full_disk", 6),
    _part("storage", "an S3 that fails, credentials that expire: reported, or survived", "tests.faults.s3_failures", 10),
    _part("brokers", "leaders that are killed, brokers that are restarted", "tests.faults.broker_failures", 6),
    _part("one writer", "a second run on a checkpoint is refused; a reset doubles nothing", "tests.faults.checkpoint_lease_and_reset --times 20", 8),
    _part("verify", "a small environment in an account: deployed, killed, compared with a ledger, removed", "tests.faults.verify_simulated_account", 5),
    _part("upgrade", "another version on the same checkpoint, and back", "tests.faults.upgrade_under_load", 6),
    *(
        _part(f"moves {engine}", "to a later Spark and back, twenty times", f"tests.faults.moves_between_engines --engine {engine} --times 20", 30)
        for engine in VERSIONS
    ),
    _part("moves between engines", "to a job on another engine by its checkpoint, twenty times", f"tests.faults.moves_between_engines --engine {ANY} --times 20", 25),
    _part("sinks", "kill -9 in the middle of writes to every sink", "tests.faults.kill_during_sink_writes --kills 3 --records 3000", 6),
    _part("throttle", "sinks that are slow or take nothing", "tests.faults.throttled_sinks", 6),
    _part("upkeep", "tables kept up while they are written and read", "tests.faults.maintenance_under_load --minutes 10", 12),
    *(
        _part(f"deployed {name}", "deployed jobs under kill -9", f"tests.faults.kill_deployed_jobs --only {name} --kills 3 --records 6000", 8)
        for name in DEPLOYED
    ),
    _part("deployed sinks", "one deployed job, five kinds of sink, kill -9", "tests.faults.kill_during_sink_writes --deployed --kills 1 --records 2000", 8),
    _part("change data", "tables and history of a database's changes are PostgreSQL's", "tests.faults.change_data --transactions 100000", 15),
    _part("load", "10^7 records", "tests.faults.ten_million_records --events 10000000", 15),
    _part(
        "load kinesis", "10^6 records, with kills in the middle of reshards",
        "tests.faults --only killed_while_splitting --records 1000000", 20,
    ),
    _part("restart", "from kill -9 to the first committed batch in a minute", "tests.performance.restart --times 20", 11),
    _part("soak", "an hour: memory and files do not rise", "tests.faults.soak --minutes 60", 65),
)  # fmt: skip


@dataclass(frozen=True)
class Played:
    """What a part came to.

    Attributes
    ----------
    figures
        The last line that it printed.
    """

    name: str
    command: str
    at: str
    minutes: float
    status: int
    figures: str


def played() -> dict[str, Played]:
    """Read the last run of each part."""
    return {one.name: one for one in _history()}


def _history() -> list[Played]:
    """All runs that are known, the oldest first: those of the page's table, then those of this machine."""
    here = STATE.read_text().splitlines() if STATE.exists() else []
    # The sort is stable: of one day, what this machine did comes after what the page had.
    return sorted(
        [*on_page(PAGE.read_text()), *(Played(**json.loads(line)) for line in here)], key=lambda one: one.at
    )


def on_page(text: str) -> list[Played]:
    """Read the runs that a page's table has; rows of commands that are no part any more are left out."""
    names = {_typed(part): part.name for part in PARTS}
    results = []
    for line in text.split(BEGIN)[1].split(END)[0].splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 6 and (command := cells[1].strip("`")) in names:
            status = int(cells[4] != HELD)
            results.append(Played(names[command], command, cells[2], float(cells[3]), status, cells[5]))
    return results


def _typed(part: Part) -> str:
    return f"python -m {' '.join(part.command)}"


def play(part: Part, minutes: float) -> Played:
    """Run a part; ended at twice the time it takes, or at the budget's end where that is later. What it says is kept."""
    begun = time.monotonic()
    limit = max(2 * part.minutes, minutes) * 60
    LOGS.mkdir(parents=True, exist_ok=True)
    log = LOGS / f"{part.name.replace(' ', '-')}.log"
    with log.open("w") as said, log.with_suffix(".err").open("w") as errors:
        running = subprocess.Popen(
            [sys.executable, "-m", *part.command],
            cwd=ROOT, env=program_variables(), stdout=said, stderr=errors, preexec_fn=_hear,
        )  # fmt: skip
        try:
            status = running.wait(timeout=limit)
        except subprocess.TimeoutExpired:
            status = LATE
        finally:
            _end(running)
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    last = lines[-1].strip() if lines else "it said nothing"
    one = Played(
        part.name,
        _typed(part),
        f"{datetime.now(UTC):%Y-%m-%d}",
        round((time.monotonic() - begun) / 60, 1),
        status,
        f"not at its end after {limit / 60:.0f} minutes; {last}" if status == LATE else last,
    )
    STATE.parent.mkdir(parents=True, exist_ok=True)
    with STATE.open("a") as file:
        file.write(json.dumps(asdict(one)) + "\n")
    return one


def _hear() -> None:
    """Let a part hear an interruption, also where this program was begun in the background and hears none."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _end(running: subprocess.Popen[bytes]) -> None:
    """End a part that still runs, so that it ends what it has started."""
    if running.poll() is not None:
        return
    running.send_signal(signal.SIGINT)
    try:
        running.wait(timeout=ENDING_SECONDS)
    except subprocess.TimeoutExpired:
        running.kill()
        running.wait()


def table() -> str:
    """Return what is known as a table in Markdown."""
    promises = {part.name: part.promise for part in PARTS}
    rows = [
        f"| {promises[one.name]} | `{one.command}` | {one.at} | {one.minutes:g} | "
        f"{HELD if one.status == 0 else MISSED} | {one.figures.replace('|', '/')} |"
        for one in sorted(played().values(), key=lambda one: list(promises).index(one.name))
        if one.name in promises
    ]
    head = "| promise | command | date | minutes | | figures, as printed |\n|---|---|---|---|---|---|\n"
    return head + "\n".join(rows) + "\n"


def write_page() -> None:
    """Put the table into the page."""
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table()}\n{END}{rest.split(END)[1]}")


def order() -> list[Part]:
    """Return the parts, those never run first, then the oldest."""
    last = {one.name: number for number, one in enumerate(_history())}
    return sorted(PARTS, key=lambda part: last.get(part.name, -1))


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.run_within_budget", description="The fault suite within a budget."
    )
    reading.add_argument("--minutes", type=float, default=60.0)
    reading.add_argument("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    reading.add_argument("--page", action="store_true", help="write the table of its page")
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what fits, and tell."""
    options = parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(LATE))
    # Ignored in a shell's background, and a part would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    until = time.monotonic() + options.minutes * 60
    failed = []
    for part in order():
        left = (until - time.monotonic()) / 60
        if part.minutes > left or (options.only and part.name not in options.only):
            continue
        one = play(part, left)
        sys.stdout.write(
            f"{one.name}: {'held' if one.status == 0 else 'MISSED'}, {one.minutes:g} min: {one.figures}\n"
        )
        sys.stdout.flush()
        failed += [one.name] if one.status else []
    if options.page:
        write_page()
    sys.stdout.write(f"{len(failed)} missed{': ' + ', '.join(failed) if failed else ''}\n")
    return int(bool(failed))


if __name__ == "__main__":
    raise SystemExit(main())
