"""How the command line prints: for people in a terminal, plainly into a pipe."""

from __future__ import annotations

import sys
from typing import TextIO

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding

from millrace.config import ConfigurationError

_PIPE_WIDTH = 1000
"""Wider than any row: what a script or a log reads is never wrapped or cut."""


def is_terminal(stream: TextIO) -> bool:
    """Tell whether a person is looking."""
    return stream.isatty()


def width(stream: TextIO) -> int | None:
    """Return the columns of a terminal, ``None`` for a pipe."""
    return Console(file=stream).width if is_terminal(stream) else None


def show(*parts: RenderableType, stream: TextIO | None = None) -> None:
    """Print to a terminal in its width and colours; elsewhere as plain lines without padding."""
    stream = stream or sys.stdout
    if is_terminal(stream):
        Console(file=stream, highlight=False, soft_wrap=False).print(*parts, sep="\n")
        return
    console = Console(
        file=stream, highlight=False, width=_PIPE_WIDTH, color_system=None, force_terminal=False
    )
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    stream.write("\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n")


def show_problems(error: ConfigurationError) -> None:
    """Print every problem on standard error: a block each for people, a line each for a pipe."""
    if not is_terminal(sys.stderr):
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
    show(*parts, stream=sys.stderr)
