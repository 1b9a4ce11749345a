"""Millrace's land query."""

from __future__ import annotations

from millrace.sandbox.programs.child_processes import ChildProcess
from tests.faults import small_job_documents
from tests.faults.round_setup import start
from tests.performance.rivals.rival_interface import DDL, NAMESPACE, Place, Rival


class Millrace(Rival):
    """The deployed core from a launch document, on local Spark 3.5."""

    name, versions, job = "Millrace", "this commit, Spark 3.5.7, Iceberg 1.10.0", "millrace.yaml"
    makes_table = True

    def fetch(self) -> None:
        """Need nothing more."""

    def start(self, place: Place) -> ChildProcess:
        """Start the job as an engine does."""
        schema = place.home / "flight.ddl"
        schema.write_text(DDL)
        queries = small_job_documents.queries(
            "land",
            small_job_documents.topic(place.topic, place.per_batch),
            schema,
            lambda _: f"{NAMESPACE}.{place.table}",
            trigger_seconds=place.seconds,
        )
        settings = small_job_documents.settings(
            "rivals", queries, f"{place.home}/checkpoints", place.bootstrap
        )
        spark = {"spark.driver.memory": "3g"}
        return start("rival-millrace", place.home, settings, lake_home=place.database.parent, spark=spark)
