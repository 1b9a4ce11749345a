"""Completion in a shell, without what the commands import: from their names and options, which are kept in a file of the user.

The file is written by the first completion after a change of the commands, which takes a second; all others take a tenth.
"""

from __future__ import annotations

import inspect
import json
import os
import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer
from typer.main import get_command

VARIABLE = "_MILLRACE_COMPLETE"
"""Environment variable with which a shell asks for completions."""

_EXTENDS = re.compile(r"^extends:[ \t]*[\"']?([\w.-]+)", re.MULTILINE)
_JOBS = re.compile(r"^jobs:.*\n((?:(?:[ \t#].*)?\n)*)", re.MULTILINE)
_KEY = re.compile(r"^([ \t]+)[\"']?([a-z][a-z0-9-]*)[\"']?:[ \t]*(null\b|~)?", re.MULTILINE)


def complete(load: Callable[[], typer.Typer]) -> None:
    """Answer a shell, and end the process.

    Parameters
    ----------
    load
        Imports the command line; called where the kept file is missing or older.
    """
    file = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "millrace" / "completion.json"
    sources = [*Path(__file__).parent.glob("cli/**/*.py"), Path(__file__)]
    stamp = [str(Path(__file__).parent), len(sources), max(each.stat().st_mtime_ns for each in sources)]
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text())
    if known.get("stamp") != stamp:
        known = {"stamp": stamp, "root": described(get_command(load()))}
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(known))
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    rebuilt(known["root"], set(typed.split()))(prog_name="millrace")


def described(command: Any) -> dict[str, Any]:
    """Return what a shell completes of a command and those below it, as JSON has it."""

    def kinds(parameter: Any) -> tuple[Any, ...]:
        annotation = parameter.type_descriptor.annotation
        return annotation, *get_args(annotation)

    return {
        "help": command.help,
        "parameters": [
            {
                "name": each.name,
                "options": [*each.opts, *each.secondary_opts] if each.param_type_name == "option" else [],
                "help": getattr(each, "help", None),
                "flag": getattr(each, "is_flag", False),
                "path": Path in kinds(each),
                "choices": [
                    value for kind in kinds(each) if get_origin(kind) is Literal for value in get_args(kind)
                ],
                "many": each.multiple or each.nargs != 1,
            }
            for each in command.params
            if each.name not in ("install_completion", "show_completion")
        ],
        "commands": {name: described(each) for name, each in getattr(command, "commands", {}).items()},
    }


def rebuilt(root: Mapping[str, Any], words: Collection[str]) -> typer.Typer:
    """Return a command line from the result of :func:`described`, whose commands do nothing; with the options of those in ``words``."""
    app = typer.Typer(help=root["help"])
    app.callback()(_function(root["parameters"]))
    for name, each in root["commands"].items():
        if each["commands"]:
            app.add_typer(rebuilt(each, words), name=name, help=each["help"])
        else:
            app.command(name, help=each["help"])(_function(each["parameters"] if name in words else []))
    return app


def _function(parameters: list[dict[str, Any]]) -> Callable[..., None]:
    """Return a function with the parameters of a command."""

    def nothing(**_: Any) -> None:
        """Do nothing."""

    values = {"env": environments, "job": jobs}
    made = {}
    for each in parameters:
        kind: Any = bool if each["flag"] else Path if each["path"] else str
        kind = Literal[tuple(each["choices"])] if each["choices"] else kind
        kind = list[kind] if each["many"] else kind
        about = {
            "help": each["help"],
            "autocompletion": values.get("env" if "--env" in each["options"] else each["name"]),
        }
        info = typer.Option(*each["options"], **about) if each["options"] else typer.Argument(**about)
        made[each["name"]] = Annotated[kind | None, info]
    nothing.__annotations__ = made
    nothing.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in made.items()
        ]
    )
    return nothing


def environments(incomplete: str) -> list[str]:
    """Complete the names of the project's environments, as :func:`millrace.config.load.environments` has them."""
    texts = _texts()
    parents = {parent[1] for text in texts.values() if (parent := _EXTENDS.search(text))}
    parts = {
        name
        for name, text in texts.items()
        if name == "base" or not (_EXTENDS.search(text) or re.search("^jobs:", text, re.MULTILINE))
    }
    return [name for name in texts if name.startswith(incomplete) and name not in parents & parts]


def jobs(context: typer.Context, incomplete: str) -> list[str]:
    """Complete the jobs of the environment that was given before, else of all."""
    texts, names = _texts(), dict[str, None]()
    given = context.params.get("env") or os.environ.get("MILLRACE_ENV")
    for name in [given] if given else environments(""):
        chain, own = [], dict[str, None]()
        while name in texts and name not in chain:
            chain.append(name)
            name = parent[1] if (parent := _EXTENDS.search(texts[name])) else None
        for each in reversed(chain):
            section = _JOBS.search(texts[each] + "\n")
            keys = _KEY.findall(section[1]) if section else []
            for indent, job, removed in keys:
                if indent == keys[0][0]:
                    own.pop(job, None) if removed else own.setdefault(job)
        names |= own
    return [job for job in names if job.startswith(incomplete)]


def _texts() -> dict[str, str]:
    """Return the texts of the project's environment files by their names, in order."""
    here = Path.cwd()
    folder = next((each for each in (here, *here.parents) if (each / "environments").is_dir()), here)
    files = sorted(folder.glob("environments/*.yaml"))
    return {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in files}
