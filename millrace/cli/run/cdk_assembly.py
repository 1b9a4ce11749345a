"""CDK assemblies of an environment: synthesis, comparison with the deployed stacks, deployment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

import typer

from millrace.cli.plan.report.preflight import show_rows
from millrace.cli.shared.connections import connect_account
from millrace.cli.shared.console import relay
from millrace.cli.shared.expected_failures import RefusedError
from millrace.config import Environment, find_root
from millrace.config.deployed_sizes import DeployedSizes
from millrace.sizing import plan
from millrace.sizing.planning import over_limit

if TYPE_CHECKING:
    from millrace.lifecycle.deploy import Changes
    from millrace.lifecycle.preflight import Account, Check
    from millrace.lifecycle.state_machine import Aws
    from millrace.lifecycle.update_rules import Template

_AS_ANSWERED = ("--require-approval", "never", "--method", "direct")
"""Options without approvals: the user has confirmed already, and CDK would ask for every stack with permissions."""

_IMPORTING = ("--require-approval", "never", "--method", "change-set", "--import-existing-resources")
"""The same, for resources that stayed when their stack was removed: CloudFormation takes over those with the name and a policy
to retain them (CloudFormation user guide, "Import AWS resources into a CloudFormation stack automatically")."""

_TEMPLATE_BYTES = 1_000_000
"""Size of a template that CloudFormation takes from S3 ("CloudFormation quotas": 1 MB)."""


def synthesize_and_compare(
    environment: Environment, env: str, *, limited: bool = False, first: bool = False
) -> tuple[Aws, Path, Changes]:
    """Synthesise an environment and compare it with the deployed stacks.

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
    RefusedError
        The plan is above that limit.
    AwsError, NotDeployedError, DeployError
        AWS refused a call or would refuse the deployment, or CDK failed.
    """
    from millrace.lifecycle import preflight_account, preflight_templates
    from millrace.lifecycle.deploy import compare_with_deployed
    from millrace.lifecycle.preflight import Account
    from millrace.lifecycle.read_sizes import read_sizes
    from millrace.sandbox.toolchain import state_folder

    assembly = _own_folder(state_folder() / "deploy" / environment.name)
    aws = connect_account(environment)
    deployed = read_sizes(aws)
    sized = plan(environment.with_deployed(deployed))
    account = Account(aws, sized)
    bootstrap = {"bootstrap": preflight_account.bootstrap}
    _preflight(account, preflight_account.CHECKS if first else bootstrap, limited=limited)
    if (told := over_limit(environment, sized)) is not None and limited:
        raise RefusedError(f"{told}; nothing was deployed")
    synthesise(env, aws.names.account, assembly, deployed)
    if first:
        files = assembly.glob("*.template.json")
        account.templates = {each.name.split(".")[0]: json.loads(each.read_text()) for each in files}
        _preflight(account, preflight_templates.CHECKS, limited=limited)
    return aws, assembly, compare_with_deployed(aws, assembly)


def _preflight(account: Account, checks: Mapping[str, Check], *, limited: bool) -> None:
    """Show everything that is not in order, and refuse a deployment that would fail; a missing bootstrap is always refused.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        AWS would refuse it.
    """
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.preflight import ask, failed

    rows = ask(account, checks)
    if told := [each for each in rows if each.verdict != "ok"]:
        show_rows(told, err=True)
    if wrong := [each for each in failed(rows) if limited or each.subject == "bootstrap"]:
        said = "; ".join(f"{each.subject}: {each.found}" for each in wrong)
        raise DeployError(f"{said}; nothing was deployed or stopped")


def _own_folder(parent: Path) -> Path:
    """Return a folder of this process, so that it deploys exactly what it shows, even if another deployment starts meanwhile.

    Folders of processes that have ended are deleted.
    """
    import psutil

    for left in parent.glob("*/"):
        number = left.name.partition("-")[0]
        if not (number.isdigit() and psutil.pid_exists(int(number))):
            shutil.rmtree(left, ignore_errors=True)
    return parent / str(os.getpid())


def synthesise(env: str, account: str, assembly: Path, deployed: DeployedSizes | None = None) -> None:
    """Write the assembly of an environment; an earlier one is deleted.

    Parameters
    ----------
    deployed
        What exists, so that the plan keeps the sizes that suffice.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed, or a template is too large for CloudFormation.
    """
    from millrace.lifecycle.deploy import DeployError

    shutil.rmtree(assembly, ignore_errors=True)
    context = ["-c", f"env={env}", *(() if deployed is None else ("-c", f"deployed={deployed.to_json()}"))]
    _cdk(["synth", "--quiet", *context, "-o", str(assembly)], {"CDK_DEFAULT_ACCOUNT": account})
    sizes = {file.name: file.stat().st_size for file in sorted(assembly.glob("*.template.json"))}
    if large := [f"{name} ({size:,})" for name, size in sizes.items() if size > _TEMPLATE_BYTES]:
        raise DeployError(
            f"CloudFormation takes templates of up to {_TEMPLATE_BYTES:,} bytes, so nothing was deployed: {', '.join(large)}; move "
            "jobs to another environment"
        )


def cdk_deploy_all(
    assembly: Path,
    first: tuple[str, ...],
    stages: Mapping[str, Sequence[tuple[str, Template]]] = MappingProxyType({}),
    *,
    imports: bool = False,
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
    from millrace.lifecycle.assembly_stages import with_templates

    last = max((len(each) for each in stages.values()), default=1)
    for number in range(last):
        # A stack without an update of this number has had its last one.
        due = {stack: each[number] for stack, each in stages.items() if number < len(each)}
        written = assembly
        if number + 1 < last:
            templates = {stack: template for stack, (_, template) in due.items()}
            written = with_templates(assembly, templates, assembly.with_name(f"{assembly.name}-{number + 1}"))
        for stack, (what, _) in due.items():
            typer.echo(f"{stack}: update {number + 1} of {len(stages[stack])}: {what}", err=True)
        if number:
            _cdk(["deploy", *due, "--exclusively", *_AS_ANSWERED, "-a", str(written)], {})
            continue
        if first:
            _cdk(["deploy", *first, "--exclusively", *_AS_ANSWERED, "-a", str(written)], {})
        # The changes have been shown already: no change set is needed, and stacks without dependencies deploy in parallel.
        # LocalStack imports nothing.
        options = _IMPORTING if imports and not os.environ.get("AWS_ENDPOINT_URL") else _AS_ANSWERED
        _cdk(["deploy", "--all", *options, "-a", str(written), "--concurrency", "4"], {})


def cdk_remove_stack(assembly: Path, stack: str) -> None:
    """Remove a stack that the app no longer has, with the roles of its assembly.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed.
    """
    from millrace.lifecycle.removals import removal_assembly

    written = removal_assembly(assembly, stack, assembly.with_name(f"{assembly.name}-removed"))
    _cdk(["destroy", stack, "--force", "--exclusively", "-a", str(written)], {})


def cdk_deploy_stack(assembly: Path, stack: str) -> None:
    """Deploy one stack of an assembly, without the stacks that it depends on.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed; CloudFormation rolled the stack back.
    """
    _cdk(["deploy", stack, "--exclusively", *_AS_ANSWERED, "-a", str(assembly)], {})


def _cdk(arguments: list[str], extra: dict[str, str]) -> None:
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.problems import cdk_failure
    from millrace.sandbox.toolchain import find_program, program_environment

    # A custom endpoint is LocalStack's; its wrapper adapts CDK.
    program = "cdklocal" if os.environ.get("AWS_ENDPOINT_URL") else "cdk"
    # With CI set, CDK writes its progress to standard output, and errors to standard error.
    environment = {**program_environment(java=False), **extra, "NO_COLOR": "1", "CI": "1"}
    status, said = relay([find_program(program, environment), *arguments], find_root(), environment)
    if status != 0:
        raise DeployError(cdk_failure(arguments[0], status, said))
