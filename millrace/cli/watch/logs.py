"""``millrace logs``: log lines and failures of a job's runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer
from rich.console import Console

from millrace.cli.shared.console import print_json
from millrace.cli.shared.options import AsJson, EnvironmentName, JobName, load_environment_with_job
from millrace.config import ConfigurationError, Environment, Problem
from millrace.config.units import parse_duration
from millrace.lifecycle.account.deployed_environment import connect_to_account
from millrace.lifecycle.aws_error_messages import TransientError
from millrace.lifecycle.jobs import logs as deployed
from millrace.lifecycle.jobs.logs import LoggedFailure, LogLine

_POLL_SECONDS = 2.0
_LATE = timedelta(minutes=5)
"""Upper bound for the usual delay of a line on its way to CloudWatch Logs."""


def logs(
    env: EnvironmentName,
    job: JobName,
    errors: Annotated[
        bool, typer.Option("--errors", help="Show failures only, each with its stack trace, newest last.")
    ] = False,
    since: Annotated[
        str,
        typer.Option(
            "--since",
            metavar="TIME",
            help="Show lines of the last period of this length, such as 30m, 6h or 7d.",
        ),
    ] = "24h",
    lines: Annotated[
        int | None,
        typer.Option(
            "--lines", min=1, help="Number of newest lines. Default: 50, or 3 failures with --errors."
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show new lines as they are written, until Ctrl-C.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the logs of a job on Glue, on EMR Serverless or in the running sandbox.

    --errors shows failed queries by name, jobs that did not start with the reason, and exceptions of Python and the JVM
    with their stack traces, on the driver and on executors.

    [bold]Examples[/bold]

      millrace logs flights --env prod --errors

      millrace logs flights --env prod --since 10m --follow
    """
    environment = load_environment_with_job(env, job)
    try:
        begin = datetime.now(UTC) - parse_duration(since)
    except (ValueError, OverflowError) as error:
        raise ConfigurationError([Problem("millrace logs", 0, "--since", since, str(error))]) from None
    most = lines or (3 if errors else 50)
    written = _reader_of_log_lines(environment, job, begin, errors=errors)
    # Read before the first lines are shown, so that no line in between is missed.
    known = _line_keys(written.whole(None)) if follow else set()
    shown = written.last(most)
    _print_lines(shown, as_json=as_json)
    if not shown and not follow:
        typer.echo(
            f"{job}: {'no error was logged' if errors else 'no log lines'} in the last {since}", err=True
        )
    if follow:
        _print_new_entries_until_interrupt(written, known | _line_keys(shown), as_json=as_json)


@dataclass(frozen=True)
class _LogReader:
    """Log lines or failures of a job's runs.

    Attributes
    ----------
    last
        Returns a number of the newest ones.
    whole
        Returns all since a time; with None, all that exist when following begins.
    late
        Longest delay of an entry after its time; None if new entries never arrive late.
    """

    last: Callable[[int], Sequence[LogLine | LoggedFailure]]
    whole: Callable[[datetime | None], Sequence[LogLine | LoggedFailure]]
    late: timedelta | None


_LineKeys = set[tuple[str, str, str]]
"""Entries that were shown already, or that are older than those."""


def _print_new_entries_until_interrupt(written: _LogReader, printed: _LineKeys, *, as_json: bool) -> None:
    """Show new entries until Ctrl-C."""
    try:
        while True:
            time.sleep(_POLL_SECONDS)
            now = datetime.now(UTC)
            try:
                result = written.whole(now - 2 * _LATE)
            except TransientError:
                continue
            fresh = [each for each in result if _line_key(each) not in printed]
            if written.late is not None:
                # Older entries were read before. A new one among them is the rest of a trace that begins before the window.
                fresh = [each for each in fresh if each.at is None or each.at >= now - written.late]
            _print_lines(fresh, as_json=as_json)
            # Each read of files returns only changed ones, so the others must be remembered.
            printed = _line_keys(result) if written.late is not None else printed | _line_keys(result)
    except KeyboardInterrupt:
        return


def _line_key(each: LogLine | LoggedFailure) -> tuple[str, str, str]:
    return each.source, each.place, each.text


def _line_keys(lines: Sequence[LogLine | LoggedFailure]) -> _LineKeys:
    return {_line_key(each) for each in lines}


def _reader_of_log_lines(environment: Environment, job: str, begin: datetime, *, errors: bool) -> _LogReader:
    from millrace.sandbox import operate_running_sandbox

    if operate_running_sandbox.running_sandbox_deployment(environment) is not None:

        def sandbox_log_lines(since: datetime | None) -> Sequence[LogLine | LoggedFailure]:
            lines = operate_running_sandbox.read_log_lines(job, since)
            return deployed.find_failures(lines) if errors else lines

        return _LogReader(lambda most: sandbox_log_lines(begin)[-most:], sandbox_log_lines, late=None)
    aws = connect_to_account(environment)
    find = deployed.newest_failures if errors else deployed.newest_lines

    def recent_cloud_log_lines(since: datetime | None) -> Sequence[LogLine | LoggedFailure]:
        return find(aws, job, max(begin, since or datetime.now(UTC) - 2 * _LATE), sys.maxsize)

    return _LogReader(lambda most: find(aws, job, begin, most), recent_cloud_log_lines, late=_LATE)


def _print_lines(lines: Sequence[LogLine | LoggedFailure], *, as_json: bool) -> None:
    console = Console(highlight=False, soft_wrap=True)
    for each in lines:
        if as_json:
            document = asdict(each)
            del document["place"]
            print_json(document, indent=None)
        elif isinstance(each, LogLine):
            console.print(each.text, markup=False)
        else:
            when = "" if each.at is None else f"{each.at:%Y-%m-%d %H:%M:%S} UTC "
            who = "" if each.query is None else f"{each.query} "
            console.print(f"{when}{who}{each.kind}", style="bold red", markup=False)
            console.print(f"  {each.source}", style="dim", markup=False)
            console.print("\n".join(f"  {line}" for line in each.text.splitlines()), markup=False)
