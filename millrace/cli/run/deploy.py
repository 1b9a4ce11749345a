"""``millrace deploy``: deploys an environment around its running jobs."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.run.changes_report import (
    change_lines,
    exit_if_permissions_widen,
    jobs_that_continue_checkpoints,
    print_table_changes_and_exit_if_refused,
    removal_questions,
)
from millrace.cli.run.shared_cdk_steps import (
    cdk_deploy_all,
    cdk_remove_stack,
    synthesize_and_find_changes,
)
from millrace.cli.shared.expected_failures import confirm_or_exit
from millrace.cli.shared.options import AsJson, EnvironmentName, Wider
from millrace.config import load
from millrace.lifecycle.deploy import (
    changes_without_start_of_new_jobs,
    compare_with_deployed,
    deploy_around_jobs_and_return_started,
)
from millrace.lifecycle.upgrade_or_rollback_job import save_deployed_version


def deploy(
    env: EnvironmentName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    wider: Wider = False,
    as_json: AsJson = False,
    only_show: Annotated[bool, typer.Option("--diff", help="Show the changes and stop.")] = False,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Do not start new jobs; start them later with `millrace start`.")
    ] = False,
) -> None:
    """Deploy an environment: show the changes, drain affected jobs, deploy, start them, wait until healthy.

    Asks the account first, as `millrace preflight` does, and refuses what it would refuse. Shows which numbers of the plan, resources, permissions and tables change, and asks for confirmation. Refuses a schema
    that a deployed table cannot take, before any job is stopped; with --yes also permissions that are wider than the deployed
    ones, unless --wider says that they are meant. Drains the jobs whose application or stream is replaced.
    After the deployment, restarts jobs with new code or settings on their checkpoints. A job that was stopped by hand
    stays stopped.

    [bold]Examples[/bold]

      millrace deploy --env dev --diff

      millrace deploy --env prod

      millrace deploy --env orders --stopped
    """
    environment = load(env)
    aws, assembly, result = synthesize_and_find_changes(environment, env, limited=not only_show, first=True)
    if stopped:
        result = changes_without_start_of_new_jobs(result)
    if not as_json:
        typer.echo("\n".join(change_lines(result)))
    print_table_changes_and_exit_if_refused(
        "deploy", aws, assembly, result, jobs_that_continue_checkpoints(result), as_json=as_json
    )
    if only_show or not result:
        return
    exit_if_permissions_widen("deploy", result, yes=yes, wider=wider)
    for question in removal_questions(result):
        confirm_or_exit(question, yes=yes)
    for change in result.jobs:
        if change.after == "restart":
            save_deployed_version(aws, change.job)
    started = deploy_around_jobs_and_return_started(
        aws,
        result,
        cdk_deploy=lambda: cdk_deploy_all(
            assembly, result.order.first, result.stages, imports=result.may_import
        ),
        progress=lambda line: typer.echo(line, err=True),
        look_again=lambda: compare_with_deployed(aws, assembly),
        cdk_remove=lambda stack: cdk_remove_stack(assembly, stack),
    )
    typer.echo(f"deployed {environment.name}; started: {', '.join(started) or 'nothing'}", err=as_json)
