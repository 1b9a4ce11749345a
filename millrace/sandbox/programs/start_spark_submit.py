"""Driver on this machine: local Spark, started by ``spark-submit`` with an entry script and its launch document."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from millrace.config.engines.versions import SparkLine
from millrace.lifecycle.jobs.logs import parse_event_line
from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.toolchain import installed_spark_line, spark_home, spark_submit_variables

LOCAL: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.driver.extraJavaOptions": "-Dcom.amazonaws.sdk.disableCbor=true -XX:+UseParallelGC",
    "spark.log.level": "WARN",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Spark settings of every local driver: it is reachable from this machine only, and its log has the core's lines."""


KINESIS_READER = Path(__file__).parents[1] / "kinesis_reader"
"""Path for ``PYTHONPATH``: Spark 4 finds the package there by itself."""


def start_driver(
    name: str,
    home: Path,
    entry: Path,
    settings: Mapping[str, str],
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    log: str = "driver.log",
    archive: Path | None = None,
    line: SparkLine | None = None,
) -> ChildProcess:
    """Start a driver, and return its process.

    Parameters
    ----------
    name
        Name of its process, for people.
    home
        Its folder: Spark's settings, its log, and Spark's temporary files, which are deleted at its end.
    settings
        Spark settings.
    arguments
        Arguments of the entry script.
    log
        Name of its log in that folder.
    archive
        Zip of its Python files.
    line
        Spark line; by default this interpreter's.
    """
    line = line or installed_spark_line()
    # A killed driver leaves its copies of the jars, some 400 MB, in this folder.
    scratch = home / "tmp"
    properties = home / "spark.properties"
    given = {**settings, "spark.local.dir": str(scratch)}
    properties.write_text("".join(f"{key} {value}\n" for key, value in sorted(given.items())))
    options = ("--properties-file", properties, *(("--py-files", archive) if archive else ()))
    path = os.pathsep.join(filter(None, (str(KINESIS_READER), environment.get("PYTHONPATH"))))
    return ChildProcess.start(
        name,
        [spark_home(line) / "bin" / "spark-submit", *options, entry, *arguments],
        environment={**environment, **spark_submit_variables(line), "PYTHONPATH": path},
        log=home / log,
        cwd=home,
        scratch=scratch,
    )


def read_driver_events(run: ChildProcess) -> Iterator[dict[str, Any]]:
    """Yield the JSON lines that the core has printed so far (``docs/launch-document.md``).

    The last line of a killed run may be incomplete; it is left out.
    """
    with run.log.open(encoding="utf-8", errors="replace") as log:
        lines = (parse_event_line(line.removesuffix("\n")) for line in log if line.endswith("\n"))
        yield from (event for event in lines if event is not None)
