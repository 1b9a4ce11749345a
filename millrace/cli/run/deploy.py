"""``millrace deploy``, ``upgrade`` and ``rollback``."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.run.changes_report import (
    change_lines,
    exit_if_permissions_widen,
    exit_if_reasons,
    jobs_that_continue_checkpoints,
    print_table_changes_and_exit_if_refused,
    removal_questions,
)
from millrace.cli.run.checkpoint_compatibility import LaunchDocumentOfOtherReleaseError, checkpoint_refusals
from millrace.cli.run.shared_cdk_steps import (
    cdk_deploy_all,
    cdk_deploy_stack,
    cdk_remove_stack,
    synthesize_and_find_changes,
)
from millrace.cli.shared.console import confirm_or_exit
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    JobName,
    Wider,
    Yes,
    load_environment_with_job,
)
from millrace.config import load
from millrace.lifecycle import upgrade_or_rollback_job as steps
from millrace.lifecycle.changes.table_writer_changes import checkpoints_url
from millrace.lifecycle.deploy import (
    DeploymentChanges,
    changes_without_start_of_new_jobs,
    compare_with_deployed,
    deploy_around_jobs_and_return_started,
)
from millrace.lifecycle.upgrade_or_rollback_job import (
    UpgradeError,
    find_previous_version,
    save_deployed_version,
)


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


Patience = Annotated[
    int,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=60,
        help="Seconds that the started version has to become healthy. After that, an upgrade is rolled back, and a rollback fails.",
    ),
]


def upgrade(
    env: EnvironmentName,
    job: JobName,
    yes: Yes = False,
    wider: Wider = False,
    as_json: AsJson = False,
    only_show: Annotated[bool, typer.Option("--diff", help="Show the changes and stop.")] = False,
    patience: Patience = 900,
) -> None:
    """Upgrade one deployed job to the version in this folder; roll back if it does not become healthy.

    First checks the checkpoints against the new version and the tables against the new schemas. Then drains the job,
    deploys, starts it on the same checkpoints, and waits until batches commit and the record age is within the SLA. If the
    new version fails or stalls, the previous version is deployed and started again on the same checkpoints.

    [bold]Examples[/bold]

      millrace upgrade --env prod flights --diff

      millrace upgrade --env prod flights --yes
    """
    environment = load_environment_with_job(env, job)
    aws, assembly, result = synthesize_and_find_changes(environment, env, limited=not only_show)
    change = steps.change_of_job(result, job)
    stack = aws.names.stack(f"job-{job}")
    own = DeploymentChanges(
        tuple(each for each in result.stacks if each.stack == stack),
        (change,),
        {name: lines for name, lines in result.numbers.items() if name == job},
        refused=tuple(line for line in result.refused if line.startswith((f"job {job},", f"{stack}:"))),
    )
    if not as_json:
        typer.echo("\n".join(change_lines(own)))
    if change.after == "start" or change.continues is not None:
        raise UpgradeError(
            f"{job} is not deployed yet, or under another name; run `millrace deploy --env {environment.name}`"
        )
    others = steps.changed_shared_stacks(result, aws.names.prefix)
    if others:
        raise UpgradeError(
            f"{job} cannot be upgraded alone: {', '.join(others)} would change too, and other jobs depend on it; run "
            f"`millrace deploy --env {environment.name}`"
        )
    print_table_changes_and_exit_if_refused("upgrade", aws, assembly, own, [job], as_json=as_json)
    if only_show or change.after == "leave":
        return
    exit_if_permissions_widen("upgrade", own, yes=yes, wider=wider)
    confirm_or_exit("Upgrade this?", yes=yes)
    started = steps.upgrade_job_and_tell_if_started(
        aws,
        own,
        job,
        assembly=assembly,
        cdk_deploy=cdk_deploy_stack,
        progress=lambda line: typer.echo(line, err=True),
        patience_seconds=patience,
    )
    typer.echo(f"upgraded {job}; {'it runs' if started else 'it stays stopped'}", err=as_json)


def rollback(
    env: EnvironmentName, job: JobName, yes: Yes = False, wider: Wider = False, patience: Patience = 900
) -> None:
    """Roll one deployed job back to the previously deployed version, on the same checkpoints.

    `millrace upgrade` and `millrace deploy` keep the version that they replace, and its digest where no job can write. Shows
    which numbers, resources and permissions change, and asks for confirmation. A version that cannot continue from the
    current checkpoints, or that somebody has changed, is refused before the job is stopped; with --yes also one with wider
    permissions than the deployed ones, unless --wider says that they are meant.

    [bold]Examples[/bold]

      millrace rollback --env prod flights --yes
    """
    environment = load_environment_with_job(env, job)
    aws, assembly, _ = synthesize_and_find_changes(environment, env)
    version = find_previous_version(aws, job)
    changes = steps.rollback_changes(aws, version)
    typer.echo("\n".join(change_lines(changes)))
    typer.echo(
        f"{job}: rolling back to the version that was deployed until {version.at}: {version.document_url}",
        err=True,
    )
    document = version.read_launch_document(aws.client("s3"))
    if (url := checkpoints_url(document)) != aws.names.checkpoints_url(job):
        raise UpgradeError(
            f"the version before was another job named {job}, with the checkpoints {url}; to have that one back, restore the "
            f"earlier file, then `millrace deploy --env {environment.name}`"
        )
    try:
        refusals = checkpoint_refusals(aws, job, document)
    except LaunchDocumentOfOtherReleaseError as error:
        refusals = []
        typer.echo(
            f"{job}: its checkpoints cannot be checked before the rollback: {error}. The job checks them at "
            "its start: if it cannot continue from them, it ends with status 2, and this command reports the "
            "job as unhealthy",
            err=True,
        )
    exit_if_reasons("rollback", refusals)
    exit_if_permissions_widen("rollback", changes, yes=yes, wider=wider)
    confirm_or_exit("Roll back this?", yes=yes)
    started = steps.roll_back_job_and_tell_if_started(
        aws,
        version,
        assembly=assembly,
        cdk_deploy=cdk_deploy_stack,
        progress=lambda line: typer.echo(line, err=True),
        patience_seconds=patience,
        changes=changes,
    )
    typer.echo(f"rolled {job} back; {'it runs' if started else 'it stays stopped'}")
