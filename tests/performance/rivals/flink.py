"""PyFlink: SQL from Kafka into Iceberg, in Flink's local cluster."""

from __future__ import annotations

import json
import shutil

from millrace.sandbox.programs.child_processes import ChildProcess
from tests.performance.rivals import downloads
from tests.performance.rivals.rival_interface import JOBS, Place, Rival, environment

PACKAGES = ("apache-flink==2.3.0",)
ARTIFACTS = (
    "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2",
    "org.apache.iceberg:iceberg-flink-runtime-2.1:1.11.0",
)


class Flink(Rival):
    """Flink's table API, by Python, with checkpoints that a restart continues from."""

    name, versions = "PyFlink", "Flink 2.3.0, its Kafka connector 5.0.0, Iceberg 1.11.0 for Flink 2.1"
    job = "flink_job.py"

    def fetch(self) -> None:
        """Install Flink, and put the connectors beside its own jars."""
        interpreter = downloads.python("flink", PACKAGES)
        library = next(interpreter.parents[1].glob("lib/python3*/site-packages/pyflink/lib"))
        connectors = downloads.jar_files("flink", ARTIFACTS, dependencies=False)
        for path in (*connectors, *downloads.hadoop(), *downloads.sqlite()):
            if not (library / path.name).exists():
                shutil.copy(path, library)

    def start(self, place: Place) -> ChildProcess:
        """Start the program; it finds the last checkpoint itself."""
        interpreter = downloads.python("flink", PACKAGES)
        return ChildProcess.start(
            "rival-flink",
            [interpreter, JOBS / self.job, json.dumps(place.told())],
            environment=environment(
                PYFLINK_CLIENT_EXECUTABLE=str(interpreter), PYFLINK_PYTHON=str(interpreter)
            ),
            log=place.home / "flink.log",
            cwd=place.home,
        )
