"""Expected failures of a command: one message on standard error, and one exit status for each cause."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import typer
from botocore.exceptions import BotoCoreError, ClientError

from millrace.config import ConfigurationError
from millrace.config.document.problems import wrong_option_error
from millrace.lifecycle.aws_error_messages import CredentialsError, TransientError, to_aws_error

FAILED = 1
"""Exit status: AWS, the network or a program failed, or a check found a problem."""

REFUSED = 2
"""Exit status: the user's mistake, in a file, an option or the credentials."""

STATUS: Mapping[str, int] = {
    "millrace.benchmark.measurements.FitError": FAILED,
    "millrace.cli.shared.expected_failures.CommandRefusedError": REFUSED,
    "millrace.infra.errors.InfrastructureError": REFUSED,
    "millrace.lifecycle.jobs.checkpoints.CheckpointRequestError": REFUSED,
    "millrace.lifecycle.deploy.DeployError": FAILED,
    "millrace.lifecycle.account.deployed_environment.NotDeployedError": FAILED,
    "millrace.lifecycle.jobs.health.UnhealthyJobError": FAILED,
    "millrace.lifecycle.aws_error_messages.AwsError": FAILED,
    "millrace.lifecycle.aws_error_messages.CredentialsError": REFUSED,
    "millrace.lifecycle.upgrade_or_rollback_job.UpgradeError": FAILED,
    "millrace.sandbox.schemas.avro_types_and_encoding.AvroSchemaError": FAILED,
    "millrace.sandbox.schemas.infer.InferenceError": FAILED,
    "millrace.sandbox.programs.jars.JarError": FAILED,
    "millrace.sandbox.programs.child_processes.SandboxError": FAILED,
    "millrace.sandbox.programs.toolchain.ToolchainError": FAILED,
    "millrace.sandbox.schemas.traffic_values.SampleError": REFUSED,
    "millrace.sandbox.kill_and_restart_jobs.DrillError": FAILED,
}
"""Exit status by an error's module and name, so that no command imports modules that it does not need."""

_OF_BOTO3 = frozenset({"botocore.exceptions.BotoCoreError", "botocore.exceptions.ClientError"})

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class CommandRefusedError(Exception):
    """A user's mistake that shows while a command runs; the message says what to do."""


def command_with_reported_failures(
    name: str, command: Callable[Parameters, Result]
) -> Callable[Parameters, Result]:
    """Return a command whose every failure of ``STATUS`` becomes one message and its exit status.

    Parameters
    ----------
    name
        The command's words, such as ``schema infer``.
    command
        Its function. Other errors pass: they are defects, or configuration problems that the caller prints.
    """

    @wraps(command)
    def run_command(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        try:
            return command(*args, **kwargs)
        except Exception as error:
            explanation = _error_with_aws_advice(error)
            # That of its class, or of the nearest base class; another one is a defect.
            status = next((STATUS[n] for n in _class_names_with_bases(explanation) if n in STATUS), None)
            if status is None:
                raise
            typer.echo(f"millrace {name}: {explanation}", err=True)
            raise typer.Exit(status) from None

    return run_command


def _error_with_aws_advice(error: Exception) -> Exception:
    """Return an error of boto3 with advice; any other error unchanged.

    If boto3 raised the cause of a refused value, the value may be right: with wrong credentials or a broken network, the
    cause is returned instead.
    """
    refused = isinstance(error, ConfigurationError)
    cause = error.__cause__ if refused else error
    if cause is None or _OF_BOTO3.isdisjoint(_class_names_with_bases(cause)):
        return error

    assert isinstance(cause, BotoCoreError | ClientError)
    explanation = to_aws_error(cause, "a request to AWS failed")
    return (
        error if refused and not isinstance(explanation, CredentialsError | TransientError) else explanation
    )


def _class_names_with_bases(error: BaseException) -> list[str]:
    return [f"{each.__module__}.{each.__qualname__}" for each in type(error).__mro__]


def confirm_or_exit(question: str, *, yes: bool) -> None:
    """Ask for confirmation on standard error, because standard output may belong to a script.

    Raises
    ------
    CommandRefusedError
        There is no terminal to ask on.
    typer.Exit
        The answer was no: status 1.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise CommandRefusedError(
            f"{question} The question cannot be asked without a terminal; repeat the command with --yes"
        )
    if not typer.confirm(question, err=True):
        raise typer.Exit(FAILED)


@contextmanager
def reporting_write_errors_as_wrong_option(option: str, file: Path) -> Iterator[None]:
    """Report a file that cannot be written like any other value that is not allowed.

    Parameters
    ----------
    option
        Option with which the user named it.
    file
        File that the block writes.

    Raises
    ------
    ConfigurationError
        Replaces an ``OSError``.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise wrong_option_error(
            option, str(file), f"a file that you have permission to write ({reason})"
        ) from error
