"""How benchmarks count."""

from __future__ import annotations

import subprocess
import sys

from tests.performance.cpu import tree_seconds

_BURN = "import time\nwhile time.process_time() < 0.5: pass"
_PARENT = f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {_BURN!r}], check=True)
print("done", flush=True)
sys.stdin.read()
"""


def test_cpu_of_a_worker_that_ended_is_counted() -> None:
    """Spark ends Python workers in the middle of a run; without theirs a run's CPU fell below nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "done\n"
        assert tree_seconds(parent.pid) >= 0.5
        parent.communicate()
