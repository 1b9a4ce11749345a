"""Completion in a shell, without what the commands import: from their names and options, which are kept in a file of the user.

The file is written by the first completion after a change of the commands, which takes a second; all others take a tenth.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

VARIABLE = "_MILLRACE_COMPLETE"
"""Environment variable with which a shell asks for completions."""

_EXTENDS = re.compile(r"^extends:[ \t]*[\"']?([\w.-]+)", re.MULTILINE)
_JOBS = re.compile(r"^jobs:.*\n((?:(?:[ \t#].*)?\n)*)", re.MULTILINE)
_KEY = re.compile(r"^([ \t]+)[\"']?([a-z][a-z0-9-]*)[\"']?:[ \t]*(null\b|~)?", re.MULTILINE)


def answer_shell_and_exit(load: Callable[[], Any]) -> None:
    """Answer a shell, and end the process.

    Parameters
    ----------
    load
        Imports the command line; called where the kept file is missing or older, and for a shell's script.
    """
    file = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "millrace" / "completion.json"
    sources = [*Path(__file__).parent.glob("cli/**/*.py"), Path(__file__)]
    stamp = [str(Path(__file__).parent), len(sources), max(each.stat().st_mtime_ns for each in sources)]
    known: dict[str, Any] = {}
    with suppress(OSError, ValueError):
        known = json.loads(file.read_text())
    if known.get("stamp") != stamp:
        from typer.main import get_command

        known = {"stamp": stamp, "root": completion_tree(get_command(load()))}
        with suppress(OSError):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(known))
    instruction, _, shell = os.environ[VARIABLE].partition("_")
    if instruction != "complete" or shell not in _FORMATS:
        load()(prog_name="millrace")
    raise SystemExit(print_completions(known["root"], shell))


def completion_tree(command: Any) -> dict[str, Any]:
    """Return what a shell completes of a command and those below it, as JSON has it."""
    from rich.text import Text

    return {
        "help": Text.from_markup(command.get_short_help_str()).plain,
        "parameters": [
            {
                "name": each.name,
                "options": [*each.opts, *each.secondary_opts] if each.param_type_name == "option" else [],
                "help": Text.from_markup(getattr(each, "help", None) or "").plain,
                "flag": getattr(each, "is_flag", False),
                "choices": [
                    value
                    for kind in (each.type_descriptor.annotation, *get_args(each.type_descriptor.annotation))
                    if get_origin(kind) is Literal
                    for value in get_args(kind)
                ],
                "many": each.multiple or each.nargs != 1,
            }
            for each in command.get_params(SimpleNamespace(help_option_names=["--help"]))
        ],
        "commands": {name: completion_tree(each) for name, each in getattr(command, "commands", {}).items()},
    }


def print_completions(root: Mapping[str, Any], shell: str) -> int:
    """Print what may come next in a shell's line, as that shell's script reads it; return an exit status."""
    line = os.environ.get("COMP_WORDS" if shell == "bash" else "_TYPER_COMPLETE_ARGS", "")
    lexer = shlex.shlex(line, posix=True)
    lexer.whitespace_split, lexer.commenters, words = True, "", list[str]()
    try:
        words += lexer
    except ValueError:  # a quote that is still open
        words.append(lexer.token)
    if shell == "bash":
        at = int(os.environ["COMP_CWORD"])
        words, begun = words[1:at], "".join(words[at : at + 1])
    elif shell in ("powershell", "pwsh"):
        begun = os.environ.get("_TYPER_COMPLETE_WORD_TO_COMPLETE", "")
        words = words[1:-1] if begun else words[1:]
    else:
        words, begun = (words[1:], "") if line.endswith(" ") or not words[1:] else (words[1:-1], words[-1])
    result = completions_with_help(root, words, begun)
    if shell == "fish" and os.environ.get("_TYPER_COMPLETE_FISH_ACTION") == "is-args":
        return int(not result)
    signs = _ZSH if shell == "zsh" else {}
    rows = "\n".join(
        _FORMATS[shell][bool(text)].format(name.translate(signs), " ".join(text.split()).translate(signs))
        for name, text in result
    )
    if shell == "zsh":
        rows = f"_arguments '*: :(({rows}))'" if rows else "_files"
    print(rows)  # noqa: T201
    return 0


_ZSH = str.maketrans({'"': '""', "'": "''", "$": r"\$", "`": r"\`", ":": r"\\:"})

_FORMATS: Mapping[str, tuple[str, str]] = {
    "bash": ("{0}", "{0}"),
    "zsh": ('"{0}"', '"{0}":"{1}"'),
    "fish": ("{0}", "{0}\t{1}"),
    "powershell": ("{0}::: ", "{0}:::{1}"),
    "pwsh": ("{0}::: ", "{0}:::{1}"),
}
"""Rows without and with help, as the scripts that ``millrace --install-completion`` writes read them."""


def completions_with_help(command: Mapping[str, Any], words: list[str], begun: str) -> list[tuple[str, str]]:
    """Return the names and values that may come next, each with its help.

    Parameters
    ----------
    command
        Result of :func:`completion_tree`.
    words
        Behind the program's name, without the one that is begun.
    """
    if begun.startswith("-") and "=" in begun:
        name, _, begun = begun.partition("=")
        words = [*words, name]
    given, places, rest = dict[str, str](), 0, iter(words)
    for word in rest:
        option = _parameters_by_option(command).get(word.partition("=")[0])
        if option is not None:
            value = word.partition("=")[2]
            given[option["name"]] = value if value or option["flag"] else next(rest, "")
        elif word in command["commands"]:
            command, given, places = command["commands"][word], {}, 0
        elif not word.startswith("-"):
            places += 1
    parameters = command["parameters"]
    if begun.startswith("-") and "--" not in words:
        open_ = [each for each in parameters if each["many"] or each["name"] not in given]
        return [(name, each["help"]) for each in open_ for name in each["options"] if name.startswith(begun)]
    parameter = _parameters_by_option(command).get(words[-1]) if words else None
    if parameter is None or parameter["flag"]:
        arguments = [each for each in parameters if not each["options"]]
        parameter = next((each for at, each in enumerate(arguments) if at >= places or each["many"]), None)
    if parameter is None:
        names = command["commands"].items()
        return [(name, each["help"]) for name, each in names if name.startswith(begun)]
    values = parameter["choices"]
    if "--env" in parameter["options"]:
        values = complete_environment_names(begun)
    elif parameter["name"] == "job":
        values = complete_job_names(SimpleNamespace(params=given), begun)
    return [(value, "") for value in values if value.startswith(begun)]


def _parameters_by_option(command: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: each for each in command["parameters"] for name in each["options"]}


def complete_environment_names(incomplete: str) -> list[str]:
    """Return the names of the project's environments that begin so, as :func:`millrace.config.load.environment_names` has them."""
    texts = _environment_texts_by_name()
    parents = {parent[1] for text in texts.values() if (parent := _EXTENDS.search(text))}
    parts = {
        name
        for name, text in texts.items()
        if name == "base" or not (_EXTENDS.search(text) or re.search("^jobs:", text, re.MULTILINE))
    }
    return [name for name in texts if name.startswith(incomplete) and name not in parents & parts]


def complete_job_names(ctx: Any, incomplete: str) -> list[str]:
    """Return the jobs that begin so, of the environment that was given before, else of all."""
    texts, names = _environment_texts_by_name(), dict[str, None]()
    given = ctx.params.get("env") or os.environ.get("MILLRACE_ENV")
    for name in [given] if given else complete_environment_names(""):
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


def _environment_texts_by_name() -> dict[str, str]:
    """Return the texts of the project's environment files by their names, in order."""
    here = Path.cwd()
    folder = next((each for each in (here, *here.parents) if (each / "environments").is_dir()), here)
    files = sorted(folder.glob("environments/*.yaml"))
    return {file.stem: file.read_text(encoding="utf-8", errors="replace") for file in files}
