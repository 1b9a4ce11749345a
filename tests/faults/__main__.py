"""Run fault rounds in sequence, continue an interrupted run, and print a line per round: ``python -m tests.faults``.

``python -m tests.faults --records 50000`` sends 10^6 records and more in all. What a round came to
is kept in ``.millrace/sandbox/faults`` and not run again; ``--fresh`` forgets it.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from tests import kinesalite
from tests.faults.round_list import ROUNDS

HOME = RUN / "faults"


@dataclass(frozen=True)
class RoundResult:
    """What one round came to.

    Attributes
    ----------
    again
        Records that the connector handed over once more, and that were not landed once more.
    stalled
        Why the job did not come to an end by itself; empty where it did.
    """

    name: str
    seed: int
    records: int
    sent: int
    landed: int
    dead_letters: int
    lost: int
    duplicated: int
    other: int
    again: int
    batches: int
    seconds: float
    stalled: str
    met: bool


BARE = "import tests.faults.connector_without_guards  # noqa: F401\n"


def play(name: str, *, seed: int, records: int, kinesis: Any, home: Path, bare: bool = False) -> RoundResult:
    """Run one round; ``bare`` without what the core does about the connector."""
    round_ = ROUNDS[name]
    choose = random.Random(zlib.crc32(f"{name} {seed}".encode()))
    stream = f"{name.replace('_', '-')}-{seed}"
    prelude = BARE if bare else round_.prelude
    stage = round_.kind(
        kinesis,
        home / name,
        stream,
        choose,
        dict(round_.settings),
        round_.trigger_seconds,
        prelude,
        round_.ddl,
    )
    begun, stalled = time.monotonic(), ""
    try:
        stage.create_stream(round_.shards)
        round_.story(stage, records)
    except SandboxError as error:
        stalled = str(error)
    finally:
        stage.kill()
    result = stage.account()
    batches = stage.batches()
    if round_.refused is None:
        met = result.exact and not stalled
    else:
        # Loss has happened to the stream itself: the job must say so, and land nothing twice.
        met = any(round_.refused == e.get("error_class") for e in stage.reported()) and not (
            result.duplicated or result.unknown
        )
    outcome = RoundResult(
        name=name,
        seed=seed,
        records=records,
        sent=result.produced,
        landed=result.landed,
        dead_letters=result.dead_letters,
        lost=result.lost,
        duplicated=result.duplicated,
        other=result.unknown + result.misjudged + result.altered,
        again=sum(b["duplicates"] for b in batches),
        batches=len(batches),
        seconds=round(time.monotonic() - begun, 1),
        stalled=stalled,
        met=met,
    )
    stage.close()
    return outcome


@contextmanager
def server(name: str, seed: int) -> Iterator[Any]:
    """Start a Kinesis of its own for a round."""
    if name == "kinesalite":
        with kinesalite.running(seed=seed, name="faults-kinesalite") as kinesis:
            yield kinesis
        return
    with localstack.running_localstack(name="faults-localstack") as stack:
        # Slow with volume; it cannot be told to refuse reads or to set its clock.
        yield SimpleNamespace(endpoint=stack.endpoint, client=partial(stack.client, "kinesis"))


NUMBERS = ("sent", "landed", "dead_letters", "lost", "duplicated", "other", "again", "batches", "seconds")


def tell(outcome: RoundResult) -> None:
    """Print a round's line."""
    verdict = ("refused" if ROUNDS[outcome.name].refused else "exact") if outcome.met else "MISSED"
    figures = ", ".join(f"{name.replace('_', ' ')} {getattr(outcome, name):,}" for name in NUMBERS)
    sys.stdout.write(
        f"{outcome.name}: {verdict}; {figures}\n{outcome.stalled}{chr(10) if outcome.stalled else ''}"
    )
    sys.stdout.flush()


def total(outcomes: Sequence[RoundResult]) -> str:
    """Sum the rounds up."""
    exact = [o for o in outcomes if ROUNDS[o.name].refused is None]
    return (
        f"{len(outcomes)} rounds, {sum(o.sent for o in outcomes):,} records; "
        f"in the {len(exact)} that lose nothing to the stream itself: "
        f"lost {sum(o.lost for o in exact)}, duplicated {sum(o.duplicated for o in exact)}; "
        f"missed {sum(not o.met for o in outcomes)}\n"
    )


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(
        prog="tests.faults", description="Faults, thrown at landing from Kinesis."
    )
    parser.add_argument("--records", type=int, default=50_000, help="in a round")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", choices=ROUNDS, default=list(ROUNDS), metavar="ROUND")
    parser.add_argument("--server", choices=("kinesalite", "localstack"), default="kinesalite")
    parser.add_argument("--bare", action="store_true", help="without what the core does about the connector")
    parser.add_argument("--fresh", action="store_true", help="forget what earlier runs came to")
    return parser


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    HOME.mkdir(parents=True, exist_ok=True)
    kept = HOME / f"outcomes-{options.server}{'-bare' if options.bare else ''}.jsonl"
    if options.fresh:
        kept.unlink(missing_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {(o.name, o.seed, o.records): o for o in (RoundResult(**json.loads(line)) for line in lines)}
    outcomes = []
    for name in options.only:
        outcome = done.get((name, options.seed, options.records))
        if outcome is None:
            # Each its own server: clocks and faults of one round are not the next one's.
            with server(options.server, options.seed) as kinesis:
                outcome = play(
                    name,
                    seed=options.seed,
                    records=options.records,
                    kinesis=kinesis,
                    home=HOME,
                    bare=options.bare,
                )
            with kept.open("a") as file:
                file.write(json.dumps(asdict(outcome)) + "\n")
            if outcome.met:
                shutil.rmtree(HOME / name)
        outcomes.append(outcome)
        tell(outcome)
    sys.stdout.write(total(outcomes))
    return 0 if all(o.met for o in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
