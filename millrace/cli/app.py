"""Puts the verbs together and turns what a user can get wrong into one message and exit status 2."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from millrace.cli import (
    advise,
    audit,
    backfill,
    bench,
    checkpoint,
    cost,
    deploy,
    history,
    history_image,
    import_job,
    lifecycle,
    logs,
    notebook,
    plan,
    policies,
    prices,
    replay,
    sandbox,
    schema,
    simulate,
    split,
    traffic,
    upgrade,
    verify,
)
from millrace.cli.console import show_problems, visible_output
from millrace.config import ConfigurationError

app = typer.Typer(
    name="millrace",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Click would take escapes out of what goes into a pipe, and hide that they were there.
    context_settings={"color": True},
    rich_markup_mode="rich",
    help="Sizes, deploys, runs and tunes Spark Structured Streaming on AWS Glue and EMR Serverless.\n\n"
    "You say what you want in [bold]environments/NAME.yaml[/bold]; everything else is computed from it.",
    epilog="Start with: [bold]millrace plan --env minimal[/bold]",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"millrace {version('millrace')}")
        except PackageNotFoundError:
            typer.echo("millrace, from a working copy")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
) -> None:
    del version


plan.register(app)
bench.register(app)
simulate.register(app)
import_job.register(app)
cost.register(app)
prices.register(app)
schema.register(app)
policies.register(app)
split.register(app)
deploy.register(app)
upgrade.register(app)
lifecycle.register(app)
logs.register(app)
history.register(app)
history_image.register(app)
notebook.register(app)
sandbox.register(app)
replay.register(app)
traffic.register(app)
audit.register(app)
advise.register(app)
backfill.register(app)
checkpoint.register(app)
verify.register(app)


def main() -> None:
    """Run the command line.

    Exit status: 0, or 2 for a mistake of the caller's, told in one message without a traceback.
    """
    with visible_output():
        try:
            app(prog_name="millrace")
        except ConfigurationError as error:
            show_problems(error)
            sys.exit(2)
