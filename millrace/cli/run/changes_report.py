"""Changes of a deployment, as lines for people and as a document for scripts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from millrace.cli.plan.schema.check_against_deployed_tables import altered_table_lines, refused_query_lines
from millrace.cli.run.checkpoint_compatibility import (
    checkpoint_lines_of_jobs,
    checkpoint_refusals,
    irreversible_checkpoint_lines,
)
from millrace.cli.shared.console import REFUSED, print_json
from millrace.lifecycle.account.catalog_columns import ddl_columns_by_table, table_names_in_settings
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.undeclared_stacks import StackRemoval
from millrace.lifecycle.deploy import DeploymentChanges, launch_document_in_assembly

if TYPE_CHECKING:
    from millrace.sandbox.rehearse_job_table_changes import StartRehearsal

_SHOWN_LINES = 30


def jobs_that_continue_checkpoints(changes: DeploymentChanges) -> list[str]:
    """Return the jobs that start on checkpoints that exist, a renamed one under its new name."""
    return [
        job.job for job in changes.jobs if job.after == "restart" or job.continues is not None or job.resumes
    ]


def rehearse_table_changes(
    aws: DeployedEnvironment, assembly: Path, changes: DeploymentChanges
) -> StartRehearsal:
    """Return the changes to tables when jobs that were deployed before start again."""
    from millrace.sandbox.rehearse_job_table_changes import StartRehearsal, rehearse_starts

    jobs = jobs_that_continue_checkpoints(changes)
    if not jobs:
        return StartRehearsal({}, ())
    settings = [launch_document_in_assembly(aws.names, assembly, job)["settings"] for job in jobs]
    tables = table_names_in_settings(settings)
    return rehearse_starts(aws.names.environment, settings, ddl_columns_by_table(aws.client, tables))


def print_table_changes_and_exit_if_refused(
    command: str,
    aws: DeployedEnvironment,
    assembly: Path,
    changes: DeploymentChanges,
    jobs: list[str],
    *,
    as_json: bool,
) -> None:
    """Print the changes of a deployment to tables, and the checkpoints that cannot go back; refuse what would not start.

    Parameters
    ----------
    command
        Name of the command, for its message.
    assembly
        The folder that ``cdk synth`` wrote.
    jobs
        Jobs that would be started again.
    as_json
        Print all changes as one JSON object instead.
    """
    tables = rehearse_table_changes(aws, assembly, changes)
    if as_json:
        document = changes_document(changes) | {"tables": dict(tables.altered)}
        print_json(document)
    else:
        typer.echo("\n".join(altered_table_lines(tables)), nl=bool(tables.altered))
    exit_if_reasons(
        command,
        [
            *changes.order.refused,
            *changes.refused,
            *refused_query_lines(tables),
            *checkpoint_lines_of_jobs(checkpoint_refusals, aws, assembly, jobs),
        ],
    )
    typer.echo(
        "".join(
            f"{line}\n"
            for line in checkpoint_lines_of_jobs(irreversible_checkpoint_lines, aws, assembly, jobs)
        ),
        nl=False,
        err=True,
    )


def exit_if_reasons(command: str, reasons: list[str]) -> None:
    """End a command with its reasons, if there are any, before it changes anything."""
    if reasons:
        typer.echo(
            f"millrace {command}: no job was stopped and nothing was deployed, for these reasons:", err=True
        )
        typer.echo("\n".join(reasons), err=True)
        raise typer.Exit(REFUSED)


def exit_if_permissions_widen(command: str, changes: DeploymentChanges, *, yes: bool, wider: bool) -> None:
    """End a command that nobody watches if it gives more permissions than are deployed; the first deployment gives all.

    A new job, or a new table of one, with rights of the kinds that the environment's jobs have gives nobody more.

    Parameters
    ----------
    yes, wider
        Whether nobody is asked, and whether wider permissions are meant.
    """
    if not yes or wider or all(stack.new for stack in changes.stacks):
        return
    more = [f"{stack.stack}: {line}" for stack in changes.stacks for line in stack.wider_permission_lines]
    if more:
        more.append("if this is meant, repeat the command with --yes --wider, or without --yes to be asked")
    exit_if_reasons(command, more)


def change_lines(changes: DeploymentChanges) -> list[str]:
    """Return the changes of a deployment as lines."""
    if not changes:
        return ["nothing changes"]
    lines = []
    for stack in changes.stacks:
        if not stack:
            continue
        lines.append(f"stack {stack.stack}{' (new)' if stack.new else ''}")
        lines += _limit_number_of_lines([f"  {line}" for line in stack.resources])
        if stack.permissions:
            lines.append("  permissions")
            lines += [f"    {line}" for line in stack.permissions]
    for job in changes.jobs:
        if changes.numbers.get(job.job):
            lines.append(f"numbers of job {job.job}")
            lines += _limit_number_of_lines([f"  {line}" for line in changes.numbers[job.job]])
    for job in changes.jobs:
        steps = [step for step in (job.before, "deploy", job.after) if step != "leave"]
        if len(steps) > 1:
            why = "; ".join(job.why)
            if job.resumes:
                why += f"; continues from checkpoints that no deployed job has: {', '.join(job.resumes)}"
            lines.append(f"job {job.job}: {', '.join(steps)}: {why}")
    lines += [line for removal in changes.removals for line in _removal_lines(removal)]
    if changes.shorter:
        lines += [
            "older data is deleted:",
            *_limit_number_of_lines([f"  {line}" for line in changes.shorter]),
        ]
    if changes.consequences:
        lines += ["earlier records stay as they are:", *(f"  {line}" for line in changes.consequences)]
    for name, stages in changes.stages.items():
        lines.append(
            f"stack {name} in {len(stages)} updates, because AWS takes these changes one after the other:"
        )
        lines += [f"  {number}. {what}" for number, (what, _) in enumerate(stages, 1)]
    if changes.order.first:
        first = " ".join(changes.order.first)
        lines += [
            "two steps, because CloudFormation keeps what a deployed stack imports, and a name has one owner:",
            f"  1. {first}, which no longer import or have it (by hand: `cdk deploy {first} --exclusively`)",
            "  2. all others",
        ]
    return lines


def _removal_lines(removal: StackRemoval) -> list[str]:
    why = "is no longer in the file" if removal.renamed_to is None else f"is job {removal.renamed_to} now"
    lines = [f"stack {removal.stack} {why}"]
    if removal.protected:
        command = "aws cloudformation update-termination-protection --no-enable-termination-protection"
        lines.append(
            f"  it stays, as it is protected from termination; `{command} --stack-name {removal.stack}`, then another "
            "deployment removes it"
        )
    lines += [f"  stays: {each}" for each in removal.stays]
    return lines + [f"  {'would be ' * removal.protected}deleted: {each}" for each in removal.goes]


def removal_questions(changes: DeploymentChanges) -> list[str]:
    """Return the questions to answer before a deployment, one for each stack that it removes."""
    lines = []
    for removal in changes.removals:
        if not removal.protected:
            what = f"stack {removal.stack}" if removal.job is None else f"job {removal.job}"
            heir = f", which is {removal.renamed_to} now" if removal.renamed_to else ""
            stays = f" These stay: {', '.join(removal.stays)}." if removal.stays else ""
            goes = f" These are deleted: {', '.join(removal.goes)}." if removal.goes else ""
            lines.append(f"Remove {what}{heir}?{stays}{goes}")
    lost = [resource for stack in changes.stacks for resource in stack.lost]
    deleted = f" These are deleted with their data: {', '.join(lost)}." if lost else ""
    older = f" Older data is deleted: {'; '.join(changes.shorter)}." if changes.shorter else ""
    return [*lines, f"Deploy this?{deleted}{older}"]


def changes_document(changes: DeploymentChanges) -> dict[str, Any]:
    """Return the same for scripts, without cuts."""
    return {
        "stacks": {
            stack.stack: {"new": stack.new, "resources": stack.resources, "permissions": stack.permissions}
            for stack in changes.stacks
            if stack
        },
        "numbers": dict(changes.numbers),
        "first": changes.order.first,
        "removals": {each.stack: {"stays": each.stays, "deleted": each.goes} for each in changes.removals},
        "shorter_retentions": changes.shorter,
        "consequences": changes.consequences,
        "updates": {stack: [what for what, _ in stages] for stack, stages in changes.stages.items()},
        "jobs": {
            job.job: {"before": job.before, "after": job.after, "why": job.why, "resumes": job.resumes}
            for job in changes.jobs
        },
    }


def _limit_number_of_lines(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN_LINES
    return lines if more <= 1 else [*lines[:_SHOWN_LINES], f"  … and {more} more (--json shows all)"]
