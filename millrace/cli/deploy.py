"""``millrace deploy``: an environment around its running jobs."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.console import relay
from millrace.cli.lifecycle import AsJson, aws_told
from millrace.cli.plan import EnvironmentName
from millrace.cli.tables import REFUSED, altered, refused
from millrace.config import Environment, load

if TYPE_CHECKING:
    from millrace.lifecycle.deploy import Changes
    from millrace.lifecycle.verbs import Aws
    from millrace.sandbox.rehearsal import Rehearsal

_SHOWN_LINES = 30

_AS_ANSWERED = ("--require-approval", "never", "--method", "direct")
"""The questions were asked and answered; CDK would ask again for every stack with a permission."""


def register(app: typer.Typer) -> None:
    """Add the verb to the command line."""
    app.command("deploy", rich_help_panel="Run")(deploy)


def deploy(
    env: EnvironmentName,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    only_show: Annotated[bool, typer.Option("--diff", help="Show what would change, and stop.")] = False,
    stopped: Annotated[
        bool, typer.Option("--stopped", help="Start no job that is new: `millrace start` does, later.")
    ] = False,
) -> None:
    """Deploy an environment: show what changes, drain what must be, deploy, start, watch until healthy.

    Shows numbers of the plan, resources, permissions and tables that change, and asks. A schema that a deployed
    table cannot take is refused before anything is stopped. Jobs whose
    application or stream is replaced are drained first; jobs whose code or settings change
    are restarted on their checkpoints afterwards; a job that somebody stopped stays stopped.

    [bold]Examples[/bold]

      millrace deploy --env dev --diff

      millrace deploy --env prod

      millrace deploy --env orders --stopped
    """
    from millrace.cli.upgrade import refusals
    from millrace.lifecycle.deploy import DeployError, apply, changes, unstarted
    from millrace.lifecycle.health import UnhealthyError
    from millrace.lifecycle.upgrade import UpgradeError, keep
    from millrace.sandbox.process import SandboxError
    from millrace.sandbox.toolchain import ToolchainError

    environment = load(env)
    with aws_told("deploy"):
        try:
            aws, assembly, found = assembled(environment, env)
            if stopped:
                found = unstarted(found)
            if not as_json:
                typer.echo("\n".join(describe(found)))
            tables = tables_of(aws, assembly, found)
            if as_json:
                document = as_document(found) | {"tables": dict(tables.altered)}
                typer.echo(json.dumps(document, indent=2, ensure_ascii=False))
            else:
                typer.echo("\n".join(altered(tables)), nl=bool(tables.altered))
            begun = [change.job for change in found.jobs if change.after == "restart"]
            wrong = [*found.order.refused, *refused(tables), *refusals(aws, assembly, begun)]
            if wrong:
                typer.echo("millrace deploy: nothing was drained or deployed", err=True)
                typer.echo("\n".join(wrong), err=True)
                raise typer.Exit(REFUSED)
            if only_show or not found:
                return
            if not yes:
                _ask()
            for job in begun:
                keep(aws, job)
            started = apply(
                aws,
                found,
                cdk_deploy=lambda: _deploy(assembly, found.order.first),
                progress=lambda line: typer.echo(line, err=True),
                look_again=lambda: changes(aws, assembly),
            )
        except (DeployError, SandboxError, UnhealthyError, ToolchainError, UpgradeError) as error:
            typer.echo(f"millrace deploy: {error}", err=True)
            raise typer.Exit(1) from None
    typer.echo(f"deployed {environment.name}; started: {', '.join(started) or 'nothing'}", err=as_json)


def assembled(environment: Environment, env: str) -> tuple[Aws, Path, Changes]:
    """Synthesise an environment and compare it with what is deployed.

    Parameters
    ----------
    env
        The environment as it was given: its name or its file.

    Raises
    ------
    AwsError, NotDeployedError, DeployError
        AWS refused a question, is not bootstrapped, or CDK failed.
    """
    from millrace.config.names import Names
    from millrace.lifecycle.deploy import changes
    from millrace.lifecycle.problems import check_bootstrapped
    from millrace.lifecycle.verbs import connect
    from millrace.sandbox.toolchain import STATE
    from millrace.sizing import plan

    plan(environment)
    assembly = _own_folder(STATE / "deploy" / environment.name)
    aws = connect(Names(environment, environment.account or ""))
    check_bootstrapped(
        aws.client("ssm"),
        account=aws.names.account,
        region=environment.region,
        qualifier=environment.governance.qualifier,
    )
    synthesise(env, aws.names.account, assembly)
    return aws, assembly, changes(aws, assembly)


def _own_folder(parent: Path) -> Path:
    """Name a folder of this command's own: what it shows is what it deploys, though another one begins meanwhile.

    Those of commands that have ended go.
    """
    import psutil

    for left in parent.glob("*/"):
        number = left.name.partition("-")[0]
        if not (number.isdigit() and psutil.pid_exists(int(number))):
            shutil.rmtree(left, ignore_errors=True)
    return parent / str(os.getpid())


def tables_of(aws: Aws, assembly: Path, found: Changes) -> Rehearsal:
    """What the starts of jobs that were deployed before will do to their tables."""
    from millrace.lifecycle import catalog
    from millrace.lifecycle.deploy import settings_of
    from millrace.sandbox.rehearsal import Rehearsal, rehearse

    jobs = [change.job for change in found.jobs if change.after == "restart"]
    if not jobs:
        return Rehearsal({}, ())
    settings = [settings_of(aws.names, assembly, job) for job in jobs]
    named = sorted(set[str]().union(*(catalog.named(each) for each in settings)))
    return rehearse(settings, catalog.columns(aws.client("glue"), named))


def describe(found: Changes) -> list[str]:
    """Write what a deployment would change, a line for each thing."""
    if not found:
        return ["nothing changes"]
    lines = []
    for stack in found.stacks:
        if not stack:
            continue
        lines.append(f"stack {stack.stack}{' (new)' if stack.new else ''}")
        lines += _cut([f"  {line}" for line in stack.resources])
        if stack.permissions:
            lines.append("  permissions")
            lines += [f"    {line}" for line in stack.permissions]
    for job in found.jobs:
        if found.numbers.get(job.job):
            lines.append(f"numbers of job {job.job}")
            lines += _cut([f"  {line}" for line in found.numbers[job.job]])
    for job in found.jobs:
        steps = [step for step in (job.before, "deploy", job.after) if step != "leave"]
        if len(steps) > 1:
            lines.append(f"job {job.job}: {', '.join(steps)}: {'; '.join(job.why)}")
    if found.order.first:
        first = " ".join(found.order.first)
        lines += [
            "in two steps, as CloudFormation takes nothing away that a deployed stack imports:",
            f"  1. {first}, which import it no more (by hand: `npx cdk deploy {first} --exclusively`)",
            "  2. all others",
        ]
    return lines


def as_document(found: Changes) -> dict[str, Any]:
    """Write the same for scripts, uncut."""
    return {
        "stacks": {
            stack.stack: {"new": stack.new, "resources": stack.resources, "permissions": stack.permissions}
            for stack in found.stacks
            if stack
        },
        "numbers": dict(found.numbers),
        "first": found.order.first,
        "jobs": {job.job: {"before": job.before, "after": job.after, "why": job.why} for job in found.jobs},
    }


def _cut(lines: list[str]) -> list[str]:
    more = len(lines) - _SHOWN_LINES
    return lines if more <= 1 else [*lines[:_SHOWN_LINES], f"  … and {more} more (--json shows all)"]


def _ask() -> None:
    if not sys.stdin.isatty():
        typer.echo("millrace deploy: nobody to ask; repeat with --yes", err=True)
        raise typer.Exit(2)
    # Standard output may be a script's.
    if not typer.confirm("Deploy this?", err=True):
        raise typer.Exit(1)


def synthesise(env: str, account: str, assembly: Path) -> None:
    """Write the assembly of an environment; what was there goes.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK refused.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    _cdk(["synth", "--quiet", "-c", f"env={env}", "-o", str(assembly)], {"CDK_DEFAULT_ACCOUNT": account})


def _deploy(assembly: Path, first: tuple[str, ...]) -> None:
    if first:
        _cdk(["deploy", *first, "--exclusively", *_AS_ANSWERED, "-a", str(assembly)], {})
    # What changes has been shown: no change set is looked at, and stacks need not wait for others.
    _cdk(["deploy", "--all", *_AS_ANSWERED, "-a", str(assembly), "--concurrency", "4"], {})


def cdk_deploy_stack(assembly: Path, stack: str) -> None:
    """Deploy one stack of an assembly, and none that it stands on.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed; CloudFormation went back to what was there.
    """
    _cdk(["deploy", stack, "--exclusively", *_AS_ANSWERED, "-a", str(assembly)], {})


def _cdk(arguments: list[str], extra: dict[str, str]) -> None:
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.problems import cdk_failure
    from millrace.sandbox.toolchain import ROOT, program_environment

    # With an endpoint of one's own it is LocalStack, whose wrapper knows where CDK must be bent.
    program = "cdklocal" if os.environ.get("AWS_ENDPOINT_URL") else "cdk"
    status, said = relay(
        [program, *arguments],
        ROOT,
        # With CI set, what CDK does goes to its standard output, and to standard error what went wrong.
        {**program_environment(), **extra, "NO_COLOR": "1", "CI": "1"},
    )
    if status != 0:
        raise DeployError(cdk_failure(arguments[0], status, said))
