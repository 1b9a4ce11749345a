"""Context of a run of a job, which the parts of the core pass on: session, settings, values of ``--bind``, reporter."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from ..launch.settings import JobSettings
from .batch_accounts import EventReporter
from .tables import Table


@dataclass(frozen=True)
class JobRun:
    """Run of a job, or of a command in its place.

    Attributes
    ----------
    binds
        Names and values of ``--bind``.
    report
        Gets the events.
    """

    spark: SparkSession
    job: JobSettings
    binds: Mapping[str, str]
    report: EventReporter

    def table(self, name: str) -> Table:
        """Return a table of the job's catalog by ``database.table``; errors as in :meth:`etl.record.tables.Table.from_name`."""
        return Table.from_name(self.job.catalog, name)
