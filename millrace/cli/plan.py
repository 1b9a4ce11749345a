"""The verbs that decide and change nothing: ``plan``, ``validate``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from millrace.config import load

EnvironmentName = Annotated[
    str,
    typer.Option(
        "--env",
        "-e",
        metavar="ENV",
        help="A name in environments/, such as prod, or the path of a YAML file.",
        show_default=False,
    ),
]


def register(app: typer.Typer) -> None:
    """Add the verbs to the command line."""
    app.command("plan", rich_help_panel="Decide")(plan_command)
    app.command("validate", rich_help_panel="Decide")(validate_command)


def plan_command(
    env: EnvironmentName,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object with every figure, its reason and its origin.")
    ] = False,
) -> None:
    """Show what an environment takes and costs: shards, workers, limits, dollars, and why.

    Needs no AWS account, no Java and no network, and changes nothing.

    [bold]Examples[/bold]

      millrace plan --env prod

      millrace plan --env environments/minimal.yaml

      millrace plan --env prod --json | jq '.jobs.flights.max_workers.value'
    """
    from millrace.sizing import plan

    environment = load(env)
    sized = plan(environment)
    if as_json:
        from millrace.sizing.export import to_json

        typer.echo(json.dumps(to_json(sized), indent=2, ensure_ascii=False))
        return
    from millrace.cli.console import show, width
    from millrace.cli.render_plan import render

    show(*render(environment, sized, width=width(sys.stdout)))


def validate_command(env: EnvironmentName) -> None:
    """Check an environment file and say everything that is wrong with it at once.

    Also sizes it, as a pinned number may break a limit. Exit status 2 if anything is wrong.

    [bold]Examples[/bold]

      millrace validate --env prod
    """
    from millrace.sizing import plan

    environment = load(env)
    plan(environment)
    streams, jobs = len(environment.streams), len(environment.jobs)
    typer.echo(
        f"{environment.name} is valid: {streams} stream{'s' * (streams != 1)}, {jobs} job{'s' * (jobs != 1)}"
    )
