"""Parquet: files in a folder of the lake's bucket."""

from __future__ import annotations

from typing import Literal

from millrace.config.sinks.base import Promise
from millrace.config.sinks.files import FileSink


class ParquetSink(FileSink):
    """A folder of Parquet files in the lake's bucket."""

    promise = Promise(
        "a row",
        "exactly once to readers of the manifests, one writer at a time",
        "its files, to readers who do not read manifests",
        "new rows and duplicates",
    )

    kind: Literal["parquet"]
