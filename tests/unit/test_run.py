"""The program that runs the tests: a part that did not come to its end is no success."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import run


def test_a_part_that_a_signal_ended_fails_beside_one_that_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_killed.py").write_text(
        "import os, signal\n\n\ndef test_it() -> None:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "test_well.py").write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    parts = tuple(run.Part("mine", name, (str(tmp_path / f"test_{name}.py"),)) for name in ("killed", "well"))
    monkeypatch.setattr(run, "LANES", (parts,))
    monkeypatch.setattr(run, "KINDS", ("mine",))
    monkeypatch.setattr(run, "SANDBOXES", tmp_path)
    status = run.main(["mine"])
    said = capsys.readouterr().out
    assert status == 128 + 9
    assert " and ended with status 137\nwell took " in said
    assert said.endswith("\nmine: 1 passed, 0 failed\n")
