"""``python -m tests.sizing_validation``: compare the sizing model with known answers and real runs; write docs/validation.md."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import textwrap
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from millrace.sandbox.programs.child_processes import RUN
from tests.performance.preloaded_input import PARTITIONS
from tests.sizing_validation import (
    backlog_drain_time,
    interval_coverage,
    predicted_and_measured_batches,
    shard_limited_drain_time,
    simultaneous_batches,
)
from tests.sizing_validation.alternative_duration_models import RIVALS

PAGE = Path("docs/validation.md")
_SHARD, _SHARING = "## A shard's bytes", "## Queries of one job"

_INTRODUCTION = """# Validation of the sizing model

`make validate` measures everything on this page again and writes it. These are results, including those that miss their target, and no
promises.
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.sizing_validation", description=__doc__)
    parser.add_argument("--draws", type=int, default=400, help="made benchmarks for the intervals")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--batches", type=int, default=13)
    parser.add_argument(
        "--again", action="store_true", help="score what was measured last, without measuring"
    )
    parser.add_argument(
        "--only",
        choices=["shard", "sharing"],
        help="measure only the drain of one shard, or queries that share a job, and write that part of the page",
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args(arguments)
    together = RUN / "validation-sharing.json"
    if options.only != "shard" and not options.again:
        simultaneous_batches.run(together, _say)
    if options.only is not None:
        part = (
            _sharing(together)
            if options.only == "sharing"
            else _shard(shard_limited_drain_time.drained(_say))
        )
        page = options.page.read_text(encoding="utf-8")
        options.page.write_text(_with_part(page, _wrapped(part)), encoding="utf-8")
        return 0
    kept = RUN / "validation.json"
    if not options.again:
        predicted_and_measured_batches.save(
            predicted_and_measured_batches.measure(options.repetitions, options.batches, _say), kept
        )
    real = predicted_and_measured_batches.validate(predicted_and_measured_batches.read(kept))
    drains = backlog_drain_time.drained(real.fit, _say)
    covered = interval_coverage.coverage(options.draws)
    page = "\n".join(
        (
            _page(covered, options.draws, real, drains),
            _shard(shard_limited_drain_time.drained(_say)),
            _sharing(together),
        )
    )
    options.page.write_text(_wrapped(page), encoding="utf-8")
    _say(f"{options.page} is written")
    return 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _page(
    covered: Sequence[interval_coverage.Coverage],
    draws: int,
    real: predicted_and_measured_batches.Validation,
    drains: Sequence[backlog_drain_time.Drained],
) -> str:
    machine = f"{os.cpu_count()} cores, {platform.machine()}, one machine that others may use too"
    parts = [_INTRODUCTION, f"Measured on {datetime.now(UTC):%Y-%m-%d}: {machine}.\n", "## Intervals\n"]
    parts.append(
        f"{draws} generated benchmarks with known costs (18 runs of 12 batches, 5 % noise in each batch and 2 % in each run): "
        "the share whose 95 % interval contains the true value. Target: 92 to 98 %.\n"
    )
    rows = [[c.parameter, f"{c.share:.1%}", f"[{c.low:.1%}, {c.high:.1%}]"] for c in covered]
    parts.append(_table(["parameter", "share", "interval of that share"], rows))
    parts.append("\n## Batches on real Spark\n")
    parts.append(
        f"The example's land query on Spark and Kafka, {len(predicted_and_measured_batches.LIMITS)} limits from {predicted_and_measured_batches.LIMITS[0]:,} to "
        f"{predicted_and_measured_batches.LIMITS[-1]:,} records, {', '.join(map(str, predicted_and_measured_batches.PARTITIONS))} partitions, one and two cores. "
        f"Trained on one core, {' and '.join(map(str, predicted_and_measured_batches.TRAINING_PARTITIONS))} partitions, limits up to "
        f"{predicted_and_measured_batches.TRAINING_LIMIT:,} ({real.training} batches); all other runs ({real.asked} batches) are predicted. "
        "The table has the errors of the median duration of a run. Target: median at most 15 %, p95 at most 30 %, and less than "
        "each of the other models.\n"
    )
    rows = [
        [s.of, f"{s.rival} ({RIVALS[s.rival]})", str(s.runs), f"{s.median:.1%}", f"{s.p95:.1%}"]
        for s in real.scores
    ]
    parts.append(_table(["predicted runs", "model", "runs", "median error", "p95"], rows))
    parts.append(
        "\nTwo runs with the same settings, minutes apart, differ by a median of "
        f"{real.repeated.median:.1%} and a p95 of {real.repeated.p95:.1%} ({real.repeated.runs} runs): this is the variation of "
        "the machine. Each of the two runs has half of the variance, so even a perfect model would miss by about 1/√2 of it, "
        f"{real.repeated.median / 2**0.5:.1%} and {real.repeated.p95 / 2**0.5:.1%}.\n"
    )
    fit = real.fit
    wave = f"{fit.wave.value:.3f}" if fit.wave else "in a"
    parts.append(
        f"\nThe fit: a = {fit.overhead.value:.3f} s [{fit.overhead.low:.3f}, {fit.overhead.high:.3f}], κ = {wave} s, "
        f"b = {fit.per_record.value * 1e6:.1f} µs [{fit.per_record.low * 1e6:.1f}, {fit.per_record.high * 1e6:.1f}].\n"
    )
    if real.disturbed:
        parts.append(
            "These runs count as disturbed by the model's own rule, so the product would give no advice from them:\n"
        )
        parts += [f"- {each}" for each in real.disturbed]
    parts.append("\n## Draining\n")
    parts.append(
        "A producer continues while the query is stopped for R seconds. The predicted drain time is λR/(μ - λ), with "
        "μ = L/max(T, D(L)) from the fit above. Target: within 20 %. One batch more or less, which depends on the triggers, changes "
        "it by L/(μ - λ). The last two columns use μ of the batches that drained the backlog: they show the error of the formula "
        "alone, without that of the fit and of the machine.\n"
    )
    rows = [
        [
            d.setting.name,
            f"{d.setting.rate:,.0f}/s",
            f"{d.capacity:,.0f}/s",
            f"{d.pause:.1f} s",
            f"{d.foretold:.1f} s",
            f"{d.measured:.1f} s",
            f"{d.of_a_batch:.1f} s",
            f"{d.error(d.foretold):.0%}",
            f"{d.seen:,.0f}/s",
            f"{d.error(d.afterwards):.0%}",
        ]
        for d in drains
    ]
    parts.append(
        _table(
            ["case", "λ", "μ", "R", "predicted", "measured", "one batch", "error", "measured μ", "error"],
            rows,
        )
    )
    return "\n".join(parts) + "\n"


def _shard(drains: Sequence[shard_limited_drain_time.Drained]) -> str:
    rows = [
        [
            one.setting.name,
            f"{one.setting.rate:,} of {one.setting.size / 1024:g} KiB",
            f"{one.backlog:,}",
            f"{one.trigger:g} s",
            f"{one.foretold:.1f} s",
            f"{one.measured:.1f} s",
            f"{one.error:.0%}",
            str(one.refused),
        ]
        for one in drains
    ]
    return (
        f"{_SHARD}\n\n"
        "The bytes of one shard are the limit here, not the cores. A proxy before kinesalite refuses reads as Kinesis does: five per "
        "second and 2 MiB per second, so that five seconds without a read follow an answer of 10 MiB. The deployed core lands from it "
        "with the plan's trigger and limit, is stopped while records arrive, and starts again. The predicted time is the plan's time "
        "to catch up for the waiting records, with the rate and the fixed cost that it assumes without a benchmark. Target: within 20 %. "
        f"Measured on {datetime.now(UTC):%Y-%m-%d}.\n\n"
        + _table(
            ["case", "records/s", "backlog", "trigger", "predicted", "measured", "error", "refused reads"],
            rows,
        )
        + "\n\nThe shard is not read while Spark plans a batch, and its unused allowance is not kept for later. So the fixed cost comes on "
        "top of the time in which it delivers the batch. Not included: the connector waits up to a second too long after a refused "
        "read, and exceeds a limit by its last read.\n"
    )


def _sharing(file: Path) -> str:
    alone, shared = simultaneous_batches.validate(simultaneous_batches.read(file))
    day = datetime.fromtimestamp(file.stat().st_mtime, UTC)
    rows = [
        [
            str(one.queries),
            f"{one.records:,}",
            f"{one.predicted:.2f} s",
            f"{one.measured:.2f} s",
            f"{one.error:.0%}",
        ]
        for one in shared
    ]
    errors = {
        number: statistics.median(one.error for one in shared if one.queries == number)
        for number in dict.fromkeys(one.queries for one in shared)
    }
    said = ", ".join(f"{error:.0%} with {number} queries" for number, error in errors.items())
    return (
        f"{_SHARING}\n\n"
        f"Landing queries of one job read a topic of {PARTITIONS} partitions on {simultaneous_batches.CORES} cores and fire together. The simulator predicts "
        "the slowest batch of each burst, which decides whether records are in time, from those of one query alone in the same Java process: "
        "the driver's time, with the cores that it keeps busy, which batches that begin together share, and the time of a task and of a "
        f"record. Target: median error at most 15 %. Measured on {day:%Y-%m-%d}: "
        f"{statistics.median(one.error for one in shared):.0%}; {said}.\n\n"
        + _table(["queries", "records of each batch", "predicted", "measured", "error"], rows)
        + f"\n\nThe query alone: a = {alone.overhead:.3f} s, κ = {alone.wave:.3f} s, b = {alone.per_record * 1e6:.1f} µs, {alone.cores_per_batch:.2f} cores.\n"
    )


def _with_part(page: str, part: str) -> str:
    """Return the page with another text of one of its parts, which may be new."""
    before, heading, rest = page.partition(part.split("\n", 1)[0] + "\n")
    following = rest.partition("\n## ")[2] if heading else ""
    return before.rstrip() + "\n\n" + part + (f"\n## {following}" if following else "")


def _wrapped(page: str) -> str:
    """Wrap the lines of a page that are not of a table."""
    return "\n".join(
        line if line.startswith("|") else textwrap.fill(line, 140, break_on_hyphens=False)
        for line in page.split("\n")
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
