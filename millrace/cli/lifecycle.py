"""The verbs that run deployed jobs: ``start``, ``stop``, ``drain``, ``status``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.plan import EnvironmentName
from millrace.config import Environment, load
from millrace.config.problems import ConfigurationError, Problem

if TYPE_CHECKING:
    from millrace.lifecycle.verbs import Verb

JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job of the environment.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object with all that is known.")]
Grace = Annotated[
    int | None,
    typer.Option(
        "--grace",
        metavar="SECONDS",
        min=15,
        max=1800,
        help="EMR Serverless: how long a batch may still take; left out, half as long again as the slowest of "
        "the last six hours, and no less than the plan's batches take.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    for name, command in (("start", start), ("stop", stop), ("drain", drain), ("status", status)):
        app.command(name, rich_help_panel="Run")(command)


def start(env: EnvironmentName, job: JobName, as_json: AsJson = False) -> None:
    """Start a deployed job and wait until it is running; nothing happens if it is already.

    From then on it is started again after any end that nobody asked for, and the alarms that
    watch for silence act.

    [bold]Examples[/bold]

      millrace start --env dev departures
    """
    _run(env, job, "start", as_json=as_json)


def stop(env: EnvironmentName, job: JobName, grace: Grace = None, as_json: AsJson = False) -> None:
    """Stop a deployed job and wait until no run is left; it stays stopped until it is started.

    The batch at hand is given the time that batches took lately; one that takes longer is cut,
    and run again at the next start: nothing is half written, lost or twice. Alarms that silence
    would set off are switched off until the start.

    [bold]Examples[/bold]

      millrace stop --env dev flights --grace 300
    """
    _run(env, job, "stop", grace=grace, as_json=as_json)


def drain(env: EnvironmentName, job: JobName, as_json: AsJson = False) -> None:
    """Stop a deployed job when the batch at hand has ended, for changes that need every batch complete.

    EMR Serverless waits half an hour for it; a job whose batches took longer lately is not
    stopped, and status 1 says so. Glue waits for nothing: it cuts the batch, and the next start
    runs it again. On both, what is in the tables is of whole batches only.

    [bold]Examples[/bold]

      millrace drain --env prod bookings
    """
    _run(env, job, "drain", as_json=as_json)


def status(env: EnvironmentName, job: JobName, as_json: AsJson = False) -> None:
    """Say whether a deployed job is to run, whether it does, and how often it began within the hour.

    [bold]Examples[/bold]

      millrace status --env prod flights --json | jq -r .state
    """
    _run(env, job, "status", as_json=as_json)


def _run(env: str, job: str, verb: Verb, *, as_json: bool, grace: int | None = None) -> None:
    from rich.console import Console
    from rich.markup import escape

    from millrace.config.names import Names
    from millrace.lifecycle.verbs import connect, execute

    environment = load(env)
    check_job(environment, job)
    with aws_told(verb):
        aws = connect(Names(environment, environment.account or ""))
        with Console(stderr=True).status(f"{verb} {job}") as spinner:

            def progress(phrase: str) -> None:
                spinner.update(escape(f"{job}: {phrase}"))
                if not sys.stderr.isatty() and not as_json:
                    typer.echo(f"{job}: {phrase}", err=True)

            done = execute(aws, job, verb, progress=progress, grace_seconds=grace)
    if as_json:
        typer.echo(json.dumps(done.answer, indent=2))
    else:
        typer.echo(f"{job}: {done.outcome}: {done.message}", err=not done.ok)
    if not done.ok:
        raise typer.Exit(1)


def check_job(environment: Environment, job: str) -> None:
    """Refuse a job that the environment does not have.

    Raises
    ------
    ConfigurationError
        It lists those there are.
    """
    if job not in environment.jobs:
        raise ConfigurationError(
            [
                Problem(
                    f"environment {environment.name}", 0, "JOB", job, f"one of {', '.join(environment.jobs)}"
                )
            ]
        )


@contextmanager
def aws_told(verb: str) -> Iterator[None]:
    """Turn what AWS refuses into one message and exit status 1."""
    from millrace.lifecycle.deployed import NotDeployedError
    from millrace.lifecycle.problems import AwsError

    try:
        yield
    except (AwsError, NotDeployedError) as error:
        typer.echo(f"millrace {verb}: {error}", err=True)
        raise typer.Exit(1) from None
