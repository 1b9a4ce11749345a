"""Run the advisor on real runs with one known fault each, and write docs/advisor.md: ``python -m tests.advisor``.

What a run came to is kept below ``.millrace/sandbox/advisor``, so that runs can be made a few at a time; ``--again`` makes
none and judges the logs again.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Advice
from millrace.advisor.findings.query_view import LEAST, QueryView
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.toolchain import ROOT
from tests.advisor.runs_with_expected_findings import RUNS, SPARKS, Run, folder, play

PAGE = ROOT / "docs" / "advisor.md"
_MARKED = re.compile(r"(?<=<!-- runs -->\n).*?(?=<!-- /runs -->)", re.S)


@dataclass(frozen=True)
class Judged:
    """What the advisor said of a run."""

    spark: str
    run: Run
    advice: Advice

    @property
    def kinds(self) -> list[str]:
        return list(dict.fromkeys(each.kind for each in self.advice.findings))

    @property
    def settled(self) -> int:
        """Batches that could be judged: on a busy machine a run has few."""
        views = (QueryView(self.advice.history, query, AdvisedJob()) for query in self.advice.history.queries)
        return sum(len(view.settled_batches) for view in views)

    @property
    def met(self) -> bool:
        """Whether it said what it must: the fault, or nothing."""
        if self.run.disturbed:
            return self.advice.disturbed is not None
        if not self.run.wanted:
            return not self.kinds and self.advice.disturbed is None
        return bool(self.run.wanted & set(self.kinds))

    @property
    def besides(self) -> list[str]:
        """Findings that are not the fault."""
        said = ["disturbed"] * (self.advice.disturbed is not None and not self.run.disturbed)
        return said + [kind for kind in self.kinds if kind not in self.run.wanted]


def parser() -> argparse.ArgumentParser:
    """What may be given."""
    made = argparse.ArgumentParser(prog="tests.advisor", description=__doc__)
    made.add_argument("--only", choices=RUNS, nargs="+", default=list(RUNS))
    made.add_argument("--spark", choices=SPARKS, default="3.5")
    made.add_argument("--seconds", type=float, default=60, help="of each run")
    made.add_argument("--work", type=float, default=1.0, help="share of the usual work, for a busy machine")
    made.add_argument("--again", action="store_true", help="make no run; judge the kept logs again")
    made.add_argument("--page", type=Path, default=PAGE)
    return made


def main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    if not options.again:
        _make([RUNS[name] for name in options.only], options.spark, options.seconds, options.work)
    judged = [
        Judged(spark, run, advise(read_history(find_event_logs(str(folder(spark, run) / "logs"))[0])))
        for spark in SPARKS
        for run in RUNS.values()
        if (folder(spark, run) / "logs").is_dir()
    ]
    for each in judged:
        _say(
            f"{each.spark} {each.run.name}: {'met' if each.met else 'MISSED'}; {', '.join(each.kinds) or 'nothing'}"
        )
    text = options.page.read_text(encoding="utf-8")
    options.page.write_text(_MARKED.sub(lambda _: table(judged), text), encoding="utf-8")
    return 0 if all(each.met for each in judged) else 1


def _make(runs: Sequence[Run], spark: str, seconds: float, work: float) -> None:
    if spark != "3.5":
        _install(spark)
    with ExitStack() as stack:
        broker = None
        if any(run.reads_kafka for run in runs):
            broker = stack.enter_context(kafka_broker.running_broker())
        for run in runs:
            _say(f"Spark {spark}, {run.name}: {seconds:g} s")
            play(spark, run, seconds, broker, work)


def _install(spark: str) -> None:
    """Put the other Spark into an environment of its own."""
    subprocess.run(["make", "spark", f"SPARK={spark}"], check=True, cwd=ROOT)


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def table(judged: Sequence[Judged]) -> str:
    """What was found in which run, what was found besides, and how often each kind was right."""
    faulty = [each for each in judged if each.run.fault]
    clean = [each for each in judged if not each.run.fault]
    parts = ["", "| fault made | Spark | settled batches | found | also found |", "|---|---|---|---|---|"]
    for each in sorted(faulty, key=lambda each: list(RUNS).index(each.run.name)):
        wanted = "disturbed" if each.run.disturbed else " or ".join(sorted(each.run.wanted))
        result = wanted if each.met else f"**missed**: {wanted}"
        parts.append(
            f"| {each.run.fault} | {each.spark} | {each.settled} | {result} | {', '.join(each.besides) or 'nothing'} |"
        )
    parts += ["", "| clean run | Spark | settled batches | found |", "|---|---|---|---|"]
    for each in clean:
        parts.append(
            f"| {each.run.name} | {each.spark} | {each.settled} | {', '.join(each.besides) or 'nothing'} |"
        )
    parts += [
        "",
        "| kind | its runs | found in them | missed | in other faults' runs | in clean runs |",
        "|---|---|---|---|---|---|",
    ]
    kinds = sorted(
        {kind for run in RUNS.values() for kind in run.wanted}
        | {kind for each in judged for kind in each.kinds}
    )
    for kind in [*kinds, "disturbed"]:
        parts.append("| " + " | ".join(_counts(kind, faulty, clean)) + " |")
    met = sum(each.met for each in faulty)
    made = {(each.spark, each.run.name) for each in judged}
    for spark in SPARKS:
        left = [run.name for run in RUNS.values() if (spark, run.name) not in made]
        if left:
            parts += ["", f"Not made yet on Spark {spark}: {', '.join(left)}."]
    parts += [
        "",
        f"{met} of {len(faulty)} faults were found, {sum(each.met for each in faulty if each.settled >= LEAST)} of "
        f"{sum(each.settled >= LEAST for each in faulty)} in runs with the {LEAST} settled batches that are needed; {sum(not each.met for each in clean)} of {len(clean)} clean runs had a "
        "finding or were called disturbed.",
        "",
    ]
    return "\n".join(parts) + "\n"


def _counts(kind: str, faulty: Sequence[Judged], clean: Sequence[Judged]) -> tuple[str, ...]:
    def said(each: Judged) -> bool:
        return each.advice.disturbed is not None if kind == "disturbed" else kind in each.kinds

    own = [
        each for each in faulty if (each.run.disturbed if kind == "disturbed" else kind in each.run.wanted)
    ]
    # Where one of several kinds is wanted, another of them is no miss.
    missed = [each for each in own if not each.met]
    others = [each for each in faulty if each not in own and said(each)]
    return (
        kind,
        str(len(own)),
        str(sum(said(each) for each in own)),
        str(len(missed)),
        str(len(others)),
        str(sum(said(each) for each in clean)),
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
