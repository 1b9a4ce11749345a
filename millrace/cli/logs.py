"""``millrace logs``: what a job's runs wrote, and what went wrong in them."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.lifecycle import AsJson, JobName, aws_told, check_job
from millrace.cli.plan import EnvironmentName

if TYPE_CHECKING:
    from millrace.config import Environment
    from millrace.lifecycle.logs import Failure, Line

_POLL_SECONDS = 2.0


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(rich_help_panel="Run")(logs)


def logs(
    env: EnvironmentName,
    job: JobName,
    errors: Annotated[
        bool, typer.Option("--errors", help="Failures only, each with its trace, the last one at the end.")
    ] = False,
    since: Annotated[
        str, typer.Option("--since", metavar="TIME", help="How far back to look, such as 30m, 6h, 7d.")
    ] = "24h",
    lines: Annotated[
        int | None,
        typer.Option("--lines", min=1, help="Of the last ones; left out, 50, or 3 failures with --errors."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on with what is written from now on, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a job's runs wrote: on Glue, EMR Serverless, or in the sandbox that was left running.

    With --errors the last failures: a query that failed, by name; a job that did not start, with what
    is wrong; exceptions of Python and of the JVM with their traces, executors' included.

    [bold]Examples[/bold]

      millrace logs flights --env prod --errors

      millrace logs flights --env prod --since 10m --follow
    """
    from millrace.config import ConfigurationError, load
    from millrace.config.problems import Problem
    from millrace.config.units import parse_duration

    environment = load(env)
    check_job(environment, job)
    try:
        begin = datetime.now(UTC) - parse_duration(since)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError([Problem("millrace logs", 0, "--since", since, str(error))]) from None
    most = lines or (3 if errors else 50)
    with aws_told("logs"):
        shown = _read(environment, job, begin, most, errors=errors)
        _show(shown, as_json=as_json)
        if not shown and not follow:
            typer.echo(f"{job}: {'no failure' if errors else 'no line'} in the last {since}", err=True)
        while follow:
            try:
                time.sleep(_POLL_SECONDS)
                known = set(shown)
                fresh = [
                    each
                    for each in _read(environment, job, begin, 10_000, errors=errors)
                    if each not in known
                ]
            except KeyboardInterrupt:
                return
            _show(fresh, as_json=as_json)
            shown += fresh


def _read(environment: Environment, job: str, begin: datetime, most: int, *, errors: bool) -> list[Any]:
    from millrace.config.names import Names
    from millrace.lifecycle import logs as deployed
    from millrace.lifecycle.verbs import connect
    from millrace.sandbox import kept

    if kept.place(environment) is not None:
        written = kept.lines(job)
        return deployed.told_in(written)[-most:] if errors else written[-most:]
    aws = connect(Names(environment, environment.account or ""))
    find = deployed.failures if errors else deployed.newest
    return list(find(aws, job, begin, most))


def _show(found: list[Line] | list[Failure], *, as_json: bool) -> None:
    from rich.console import Console

    from millrace.lifecycle.logs import Line

    console = Console(highlight=False, soft_wrap=True)
    for each in found:
        if as_json:
            document = dataclasses.asdict(each)
            document["at"] = None if each.at is None else each.at.isoformat().replace("+00:00", "Z")
            sys.stdout.write(json.dumps(document) + "\n")
        elif isinstance(each, Line):
            console.print(each.text, markup=False)
        else:
            when = "" if each.at is None else f"{each.at:%Y-%m-%d %H:%M:%S} UTC "
            who = "" if each.query is None else f"{each.query} "
            console.print(f"{when}{who}{each.kind}", style="bold red", markup=False)
            console.print(f"  {each.source}", style="dim", markup=False)
            console.print("\n".join(f"  {line}" for line in each.text.splitlines()), markup=False)
