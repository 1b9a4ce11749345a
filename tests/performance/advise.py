"""Speed and memory of reading an event log, compared with plain ``json`` line by line.

``python -m tests.performance.advise LOG --megabytes 200 --rounds 7``. A real log is repeated, each time with numbers of its
own for jobs, stages and batches, until it is as long as asked. Both ways read the same file in turn, from the page cache,
in one process each time: the figures to trust are the ratios of a pair. ``--megabytes 1000 --rounds 1`` shows the memory.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import LogLines, find_event_logs

_NUMBERS = re.compile(
    rb'("(?:Stage ID|Job ID|batchId)":|"(?:streaming\.sql\.batchId|spark\.sql\.execution\.id)":"|\\nbatch = )(\d+)'
)
_LISTS = re.compile(rb'("Stage IDs":\[)([\d,]*)\]')
_STEP = 1_000_000


def lengthen(log: str, target: Path, megabytes: float) -> None:
    """Write a log again and again, each time as later jobs, stages and batches of the same application."""
    lines = list(LogLines(find_event_logs(log)[0]))
    text = b"\n".join(line for line in lines if b'"SparkListenerApplicationEnd"' not in line) + b"\n"
    shift = 0
    with target.open("wb") as out:
        while out.tell() < megabytes * 1e6:
            out.write(text if not shift else _shifted(text, shift))
            shift += _STEP


def _shifted(text: bytes, by: int) -> bytes:
    def number(found: re.Match[bytes]) -> bytes:
        return found[1] + str(int(found[2]) + by).encode()

    def numbers(found: re.Match[bytes]) -> bytes:
        moved = (str(int(each) + by).encode() for each in found[2].split(b",") if each)
        return found[1] + b",".join(moved) + b"]"

    return _LISTS.sub(numbers, _NUMBERS.sub(number, text))


def ours(file: Path) -> int:
    history = read_history(find_event_logs(str(file))[0])
    return sum(len(query.batches) for query in history.queries)


def plain(file: Path) -> int:
    """What a script of a few lines does: parse each line, look at its event."""
    batches = 0
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            batches += json.loads(line)["Event"].endswith("QueryProgressEvent")
    return batches


WAYS = {"ours": ours, "plain": plain}


def measured(way: str, file: Path) -> tuple[float, float, int]:
    """Seconds, MiB at most and batches of one way, in a process of its own."""
    command = [sys.executable, "-m", "tests.performance.advise", str(file), "--one", way]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory, batches = done.stdout.split()
    return float(seconds), float(memory), int(batches)


def one(way: str, file: Path) -> None:
    begun = time.perf_counter()
    batches = WAYS[way](file)
    seconds = time.perf_counter() - begun
    # Not ru_maxrss, which begins with what the parent had when it forked.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    sys.stdout.write(f"{seconds} {memory} {batches}\n")


def parser() -> argparse.ArgumentParser:
    """What may be given."""
    made = argparse.ArgumentParser(prog="tests.performance.advise", description=__doc__)
    made.add_argument("log", help="a real event log of a streaming application")
    made.add_argument("--megabytes", type=float, default=200)
    made.add_argument("--rounds", type=int, default=7)
    made.add_argument("--one", choices=WAYS, help=argparse.SUPPRESS)
    return made


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    if given.one:
        one(given.one, Path(given.log))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "local-1"
        lengthen(given.log, file, given.megabytes)
        size = file.stat().st_size / 1e6
        ratios, speeds, memory = [], [], dict.fromkeys(WAYS, 0.0)
        for number in range(given.rounds):
            # The first of a pair may find a colder machine, so they take turns at that.
            order = list(WAYS) if number % 2 else list(WAYS)[::-1]
            found = {way: measured(way, file) for way in order}
            assert found["ours"][2] == found["plain"][2], found
            ratios.append(found["plain"][0] / found["ours"][0])
            speeds.append(size / found["ours"][0])
            memory = {way: max(memory[way], found[way][1]) for way in WAYS}
    draws = np.median(np.random.default_rng(0).choice(ratios, (2000, len(ratios))), axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    sys.stdout.write(
        f"{size:,.0f} MB, {given.rounds} pairs: {np.median(ratios):.2f} times as fast as json line by line "
        f"({low:.2f} to {high:.2f}), {np.median(speeds):,.0f} MB/s; memory {memory['ours']:,.0f} MiB, "
        f"json {memory['plain']:,.0f} MiB\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
