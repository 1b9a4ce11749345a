"""Delta: a table in the lake's bucket, identified by its path."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal

from millrace.config.problems import Finding
from millrace.config.sinks.base import SinkContext, SinkPromise, SinkUse
from millrace.config.sinks.files import FileSink


class DeltaSink(FileSink):
    """A Delta table in the lake's bucket, identified by its path."""

    promise = SinkPromise("a row", "exactly once, one writer at a time", "nothing", "new rows and duplicates")
    lake_formats = ("delta",)
    not_in_sandbox = "set-up leaves its jars out"
    # Delta needs both, also for a table that is identified by its path (Delta documentation, "Set up Apache Spark with
    # Delta Lake"). It replaces Spark's own catalog; the lake catalog stays Iceberg's.
    spark_extensions = ("io.delta.sql.DeltaSparkSessionExtension",)
    spark: ClassVar[Mapping[str, str]] = {
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    }

    kind: Literal["delta"]

    def manual_erasure(self, where: str, context: SinkContext) -> str:
        """Return SQL that Delta runs in its own transaction."""
        place = f"delta.`s3://{context.names.bucket('lake')}/{self.folder(context)}`"
        return f"DELETE FROM {place} WHERE {where}; and after its retention of deleted files VACUUM {place};"  # noqa: S608 - for a person to read

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Check that the job runs on Glue, the only engine with Delta's jars."""
        yield from super().check(use)
        if not use.job.lake_formats.issuperset(self.lake_formats):
            yield Finding(
                (*use.path, "kind"),
                self.kind,
                "a sink other than delta, or a Glue job, which ships Delta's jars",
            )
