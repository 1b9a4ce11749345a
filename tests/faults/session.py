"""A local Spark session with Iceberg and Kafka, for programs that run the core's queries in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from millrace.etl.launch import spark_settings
from millrace.sandbox import jars
from millrace.sandbox.toolchain import program_environment


def open_session(warehouse: Path, more: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Open it.

    Parameters
    ----------
    warehouse
        Folder of the catalog ``lake``.
    more
        Settings beside these, or in their place.
    """
    os.environ.update(program_environment())
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(map(str, [*jars.files("sandbox"), *jars.files("kafka-client")])),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
        "spark.sql.catalog.lake.cache-enabled": "false",
        **spark_settings.RUNTIME,
        **more,
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    running: SparkSession = builder.getOrCreate()
    return running
