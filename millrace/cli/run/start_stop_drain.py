"""Commands for deployed jobs: ``start``, ``stop``, ``drain``."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.shared.console import open_progress_display, print_json
from millrace.cli.shared.options import AsJson, EnvironmentName, JobName, load_environment_with_job
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.lifecycle.jobs.state_machine import Verb, execute_verb


def start(env: EnvironmentName, job: JobName, as_json: AsJson = False) -> None:
    """Start a deployed job and wait until it runs; do nothing if it runs already.

    From then on the job is restarted after every unexpected end, and its no-data alarms are on.

    [bold]Examples[/bold]

      millrace start --env dev departures
    """
    run_verb_and_print_outcome(env, job, "start", as_json=as_json)


def stop(
    env: EnvironmentName,
    job: JobName,
    grace: Annotated[
        int | None,
        typer.Option(
            "--grace",
            metavar="SECONDS",
            min=15,
            max=1800,
            help="EMR Serverless: seconds that the current batch has to end; then the run is cancelled, and the next run "
            "repeats the batch. Default: 1.5 times the slowest batch of the last six hours, at least its planned time.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Stop a deployed job and wait until it has ended; it stays stopped until you start it.

    The grace period of the current batch depends on the duration of recent batches. A longer batch is aborted and repeated
    at the next start; no record is lost or written twice. The no-data alarms of the job are off until the start.

    [bold]Examples[/bold]

      millrace stop --env dev flights --grace 300
    """
    run_verb_and_print_outcome(env, job, "stop", grace=grace, as_json=as_json)


def drain(env: EnvironmentName, job: JobName, as_json: AsJson = False) -> None:
    """Stop a deployed job after its current batch has ended.

    EMR Serverless waits up to 30 minutes for the batch; if recent batches took longer, the job is not stopped and the exit
    status is 1. Glue does not wait: it aborts the batch, and the next start repeats it. On both engines the tables
    hold only complete batches.

    [bold]Examples[/bold]

      millrace drain --env prod bookings
    """
    run_verb_and_print_outcome(env, job, "drain", as_json=as_json)


def run_verb_and_print_outcome(
    env: str, job: str, verb: Verb, *, as_json: bool, grace: int | None = None
) -> None:
    """Run a verb of a job's state machine to its end, and print the outcome; exit status 1 if it failed.

    Parameters
    ----------
    env, job, as_json
        As the command line gives them.
    grace
        Seconds for ``stop``; left out, the state machine derives it from recent batches.
    """
    environment = load_environment_with_job(env, job)
    aws = connect_to_account(environment)
    with open_progress_display(f"{verb} {job}", lines_in_pipe=not as_json) as say:
        done = execute_verb(
            aws, job, verb, progress=lambda phrase: say(f"{job}: {phrase}"), grace_seconds=grace
        )
    if as_json:
        print_json(done.answer)
    else:
        typer.echo(f"{job}: {done.outcome}: {done.message}", err=not done.ok)
    if not done.ok:
        raise typer.Exit(1)
