"""Output, questions and exit statuses of a command: colours in a terminal, plain text in a pipe; control characters are escaped.

An expected failure is one message on standard error, with one exit status for each cause.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TextIO, TypeVar

import typer
from botocore.exceptions import BotoCoreError, ClientError
from rich import control
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.markup import escape
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from millrace.config import ConfigurationError
from millrace.config.document.problems import TABLE, wrong_option_error
from millrace.lifecycle.aws_error_messages import CredentialsError, TransientError, to_aws_error

_PIPE_WIDTH = 100_000
"""Width of output to a pipe; larger than any row, so that scripts and logs get no wrapped or cut lines."""

_APART = 4
"""Spaces between two columns of a plain table."""

WIDE = 110
"""Terminal width in columns from which texts have their own column."""

# Rich passes every text through this table before it adds colours and cursor moves, in this program and in Typer.
control._CONTROL_STRIP_TRANSLATE.update(TABLE)  # type: ignore[arg-type]  # its own drop characters


class _EscapingStream:
    """A standard stream that escapes invisible characters in everything that is written.

    Rich writes to the stream behind it, because its colours must pass; Rich's texts were escaped before.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":  # Click would write bytes past this stream if the encoding is ASCII
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)

    def write(self, text: str) -> int:
        self.rich_proxied_file.write(text.translate(TABLE))
        return len(text)

    def writelines(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.write(line)


@contextmanager
def invisible_output_escaped() -> Iterator[None]:
    """Escape everything in standard output and standard error that a terminal would interpret; the whole tool runs within."""
    before = sys.stdout, sys.stderr
    # A stream that the shell closed is None.
    sys.stdout, sys.stderr = (_EscapingStream(each or Path(os.devnull).open("w")) for each in before)  # noqa: SIM115 - until the end
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EPIPE):
            raise
        # What the stream still holds would fail again when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if error.errno != errno.EPIPE:  # the reader of a pipe has what it wants
            sys.stderr.write(f"millrace: cannot write the output: {error.strerror}\n")
        sys.exit(1)
    finally:
        sys.stdout, sys.stderr = before


def terminal_width(stream: TextIO) -> int | None:
    """Return the columns of a terminal, ``None`` for a pipe."""
    return Console(file=stream).width if stream.isatty() else None


def print_json(document: object, *, indent: int | None = 2) -> None:
    """Print a document for scripts, with its times in ISO 8601."""
    typer.echo(
        json.dumps(
            document,
            indent=indent,
            ensure_ascii=False,
            default=lambda at: at.isoformat().replace("+00:00", "Z"),
        )
    )


def print_rich(*parts: RenderableType, stream: TextIO | None = None) -> None:
    """Print to a terminal with its width and colours; otherwise as plain lines without padding."""
    stream = stream or sys.stdout
    # No emoji: ":key:" in a name stays as it is written, and their table is not loaded.
    if stream.isatty():
        Console(file=stream, highlight=False, soft_wrap=False, emoji=False).print(*parts, sep="\n")
        return
    console = Console(
        file=stream,
        highlight=False,
        width=_PIPE_WIDTH,
        color_system=None,
        force_terminal=False,
        emoji=False,
    )
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    stream.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def word_columns(*names: str) -> list[Column]:
    """Return columns of words for a table, which are not wrapped."""
    return [Column(name, no_wrap=True) for name in names]


def figure_columns(*names: str, no_wrap: bool = True) -> list[Column]:
    """Return columns of figures for a table, aligned to the right."""
    return [Column(name, justify="right", no_wrap=no_wrap) for name in names]


class _PlainTable(Table):
    """A table without lines; in a pipe each row is put together at once, where Rich would measure, pad and cut each cell."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [
            [console.render_str(each) if isinstance(each, str) else each for each in (own.header, *own.cells)]
            for own in self.columns
        ]
        texts = [
            [each for each in cells if isinstance(each, Text) and "\n" not in each.plain] for cells in columns
        ]
        if console.is_terminal or texts != columns:
            yield from super().__rich_console__(console, options)
            return
        for own, cells in zip(self.columns, texts, strict=True):
            width = max(each.cell_len for each in cells)
            for each in cells:
                each.align("right" if own.justify == "right" else "left", width)
        for row in zip(*texts, strict=True):
            yield Segment((" " * _APART).join(each.plain for each in row))
            yield Segment.line()


def plain_table(*columns: Column | str, rows: Iterable[Iterable[RenderableType]] = ()) -> Table:
    """Return a table without lines, its columns four spaces apart."""
    return table_with_rows(_PlainTable(*columns, box=None, pad_edge=False, padding=(0, _APART // 2)), rows)


def table_with_rows(table: Table, rows: Iterable[Iterable[RenderableType]]) -> Table:
    """Return a table after its rows were added."""
    for row in rows:
        table.add_row(*row)
    return table


def print_table_with_trailing_texts(
    columns: Sequence[Column],
    texts: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    stream: TextIO | None = None,
) -> None:
    """Print a table whose last columns are texts; in a narrow terminal they stand below their row.

    Parameters
    ----------
    columns
        Columns of short cells.
    texts
        Names of the columns of texts.
    rows
        Cells, in Rich's markup.
    """
    room, short = terminal_width(stream or sys.stdout), len(columns)
    if room is None or room >= WIDE:
        print_rich(plain_table(*columns, *texts, rows=rows), stream=stream)
        return
    for row in rows:
        print_rich("  ".join(row[:short]), stream=stream)
        for name, text in zip(texts, row[short:], strict=True):
            if text:
                print_rich(Padding(f"{name}: {text}" if name else text, (0, 0, 0, 4)), stream=stream)


def print_problems(error: ConfigurationError) -> None:
    """Print every problem on standard error: in a terminal a block for each, in a pipe a line."""
    if not sys.stderr.isatty():
        sys.stderr.write(f"{error}\n")
        return
    parts: list[RenderableType] = []
    for problem in error.problems:
        place = f"{problem.file}:{problem.line}" if problem.line else problem.file
        value = (
            f"is [red]{escape(problem.value)}[/red]" if problem.key else f"[red]{escape(problem.value)}[/red]"
        )
        parts.append(f"[bold]{escape(place)}[/bold]  [cyan]{escape(problem.key)}[/cyan]")
        body = f"{value}\nallowed: {escape(problem.allowed)}"
        if problem.hint:
            body += f"\n[green]{escape(problem.hint)}[/green]"
        parts.append(Padding(body, (0, 0, 1, 4)))
    count = len(error.problems)
    parts.append(f"[bold red]{count} problem{'s' * (count > 1)}; nothing was started or deployed.[/bold red]")
    print_rich(*parts, stream=sys.stderr)


@contextmanager
def open_progress_display(first: str = "…", *, lines_in_pipe: bool = True) -> Iterator[Callable[[str], None]]:
    """Show progress on standard error: in a terminal one line that changes, in a pipe a line for each step, or none."""
    if not sys.stderr.isatty():
        yield partial(print, file=sys.stderr, flush=True) if lines_in_pipe else lambda _: None
        return
    with Console(stderr=True).status(escape(first)) as spinner:
        yield lambda text: spinner.update(escape(text))


FAILED = 1
"""Exit status: AWS, the network or a program failed, or a check found a problem."""

REFUSED = 2
"""Exit status: the user's mistake, in a file, an option or the credentials."""

STATUS: Mapping[str, int] = {
    "millrace.benchmark.measurements.FitError": FAILED,
    "millrace.cli.shared.console.CommandRefusedError": REFUSED,
    "millrace.infra.errors.InfrastructureError": REFUSED,
    "millrace.lifecycle.jobs.checkpoints.CheckpointRequestError": REFUSED,
    "millrace.lifecycle.deploy.DeployError": FAILED,
    "millrace.lifecycle.account.deployed_environment.NotDeployedError": FAILED,
    "millrace.lifecycle.jobs.health.UnhealthyJobError": FAILED,
    "millrace.lifecycle.aws_error_messages.AwsError": FAILED,
    "millrace.lifecycle.aws_error_messages.CredentialsError": REFUSED,
    "millrace.lifecycle.upgrade_or_rollback_job.UpgradeError": FAILED,
    "millrace.config.formats.avro_schema.AvroSchemaError": FAILED,
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
