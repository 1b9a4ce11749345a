"""Commands that set-up puts beside `millrace`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from millrace.sandbox.programs import setup


@pytest.fixture
def bins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    python, node, packages = (
        tmp_path / "my venv" / "bin",
        tmp_path / "node",
        tmp_path / "p" / "node_modules",
    )
    for folder in (python, node, packages / ".bin"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(setup.sys, "executable", str(python / "python"))
    monkeypatch.setattr(setup, "node_bin_folder", lambda: node)
    monkeypatch.setattr(setup, "node_modules_folder", lambda: packages)
    for file, text in (
        (packages / ".bin" / "cdk", "#!/usr/bin/env told\n"),
        (node / "told", '#!/bin/sh\nshift\nprintf "%s|" "$@"\n'),
    ):
        file.write_text(text)
        file.chmod(0o755)
    return python


def test_cdk_can_be_typed_and_finds_its_node(bins: Path) -> None:
    said: list[str] = []
    setup._write_start_script("cdk", said.append)
    setup._write_start_script("cdk", said.append)  # as the next set-up does
    done = subprocess.run(
        [bins / "cdk", "synth", "-c", "env=a b"], capture_output=True, text=True, check=True
    )
    assert (done.stdout, said) == ("synth|-c|env=a b|", [])


def test_another_program_of_that_name_is_left(bins: Path) -> None:
    (bins / "cdk").write_text("theirs")
    said: list[str] = []
    setup._write_start_script("cdk", said.append)
    assert (bins / "cdk").read_text() == "theirs"
    assert str(bins.parents[1] / "p" / "node_modules" / ".bin" / "cdk") in said[0]
