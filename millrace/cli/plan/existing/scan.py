"""``millrace scan``: the streaming jobs of an account, what they cost, and what a plan of their own would cost."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress, TextColumn
from rich.text import Text

from millrace.advisor.existing import account_scan
from millrace.advisor.existing.account_scan import ScannedJob, UsageWindow
from millrace.advisor.existing.environment_of_imported_job import environment_document, find_values_to_fill_in
from millrace.advisor.existing.import_transform_stubs import write_transforms
from millrace.advisor.existing.imported_job_event_log import import_figures_of_history
from millrace.advisor.existing.read_job_to_import import read_running_job
from millrace.advisor.logs.event_logs import aws_errors_as_wrong_option
from millrace.cli.plan.existing.import_plans import environment_yaml, text_and_plans_with_fitted_sla
from millrace.cli.shared.console import (
    FAILED,
    figure_columns,
    plain_table,
    print_json,
    print_rich,
    word_columns,
)
from millrace.cli.shared.html_pages import check_page_is_writable, html_page, write_page
from millrace.cli.shared.options import AsJson, HtmlPage, parse_name_value_option
from millrace.config import ConfigurationError
from millrace.config.document.placeholders_left_by_import import question_of_placeholder
from millrace.config.document.problems import wrong_option_error
from millrace.sizing import total_cost
from millrace.sizing.prices_and_limits import price_regions
from millrace.sizing.readable_numbers import count, dollars, duration_text

_SCHEMA = "pipelines/scan/record.ddl"
"""Schema of every price: the speed is that of the job's own log, so columns do not count."""


def scan(
    region: Annotated[
        str | None,
        typer.Option("--region", metavar="REGION", help="Default: that of the AWS configuration."),
    ] = None,
    tag: Annotated[
        list[str] | None,
        typer.Option(
            "--tag", metavar="KEY=VALUE", help="Only jobs and applications with this tag. Repeatable."
        ),
    ] = None,
    days: Annotated[int, typer.Option("--days", min=1, max=90, help="Days whose use is counted.")] = 30,
    logs: Annotated[
        bool,
        typer.Option(
            "--logs/--no-logs", help="Read the event log of each job: last batch, largest finding, own plan."
        ),
    ] = True,
    html: HtmlPage = None,
    as_json: AsJson = False,
) -> None:
    """List the streaming jobs of an account on Glue and EMR Serverless, with their cost and the first thing to change.

    Only reads. The cost is that of the machines by AWS's own figures of use; a plan of its own is what `millrace import` and
    `millrace plan` would choose for the rate and the speed of the job's event log. What may not be read is named; the others are shown.
    Exit status 1 if neither service could be read.

    [bold]Examples[/bold]

      millrace scan

      millrace scan --region eu-central-1 --tag team=payments --html jobs.html

      millrace scan --days 7 --no-logs --json
    """
    check_page_is_writable(html)
    tags = parse_name_value_option("--tag", tag, "KEY=VALUE, such as team=payments", may_be_empty=True)
    region, client = _region_and_client_factory(region)

    now = datetime.now(UTC)
    window = UsageWindow(now - timedelta(days=days), now)
    rows, unread = _scanned_jobs_and_unread_services(client, region, window, tags, logs=logs)
    refused = len(unread)
    if region not in price_regions():
        unread.append(
            f"no prices of {region} are known: `millrace prices update --region {region}` writes them"
        )
    rows.sort(key=lambda each: -(each.usd or 0.0))
    heading = _heading_with_totals(rows, region, days)
    if as_json:
        print_json(scan_document(rows, region, window, unread))
    else:
        print_rich(Text(heading, "bold"))
        _print_rows(rows, now)
        for each in unread:
            print_rich(Text(f"note: {each}"))
    if html is not None:
        write_page(html, _scan_page(rows, heading, unread, now))
        typer.echo(f"wrote {html}", err=as_json)
    if refused == len(_SERVICES):
        raise typer.Exit(FAILED)


def _region_and_client_factory(region: str | None) -> tuple[str, Callable[[str], Any]]:
    import boto3

    allowed = "a region, with --region or in the AWS configuration"
    with aws_errors_as_wrong_option("--region", region or "(missing)", allowed):
        session: Any = boto3.Session(region_name=region)
        region_name = session.region_name or "(missing)"
        known = session.get_available_regions("glue", session.get_partition_for_region(region_name))
    if region_name not in known:
        raise wrong_option_error("--region", region_name, f"one of {', '.join(sorted(known))}")
    return region_name, cache(session.client)


_SERVICES = {"scan_glue_jobs": "Glue", "scan_emr_jobs": "EMR Serverless"}


def _scanned_jobs_and_unread_services(
    client: Callable[[str], Any], region: str, window: Any, tags: Mapping[str, str], *, logs: bool
) -> tuple[list[ScannedJob], list[str]]:
    """Return the jobs, and the services that may not be read, each with the reason."""
    rows, unread = list[ScannedJob](), list[str]()
    with Progress(
        TextColumn("{task.description}"), transient=True, disable=not sys.stderr.isatty()
    ) as progress:
        task = progress.add_task("")
        for function, service in _SERVICES.items():
            try:
                for job in getattr(account_scan, function)(client, region, window, tags):
                    progress.update(task, description=f"reading {service} job {job.name} ({len(rows)} read)")
                    scanned = account_scan.with_event_log_figures(job, client, region) if logs else job
                    rows.append(_job_with_own_plan_cost(scanned, client, region))
            except account_scan.UNREAD as error:
                unread.append(f"jobs of {service} are not known ({error})")
    return rows, unread


def _job_with_own_plan_cost(job: ScannedJob, client: Callable[[str], Any], region: str) -> ScannedJob:
    """Return the job with the monthly cost of its own plan in USD, or with a note that says why there is none."""
    if job.history is None:
        return job
    try:
        running = read_running_job(client, job.source, region)
        log = import_figures_of_history(job.history, job.name, running)
        made = environment_document(
            running,
            env="scan",
            project="scan",
            schema=_SCHEMA,
            start="2000-01-01T00:00:00Z",
            rate=None,
            record_size="1KiB",
            twin=log.twin,
            offsets=None,
        )
        for query in next(iter(made["jobs"].values()))["queries"].values():
            query.pop("format", None)  # the schema is one for JSON
        unknown = [question_of_placeholder(value) for _, value in find_values_to_fill_in(made)]
        if unknown:
            note = f"no plan before `millrace import {job.source}` has answers: {'; '.join(unknown)}"
            return replace(job, notes=(*job.notes, note))
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder).resolve()
            (root / _SCHEMA).parent.mkdir(parents=True)
            (root / _SCHEMA).write_text("payload STRING\n", encoding="utf-8")
            write_transforms(root, running, "scan")
            _, plans, _ = text_and_plans_with_fitted_sla(
                "scan", environment_yaml(made), root, latency_is_given=False
            )
    except ConfigurationError as error:
        note = f"no plan: {'; '.join(each.allowed for each in error.problems)}"
        return replace(job, notes=(*job.notes, note))
    return replace(job, plan_usd=total_cost(plans["computed"]).value)


def _heading_with_totals(rows: Sequence[ScannedJob], region: str, days: int) -> str:
    """Return the verdict: the number of jobs, of those that run, and their cost."""
    cost = sum(each.usd or 0.0 for each in rows)
    unknown = sum(each.usd is None for each in rows)
    running = sum(each.is_running for each in rows)
    more = f", without {count(unknown, 'job')} of unknown cost" if unknown else ""
    return f"{region}: {count(len(rows), 'streaming job')}, {running} running; {dollars(cost)} in {count(days, 'day')}{more}"


def _row_cells(job: ScannedJob, now: datetime) -> tuple[str, ...]:
    cost = "unknown" if job.usd is None else f"{'at most ' if job.at_most else ''}{dollars(job.usd)}"
    age = "" if job.last_batch is None else duration_text(max(0.0, now.timestamp() - job.last_batch))
    return (
        job.name,
        f"{job.engine} {job.version}".strip(),
        job.workers,
        job.state or ("unknown" if job.usd is None else "never ran"),
        age and f"{age} ago",
        cost,
        "" if job.plan_usd is None else dollars(job.plan_usd),
        "" if job.finding is None else job.finding.kind,
    )


_HEAD = ("job", "on", "workers", "state", "last batch", "cost", "own plan a month", "first finding")


def _finding_and_note_lines(job: ScannedJob) -> list[str]:
    """Return the finding in words, the command that shows the rest, and what is not known."""
    of = (
        f"--glue-job {job.name}"
        if job.engine == "glue"
        else f"--emr-app {job.source.split(':')[1].split('/')[0]} --run {job.run}"
    )
    lines = [] if job.finding is None else [f"{job.finding.words} (millrace advise {of})"]
    return lines + list(job.notes)


def _print_rows(rows: Sequence[ScannedJob], now: datetime) -> None:
    if not rows:
        print_rich("no streaming job was found")
        return
    columns = [*word_columns(*_HEAD[:4]), *figure_columns(*_HEAD[4:7]), *word_columns(_HEAD[7])]
    print_rich(plain_table(*columns, rows=(map(Text, _row_cells(each, now)) for each in rows)))
    for each in rows:
        for line in _finding_and_note_lines(each):
            print_rich(Text(f"{each.name}: {line}"))


def _scan_page(rows: Sequence[ScannedJob], heading: str, unread: Sequence[str], now: datetime) -> str:
    cells = [_row_cells(each, now) for each in rows]
    tables: list[dict[str, Any]] = [
        {"head": _HEAD, "rows": cells, "caption": "Streaming jobs, the most expensive first."}
    ]
    if notes := [(each.name, line) for each in rows for line in _finding_and_note_lines(each)]:
        caption = "The first finding of each job, and what is not known."
        tables.append({"head": ("job", "what to look at"), "rows": notes, "caption": caption, "words": True})
    return html_page(
        "report", "Streaming jobs of an account", {"texts": [heading, *unread], "tables": tables}
    )


def scan_document(
    rows: Sequence[ScannedJob], region: str, window: Any, unread: Sequence[str]
) -> dict[str, Any]:
    """Return the jobs as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``version``, ``region``, ``since``, ``until``, ``notes`` (services and prices that could not be read), and ``jobs``, the most expensive
        first: each with ``engine``, ``name``, ``source`` (as ``millrace import`` takes it), ``version``, ``workers``, ``state``,
        ``run``, ``usd`` (or null), ``at_most``, ``last_batch`` (ISO time or null), ``finding`` (as in ``millrace advise --json``, or
        null), ``plan_usd_month`` (or null) and ``notes``.
    """
    keys = ("engine", "name", "source", "version", "workers", "state", "run", "usd", "at_most")
    return {
        "version": 1,
        "region": region,
        "since": window.begins.isoformat(timespec="seconds"),
        "until": window.ends.isoformat(timespec="seconds"),
        "jobs": [
            {key: getattr(each, key) for key in keys}
            | {
                "last_batch": None
                if each.last_batch is None
                else datetime.fromtimestamp(each.last_batch, UTC).isoformat(timespec="seconds"),
                "finding": None if each.finding is None else asdict(each.finding),
                "plan_usd_month": each.plan_usd,
                "notes": list(each.notes),
            }
            for each in rows
        ],
        "notes": list(unread),
    }
