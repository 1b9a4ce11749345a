"""``millrace audit``: compares the records that a source received with the landed ones."""

from __future__ import annotations

import dataclasses
import json
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from millrace.cli.shared.console import figure_columns, open_progress_display
from millrace.cli.shared.options import AsJson, EnvironmentName, JobName, load_environment_with_job
from millrace.config import Finding
from millrace.config.queries import SourceQueryBase
from millrace.lifecycle.audits.hourly_audit import AuditResult, NotAudited


def audit(
    env: EnvironmentName,
    job: JobName,
    query: Annotated[
        list[str] | None,
        typer.Option(help="A query that reads streams. Default: all of the job. Repeatable."),
    ] = None,
    hours: Annotated[
        int,
        typer.Option(min=1, max=24 * 365, help="Compare the records that arrived in the last so many hours."),
    ] = 24,
    read: Annotated[
        bool,
        typer.Option(
            "--read",
            help="Kinesis: read the stream again and name each missing record; uses read throughput of the shards.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find lost records: compare, hour by hour, what the source received with what is in the tables.

    For Kafka, looks up every offset that the table lacks in the topic. For Kinesis, compares with the counts of each minute
    from CloudWatch and names shards that are read late; --read compares record by record. For a direct query, looks at the
    table of its sink and at its dead letters. Names what cannot be audited. Exit status 1 if a record is missing.

    [bold]Examples[/bold]

      millrace audit flights --env prod

      millrace audit departures --env prod --hours 3 --read
    """
    from millrace.lifecycle.audits.query_audit import audit_query as compare
    from millrace.sandbox.operate_running_sandbox import sandbox_or_account_with_connection

    environment = load_environment_with_job(env, job)
    known = [n for n, q in environment.jobs[job].queries.items() if isinstance(q, SourceQueryBase)]
    wrong = [name for name in query or () if name not in known]
    if wrong or not known:
        allowed = f"one of {', '.join(known)}" if known else "a job with a query that reads a stream"
        raise environment.value_locations.error_of_findings(
            [Finding(("jobs", job, "queries"), value=name, allowed=allowed) for name in wrong or [job]]
        )
    end = datetime.now(UTC)
    audits: list[AuditResult | NotAudited] = []
    place, _ = sandbox_or_account_with_connection(environment)
    with open_progress_display(f"audit {job}", lines_in_pipe=False) as say:
        for name in query or known:
            say(f"{name}: comparing source and table")

            def show_records_read(records: int, name: str = name) -> None:
                say(f"{name}: {records:,} records read")

            audits += compare(
                place, job, name, end - timedelta(hours=hours), end, read=read, progress=show_records_read
            )
    if as_json:
        typer.echo(_audits_as_json(audits))
    else:
        _print_audits(audits)
    raise typer.Exit(1 if any(getattr(each, "missing_records", 0) for each in audits) else 0)


def _audits_as_json(audits: list[AuditResult | NotAudited]) -> str:
    documents = [
        dataclasses.asdict(each)
        | (
            {}
            if isinstance(each, NotAudited)
            else {"missing": each.missing_records, "untold": each.expired_missing_records}
        )
        for each in audits
    ]
    return json.dumps(documents, indent=2, default=lambda at: at.isoformat().replace("+00:00", "Z"))


def _print_audits(audits: list[AuditResult | NotAudited]) -> None:
    console = Console(width=None if sys.stdout.isatty() else 120, highlight=False)
    for each in audits:
        if isinstance(each, NotAudited):
            console.print(
                f"[yellow]{each.query}: {each.stream} cannot be audited[/yellow]: {escape(each.why)}",
                soft_wrap=True,
            )
            continue
        console.print(_hours_table(each))
        for shard in each.behind:
            console.print(
                f"  {escape(shard.shard)}: not read since {shard.since:%Y-%m-%d %H:%M:%S} UTC; its "
                "records are late, not lost"
            )
        for hole in each.holes:
            when = (
                ""
                if hole.since is None or hole.until is None
                else f", {hole.since:%Y-%m-%d %H:%M:%S} to {hole.until:%H:%M:%S} UTC"
            )
            lines = {
                "lost": "[red]lost[/red]",
                "gone": "[yellow]not in the table, and expired in the source[/yellow]",
                "nothing": "[dim]no record at these offsets (compaction or a transaction marker)[/dim]",
            }[hole.verdict]
            places = hole.first if hole.first == hole.last else f"{hole.first} to {hole.last}"
            console.print(f"  {escape(f'{hole.shard}: {places}')}: {hole.records:,} records{when}: {lines}")
        console.print(_audit_sentence(each))


def _hours_table(result: AuditResult) -> Table:
    left_out = ("left out",) if any(hour.left_out for hour in result.hours) else ()
    table = Table(
        "hour (UTC)",
        *figure_columns("came in", "landed", "missing", "waiting", *left_out, no_wrap=False),
        title=f"{result.query}: {result.stream} against {result.table} ({result.method})",
        title_justify="left",
    )
    for hour in result.hours:
        counts = [hour.arrived, hour.landed, hour.missing, hour.waiting]
        if any(counts) or hour.left_out:
            style = "red" if hour.missing else None
            counts += [hour.left_out] if left_out else []
            table.add_row(f"{hour.start:%Y-%m-%d %H:%M}", *(f"{n:,}" for n in counts), style=style)
    return table


def _audit_sentence(result: AuditResult) -> str:
    came = sum(hour.arrived for hour in result.hours)
    if result.missing_records:
        return f"[red]{result.query}: {result.missing_records:,} of {came:,} records are missing[/red]"
    waiting = sum(hour.waiting for hour in result.hours)
    more = f", {waiting:,} wait to be read" if waiting else ""
    left_out = sum(hour.left_out for hour in result.hours)
    more += f", {left_out:,} are in no table; the transform may filter them" if left_out else ""
    untold = (
        f", {result.expired_missing_records:,} offsets cannot be checked any more"
        if result.expired_missing_records
        else ""
    )
    return f"[green]{result.query}: none of {came:,} records is missing[/green]{more}{untold}"
