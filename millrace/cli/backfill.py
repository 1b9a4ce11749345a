"""``millrace backfill``: a range of a landing table through a derive query once more."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.lifecycle import AsJson, JobName, aws_told, check_job
from millrace.cli.plan import EnvironmentName

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millrace.config import Environment
    from millrace.lifecycle.audit_job import Place
    from millrace.lifecycle.verbs import Aws

_UNTIL_NOW = timedelta(hours=1)
"""What arrived within it is still the stream's: both would write it."""

Moment = Annotated[
    datetime,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%HZ", "%Y-%m-%d"], help="Arrival, UTC: 2026-11-20T08:00:00Z."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(rich_help_panel="Repair")(backfill)


def backfill(
    env: EnvironmentName,
    job: JobName,
    since: Moment,
    until: Moment,
    query: Annotated[str | None, typer.Option(help="The derive query, where the job has several.")] = None,
    replace: Annotated[
        bool,
        typer.Option(
            "--replace",
            help="Put what the transform gives now in place of the rows of that time; without it, only rows that "
            "are missing are written.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take what arrived in a range of time through a derive query's transform once more.

    For a transform that was mended, or a sink that lost rows. The landing table is read, hour
    by hour; the stream goes on meanwhile, and nothing is doubled. What it takes is shown first.
    In an environment that `KEEP=1 make demo` left running it runs beside the stream. On AWS the job is stopped for it, runs
    once with the backfill's arguments, and is started again.

    [bold]Examples[/bold]

      millrace backfill flights --env local --since 2026-11-20T08:00:00Z --until 2026-11-20T20:00:00Z

      millrace backfill departures --env local --since 2026-11-20 --until 2026-11-21 --replace --yes
    """
    from rich.console import Console

    from millrace.config import load
    from millrace.lifecycle.audit_table import Landed
    from millrace.sandbox.process import SandboxError

    environment = load(env)
    check_job(environment, job)
    name = _query(environment, job, query)
    begin, end = since.replace(tzinfo=UTC), until.replace(tzinfo=UTC)
    _check_range(environment, begin, end)
    console = Console(stderr=True, highlight=False)
    table = _landing(environment, job, name)
    try:
        with aws_told("backfill"):
            place, aws = _where(environment)
            rows = Landed.open(place.catalog(), place.names.table(table), "").rows(begin, end)
            takes = estimate(environment, job, rows, begin, end)
            console.print(
                f"{name}: {rows:,} records of {table} from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC\n"
                f"{takes}; {_IN_THE_SANDBOX if aws is None else _ON_AWS}"
            )
            if not yes and not (sys.stdin.isatty() and typer.confirm("Go on?", err=True)):
                typer.echo("millrace backfill: nothing was done; --yes goes on without a question", err=True)
                raise typer.Exit(1)
            asked = {"--backfill": name, "--since": begin.isoformat(), "--until": end.isoformat()}
            asked |= {"--replace": ""} if replace else {}
            with console.status(f"backfill {name}"):
                outcome = _run(environment, job, aws, asked)
    except SandboxError as error:
        typer.echo(f"millrace backfill: {error}", err=True)
        raise typer.Exit(1) from None
    typer.echo(json.dumps(outcome) if as_json else _sentence(outcome))


_IN_THE_SANDBOX = "in the sandbox it costs nothing"
_ON_AWS = "the job itself stands still meanwhile, and is started again"


def _where(environment: Environment) -> tuple[Place, Aws | None]:
    """The sandbox that was left running with the environment, or its account on AWS."""
    from millrace.config.names import Names
    from millrace.lifecycle.audit_job import on_aws
    from millrace.lifecycle.verbs import connect
    from millrace.sandbox import kept

    place = kept.place(environment)
    if place is not None:
        return place, None
    aws = connect(Names(environment, environment.account or ""))
    return on_aws(aws), aws


def _run(environment: Environment, job: str, aws: Aws | None, asked: Mapping[str, str]) -> dict[str, Any]:
    """Run the job's entry script once, and give back what it said, or how it ended."""
    from millrace.lifecycle.once import run_once
    from millrace.lifecycle.problems import AwsError
    from millrace.sandbox import kept

    if aws is None:
        arguments = [part for pair in asked.items() for part in pair if part]
        spark = kept.kept_spark(environment)
        return kept.run_once(spark, environment, job, "backfill", arguments, "backfilled")
    ended = run_once(aws, job, list(asked.items()), progress=lambda line: typer.echo(line, err=True))
    if not ended.well:
        raise AwsError(
            f"run {ended.run} ended as {ended.state}: {ended.detail or 'its log says why'}. The steps that it had "
            "done are done; the same command does the others"
        )
    return {"query": asked["--backfill"], "run": ended.run, "state": ended.state}


@dataclass(frozen=True)
class Estimate:
    """What a backfill takes on the job's engine.

    Attributes
    ----------
    seconds
        By the rate in the environment file, without the minutes that an engine takes to start.
    dollars
        Of a run beside the job's own, with the workers of the plan.
    basis
        ``measured`` or ``assumed``, as the rate.
    """

    seconds: float
    dollars: float
    basis: str

    def __str__(self) -> str:
        return (
            f"on its engine about {timedelta(seconds=math.ceil(self.seconds))} and ${self.dollars:,.2f} "
            f"(the rate is {self.basis})"
        )


def estimate(environment: Environment, job: str, rows: int, begin: datetime, end: datetime) -> Estimate:
    """Work out what a backfill takes: the rate of the sizing model, with its overhead for each hour's step.

    Parameters
    ----------
    environment
        The loaded environment file.
    job
        One of its jobs.
    rows
        Records in the range.
    begin, end
        The range.
    """
    from millrace.sizing import plan
    from millrace.sizing.measured import speed

    sized = plan(environment).jobs[job]
    rate = speed(environment, job)
    steps = math.ceil((end - begin) / timedelta(hours=1))
    seconds = rows * rate.per_record / sized.cores.value
    seconds += steps * rate.overhead
    hourly = sized.worker_usd_hour * sized.max_workers.value
    return Estimate(seconds, hourly * seconds / 3600, rate.basis)


def _query(environment: Environment, job: str, query: str | None) -> str:
    from millrace.config import Finding
    from millrace.config.queries import DeriveQuery

    names = [n for n, q in environment.jobs[job].queries.items() if isinstance(q, DeriveQuery)]
    if query is None and len(names) == 1:
        return names[0]
    if query in names:
        assert query is not None
        return query
    allowed = f"one of {', '.join(names)}, by --query" if names else "a job with a derive query"
    raise environment.places.error(
        [Finding(("jobs", job, "queries"), value=query or "(none)", allowed=allowed)]
    )


def _landing(environment: Environment, job: str, query: str) -> str:
    from millrace.config.queries import DeriveQuery

    found = environment.jobs[job].queries[query]
    assert isinstance(found, DeriveQuery)
    return found.source


def _check_range(environment: Environment, begin: datetime, end: datetime) -> None:
    from millrace.config.problems import ConfigurationError, Problem

    latest = datetime.now(UTC) - _UNTIL_NOW
    where = f"environment {environment.name}"
    if begin >= end:
        raise ConfigurationError(
            [Problem(where, 0, "--since", f"{begin:%Y-%m-%dT%H:%M:%SZ}", "a time before --until")]
        )
    if end > latest:
        allowed = (
            f"at most {latest:%Y-%m-%dT%H:%M:%SZ}: what arrived within the last hour is still the stream's"
        )
        raise ConfigurationError([Problem(where, 0, "--until", f"{end:%Y-%m-%dT%H:%M:%SZ}", allowed)])


def _sentence(outcome: dict[str, Any]) -> str:
    if "run" in outcome:
        return (
            f"{outcome['query']}: run {outcome['run']} ended as {outcome['state']}; its log has the figures"
        )
    return (
        f"{outcome['query']}: {outcome['read']:,} records read, {outcome['written']:,} rows written, "
        f"{outcome['replaced']:,} replaced, {outcome['duplicates']:,} were there already, "
        f"{outcome['filtered']:,} left out by the transform"
    )
