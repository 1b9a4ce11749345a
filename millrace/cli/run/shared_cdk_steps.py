"""Steps with CDK that several commands share: synthesis, comparison with the deployed stacks, deployment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import typer

from millrace.cli.plan.report.preflight_command import print_preflight_rows
from millrace.cli.shared.console import CommandRefusedError
from millrace.config import Environment
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.lifecycle.changes.assembly_with_other_templates import (
    write_assembly_with_templates,
    write_removal_assembly,
)
from millrace.lifecycle.changes.read_deployed_sizes import read_deployed_sizes
from millrace.lifecycle.changes.refused_updates import Template
from millrace.lifecycle.deploy import DeployError, DeploymentChanges, compare_with_deployed
from millrace.lifecycle.preflight import account_checks, policies_state_machines_drift
from millrace.lifecycle.preflight.run_preflight_checks import Check, PreflightAccount, run_all_checks
from millrace.sandbox.programs import cdk
from millrace.sandbox.programs.toolchain import state_folder
from millrace.sizing import plan
from millrace.sizing.planning import text_if_cost_limit_exceeded


def synthesize_and_find_changes(
    environment: Environment, env: str, *, limited: bool = False, first: bool = False
) -> tuple[DeployedEnvironment, Path, DeploymentChanges]:
    """Synthesise an environment; return its account, the assembly and the changes of the deployed stacks.

    Parameters
    ----------
    env
        The environment as it was given: its name or its file.
    limited
        Whether a plan above ``governance.max_month`` is refused, and what the account would refuse.
    first
        Whether the account is asked for everything that decides a deployment, not only for its bootstrap.

    Raises
    ------
    CommandRefusedError
        The plan is above that limit.
    AwsError, NotDeployedError, DeployError
        AWS refused a call or would refuse the deployment, or CDK failed.
    """
    assembly = _assembly_folder_after_cleanup(state_folder() / "deploy" / environment.name)
    aws = connect_to_account(environment)
    deployed = read_deployed_sizes(aws)
    sized = plan(environment.with_deployed_sizes(deployed))
    account = PreflightAccount(aws, sized)
    bootstrap = {"bootstrap": account_checks.check_cdk_bootstrap_version}
    _print_preflight_and_refuse_failures(
        account, account_checks.CHECKS if first else bootstrap, limited=limited
    )
    if (problems := text_if_cost_limit_exceeded(environment, sized)) is not None and limited:
        raise CommandRefusedError(f"{problems}; nothing was deployed")
    cdk.synthesise_assembly(env, assembly, aws.names.account, deployed, shown=True)
    if first:
        files = assembly.glob("*.template.json")
        account.templates = {each.name.split(".")[0]: json.loads(each.read_text()) for each in files}
        _print_preflight_and_refuse_failures(account, policies_state_machines_drift.CHECKS, limited=limited)
    return aws, assembly, compare_with_deployed(aws, assembly)


def _print_preflight_and_refuse_failures(
    account: PreflightAccount, checks: Mapping[str, Check], *, limited: bool
) -> None:
    """Show everything that is not in order, and refuse a deployment that would fail; a missing bootstrap is always refused.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        AWS would refuse it.
    """
    rows = run_all_checks(account, checks)
    if problems := [each for each in rows if each.verdict != "ok"]:
        print_preflight_rows(problems, err=True)
    failed = (each for each in rows if each.verdict == "failed")
    if wrong := [each for each in failed if limited or each.subject == "bootstrap"]:
        failures = "; ".join(f"{each.subject}: {each.found}" for each in wrong)
        raise DeployError(f"{failures}; nothing was deployed or stopped")


def _assembly_folder_after_cleanup(parent: Path) -> Path:
    """Return a folder of this process, so that it deploys exactly what it shows, even if another deployment starts meanwhile.

    Folders of processes that have ended are deleted.
    """
    import psutil

    for left in parent.glob("*/"):
        number = left.name.partition("-")[0]
        if not (number.isdigit() and psutil.pid_exists(int(number))):
            shutil.rmtree(left, ignore_errors=True)
    return parent / str(os.getpid())


def cdk_deploy_all(
    assembly: Path,
    first: tuple[str, ...],
    stages: Mapping[str, Sequence[tuple[str, Template]]],
    *,
    imports: bool,
) -> None:
    """Deploy an assembly, and those stacks again whose changes AWS takes only one after the other.

    Parameters
    ----------
    first
        Stacks that are deployed before the others.
    stages
        By stack: what each of its updates changes, and the template.
    imports
        Whether a resource may exist that a removed stack left behind.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed.
    """
    last = max((len(each) for each in stages.values()), default=1)
    for number in range(last):
        # A stack without an update of this number has had its last one.
        due = {stack: each[number] for stack, each in stages.items() if number < len(each)}
        written = assembly
        if number + 1 < last:
            templates = {stack: template for stack, (_, template) in due.items()}
            written = write_assembly_with_templates(
                assembly, templates, assembly.with_name(f"{assembly.name}-{number + 1}")
            )
        for stack, (what, _) in due.items():
            typer.echo(f"{stack}: update {number + 1} of {len(stages[stack])}: {what}", err=True)
        if number:
            cdk.deploy_stacks(written, *due, shown=True)
            continue
        if first:
            cdk.deploy_stacks(written, *first, shown=True)
        # LocalStack imports nothing.
        cdk.deploy_stacks(written, imports=imports and not os.environ.get("AWS_ENDPOINT_URL"), shown=True)


def cdk_remove_stack(assembly: Path, stack: str) -> None:
    """Remove a stack that the app no longer has, with the roles of its assembly.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed.
    """
    written = write_removal_assembly(assembly, stack, assembly.with_name(f"{assembly.name}-removed"))
    cdk.run_cdk(["destroy", stack, "--force", "--exclusively", "-a", str(written)], shown=True)


def cdk_deploy_stack(assembly: Path, stack: str) -> None:
    """Deploy one stack of an assembly, without the stacks that it depends on.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed; CloudFormation rolled the stack back.
    """
    cdk.deploy_stacks(assembly, stack, shown=True)
