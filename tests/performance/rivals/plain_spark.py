"""Plain Spark, as samples have it: ``from_json``, an append to Iceberg, a checkpoint."""

from __future__ import annotations

import json

from millrace.sandbox.programs import jars, start_spark_submit
from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.run_launch_document_locally import local_catalog_settings
from millrace.sandbox.programs.toolchain import ROOT
from tests.performance.rivals.rival_interface import CORES, JOBS, Place, Rival, environment


class PlainSpark(Rival):
    """Iceberg's own streaming sink."""

    name, versions, job = "plain Spark, writeStream", "Spark 3.5.7, Iceberg 1.10.0", "spark_sink.py"

    def fetch(self) -> None:
        """Need nothing more."""

    def start(self, place: Place) -> ChildProcess:
        """Start it with the session settings of Millrace's jobs."""
        settings = {
            **start_spark_submit.LOCAL,
            **local_catalog_settings("lake", place.database, place.warehouse),
            "spark.driver.memory": "3g",
            "spark.master": f"local[{CORES},4]",
            "spark.sql.shuffle.partitions": str(CORES),
            "spark.jars": ",".join(
                str(p) for each in ("sandbox", "kafka-client") for p in jars.jar_files(each)
            ),
        }
        return start_spark_submit.start_driver(
            "rival-spark", place.home, JOBS / self.job, settings, [json.dumps(place.told())],
            environment=environment(PYTHONPATH=str(ROOT)),
        )  # fmt: skip


class SparkBatches(PlainSpark):
    """An append from ``foreachBatch``."""

    name, job = "plain Spark, foreachBatch", "spark_batches.py"
