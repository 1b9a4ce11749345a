"""A loop in Python: confluent-kafka, DuckDB and PyIceberg."""

from __future__ import annotations

import json

from millrace.sandbox.programs.child_processes import ChildProcess
from tests.performance.rivals import downloads
from tests.performance.rivals.rival_interface import JOBS, Place, Rival, environment

PACKAGES = ("duckdb==2.0.0", "confluent-kafka==2.16.1", "pyiceberg[sql-sqlite,pyarrow]==0.12.0")


class Loop(Rival):
    """DuckDB parses and filters; offsets are committed after the table."""

    name, versions = "DuckDB loop", "DuckDB 2.0.0, confluent-kafka 2.16.1, PyIceberg 0.12.0"
    job = "python_loop_job.py"

    def fetch(self) -> None:
        """Install them."""
        downloads.python("loop", PACKAGES)

    def start(self, place: Place) -> ChildProcess:
        """Start the program."""
        return ChildProcess.start(
            "rival-loop",
            [downloads.python("loop", PACKAGES), JOBS / self.job, json.dumps(place.told())],
            environment=environment(),
            log=place.home / "loop.log",
            cwd=place.home,
        )
