"""``millrace replay``: dead letters go through decoding again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.plan import EnvironmentName


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command(rich_help_panel="Repair")(replay)


def replay(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job of the environment.")],
    env: EnvironmentName,
    identity: Annotated[
        list[str] | None,
        typer.Option("--id", metavar="IDENTITY", help="Only this dead letter (column _id); may be repeated."),
    ] = None,
    corrected: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='JSON lines {"id": …, "payload": …}: decode these payloads in place of what came.',
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Its query; left out, the one that reads a source.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The outcome as one JSON object.")] = False,
) -> None:
    """Send dead letters through decoding again; what was good is never doubled.

    Without --id all dead letters of the query are tried, for example after its schema
    was mended. The derive queries pick up what has become good; a direct query's sink is given
    it. With --query a derive query is named: what its sink refused goes through its transform
    again, or, corrected, in place of the refused row. Works on an environment that
    `KEEP=1 make demo` left running.

    [bold]Examples[/bold]

      millrace replay flights --env local --id flights/3/6673

      millrace replay flights --env local --corrected corrected.jsonl
    """
    from millrace.config import Finding, load
    from millrace.lifecycle.deployed import NotDeployedError
    from millrace.sandbox import kept
    from millrace.sandbox.process import SandboxError

    environment = load(env)
    if job not in environment.jobs:
        known = ", ".join(environment.jobs)
        raise environment.places.error([Finding(("jobs",), value=job, allowed=f"one of {known}")])
    arguments = [part for name in identity or () for part in ("--id", name)]
    if corrected is not None:
        arguments += ["--corrected", corrected.resolve().as_uri()]
    try:
        spark = kept.kept_spark(environment)
        outcome = kept.replay(
            spark, environment, job, kept.query_with_letters(environment, job, query), arguments
        )
    except (SandboxError, NotDeployedError) as error:
        sys.stderr.write(f"millrace replay: {error}\n")
        raise typer.Exit(1) from None
    typer.echo(json.dumps(outcome) if as_json else _sentence(outcome))
    raise typer.Exit(1 if outcome["unknown_ids"] else 0)


def _sentence(outcome: dict[str, Any]) -> str:
    left_out = f"{filtered} the transform leaves out now, " if (filtered := outcome.get("filtered")) else ""
    text = (
        f"{outcome['letters']} dead letters of {outcome['query']} tried: {outcome['good']} are good now, {left_out}"
        f"{outcome['bad']} are still bad, {outcome['already']} had been replayed before"
    )
    unknown = outcome["unknown_ids"]
    return text + (f"; no dead letter has the identity {', '.join(unknown)}" if unknown else "")
