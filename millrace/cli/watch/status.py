"""``millrace status``: state of deployed jobs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated

import typer

from millrace.cli.run.start_stop_drain import run_verb_and_print_outcome
from millrace.cli.shared.console import FAILED, print_json
from millrace.cli.shared.options import AsJson, EnvironmentName, complete_job_names, load_environment_with_job
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
    if job is not None and not watch:
        run_verb_and_print_outcome(env, job, "status", as_json=as_json)
        return
    aws = connect_to_account(environment)
    if not watch:
        if not _print_round(aws, jobs, as_json=as_json):
            raise typer.Exit(FAILED)
        return
    with suppress(KeyboardInterrupt):
        while True:
            _print_round(aws, jobs, as_json=as_json, now=datetime.now(UTC))
            time.sleep(every)


def _ask_for_status(aws: DeployedEnvironment, jobs: Sequence[str]) -> Iterator[ExecutionResult]:
    """Yield the status of each job; a job that is not deployed or does not answer does not stop the others."""
    for job in jobs:
        try:
            yield state_machine.execute_verb(aws, job, "status", progress=lambda _: None)
        except (NotDeployedError, TransientError) as error:
            outcome = "not-deployed" if isinstance(error, NotDeployedError) else "not-answered"
            answer = {"outcome": outcome, "message": str(error)}
            yield state_machine.ExecutionResult(job, False, outcome, str(error), answer)


def _print_round(
    aws: DeployedEnvironment, jobs: Sequence[str], *, as_json: bool, now: datetime | None = None
) -> bool:
    """Print the status of each job, with the time if there is one; return whether all are known."""
    seen = []
    for each in _ask_for_status(aws, jobs):
        seen.append(each)
        if not as_json:
            begin = "" if now is None else f"{now:%H:%M:%SZ} "
            typer.echo(f"{begin}{each.job}: {each.outcome}: {each.message}", err=now is None and not each.ok)
    if as_json:
        answers = {each.job: each.answer for each in seen}
        timed = now and {"at": now.isoformat(timespec="seconds"), "jobs": answers}
        print_json(timed or answers, indent=None if timed else 2)
    return all(each.ok for each in seen)
