"""The command line: its commands in four groups, and exit status 2 with one message for a user's mistake."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from inspect import getdoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from millrace.cli.extras import install_advice_for_missing_module
from millrace.cli.shared.console import (
    REFUSED,
    command_with_reported_failures,
    invisible_output_escaped,
    print_problems,
)
from millrace.config import ConfigurationError
from millrace.etl import __version__

GROUPS: Mapping[str, Mapping[str, str]] = {
    "Plan": {
        "init": "plan.init_project:init",
        "vendor": "plan.init_project:vendor",
        "scan": "plan.existing.scan:scan",
        "import": "plan.existing.import_job:import_command",
        "validate": "plan.plan_and_validate:validate_command",
        "plan": "plan.plan_and_validate:plan_command",
        "compare": "plan.compare:compare",
        "simulate": "plan.simulate:simulate_command",
        "preflight": "plan.report.preflight_command:preflight",
        "bench": "plan.bench.command:bench",
        "split": "plan.split_topic:split",
        "schema": "plan.schema.json_schema_and_inference:schema_app",
        "prices": "plan.prices:prices_app",
        "policies": "plan.policies:policies",
    },
    "Run": {
        "setup": "run.setup:setup",
        "demo": "run.sandbox:demo",
        "sandbox": "run.sandbox:sandbox_app",
        "traffic": "run.traffic:traffic",
        "notebook": "run.notebook:notebook",
        "deploy": "run.deploy:deploy",
        "start": "run.start_stop_drain:start",
        "stop": "run.start_stop_drain:stop",
        "drain": "run.start_stop_drain:drain",
        "upgrade": "run.deploy:upgrade",
        "rollback": "run.deploy:rollback",
    },
    "Watch": {
        "status": "watch.status:status",
        "logs": "watch.logs:logs",
        "history": "watch.history_server:history",
        "advise": "watch.advise:advise_command",
        "cost": "watch.cost:cost_command",
        "verify": "watch.verify_environment_copy:verify",
    },
    "Repair": {
        "audit": "repair.audit:audit",
        "replay": "repair.replay:replay",
        "backfill": "repair.backfill:backfill",
        "erase": "repair.erase:erase",
        "checkpoint": "repair.checkpoint:checkpoint_app",
    },
}
"""Groups of ``millrace --help``, each with its commands in the order of the help, and the function or the Typer below this package
that a command loads: the others' imports take longer than most commands."""

_PANELS = {name: panel for panel, commands in GROUPS.items() for name in commands}


class _LazyGroup(TyperGroup):
    """The root of all commands, which knows their names, and loads one when it is asked for."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": dict.fromkeys(_PANELS)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command by its name, if there is one."""
        return _load_command(cmd_name, _PANELS[cmd_name]) if cmd_name in _PANELS else None


app = typer.Typer(
    name="millrace",
    cls=_LazyGroup,
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


@cache
def _load_command(name: str, panel: str) -> Any:
    """Import a command, and return it as Typer builds it."""
    module, _, member = GROUPS[panel][name].partition(":")
    command = getattr(import_module(f"millrace.cli.{module}"), member)
    group = typer.Typer(rich_markup_mode="rich", pretty_exceptions_enable=False)
    if not isinstance(command, typer.Typer):
        group.callback()(lambda: None)
        group.command(name, help=_help_text(command), rich_help_panel=panel)(
            command_with_reported_failures(name, command)
        )
    else:
        for each in command.registered_commands:
            assert each.callback is not None
            each.name = each.name or each.callback.__name__
            each.help = _help_text(each.callback)
            each.callback = command_with_reported_failures(f"{name} {each.name}", each.callback)
        group.add_typer(command, name=name, rich_help_panel=panel)
    return typer.main.get_group(group).commands[name]


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
