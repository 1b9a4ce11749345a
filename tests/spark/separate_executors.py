"""Programs whose executors are processes of their own, as on an engine's cluster."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from millrace.sandbox.programs.toolchain import ROOT, program_variables, spark_home

_SESSION = """
import sys
from pyspark.sql import SparkSession

jars, *arguments = sys.argv[1:]
spark = (
    SparkSession.builder.master("local-cluster[2,1,768]")
    .config("spark.jars", jars)
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.executor.memory", "768m").config("spark.ui.enabled", "false")
    .config("spark.executor.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    .getOrCreate()
)
"""


def run(
    program: str,
    arguments: Iterable[str],
    *,
    jars: Iterable[Path],
    folder: Path,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Run a program with ``spark`` and ``arguments`` at hand; it has to end with 0.

    Parameters
    ----------
    program
        Python, without its session.
    arguments
        What it finds in ``arguments``.
    jars
        Of its executors.
    folder
        Its working directory, and its workers'.
    environment
        Beside that of this process.
    """
    held = {"SPARK_HOME": str(spark_home()), "SPARK_WORKER_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", _SESSION + program, ",".join(map(str, jars)), *arguments],
        cwd=folder,
        env={**program_variables(), "PYTHONPATH": str(ROOT), **held, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
