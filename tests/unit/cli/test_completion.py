"""Shell completion lists what the commands accept, the names of the user's own files included."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.shared import options as completion
from millrace.config import environment_names, load
from millrace.sandbox.programs.toolchain import ROOT


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


def test_a_shell_gets_the_names_that_a_command_takes() -> None:
    answers = [
        subprocess.run(
            [sys.executable, "-m", "millrace"],
            cwd=ROOT,
            env={
                **os.environ,
                "_MILLRACE_COMPLETE": "complete_bash",
                "COMP_WORDS": words,
                "COMP_CWORD": str(at),
            },
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for words, at in (
            ("millrace pla", 1),
            ("millrace start --env pro", 3),
            ("millrace start --env prod fl", 4),
            ("millrace bench --on ", 3),
        )
    ]
    assert answers == [["plan"], ["prod"], ["flights"], ["sandbox", "glue", "emr"]]
