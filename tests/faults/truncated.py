"""Files of a checkpoint that are cut short: ``python -m tests.faults.truncated``.

For each kind of query, each of its checkpoint's files in turn is cut to nothing and to half, after some batches, or in the
middle of one (its data are committed, and Spark has not noted it). The job is then started as the engines start it, over more
records. It must either go on exactly, or say in one message which file it is and what to do about it: with status 2 before
anything is read, or with status 1 where only reading shows it. With the file put back, it must go on exactly.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.sandbox import kafka
from millrace.sandbox.process import RUN, SandboxError
from tests.faults.in_process import Job
from tests.faults.session import open_session

HOME = RUN / "faults-truncated"
_STATE = "org.apache.spark.sql.execution.streaming.state"
STORES: Mapping[str, Mapping[str, str]] = {
    # As infra has it (``infra/spark.py``).
    "rocksdb": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "heap": {
        "spark.sql.streaming.stateStore.providerClass": f"{_STATE}.HDFSBackedStateStoreProvider",
    },
}
MOST_RUNS = 6
"""State is packed beside the batches, every second here: a run may end before its last one was."""

CUTS: Mapping[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
}


@dataclass(frozen=True)
class Case:
    """One file that is cut.

    Attributes
    ----------
    kind
        Of the job: ``land``, ``direct``, ``derive`` or ``state``.
    file
        Below the job's checkpoints; of a pattern the newest one, by number.
    within
        Whether the job was killed in the middle of a batch.
    store
        Where a stateful query keeps its state.
    """

    kind: str
    file: str
    within: bool = False
    store: str = "rocksdb"

    def __str__(self) -> str:
        store = f" ({self.store})" if self.kind == "state" and "/state/" in self.file else ""
        return f"{self.file}{store}{', in a batch' if self.within else ''}"


def cases() -> Iterator[Case]:
    """All files that the core or Spark reads again."""
    for kind, query in (("land", "land"), ("direct", "direct"), ("derive", "derive"), ("state", "derive")):
        yield Case(kind, f"{query}/offsets/*")
        yield Case(kind, f"{query}/offsets/*", within=True)
        yield Case(kind, f"{query}/commits/*")
        yield Case(kind, f"{query}/metadata")
        yield Case(kind, f"_millrace/{query}.manifest.json")
    yield Case("land", "land/commits/*", within=True)
    yield Case("land", "land/sources/0/0")
    yield Case("land", "_millrace/lease.json")
    yield Case("derive", "derive/sources/0/offsets/0")
    yield Case("state", "derive/state/0/*/*.changelog")
    yield Case("state", "derive/state/0/*/*.zip")
    yield Case("state", "derive/state/0/*/SSTs/*.sst")
    yield Case("state", "derive/state/0/*/_metadata/schema")
    yield Case("state", "derive/state/0/*/*.delta", store="heap")
    yield Case("state", "derive/state/0/*/*.snapshot", store="heap")


def _files(job: Job, pattern: str) -> list[Path]:
    return [
        path for path in job.checkpoints.glob(pattern) if path.is_file() and not path.name.startswith(".")
    ]


def cut(job: Job, pattern: str, how: str) -> tuple[Path, bytes]:
    """Cut the newest file of a pattern; it, and what it held."""
    found = _files(job, pattern)
    if not found:
        there = sorted(str(path.relative_to(job.checkpoints)) for path in job.checkpoints.rglob("*"))
        raise SandboxError(f"no file {pattern}: {', '.join(there)}")
    newest = max(found, key=lambda path: (_number(path), path.stat().st_size))
    data = newest.read_bytes()
    newest.write_bytes(CUTS[how](data))
    # Hadoop's local file system would tell of the other length by its checksum; S3 keeps none beside a file.
    newest.with_name(f".{newest.name}.crc").unlink(missing_ok=True)
    return newest, data


def _number(path: Path) -> int:
    digits = "".join(c for c in path.name.partition(".")[0] if c.isdecimal())
    return int(digits) if digits else -1


def play(spark: SparkSession, broker: kafka.Kafka, number: int, case: Case, how: str) -> tuple[bool, str]:
    """Cut one file; whether all held, and what it came to."""
    for key, value in STORES[case.store].items():
        spark.conf.set(key, value)
    job = Job(spark, broker, HOME, number, case.kind)
    try:
        for number_of_run in range(MOST_RUNS):
            last = number_of_run > 0 and (case.within or bool(_files(job, case.file)))
            dies = last and case.within
            job.send()
            before = job.run(dies=dies)
            if before.status != int(dies):
                return False, f"it did not even run before: {before}"
            if last:
                break
        job.send()
        try:
            path, data = cut(job, case.file, how)
        except SandboxError as error:
            return False, str(error)
        after = job.run()
        if after.status == 0:
            wrong = job.wrong()
            return not wrong, f"went on: {dict(wrong) or 'exact'}"
        clear = _clear(after.message, path)
        _mend(path, data, after.message)
        mended = job.run()
        wrong = job.wrong()
        held = clear and mended.status == 0 and not wrong
        told = f"status {after.status}, {'told' if clear else 'A RIDDLE'}: {after.message}"
        return held, f"{told} | then {mended.status}: {dict(wrong) or 'exact'}"
    finally:
        job.drop()


def _clear(message: str, path: Path) -> bool:
    """Whether a message names the file, or its folder where only that is known, and a way out."""
    return str(path) in message and ("millrace checkpoint" in message or "put the file back" in message)


def _mend(path: Path, data: bytes, message: str) -> None:
    """Take the way out: delete the file where that is called safe, put it back else."""
    if "deleting it is safe" in message:
        path.unlink()
    else:
        path.write_bytes(data)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.truncated", description="A checkpoint's files, cut short."
    )
    reading.add_argument("--minutes", type=float, default=float("inf"), help="no case begins later")
    reading.add_argument("--seed", type=int, default=1, help="of the order")
    reading.add_argument("--fresh", action="store_true", help="forget what was played before")
    return reading


def main() -> int:
    """Cut, start, mend, compare, print a line for each; go on where an earlier run ended."""
    given = parser().parse_args()
    until = time.monotonic() + given.minutes * 60
    if given.fresh:
        shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True, exist_ok=True)
    kept = HOME / "outcomes.jsonl"
    ends: dict[str, str] = {}
    for line in kept.read_text().splitlines() if kept.exists() else []:
        ends |= json.loads(line)
    whole = [(f"{case.kind}: {case}, {how}", case, how) for case in cases() for how in CUTS]
    random.Random(given.seed).shuffle(whole)  # noqa: S311 - repeatable on purpose
    with kafka.running() as broker:
        spark = open_session(HOME / "lake", {"spark.sql.streaming.stateStore.maintenanceInterval": "1s"})
        spark.conf.set("spark.sql.streaming.stateStore.minDeltasForSnapshot", "2")
        try:
            for number, (name, case, how) in enumerate(whole):
                # One that missed is played again.
                if ends.get(name, "missed") != "missed" or time.monotonic() > until:
                    continue
                held, line = play(spark, broker, number, case, how)
                ends[name] = line.split(":")[0].split(",")[0] if held else "missed"
                with kept.open("a") as file:
                    file.write(json.dumps({name: ends[name]}) + "\n")
                sys.stdout.write(f"{'ok' if held else 'NOT OK'}: {name}: {line}\n")
                sys.stdout.flush()
        finally:
            spark.stop()
    told = ", ".join(f"{end} {count}" for end, count in sorted(Counter(ends.values()).items()))
    missed = [name for name, end in ends.items() if end == "missed"]
    sys.stdout.write(
        f"{len(ends)} of {len(whole)} files cut short: {told}{'; ' + '; '.join(missed) if missed else ''}\n"
    )
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
