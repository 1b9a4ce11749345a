"""The local Spark session in which speed is measured."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from pyspark.sql import SparkSession

from millrace.etl.queries import required_spark_settings
from millrace.etl.services import jvm_name_cache
from millrace.sandbox.programs import jars
from millrace.sandbox.programs.toolchain import program_variables
from tests.performance.hand_written_baselines import HOME


@contextmanager
def spark_session(
    cores: int,
    java_options: str = "",
    jar_sets: Sequence[str] = ("sandbox", "kafka-client"),
    conf: Mapping[str, str] = MappingProxyType({}),
    home: Path = HOME,
) -> Iterator[SparkSession]:
    """A local session, set as the core sets its own.

    Parameters
    ----------
    jar_sets
        Of ``toolchain/jars.lock.json``, on its class path.
    conf
        More settings.
    home
        Folder of the catalog's warehouse.
    """
    os.environ.update(program_variables())
    found = [path for name in jar_sets for path in jars.jar_files(name)]
    settings = {
        "spark.jars": ",".join(map(str, found)),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "3g",
        "spark.driver.extraJavaOptions": f"-XX:+UseParallelGC {java_options}".strip(),
        "spark.log.level": "ERROR",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.python.sql.dataFrameDebugging.enabled": "false",
        "spark.sql.codegen.cache.maxEntries": "500",  # of all cases, which take turns
        "spark.ui.retainedStages": "100000",  # for the CPU of their tasks
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(home / "lake"),
        "spark.sql.catalog.lake.cache-enabled": "false",
        **required_spark_settings.RUNTIME,
        **conf,
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("benchmark")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = jvm_name_cache.session_with_cached_jvm_names(builder.getOrCreate())
    try:
        yield spark
    finally:
        spark.stop()
