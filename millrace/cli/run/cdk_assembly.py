"""CDK assemblies of an environment: synthesis, comparison with what is deployed, deployment."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.cli.shared.console import relay
from millrace.config import Environment

if TYPE_CHECKING:
    from millrace.lifecycle.deploy import Changes
    from millrace.lifecycle.state_machine import Aws

_AS_ANSWERED = ("--require-approval", "never", "--method", "direct")
"""The questions were asked and answered; CDK would ask again for every stack with a permission."""


def synthesize_and_compare(environment: Environment, env: str) -> tuple[Aws, Path, Changes]:
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
    from millrace.lifecycle.state_machine import connect
    from millrace.sandbox.toolchain import state_folder
    from millrace.sizing import plan

    plan(environment)
    assembly = _own_folder(state_folder() / "deploy" / environment.name)
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


def synthesise(env: str, account: str, assembly: Path) -> None:
    """Write the assembly of an environment; what was there goes.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK refused.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    _cdk(["synth", "--quiet", "-c", f"env={env}", "-o", str(assembly)], {"CDK_DEFAULT_ACCOUNT": account})


def cdk_deploy_all(assembly: Path, first: tuple[str, ...]) -> None:
    """Deploy an assembly.

    Parameters
    ----------
    first
        Stacks that are deployed before the others.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed.
    """
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
    from millrace.config import find_root
    from millrace.lifecycle.deploy import DeployError
    from millrace.lifecycle.problems import cdk_failure
    from millrace.sandbox.toolchain import installed, program_environment

    # With an endpoint of one's own it is LocalStack, whose wrapper knows where CDK must be bent.
    program = "cdklocal" if os.environ.get("AWS_ENDPOINT_URL") else "cdk"
    # With CI set, what CDK does goes to its standard output, and to standard error what went wrong.
    environment = {**program_environment(java=False), **extra, "NO_COLOR": "1", "CI": "1"}
    status, said = relay([installed(program, environment), *arguments], find_root(), environment)
    if status != 0:
        raise DeployError(cdk_failure(arguments[0], status, said))
