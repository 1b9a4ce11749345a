"""``millrace status``: state of deployed jobs."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from millrace.cli.run.start_stop_drain import run_verb_and_print_outcome
from millrace.cli.shared.console import FAILED, word_columns
from millrace.cli.shared.options import AsJson, EnvironmentName, complete_job_names, load_environment_with_job
from millrace.config import Environment
from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    NotDeployedError,
    connect_to_account,
)
from millrace.lifecycle.aws_error_messages import TransientError
from millrace.lifecycle.jobs import state_machine
from millrace.lifecycle.jobs.state_machine import ExecutionResult


def status(
    env: EnvironmentName,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="A job. Default: all jobs.",
            show_default=False,
            autocompletion=complete_job_names,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Ask again every --every seconds until Ctrl-C.")
    ] = False,
    every: Annotated[
        float,
        typer.Option(
            "--every", metavar="SECONDS", min=2, help="With --watch: seconds between two refreshes."
        ),
    ] = 30.0,
    as_json: AsJson = False,
) -> None:
    """Show each deployed job: its desired state, its current run, and how often it started within the hour.

    With --watch, each round runs the state machine of every job once; AWS bills its state transitions. Exit status 1 if a
    job is not deployed or its status cannot be read.

    [bold]Examples[/bold]

      millrace status --env prod

      millrace status --env prod --watch

      millrace status --env prod flights --json | jq -r .state
    """
    environment = load_environment_with_job(env, job)
    jobs = list(environment.jobs) if job is None else [job]
    if watch:
        _print_status_repeatedly(environment, jobs, every, as_json=as_json)
    elif job is not None:
        run_verb_and_print_outcome(env, job, "status", as_json=as_json)
    else:
        _print_status_once(environment, jobs, as_json=as_json)


def _ask_for_status(aws: DeployedEnvironment, jobs: Sequence[str]) -> Iterator[ExecutionResult]:
    """Yield the status of each job; a job that is not deployed or does not answer does not stop the others."""
    for job in jobs:
        try:
            yield state_machine.execute_verb(aws, job, "status", progress=lambda _: None)
        except (NotDeployedError, TransientError) as error:
            outcome = "not-deployed" if isinstance(error, NotDeployedError) else "not-answered"
            answer = {"outcome": outcome, "message": str(error)}
            yield state_machine.ExecutionResult(job, False, outcome, str(error), answer)


def _print_status_once(environment: Environment, jobs: Sequence[str], *, as_json: bool) -> None:
    result = []
    for seen in _ask_for_status(connect_to_account(environment), jobs):
        result.append(seen)
        if not as_json:
            typer.echo(f"{seen.job}: {seen.outcome}: {seen.message}", err=not seen.ok)
    if as_json:
        typer.echo(json.dumps({seen.job: seen.answer for seen in result}, indent=2))
    if not all(seen.ok for seen in result):
        raise typer.Exit(FAILED)


def _print_status_repeatedly(
    environment: Environment, jobs: Sequence[str], every: float, *, as_json: bool
) -> None:
    """Show the jobs repeatedly: in a terminal as a table in place, elsewhere as lines with the time."""
    aws = connect_to_account(environment)
    in_place = sys.stdout.isatty() and not as_json
    with Live(console=Console(), auto_refresh=False) if in_place else nullcontext() as live:
        try:
            while True:
                now = datetime.now(UTC)
                result = list(_ask_for_status(aws, jobs))
                if live is not None:
                    live.update(_status_table(result, now), refresh=True)
                elif as_json:
                    document = {
                        "at": now.isoformat(timespec="seconds"),
                        "jobs": {each.job: each.answer for each in result},
                    }
                    typer.echo(json.dumps(document))
                else:
                    for each in result:
                        typer.echo(f"{now:%H:%M:%SZ} {each.job}: {each.outcome}: {each.message}")
                time.sleep(every)
        except KeyboardInterrupt:
            return


def _status_table(rows: Sequence[ExecutionResult], now: datetime) -> Table:
    table = Table(
        *word_columns("job"),
        Column("status", overflow="fold"),
        box=None,
        pad_edge=False,
        caption=f"{now:%Y-%m-%d %H:%M:%S} UTC, Ctrl-C ends it",
        caption_justify="left",
    )
    for each in rows:
        table.add_row(Text(each.job), Text(f"{each.outcome}: {each.message}", "" if each.ok else "red"))
    return table
