"""``millrace backfill``: processes a time range of records again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from millrace.cli.shared.console import confirm_or_exit
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    JobName,
    choose_query_name,
    load_environment_with_job,
    wrong_argument_error,
)
from millrace.config import Environment
from millrace.config.queries import DeriveQuery, LandQuery
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.lifecycle.jobs.state_machine import run_job_once, wait_for_logged_result
from millrace.sizing import plan
from millrace.sizing.queries.benchmark_figures import speed_of_query

if TYPE_CHECKING:
    from millrace.lifecycle.audits.query_audit import AuditedDeployment

_UNTIL_NOW = timedelta(hours=1)
"""Age below which records are not backfilled, because the running query may still write them."""

_TIMES = ["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%HZ", "%Y-%m-%d"]


def backfill(
    env: EnvironmentName,
    job: JobName,
    since: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            formats=_TIMES,
            help="Start of the range of arrival times, in UTC, such as 2026-11-20T08:00:00Z.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME", formats=_TIMES, help="End of the range of arrival times, in UTC, exclusive."
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="The query; needed where the job has several of its kind.")
    ] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Replace all rows of the time range with what the transform returns now. Default: write only the "
            "missing rows.",
        ),
    ] = False,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="stream|URL",
            help="Land the records that a landing table lacks, from the stream of its land query or from files (one record "
            "per line; .gz is decompressed). Default: read the landing table and derive again.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Process the records of a time range again, from the landing table, the stream or files.

    Use it after you fixed a transform, or when a sink lost rows: reads the landing table hour by hour and derives again. Use
    --from when the landing table lacks records: lands each of them once, and the derive queries read them from there. Shows
    time and cost first and asks for confirmation.

    In the sandbox the backfill runs beside the stream. On AWS the job is stopped, runs once for the backfill, and is started
    again.

    [bold]Examples[/bold]

      millrace backfill flights --env local --since 2026-11-20T08:00:00Z --until 2026-11-20T20:00:00Z

      millrace backfill departures --env local --since 2026-11-20 --until 2026-11-21 --replace --yes

      millrace backfill flights --env prod --from stream --since 2026-11-20T08Z --until 2026-11-20T10Z

      millrace backfill flights --env prod --from s3://exports/flights/2026-10-*.jsonl.gz
    """
    from millrace.sandbox.operate_running_sandbox import sandbox_or_account_with_connection

    environment = load_environment_with_job(env, job)
    kind, needed = (DeriveQuery, "derive") if origin is None else (LandQuery, "land")
    names = [n for n, q in environment.jobs[job].queries.items() if type(q) is kind]
    name = choose_query_name(environment, job, query, names, f"a job with a {needed} query")
    span = _requested_span_or_none(environment, since, until, origin, replace=replace)
    console = Console(stderr=True, highlight=False)
    place, aws = sandbox_or_account_with_connection(environment)
    size = _amount_and_cost_text(environment, place, job, name, span, origin)
    stopped, free = (
        "the job is stopped meanwhile and started again",
        "it runs in the sandbox and costs nothing",
    )
    console.print(f"{size}; {free if aws is None else stopped}", markup=False)
    confirm_or_exit("Continue?", yes=yes)
    arguments = {"--backfill": name}
    if span is not None:
        arguments |= {"--since": span[0].isoformat(), "--until": span[1].isoformat()}
    arguments |= {"--replace": ""} if replace else {}
    arguments |= {"--from": origin} if origin is not None else {}
    with console.status(f"backfill {name}"):
        outcome = _run_job_script_once(environment, job, aws, arguments)
    typer.echo(json.dumps(outcome) if as_json else _backfill_sentence(outcome))


Span = tuple[datetime, datetime]


def _requested_span_or_none(
    environment: Environment,
    since: datetime | None,
    until: datetime | None,
    origin: str | None,
    *,
    replace: bool,
) -> Span | None:
    """Return the requested range; None for files."""
    if origin is not None and replace:
        raise wrong_argument_error(environment, "--replace", "given", "not together with --from")
    if origin not in (None, "stream"):
        if since or until:
            allowed = "not together with files in --from, because files are read completely"
            raise wrong_argument_error(environment, "--since" if since else "--until", "given", allowed)
        return None
    if since is None or until is None:
        wrong = "--since" if since is None else "--until"
        raise wrong_argument_error(environment, wrong, "(none)", "a time: 2026-11-20T08:00:00Z")
    begin, end = since.replace(tzinfo=UTC), until.replace(tzinfo=UTC)
    if begin >= end:
        raise wrong_argument_error(
            environment, "--since", f"{begin:%Y-%m-%dT%H:%M:%SZ}", "a time before --until"
        )
    if end > (latest := datetime.now(UTC) - _UNTIL_NOW):
        allowed = f"at most {latest:%Y-%m-%dT%H:%M:%SZ}: the running query still writes the records of the last hour"
        raise wrong_argument_error(environment, "--until", f"{end:%Y-%m-%dT%H:%M:%SZ}", allowed)
    return begin, end


def _amount_and_cost_text(
    environment: Environment,
    place: AuditedDeployment,
    job: str,
    name: str,
    span: Span | None,
    origin: str | None,
) -> str:
    """Return the amount to read, with time and cost."""
    from millrace.lifecycle.audits.records_in_tables import LandedRecords

    if span is None:
        return f"{name}: the lines of {origin}, one transaction per file"
    begin, end = span
    query = environment.jobs[job].queries[name]
    when = f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC"
    if isinstance(query, DeriveQuery):
        landed = LandedRecords.open(place.catalog(), place.names.table(query.source), "")
        rows = landed.count_good_records(begin, end)
        amount = f"{rows:,} records of {query.source} {when}"
    else:
        assert isinstance(query, LandQuery)
        traffic = environment.streams[query.source].traffic
        rows = round(traffic.records_per_second * (end - begin).total_seconds())
        amount = (
            f"stream {query.source} {when}, about {rows:,} records (from the traffic in the environment file)"
        )
    seconds, usd, basis = estimate_backfill(environment, job, name, rows, begin, end)
    took = timedelta(seconds=math.ceil(seconds))
    return f"{name}: {amount}\ntakes about {took} and ${usd:,.2f} (the rate is {basis})"


def _run_job_script_once(
    environment: Environment, job: str, aws: DeployedEnvironment | None, run_arguments: Mapping[str, str]
) -> dict[str, Any]:
    """Run the job's entry script once, and return its output, or how the run ended."""
    from millrace.sandbox import operate_running_sandbox

    if aws is None:
        arguments = [part for pair in run_arguments.items() for part in pair if part]
        spark = operate_running_sandbox.spark_of_running_sandbox(environment)
        return operate_running_sandbox.run_job_once_locally(
            spark, environment, job, "backfill", arguments, "backfilled"
        )
    begun = datetime.now(UTC)
    ended = run_job_once(
        aws, job, list(run_arguments.items()), progress=lambda line: typer.echo(line, err=True)
    )
    if not ended.succeeded:
        raise AwsError(
            f"run {ended.run} ended as {ended.state}: {ended.detail or 'see its log'}. Its finished steps "
            "are not repeated; run the same command again for the rest"
        )
    name = run_arguments["--backfill"]
    outcome = wait_for_logged_result(aws, job, begun, "backfilled", name)
    return {**(outcome or {"query": name}), "run": ended.run, "state": ended.state}


def estimate_backfill(
    environment: Environment, job: str, query: str, rows: int, begin: datetime, end: datetime
) -> tuple[float, float, str]:
    """Return the estimated seconds and dollars of a backfill, and whether its rate is ``measured`` or ``assumed``.

    The seconds are those of the sizing model, with its overhead for each hour's step, without the minutes that an engine takes
    to start; the dollars are those of a separate run with the workers of the plan.

    Parameters
    ----------
    job, query
        One of the environment's jobs, and one of its queries.
    rows
        Records in the range.
    """
    sized = plan(environment).jobs[job]
    rate = speed_of_query(environment, job, query)
    steps = math.ceil((end - begin) / timedelta(hours=1))
    seconds = rows * rate.per_record / sized.cores.value
    seconds += steps * rate.overhead
    hourly = sized.worker_usd_hour * sized.max_workers.value
    return seconds, hourly * seconds / 3600, rate.basis


def _backfill_sentence(outcome: dict[str, Any]) -> str:
    if "read" not in outcome:
        return f"{outcome['query']}: run {outcome['run']} ended as {outcome['state']}; see its log for the counts"
    return (
        f"{outcome['query']}: {outcome['read']:,} records read, {outcome['written']:,} rows written, "
        f"{outcome['replaced']:,} replaced, {outcome['duplicates']:,} already present, "
        f"{outcome['filtered']:,} left out by the transform"
    )
