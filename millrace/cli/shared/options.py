"""Arguments and options that several commands share, and checks of their values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from millrace.config import ConfigurationError, Environment, Finding, environment_names, load
from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Problem, wrong_option_error
from millrace.config.load import declared_job_names
from millrace.config.units import parse_duration


def complete_environment_names(incomplete: str) -> list[str]:
    """Return the names of the project's environments that begin so."""
    return [name for name in environment_names() if name.startswith(incomplete)]


def complete_job_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs that begin so, of the environment that was given before, else of all."""
    given = ctx.params.get("env")
    names = dict.fromkeys(
        job for name in ([given] if given else environment_names()) for job in declared_job_names(name)
    )
    return [job for job in names if job.startswith(incomplete)]


EnvironmentName = Annotated[
    str,
    typer.Option(
        "--env",
        "-e",
        metavar="ENV",
        envvar="MILLRACE_ENV",
        help="A name in environments/, such as prod, or the path of a YAML file.",
        show_default=False,
        autocompletion=complete_environment_names,
    ),
]
JobName = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="A job of the environment.", show_default=False, autocompletion=complete_job_names
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
HtmlPage = Annotated[
    Path | None,
    typer.Option("--html", metavar="FILE", help="Write an HTML page; it needs no network."),
]
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
Wider = Annotated[
    bool,
    typer.Option(
        "--wider", help="With --yes: deploy also what gives somebody more permissions than are deployed."
    ),
]


def check_job_exists(environment: Environment, job: str, argument: str = "JOB") -> None:
    """Refuse a job that the environment does not have.

    Parameters
    ----------
    argument
        Argument or option with the job.

    Raises
    ------
    ConfigurationError
        The message lists the jobs of the environment.
    """
    if job not in environment.jobs:
        known = list(environment.jobs)
        hint = did_you_mean_text(job, known)
        raise wrong_argument_error(environment, argument, job, f"one of {', '.join(known)}", hint)


def load_environment_with_job(env: str, job: str | None, argument: str = "JOB") -> Environment:
    """Load an environment that has a job of this name; None stands for all of its jobs.

    Parameters
    ----------
    argument
        Argument or option with the job.

    Raises
    ------
    ConfigurationError
        The file is wrong, or has no such job.
    """
    environment = load(env)
    if job is not None:
        check_job_exists(environment, job, argument)
    return environment


def choose_query_name(
    environment: Environment,
    job: str,
    name: str | None,
    queries: Sequence[str],
    lacking: str,
    *,
    by_name: Sequence[str] = (),
    listed: str = "one of {}, by --query",
) -> str:
    """Return the query of a job that a command works on: the one that the user named, or the only one.

    Parameters
    ----------
    name
        Name that the user gave, if any.
    queries
        Queries that the command takes.
    lacking
        What the job must have, in words, if it has no such query.
    by_name
        Further queries, which the command takes only if the user names them.
    listed
        Message that lists the queries.

    Raises
    ------
    ConfigurationError
        There is no such query, or there are several and the user named none.
    """
    names = [*queries, *by_name]
    if name is None and len(queries) == 1:
        return queries[0]
    if name is not None and name in names:
        return name
    allowed = listed.format(", ".join(names)) if names else lacking
    raise environment.value_locations.error_of_findings(
        [Finding(("jobs", job, "queries"), name or "(none)", allowed)]
    )


def load_environment_with_stream(env: str, stream: str) -> Environment:
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
        raise environment.value_locations.error_of_findings(
            [Finding(("streams",), stream, allowed, did_you_mean_text(stream, known))]
        )
    return environment


def parse_duration_option(option: str, value: str) -> timedelta:
    """Return the length of time that an option gives.

    Raises
    ------
    ConfigurationError
        The value is none.
    """
    try:
        return parse_duration(value)
    except ValueError as error:
        raise wrong_option_error(option, value, str(error)) from error


def parse_name_value_option(
    option: str, texts: Sequence[str] | None, allowed: str, *, may_be_empty: bool = False
) -> dict[str, str]:
    """Return the values of a repeatable option ``NAME=VALUE`` by their names.

    Parameters
    ----------
    allowed
        Message for a text of another form.
    may_be_empty
        Whether a value may be empty.

    Raises
    ------
    ConfigurationError
        A text has another form.
    """
    pairs = [each.partition("=") for each in texts or ()]
    for name, equals, value in pairs:
        if not (name and equals and (value or may_be_empty)):
            raise wrong_option_error(option, f"{name}{equals}{value}", allowed)
    return {name: value for name, _, value in pairs}


def refuse_options_if(*refusals: tuple[bool, str]) -> None:
    """Refuse a command line by the first condition that is true, with its message.

    Raises
    ------
    typer.BadParameter
        Options exclude each other, or lack another one.
    """
    for refused, message in refusals:
        if refused:
            raise typer.BadParameter(message)


def wrong_argument_error(
    environment: Environment, key: str, value: str, allowed: str, hint: str | None = None
) -> ConfigurationError:
    """Return the error for an argument or option that does not fit an environment."""
    return ConfigurationError([Problem(f"environment {environment.name}", 0, key, value, allowed, hint)])
