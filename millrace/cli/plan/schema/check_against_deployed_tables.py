"""``millrace schema check``: compares the environment's schemas and transforms with the deployed tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from millrace.cli.shared.console import REFUSED, open_progress_display, print_json
from millrace.cli.shared.options import AsJson, EnvironmentName, complete_job_names, load_environment_with_job
from millrace.config import Environment
from millrace.etl.launch import typed_json
from millrace.infra.launch.launch_settings import job_settings
from millrace.lifecycle.account.catalog_columns import ddl_columns_by_table, table_names_in_settings
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.sizing import plan

if TYPE_CHECKING:
    from millrace.sandbox.rehearse_job_table_changes import StartRehearsal


def check(
    env: EnvironmentName,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]",
            help="A job. Default: all jobs.",
            show_default=False,
            autocompletion=complete_job_names,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare schemas and transforms with the deployed tables; change nothing.

    Shows which tables the next start would alter (new fields, wider numbers) and which changes it would refuse, with the
    remedy. `millrace deploy` does the same check before it drains a job.

    [bold]Examples[/bold]

      millrace schema check --env dev

      millrace schema check --env prod flights --json
    """
    environment = load_environment_with_job(env, job)
    with open_progress_display("comparing", lines_in_pipe=False):
        comparison = _rehearse_start_on_tables(environment, [job] if job else list(environment.jobs))
    if as_json:
        print_json(asdict(comparison))
    else:
        typer.echo("\n".join(altered_table_lines(comparison)) or "no table changes")
        for line in refused_query_lines(comparison):
            typer.echo(line, err=True)
    raise typer.Exit(REFUSED if comparison.refused else 0)


def altered_table_lines(rehearsal: StartRehearsal) -> list[str]:
    """Return a line for each change of a table by the next start."""
    return [f"table {table}: {change}" for table, changes in rehearsal.altered.items() for change in changes]


def refused_query_lines(rehearsal: StartRehearsal) -> list[str]:
    """Return a line for each query that would not start."""
    return [
        f"job {each.job}, query {each.query}{f' (planned on Spark {each.planned_on})' if each.planned_on else ''}: {each.why}"
        for each in rehearsal.refused
    ]


def _rehearse_start_on_tables(environment: Environment, jobs: Sequence[str]) -> StartRehearsal:
    """Rehearse the start of jobs on the tables of the running sandbox, or on those that are deployed on AWS."""
    from millrace.sandbox import operate_running_sandbox, rehearse_job_table_changes

    sized = plan(environment)
    sandbox = operate_running_sandbox.running_sandbox_deployment(environment)
    place = sandbox or connect_to_account(environment)
    settings = [
        typed_json.to_json_value(job_settings(environment, sized.jobs[job], place.names)) for job in jobs
    ]
    tables = table_names_in_settings(settings)
    if sandbox is None:
        deployed = ddl_columns_by_table(place.client, tables)
    else:
        deployed = operate_running_sandbox.ddl_columns_of_local_tables(sandbox.catalog(), tables)
    return rehearse_job_table_changes.rehearse_starts(environment, settings, deployed)
