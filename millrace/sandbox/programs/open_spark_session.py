"""A session of local Spark in this process, for programs that run the core's queries beside their own code."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pyspark.sql import SparkSession

from millrace.etl.queries import required_spark_settings
from millrace.sandbox.programs.start_spark_submit import LOCAL
from millrace.sandbox.programs.toolchain import program_variables


@contextmanager
def running_spark_session(
    jar_files: Iterable[Path],
    settings: Mapping[str, str] = MappingProxyType({}),
    *,
    warehouse: Path | None = None,
    catalog: str = "lake",
) -> Iterator[SparkSession]:
    """Open a session of local Spark in this process, and stop it at the end.

    Parameters
    ----------
    jar_files
        Jars of the session.
    settings
        Further settings, which override those of every session here.
    warehouse
        Folder of an Iceberg catalog; without one there is none.
    catalog
        Name of that catalog.
    """
    os.environ.update(program_variables())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    prefix = f"spark.sql.catalog.{catalog}"
    iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": str(warehouse),
        f"{prefix}.cache-enabled": "false",
    }
    builder: Any = SparkSession.builder
    every = {
        "spark.master": "local[2]",
        **LOCAL,
        "spark.jars": ",".join(map(str, jar_files)),
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        **(iceberg if warehouse is not None else {}),
        **required_spark_settings.RUNTIME,
        **settings,
    }
    running: SparkSession = builder.config(map=every).getOrCreate()
    try:
        yield running
    finally:
        running.stop()
