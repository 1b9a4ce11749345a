"""Shell completion lists what the commands accept, without importing them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.completion import shell_complete
from typer.main import get_command

from millrace import completion
from millrace.cli import app
from millrace.config import environment_names, load
from millrace.sandbox.programs.toolchain import ROOT

FULL: Any = get_command(app)
SHELLS = ("bash", "zsh", "fish", "powershell")


def asked(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield what somebody has typed when each name, option and value of a command is completed."""
    yield from ((*path, begun) for begun in ("", "-", "--e", "nothing", "--env=pr", "'de"))
    if {"--env", "--json"} <= {name for each in command.params for name in each.opts}:
        yield from ((*path, "--env", "prod", "--json", begun) for begun in ("", "-", "d"))
    yield from ((*path, "departures", *more, "") for more in ((), ("flights",), ("--env=prod",)))
    for each in command.params:
        if each.param_type_name == "option" and not each.is_flag:
            yield from ((*path, name, "") for name in each.opts)
    for name, each in getattr(command, "commands", {}).items():
        yield from asked(each, (*path, name))


@pytest.mark.parametrize("shell", SHELLS)
def test_every_name_option_and_value_is_completed_as_by_the_commands(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "1000")
    tree = json.loads(json.dumps(completion.completion_tree(FULL)))
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("_TYPER_COMPLETE_FISH_ACTION", "get-args")
    lines = [*asked(FULL, ("millrace",))]
    assert len(lines) > 300
    for words in lines[:: 1 if shell == "bash" else 7]:
        line = " ".join(words)
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", line)
        monkeypatch.setenv("_TYPER_COMPLETE_WORD_TO_COMPLETE", words[-1])
        assert shell_complete(FULL, {}, "millrace", completion.VARIABLE, f"complete_{shell}") == 0
        told = capsys.readouterr().out
        assert completion.print_completions(tree, shell) == 0
        assert capsys.readouterr().out == told, line


@pytest.mark.parametrize("folder", ["one", "two"])
def test_environments_and_their_jobs_are_those_of_the_files(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = ROOT
    if folder == "two":
        here = tmp_path
        (here / "environments").mkdir()
        texts = {
            "base": "# of all\nproject: shop\nregion: eu-central-1\n",
            "dev": "extends: base\nstreams: {}\njobs:\n  # the first\n  orders:\n    engine: glue\n\n  b-2:\n    engine: emr\n",
            "prod": 'extends: "dev"\njobs:\n    b-2: null\n    more:\n        engine: glue\ntags: {a: b}\n',
            "round": "extends: round\n",
        }
        for name, text in texts.items():
            (here / "environments" / f"{name}.yaml").write_text(text)
    monkeypatch.chdir(here)
    context: Any = type("Context", (), {"params": {}})()
    assert completion.complete_environment_names("") == list(environment_names())
    if folder == "two":
        for name, wanted in {
            "dev": ["orders", "b-2"],
            "prod": ["orders", "more"],
            "round": [],
            "no": [],
        }.items():
            context.params = {"env": name}
            assert completion.complete_job_names(context, "") == wanted
        return
    for name in environment_names():
        context.params = {"env": name}
        assert completion.complete_job_names(context, "") == list(load(name).jobs)


def test_the_second_answer_imports_none_of_the_commands(tmp_path: Path) -> None:
    variables = {
        **os.environ,
        completion.VARIABLE: "complete_bash",
        "XDG_CACHE_HOME": str(tmp_path),
        "COMP_WORDS": "millrace start --env prod fl",
        "COMP_CWORD": "4",
    }
    program = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from millrace.__main__ import main; main()"
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=variables,
            capture_output=True,
            text=True,
            check=True,
        )
        for _ in range(2)
    ]
    first, second = (run.stdout.splitlines() for run in runs)
    assert first[0] == second[0] == "flights"
    assert "millrace.config" in first[1].split()
    assert not {"inspect", "millrace.config", "millrace.cli", "pydantic", "rich", "typer"} & {
        *second[1].split()
    }
