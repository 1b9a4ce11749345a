"""Output of ``millrace verify`` before and after it runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import RenderableType
from rich.table import Column, Table

from millrace.cli.shared.console import figure_columns, print_rich, table_with_rows
from millrace.sizing.plan_model import CostItem, Plan
from millrace.verify.environment_copy import VerificationCopy, VerificationSettings
from millrace.verify.verification_outcome import VerificationOutcome


def print_planned_verification(
    where: str,
    copy: VerificationCopy,
    plan: Plan,
    settings: VerificationSettings,
    seconds: float,
    cost: Sequence[CostItem],
    left_out: Sequence[str],
    *,
    paid: bool,
    as_json: bool,
    all_of_it: bool,
) -> None:
    """Say what will be deployed, how long it takes and what it costs; with JSON, in one line on standard error.

    Parameters
    ----------
    copy, plan
        The copy that is deployed, and its plan.
    settings
        Records, kills and reshards.
    seconds, cost
        As :func:`millrace.verify.run.estimate_time_and_usage` and :func:`millrace.verify.expected_and_actual_cost.cost_items` return.
    left_out
        Parts that are not verified.
    paid
        Whether the cost is billed to anybody.
    as_json
        Whether the outcome will be JSON.
    all_of_it
        Whether the command stops here; JSON is then complete and goes to standard output.
    """
    dollars = sum(line.usd for line in cost)
    how_long = f"about {max(1, round(seconds / 60))} minutes"
    if as_json:
        document = {"name": copy.environment.name, "where": where, "seconds": round(seconds), "usd": dollars}
        if all_of_it:
            more = {
                "paid": paid,
                "prices": plan.prices.isoformat(),
                "cost": [{"item": line.name, "usd": line.usd, "why": line.why} for line in cost],
                "makes": _created_streams_and_jobs(copy, plan),
                "sends": {
                    "records": settings.records,
                    "per_second": settings.per_second,
                    "dirty": settings.dirty,
                },
                "does": {"kills": settings.kills, "reshards": settings.reshards},
                "left_out": list(left_out),
            }
            sys.stdout.write(f"{json.dumps(document | more, indent=2, ensure_ascii=False)}\n")
            return
        sys.stderr.write(f"{json.dumps(document)}\n")
        return
    table = _titled_table(f"{copy.environment.name}, in {where}", ("makes", "what"))
    prefix = copy.names.prefix
    for made in _created_streams_and_jobs(copy, plan):
        if made["kind"] == "job":
            engine, workers = f"{made['engine']} {made['version']}", f"{made['workers']} of {made['worker']}"
            table.add_row("job", f"{made['name']}, {engine}, {workers}, from {', '.join(made['reads'])}")
        else:
            unit = "shards" if made["kind"] == "kinesis" else "partitions"
            table.add_row(made["kind"], f"{made['name']}, {made[unit]} {unit}")
    others = (
        (
            "beside",
            f"buckets, keys, database, network and logs; all names begin with {prefix}-, all are tagged",
        ),
        ("sends", f"{settings.records:,} records or more to each stream, {settings.per_second:g} per second"),
        ("does", f"{settings.kills} kills of each job, {settings.reshards} reshards, then removes the copy"),
        *(("not", each) for each in left_out),
    )
    print_rich(
        table_with_rows(table, others),
        _cost_table(
            cost,
            f"{'' if paid else 'on AWS '}about ${dollars:.2f} in {how_long}, prices of {plan.prices.isoformat()}",
        ),
    )


def _created_streams_and_jobs(copy: VerificationCopy, plan: Plan) -> list[dict[str, Any]]:
    """Return streams and jobs with their sizes."""
    streams = [
        {
            "kind": stream.kind,
            "name": copy.names.stream(name),
            "shards" if stream.kind == "kinesis" else "partitions": (
                0 if stream.partitions is None else stream.partitions.value
            ),
        }
        for name, stream in plan.streams.items()
    ]
    jobs = [
        {
            "kind": "job",
            "name": copy.names.job(name),
            "engine": job.engine,
            "version": job.version,
            "workers": job.max_workers.value,
            "worker": str(job.worker),
            "reads": [leg.stream for leg in copy.legs if leg.job == name],
        }
        for name, job in plan.jobs.items()
    ]
    return [*streams, *jobs]


def print_outcome(outcome: VerificationOutcome) -> None:
    """Print steps, tables, kills and cost."""
    parts: list[RenderableType] = [
        _titled_table(
            f"{outcome.name}: steps",
            ("step", *figure_columns("seconds", no_wrap=False), ""),
            [(step.name, f"{step.seconds:.1f}", step.said) for step in outcome.steps],
        )
    ]
    if outcome.kills:
        parts.append(
            _titled_table(
                "recovery: from the end of the killed run to the next commit",
                ("job", *figure_columns("kill", "run ended after s", "recovered after s", no_wrap=False)),
                [
                    (k.job, str(k.number), f"{k.ending_seconds:.1f}", f"{k.recovery_seconds:.1f}")
                    for k in outcome.kills
                ],
            )
        )
    if outcome.compared:
        parts.append(_comparison_table(outcome))
    dollars = sum(line.usd for line in outcome.cost)
    by = "as the engines counted" if outcome.billed else "as the seconds that it took are billed"
    what = "cost" if outcome.paid else "on AWS the same would cost"
    parts.append(_cost_table(outcome.cost, f"{what}: ${dollars:.4f}, {by}, prices of {outcome.prices}"))
    print_rich(*parts, _verdict_text(outcome))


def _titled_table(title: str, columns: Sequence[Column | str], rows: Sequence[Sequence[str]] = ()) -> Table:
    return table_with_rows(Table(*columns, title=title, title_justify="left"), rows)


def _comparison_table(outcome: VerificationOutcome) -> Table:
    names = ("sent", "landed", "dead letters", "derived", "lost", "twice", "altered", "unknown")
    table = _titled_table(
        "tables against the ledger", ("job and stream", *figure_columns(*names, no_wrap=False))
    )
    for each in outcome.compared:
        result = each.account
        table.add_row(
            f"{each.leg.job} {each.leg.stream}",
            *(
                f"{figure:,}"
                for figure in (
                    result.produced,
                    result.landed,
                    result.dead_letters,
                    result.derived,
                    result.lost + result.derived_lost,
                    result.duplicated + result.derived_duplicated,
                    result.altered + result.misjudged,
                    result.unknown,
                )
            ),
            style=None if result.exact else "red",
        )
    return table


def _cost_table(items: Sequence[CostItem], title: str) -> Table:
    dearest_first = sorted(items, key=lambda line: -line.usd)
    return _titled_table(
        title,
        ("item", *figure_columns("USD", no_wrap=False), "of"),
        [(line.name, f"{line.usd:.4f}", line.why) for line in dearest_first],
    )


def _verdict_text(outcome: VerificationOutcome) -> str:
    sent = sum(each.account.produced for each in outcome.compared)
    if outcome.exact:
        return f"[green]exact: each of {sent:,} records is in its tables once[/green]"
    if not outcome.compared:
        return "[red]not verified: the tables were not compared[/red]"
    if all(each.account.exact for each in outcome.compared):
        return f"[red]each of {sent:,} records is in its tables once, but another step failed[/red]"
    return f"[red]not exact: of {sent:,} records some are lost, doubled or altered[/red]"
