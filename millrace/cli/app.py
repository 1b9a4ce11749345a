"""The command line: its commands in four groups, and exit status 2 with one message for a user's mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from inspect import getdoc
from typing import Annotated, Any

import typer

from millrace.cli.extras import install_advice_for_missing_module
from millrace.cli.plan import (
    compare,
    init_project,
    plan_and_validate,
    policies,
    prices,
    simulate,
    split_topic,
)
from millrace.cli.plan.bench import command as bench
from millrace.cli.plan.existing import import_job, scan
from millrace.cli.plan.report import preflight_command
from millrace.cli.plan.schema import json_schema_and_inference as schema
from millrace.cli.repair import audit, backfill, checkpoint, erase, replay
from millrace.cli.run import (
    deploy,
    notebook,
    sandbox,
    setup,
    start_stop_drain,
    traffic,
)
from millrace.cli.shared.console import (
    REFUSED,
    command_with_reported_failures,
    invisible_output_escaped,
    print_problems,
)
from millrace.cli.watch import advise, cost, history_server, logs, status, verify_environment_copy
from millrace.config import ConfigurationError
from millrace.etl import __version__

Command = Callable[..., Any] | typer.Typer

GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Plan": {
        "init": init_project.init,
        "vendor": init_project.vendor,
        "scan": scan.scan,
        "import": import_job.import_command,
        "validate": plan_and_validate.validate_command,
        "plan": plan_and_validate.plan_command,
        "compare": compare.compare,
        "simulate": simulate.simulate_command,
        "preflight": preflight_command.preflight,
        "bench": bench.bench,
        "split": split_topic.split,
        "schema": schema.schema_app,
        "prices": prices.prices_app,
        "policies": policies.policies,
    },
    "Run": {
        "setup": setup.setup,
        "demo": sandbox.demo,
        "sandbox": sandbox.sandbox_app,
        "traffic": traffic.traffic,
        "notebook": notebook.notebook,
        "deploy": deploy.deploy,
        "start": start_stop_drain.start,
        "stop": start_stop_drain.stop,
        "drain": start_stop_drain.drain,
        "upgrade": deploy.upgrade,
        "rollback": deploy.rollback,
    },
    "Watch": {
        "status": status.status,
        "logs": logs.logs,
        "history": history_server.history,
        "advise": advise.advise_command,
        "cost": cost.cost_command,
        "verify": verify_environment_copy.verify,
    },
    "Repair": {
        "audit": audit.audit,
        "replay": replay.replay,
        "backfill": backfill.backfill,
        "erase": erase.erase,
        "checkpoint": checkpoint.checkpoint_app,
    },
}
"""Groups of ``millrace --help``, each with its commands in the order of the help."""

app = typer.Typer(
    name="millrace",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    # Click would remove escapes from piped output and hide that they were there.
    context_settings={"color": True},
    rich_markup_mode="rich",
    help="Sizes, deploys, runs and tunes Spark Structured Streaming on AWS Glue and EMR Serverless.\n\n"
    "Describe your streams and jobs in [bold]environments/NAME.yaml[/bold]; Millrace computes the rest.",
    epilog="Start with: [bold]millrace init my-streams[/bold]",
)


def _print_version_and_exit(wanted: bool) -> None:
    if wanted:
        typer.echo(f"millrace {__version__}")
        raise typer.Exit


@app.callback()
def _declare_root_options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version_and_exit, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    del version


def _help_text(command: Callable[..., Any]) -> str:
    """Return a command's docstring with one line for each paragraph, which the terminal wraps."""
    return "\n\n".join(" ".join(each.splitlines()) for each in (getdoc(command) or "").split("\n\n"))


def _add_command(panel: str, name: str, command: Command) -> None:
    if not isinstance(command, typer.Typer):
        app.command(name, help=_help_text(command), rich_help_panel=panel)(
            command_with_reported_failures(name, command)
        )
        return
    for each in command.registered_commands:
        assert each.callback is not None
        each.name = each.name or each.callback.__name__
        each.help = _help_text(each.callback)
        each.callback = command_with_reported_failures(f"{name} {each.name}", each.callback)
    app.add_typer(command, name=name, rich_help_panel=panel)


for _panel, _commands in GROUPS.items():
    for _name, _command in _commands.items():
        _add_command(_panel, _name, _command)


def main() -> None:
    """Run the command line.

    Exit status: 0; 1 if something failed or is not in order; 2 for a user's mistake, in one message without a
    traceback.
    """
    with invisible_output_escaped():
        try:
            app(prog_name="millrace")
        except ConfigurationError as error:
            print_problems(error)
            sys.exit(REFUSED)
        except KeyboardInterrupt:  # before a command runs; Typer answers those of a command
            sys.exit(130)
        except ModuleNotFoundError as error:
            if (advice := install_advice_for_missing_module(error)) is None:
                raise
            sys.stderr.write(f"millrace: {advice}\n")
            sys.exit(REFUSED)
