"""HTML pages drawn by their script without a browser, for tests of their text."""

from __future__ import annotations

import subprocess
from pathlib import Path

from millrace.sandbox.programs.toolchain import node_bin_folder

_DRAW = Path(__file__).with_name("page_without_browser.cjs")


def drawn(page: str, then: str = "") -> str:
    """Return the HTML of a page's ``main``; ``then`` is a script that runs behind its own."""
    command = [str(node_bin_folder() / "node"), str(_DRAW), then]
    done = subprocess.run(command, input=page, capture_output=True, text=True, encoding="utf-8", check=False)
    assert not done.returncode, done.stderr
    return done.stdout
