"""Parquet: files in a folder of the lake's bucket, beside its tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from millrace.config.aws.iam_statements import FILES, Grant, allow, allow_listing_prefixes
from millrace.config.base import TableName
from millrace.config.document.problems import Finding
from millrace.config.sinks.base import SinkConfig, SinkContext, SinkUse
from millrace.config.units import Size
from millrace.etl.launch import sinks as launch

MIB = 1024**2


class ParquetSink(SinkConfig):
    """A folder of Parquet files in the lake's bucket."""

    refuses = False
    replaces = False
    in_lake = True
    is_public = True

    kind: Literal["parquet"]
    table: TableName = Field(
        description="Name of the folder, below the folder of its kind in the lake's bucket.",
        examples=["clicks"],
    )
    file_size: Size = Field(  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        default="128MiB",
        description="Target size of a file; it limits the number of files of a batch.",
        examples=["64MiB"],
    )

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str:
        """Return the steps to rewrite files: they are written once, and no transaction can delete rows while the query runs."""
        lake = f"s3://{context.names.bucket('lake')}"
        return (
            f"drain the job, write the files of {lake}/{self.key_prefix(context)} again in Spark without the rows where {where}, "
            "under their names, which the manifests list, and start the job"
        )

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Check that files are large enough."""
        if self.file_size < MIB:
            yield Finding(
                (*use.path, "file_size"),
                f"{int(self.file_size)}B",
                "at least 1MiB: a batch is written into as many files as its bytes take",
            )

    def key_prefix(self, context: SinkContext) -> str:
        """Return the prefix of its keys in the bucket; tables have other prefixes."""
        return f"{self.kind}/{context.names.database}/{self.table}"

    def launch_settings(self, context: SinkContext) -> launch.ParquetSinkSettings:
        """Return the folder, and the most files that a batch is written into.

        ``ceil(bytes of a batch at the peak / file size)``, at least 1. A record in Parquet is smaller than in JSON,
        so files are smaller than requested, never much larger.
        """
        return launch.ParquetSinkSettings(
            path=f"s3://{context.names.bucket('lake')}/{self.key_prefix(context)}",
            files_per_batch=max(1, math.ceil(context.batch_bytes / self.file_size)),
        )

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Allow writing, reading and listing its files."""
        lake, folder = context.names.bucket_arn("lake"), self.key_prefix(context)
        actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        yield allow("WriteFiles", actions, [f"{lake}/{folder}/*"], why=FILES)
        yield allow_listing_prefixes("ListFiles", lake, [folder])
