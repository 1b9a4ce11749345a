"""``millrace logs``: log lines and failures of a job's runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from millrace.cli.shared.console import print_json
from millrace.cli.shared.options import AsJson, EnvironmentName, JobName, load_environment_with_job
from millrace.config import ConfigurationError, Environment, Problem
from millrace.config.units import parse_duration
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.lifecycle.jobs import logs as deployed
from millrace.lifecycle.jobs.logs import LoggedFailure, LogLine


def logs(
    env: EnvironmentName,
    job: JobName,
    errors: Annotated[
        bool, typer.Option("--errors", help="Show failures only, each with its stack trace, newest last.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Show lines of the last period of this length, such as 30m, 6h or 7d.",
        ),
    ] = "24h",
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", min=1, help="Number of newest lines. Default: 50, or 3 failures with --errors."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the logs of a job on Glue, on EMR Serverless or in the running sandbox.

    --errors shows failed queries by name, jobs that did not start with the reason, and exceptions of Python and the JVM
    with their stack traces, on the driver and on executors.

    [bold]Examples[/bold]

      millrace logs flights --env prod --errors

      millrace logs flights --env prod --since 10m
    """
    environment = load_environment_with_job(env, job)
    try:
        begin = datetime.now(UTC) - parse_duration(since)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError([Problem("millrace logs", 0, "--since", since, str(error))]) from None
    shown = _newest_entries(environment, job, begin, lines or (3 if errors else 50), errors=errors)
    _print_lines(shown, as_json=as_json)
    if not shown:
        typer.echo(
            f"{job}: {'no error was logged' if errors else 'no log lines'} in the last {since}", err=True
        )


def _newest_entries(
    environment: Environment, job: str, begin: datetime, most: int, *, errors: bool
) -> Sequence[LogLine | LoggedFailure]:
    """Return the newest lines or failures since a time, the oldest of them first."""
    from millrace.sandbox import operate_running_sandbox

    if operate_running_sandbox.running_sandbox_deployment(environment) is not None:
        lines = operate_running_sandbox.read_log_lines(job, begin)
        return (deployed.find_failures(lines) if errors else lines)[-most:]
    find = deployed.newest_failures if errors else deployed.newest_lines
    return find(connect_to_account(environment), job, begin, most)


def _print_lines(lines: Sequence[LogLine | LoggedFailure], *, as_json: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in lines:
        if as_json:
            print_json(asdict(each), indent=None)
        elif isinstance(each, LogLine):
            console.print(each.text, markup=False)
        else:
            when = "" if each.at is None else f"{each.at:%Y-%m-%d %H:%M:%S} UTC "
            who = "" if each.query is None else f"{each.query} "
            console.print(f"{when}{who}{each.kind}", style="bold red", markup=False)
            console.print(f"  {each.source}", style="dim", markup=False)
            console.print("\n".join(f"  {line}" for line in each.text.splitlines()), markup=False)
