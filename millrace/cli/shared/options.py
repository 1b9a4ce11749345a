"""Arguments and options that several commands share, and checks of their values."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.config import ConfigurationError, Environment, Finding, load
from millrace.config.explain import nearest
from millrace.config.problems import Problem

EnvironmentName = Annotated[
    str,
    typer.Option(
        "--env",
        "-e",
        metavar="ENV",
        envvar="MILLRACE_ENV",
        help="A name in environments/, such as prod, or the path of a YAML file.",
        show_default=False,
    ),
]
JobName = Annotated[str, typer.Argument(metavar="JOB", help="A job of the environment.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
KafkaAddress = Annotated[
    str | None,
    typer.Option(
        metavar="HOST:PORT", help="Address of a Kafka broker on this machine. Default: that of the sandbox."
    ),
]
KinesisAddress = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help="Address of a Kinesis server on this machine. Default: that of the sandbox."
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]


def check_job(environment: Environment, job: str) -> None:
    """Refuse a job that the environment does not have.

    Raises
    ------
    ConfigurationError
        The message lists the jobs of the environment.
    """
    if job not in environment.jobs:
        raise ConfigurationError(
            [
                Problem(
                    f"environment {environment.name}", 0, "JOB", job, f"one of {', '.join(environment.jobs)}"
                )
            ]
        )


def load_with_stream(env: str, stream: str) -> Environment:
    """Load an environment that has a stream of this name.

    Raises
    ------
    ConfigurationError
        The file is wrong, or has no such stream.
    """
    environment = load(env)
    if stream not in environment.streams:
        known = list(environment.streams)
        allowed = f"one of {', '.join(known)}"
        raise environment.places.error([Finding(("streams",), stream, allowed, nearest(stream, known))])
    return environment
