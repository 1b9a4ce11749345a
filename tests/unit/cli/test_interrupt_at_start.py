"""Ctrl-C before a command runs, which takes a second: no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.cli import main

INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.parametrize(
    ("ignored", "status"), [(False, -signal.SIGINT), (True, 0)], ids=["from a terminal", "in the background"]
)
def test_an_interrupted_import_shows_no_traceback(tmp_path: Path, ignored: bool, status: int) -> None:
    # Whatever imports typer is interrupted there; the real one follows.
    (tmp_path / "typer.py").write_text(
        f"{INTERRUPTED}import sys\nsys.path.remove({str(tmp_path)!r})\ndel sys.modules['typer']\nimport typer\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "--version"],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else signal.SIG_DFL),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, "")


def test_nor_does_an_interrupt_while_the_commands_are_built(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    def interrupted(**_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setitem(main.__globals__, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "")
