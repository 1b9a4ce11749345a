"""Run the tests of HTML pages, if there is a browser: ``python -m tests.pages``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from millrace.sandbox.programs.toolchain import ToolchainError


def parser() -> argparse.ArgumentParser:
    """Return the command line's."""
    made = argparse.ArgumentParser(prog="python -m tests.pages", description=__doc__)
    made.add_argument(
        "--fetch", action="store_true", help="fetch the pinned browser first, where it is not here yet"
    )
    return made


def main() -> int:
    """Run them."""
    from tests.pages.browser import fetch, find

    asked = parser().parse_args()
    try:
        if asked.fetch:
            fetch()
        find()
    except ToolchainError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", Path(__file__).parent, "--durations=5"], check=False
    ).returncode


if __name__ == "__main__":
    raise SystemExit(main())
