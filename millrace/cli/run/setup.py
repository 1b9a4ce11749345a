"""``millrace setup``: installs the programs in addition to Python that deploying and the sandbox need."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated, Literal

import typer

from millrace.cli.shared.console import CommandRefusedError
from millrace.config import environment_names
from millrace.sandbox.programs import setup as installing
from millrace.sandbox.programs.toolchain import runs_in_millrace_clone


def setup(
    what: Annotated[
        Literal["deploy", "sandbox"],
        typer.Option(
            "--for",
            help="What to install: deploy for Node, the CDK command line and jars; sandbox for these and LocalStack.",
        ),
    ] = "sandbox",
) -> None:
    """Install the programs that deploying and the sandbox need in addition to Python, pinned by digest.

    Installs into the folder .millrace of the project, and the command `cdk` beside `millrace`. Uses Java 17 and Node of this
    machine if they are new enough. Skips what is installed already.

    [bold]Examples[/bold]

      millrace setup

      millrace setup --for deploy
    """
    if runs_in_millrace_clone():
        raise CommandRefusedError("this is a clone of Millrace; run `make setup` instead")
    (installing.install_for_deploy if what == "deploy" else installing.install_all)(typer.echo)
    env = next(iter(environment_names()), "ENV")
    if what == "sandbox" and find_spec("pyspark") is None:
        typer.echo("next step: pip install --require-hashes -r requirements-sandbox.txt && millrace setup")
    else:
        typer.echo(f"next step: millrace {('deploy' if what == 'deploy' else 'sandbox run')} --env {env}")
