"""``millrace demo`` and ``millrace sandbox``: the product on one machine."""

from __future__ import annotations

import signal
from typing import Annotated, Any, Literal

import typer
from rich.console import Console

sandbox_app = typer.Typer(help="What the sandbox left running on this machine.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the verbs of this file to the command line."""
    app.command(rich_help_panel="On one machine")(demo)
    app.add_typer(sandbox_app, name="sandbox", rich_help_panel="On one machine")


def demo(
    records: Annotated[
        Literal["few", "month", "all"],
        typer.Option(
            help="Flights sent to Kafka: a few days, a month, or all 336,776. Kinesis gets ten days."
        ),
    ] = "month",
    environment: Annotated[
        str, typer.Option("--env", help="Environment to deploy; it must hold the example's jobs.")
    ] = "local",
    keep: Annotated[bool, typer.Option(help="Leave servers running and print their addresses.")] = False,
) -> None:
    """Deploy the flights example to LocalStack, run its jobs, kill them, check every record.

    Starts LocalStack and a Kafka broker on 127.0.0.1, deploys the environment with the
    CDK app that deploys to AWS, feeds both jobs, kills each driver with -9 in the middle,
    starts it again, and holds both tables against the ledger of what was sent. The last
    line is one JSON object; the exit status is 0 only if nothing was lost or doubled.

    Everything it started is stopped at the end, after Ctrl-C and after a failure.
    """
    from millrace.config import Finding, load
    from millrace.lifecycle.deployed import NotDeployedError
    from millrace.sandbox.demo import JOBS, run
    from millrace.sandbox.jars import JarError
    from millrace.sandbox.process import SandboxError
    from millrace.sandbox.toolchain import ToolchainError

    def terminated(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    loaded = load(environment)
    missing = [job for job in JOBS if job not in loaded.jobs]
    if missing:
        what = f"the example's jobs, {' and '.join(JOBS)}, as in environments/local.yaml"
        raise loaded.places.error([Finding(("jobs",), allowed=what, value=", ".join(loaded.jobs))])
    signal.signal(signal.SIGTERM, terminated)
    console = Console()
    if not console.is_terminal:
        console = Console(width=120)  # a pipe has no width; the default would fold the tables
    try:
        status = run(console, environment=environment, records=records, keep=keep)
    except (SandboxError, NotDeployedError, JarError, ToolchainError) as error:
        Console(stderr=True).print(f"millrace demo: {error}", style="red", highlight=False, markup=False)
        raise typer.Exit(1) from None
    raise typer.Exit(status)


@sandbox_app.command()
def stop() -> None:
    """Stop what `millrace demo --keep` left running, or a demo that was killed."""
    from millrace.sandbox.process import stop_left_behind

    stopped = stop_left_behind()
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
