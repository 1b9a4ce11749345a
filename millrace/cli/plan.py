"""The verbs that decide and change nothing: ``plan``, ``validate``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from millrace.config import load

if TYPE_CHECKING:
    from millrace.config import Environment
    from millrace.sizing import Plan

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
    key: Annotated[
        str | None,
        typer.Option(
            "--explain",
            metavar="KEY",
            help="How one number came about, such as jobs.flights.max_workers: formula, inputs, where each is from.",
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="A page with charts that needs no network.")
    ] = None,
) -> None:
    """Show what an environment takes and costs: shards, workers, limits, dollars, and why.

    Needs no AWS account, no Java and no network, and changes nothing.

    [bold]Examples[/bold]

      millrace plan --env prod

      millrace plan --env environments/minimal.yaml

      millrace plan --env prod --json | jq '.jobs.flights.max_workers.value'

      millrace plan --env prod --explain jobs.flights.max_workers
    """
    from millrace.sizing import plan

    environment = load(env)
    sized = plan(environment)
    if (note := old_prices(environment)) is not None:
        sized = replace(sized, warnings=(*sized.warnings, note))
    if html is not None:
        from millrace.cli.pages import write_page
        from millrace.cli.plan_page import plan_page

        write_page(html, plan_page(environment, sized))
    if key is not None:
        _explain(environment, sized, key, as_json=as_json)
        return
    if as_json:
        from millrace.sizing.export import to_json

        typer.echo(json.dumps(to_json(sized), indent=2, ensure_ascii=False))
        return
    from millrace.cli.console import show, width
    from millrace.cli.render_plan import render

    show(*render(environment, sized, width=width(sys.stdout)))


def old_prices(environment: Environment, today: date | None = None) -> str | None:
    """Say in one line that an environment's prices are old; a plan alone, which is the same on every day, does not.

    Parameters
    ----------
    environment
        Its region's table is looked at.
    today
        Left out, the day in UTC.
    """
    from millrace.sizing.tables import prices

    table = prices(environment.region, environment.places.root)
    return table.old(datetime.now(UTC).date() if today is None else today)


def _explain(environment: Environment, sized: Plan, key: str, *, as_json: bool) -> None:
    from dataclasses import asdict

    from rich.tree import Tree

    from millrace.cli.console import show
    from millrace.sizing.derivation import Node, explain

    found = explain(environment, sized, key)
    if as_json:
        typer.echo(json.dumps(asdict(found), indent=2, ensure_ascii=False))
        return

    def line(node: Node) -> str:
        parts = [f"{escape(node.name)} = [bold]{escape(node.value)}[/bold]"]
        parts += [escape(each) for each in (node.how, f"from {node.origin}" if node.origin else "") if each]
        return "  ".join(parts)

    def grow(tree: Tree, node: Node) -> Tree:
        for each in node.inputs:
            grow(tree.add(line(each)), each)
        return tree

    show(grow(Tree(line(found)), found))


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
