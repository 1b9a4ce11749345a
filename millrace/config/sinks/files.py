"""What sinks share that are folders of files in the lake's bucket, beside its tables."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pydantic import Field

from millrace.config.base import TableName
from millrace.config.grants import FILES, Grant, allow, list_prefixes
from millrace.config.problems import Finding
from millrace.config.sinks.base import SinkConfig, SinkContext, SinkUse
from millrace.config.units import Size

MIB = 1024**2


class FileSink(SinkConfig):
    """A folder in the lake's bucket, which bears the kind's name."""

    refuses = False
    replaces = False
    in_lake = True

    table: TableName = Field(
        description="Name of the folder, below that of the kind in the lake's bucket.", examples=["clicks"]
    )
    file_size: Size = Field(  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        default="128MiB",
        description="How large a file should be; a batch is written into no more files than that takes.",
        examples=["64MiB"],
    )

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Files are not smaller than makes sense."""
        if self.file_size < MIB:
            yield Finding(
                (*use.path, "file_size"),
                f"{int(self.file_size)}B",
                "at least 1MiB: a batch is written into as many files as its bytes take",
            )

    def folder(self, context: SinkContext) -> str:
        """Prefix of its keys in the bucket: beside the tables, which lie elsewhere."""
        return f"{self.kind}/{context.names.database}/{self.table}"

    def settings(self, context: SinkContext) -> dict[str, Any]:
        """Name the folder, and the files that a batch is written into, at most.

        ``ceil(bytes of a batch at the peak / file size)``, at least 1. Parquet packs a record into less than its JSON,
        so files come out smaller than asked, never larger by much.
        """
        return {
            "kind": self.kind,
            "path": f"s3://{context.names.bucket('lake')}/{self.folder(context)}",
            "files_per_batch": max(1, math.ceil(context.batch_bytes / self.file_size)),
        }

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Write, read and list its files."""
        lake, folder = (
            f"arn:{context.names.partition}:s3:::{context.names.bucket('lake')}",
            self.folder(context),
        )
        actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        yield allow("WriteFiles", actions, [f"{lake}/{folder}/*"], why=FILES)
        yield list_prefixes("ListFiles", lake, [folder])
