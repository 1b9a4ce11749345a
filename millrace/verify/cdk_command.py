"""CDK's command line, for the project's app."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.config import find_root
from millrace.lifecycle.problems import AwsError, cdk_failure
from millrace.sandbox.toolchain import find_program, program_environment


def synthesise(file: Path, assembly: Path) -> None:
    """Write the cloud assembly of an environment.

    Parameters
    ----------
    file
        The environment's file; it names its account.
    assembly
        Folder of the assembly; an existing one is deleted.

    Raises
    ------
    AwsError
        CDK refused.
    """
    shutil.rmtree(assembly, ignore_errors=True)
    run("cdk", ["synth", "--quiet", "-c", f"env={file}", "-o", str(assembly)], program_environment())


def deploy(program: str, assembly: Path, environment: Mapping[str, str], tags: Mapping[str, str]) -> None:
    """Deploy all stacks of an assembly without a request for approval: the command has asked before.

    Parameters
    ----------
    program
        ``cdk``, or ``cdklocal`` for a LocalStack.
    assembly
        From :func:`synthesise`.
    tags
        Tags of the stacks themselves; the app sets those of their resources.

    Raises
    ------
    AwsError
        A stack was refused.
    """
    marks = [part for key, value in tags.items() for part in ("--tags", f"{key}={value}")]
    options = [*marks, "--require-approval", "never", "--method", "direct", "--concurrency", "4"]
    run(program, ["deploy", "--all", "-a", str(assembly), *options], environment)


def run(program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run a CDK command; its output is shown only when it fails.

    Raises
    ------
    AwsError
        It failed.
    """
    done = subprocess.run(
        [find_program(program, environment), *arguments],
        cwd=find_root(),
        env={**environment, "CI": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise AwsError(cdk_failure(arguments[0], done.returncode, done.stderr or done.stdout))
