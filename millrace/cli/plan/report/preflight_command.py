"""``millrace preflight``: asks the account whether a deployment will go through; `millrace deploy` does so first."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Annotated

import typer
from rich.markup import escape

from millrace.cli.plan.report.permission_diff_between_versions import synthesize_templates
from millrace.cli.shared.console import FAILED, print_json, print_table_with_trailing_texts, word_columns
from millrace.cli.shared.options import AsJson, EnvironmentName
from millrace.config import Environment, load
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.lifecycle.aws_error_messages import CredentialsError
from millrace.lifecycle.changes.read_deployed_sizes import read_deployed_sizes
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.preflight import account_checks, policies_state_machines_drift
from millrace.lifecycle.preflight.run_preflight_checks import PreflightAccount, PreflightRow, run_all_checks
from millrace.sandbox.programs.toolchain import ToolchainError
from millrace.sizing import plan

_SIGNS = {"ok": "[green]✓[/]", "warning": "[yellow]![/]", "failed": "[red]✗[/]", "not known": "[dim]?[/]"}


def preflight(
    env: EnvironmentName,
    drift: Annotated[
        bool,
        typer.Option("--drift", help="Also compare the deployed stacks with their resources; takes minutes."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Ask the account, read-only, whether a deployment of the environment will go through.

    Asks for the bootstrap, quotas against the plan, zones, subnets, versions, names that exist, Lake Formation, and lets AWS
    validate state machines and policies of the templates. Each row is in order (✓), worth a look (!), a reason to fail (✗), or
    not known (?), as where a permission is missing. Exit status 1 if a row is ✗. `millrace deploy` asks the same first.

    [bold]Examples[/bold]

      millrace preflight --env prod

      millrace preflight --env prod --drift --json
    """
    environment = load(env)
    try:
        aws = connect_to_account(environment)
    except CredentialsError as error:
        rows: tuple[PreflightRow, ...] = (
            PreflightRow("credentials", "failed", str(error), "sign in to the environment's account"),
        )
    else:
        deployed = environment.with_deployed_sizes(read_deployed_sizes(aws))
        templates, unknown = _templates_and_missing_program_rows(deployed)
        account = PreflightAccount(aws, plan(deployed), templates)
        checks = {
            **account_checks.CHECKS,
            **(policies_state_machines_drift.CHECKS if templates is not None else {}),
        }
        if drift:
            checks["drift"] = policies_state_machines_drift.check_drift
        rows = (
            PreflightRow("credentials", "ok", f"account {aws.names.account}"),
            *run_all_checks(account, checks),
            *unknown,
        )
    if as_json:
        print_json({"version": 1, "rows": [asdict(each) for each in rows]}, indent=None)
    else:
        print_preflight_rows(rows)
    if any(each.verdict == "failed" for each in rows):
        raise typer.Exit(FAILED)


def _templates_and_missing_program_rows(
    environment: Environment,
) -> tuple[Mapping[str, Template] | None, Sequence[PreflightRow]]:
    """Synthesise the templates; without the programs for it, return the row that says so."""
    try:
        return synthesize_templates(environment, environment.value_locations.root), ()
    except (ToolchainError, ModuleNotFoundError) as error:
        remedy = "install what writes templates"
        return None, (
            PreflightRow("templates", "not known", str(error), remedy, "millrace setup --for deploy"),
        )


def print_preflight_rows(rows: Sequence[PreflightRow], *, err: bool = False) -> None:
    """Print a table, a line for each row, and below it the commands of those that are not in order."""
    cells = [[_SIGNS[e.verdict], *map(escape, (e.subject, e.found, e.remedy))] for e in rows]
    print_table_with_trailing_texts(
        word_columns("", ""), ("", "to do"), cells, stream=sys.stderr if err else None
    )
    for each in rows:
        if each.command:
            typer.echo(f"{each.subject}: {each.command}", err=err)
