"""Generates the command reference from the command line program."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer.main

from millrace.cli import app

BEGINNING = """\
# Commands

`millrace COMMAND --help` says the same in a terminal. Every command takes `--env NAME` where it needs an environment; the variable
`MILLRACE_ENV` stands for it. Exit status 2 means that the request was wrong and that nothing was started.
"""


def commands() -> Iterator[tuple[str, Any]]:
    """Yield each command that can be run, with its words: ``millrace checkpoint show``."""
    yield from _commands(typer.main.get_command(app), "millrace")


def _commands(command: Any, words: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name in sorted(inner):
        each = command.get_command(None, name)
        if not each.hidden:
            yield from _commands(each, f"{words} {name}")


def commands_page() -> str:
    """Write the page: each command with what it does, its arguments and its options."""
    return "\n".join([BEGINNING, *(_section(words, command) for words, command in commands())])


def _section(words: str, command: Any) -> str:
    rows = [
        _row(each) for each in command.params if not getattr(each, "hidden", False) and each.name != "help"
    ]
    table = ["| argument | meaning |", "|---|---|", *rows] if rows else []
    return "\n".join([f"## {words}", "", _help(command.help or ""), "", *table, ""])


def _help(text: str) -> str:
    """Help as Markdown: what Rich marks bold, and examples as a block of commands."""
    text, _, examples = text.partition("[bold]Examples[/bold]")
    text = re.sub(r"\[/?bold\]", "**", text).strip()
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    return "\n".join([text, "", "```console", *lines, "```"]) if lines else text


def _row(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts]
    if parameter.param_type_name == "argument":
        names = [(parameter.metavar or parameter.name).upper()]
    shown = ", ".join(f"`{name}`" for name in names)
    star = " \\*" if parameter.required else ""
    meaning = (getattr(parameter, "help", None) or "").replace("|", "\\|").replace("\n", " ")
    return f"| {shown}{star} | {meaning} |"
