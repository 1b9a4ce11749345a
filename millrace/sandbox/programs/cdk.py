"""CDK's command line, for the project's app."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from millrace.config import find_root
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.lifecycle.aws_error_messages import cdk_failure_message
from millrace.lifecycle.deploy import DeployError
from millrace.sandbox.programs.toolchain import find_program, program_variables

_TEMPLATE_BYTES = 1_000_000
"""Size of a template that CloudFormation takes from S3 ("CloudFormation quotas": 1 MB)."""


def synthesise_assembly(
    environment: str,
    assembly: Path,
    account: str | None = None,
    deployed: DeployedSizes | None = None,
    *,
    shown: bool = False,
) -> None:
    """Write the cloud assembly of an environment; an earlier one is deleted.

    Parameters
    ----------
    environment
        Its name or its file.
    account
        Account of an environment that names none.
    deployed
        What exists, so that the plan keeps the sizes that suffice.
    shown
        As for :func:`run_cdk`.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        CDK failed, or a template is too large for CloudFormation.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    context = [
        "-c",
        f"env={environment}",
        *(() if deployed is None else ("-c", f"deployed={deployed.to_json()}")),
    ]
    variables = program_variables(java=False) | ({} if account is None else {"CDK_DEFAULT_ACCOUNT": account})
    run_cdk(["synth", "--quiet", *context, "-o", str(assembly)], variables, shown=shown)
    sizes = {file.name: file.stat().st_size for file in sorted(assembly.glob("*.template.json"))}
    if large := [f"{name} ({size:,})" for name, size in sizes.items() if size > _TEMPLATE_BYTES]:
        raise DeployError(
            "nothing was deployed, because these templates are larger than CloudFormation's limit of "
            f"{_TEMPLATE_BYTES:,} bytes: {', '.join(large)}; move jobs to another environment"
        )


def deploy_stacks(
    assembly: Path,
    *stacks: str,
    environment: Mapping[str, str] | None = None,
    tags: Mapping[str, str] = MappingProxyType({}),
    imports: bool = False,
    shown: bool = False,
) -> None:
    """Deploy stacks of an assembly without those that they depend on, or all stacks.

    No approval is asked for: the user has confirmed already, and CDK would ask for every stack with permissions. The changes
    have been shown, so no change set is needed, and stacks without dependencies deploy in parallel.

    Parameters
    ----------
    tags
        Tags of the stacks themselves; the app sets those of their resources.
    imports
        Whether CloudFormation takes over resources that stayed when their stack was removed: those with the name and a policy
        to retain them (CloudFormation user guide, "Import AWS resources into a CloudFormation stack automatically").
    environment, shown
        As for :func:`run_cdk`.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        A stack was refused.
    """
    chosen = [*stacks, "--exclusively"] if stacks else ["--all", "--concurrency", "4"]
    method = ["change-set", "--import-existing-resources"] if imports else ["direct"]
    marks = [part for key, value in tags.items() for part in ("--tags", f"{key}={value}")]
    options = ["--require-approval", "never", "--method", *method, *marks]
    run_cdk(["deploy", *chosen, *options, "-a", str(assembly)], environment, shown=shown)


def run_cdk(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None, *, shown: bool = False
) -> None:
    """Run a CDK command.

    Parameters
    ----------
    environment
        Environment variables; this process's by default. With ``AWS_ENDPOINT_URL``, which is LocalStack's, its wrapper adapts CDK.
    shown
        Write its progress to standard error, line by line.

    Raises
    ------
    millrace.lifecycle.deploy.DeployError
        It failed.
    """
    environment = program_variables(java=False) if environment is None else environment
    program = find_program("cdklocal" if environment.get("AWS_ENDPOINT_URL") else "cdk", environment)
    # A file and not a pipe: nobody needs to read it meanwhile, and a signal may end this at any time.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        subprocess.Popen(
            [program, *arguments],
            cwd=find_root(),
            # With CI set, CDK writes its progress to standard output, and errors to standard error.
            env={**environment, "CI": "1", "NO_COLOR": "1"},
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            errors="replace",
        ) as running,
    ):
        assert running.stdout is not None
        for line in running.stdout:
            if shown:
                sys.stderr.write(line)
                sys.stderr.flush()
        if running.wait() != 0:
            said.seek(0)
            raise DeployError(cdk_failure_message(arguments[0], running.returncode, said.read()))
