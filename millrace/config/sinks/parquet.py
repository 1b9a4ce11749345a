"""Parquet: files in a folder of the lake's bucket."""

from __future__ import annotations

from typing import Literal

from millrace.config.sinks.base import SinkContext, SinkPromise
from millrace.config.sinks.files import FileSink


class ParquetSink(FileSink):
    """A folder of Parquet files in the lake's bucket."""

    promise = SinkPromise(
        "a row",
        "exactly once to readers of the manifests, one writer at a time",
        "its files, to readers who do not read manifests",
        "new rows and duplicates",
    )

    kind: Literal["parquet"]

    def manual_erasure(self, where: str, context: SinkContext) -> str:
        """Return the steps to rewrite files: they are written once, and no transaction can delete rows while the query runs."""
        lake = f"s3://{context.names.bucket('lake')}"
        return (
            f"drain the job, write the files of {lake}/{self.folder(context)} again in Spark without the rows where {where}, "
            "under their names, which the manifests list, and start the job"
        )
