"""Lines of files, as records for a backfill."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from ..launch.entry_script_arguments import BackfillRequest
from ..record import envelope
from ..record.errors import StartError, describe_error
from ..sources.base import BackfillPart, Parts

LARGEST_BYTES = 256 * 1024 * 1024
"""Largest stored size of a file: a task holds it completely."""

_LINES = "path STRING, line LONG, modified TIMESTAMP, payload BINARY"


def file_parts_reader(name: str) -> Parts:
    """Read lines of files, a part for each file; those that end in ``.gz`` are decompressed.

    Parameters
    ----------
    name
        Logical name of the source in the table.
    """

    def backfill_parts(spark: SparkSession, request: BackfillRequest) -> Iterator[BackfillPart]:
        try:
            listed = spark.read.format("binaryFile").load(request.origin)
            sizes = {row["path"]: row["length"] for row in listed.select("path", "length").collect()}
        except (CapturedException, Py4JJavaError) as error:
            raise StartError(f"--from {request.origin}: {describe_error(error)}") from error
        large = [path for path, length in sizes.items() if length > LARGEST_BYTES]
        if large or not sizes:
            raise StartError(
                f"--from {request.origin}: "
                + (
                    f"file {large[0]} is larger than {LARGEST_BYTES >> 20} MiB, the limit: split it"
                    if large
                    else "there are no files"
                )
            )
        for path in sorted(sizes):
            # A name may hold characters of a glob pattern.
            file = spark.read.format("binaryFile").load(re.sub(r"([\[\]{}*?\\])", r"\\\1", path))
            lines = spark.createDataFrame(
                file.select("path", "modificationTime", "content").rdd.flatMap(_yield_lines_of_file), _LINES
            )
            number = F.col("line").cast("string")
            records = lines.select(
                F.concat_ws("/", "path", number).alias("_id"),
                F.lit(name).alias("_source"),
                F.col("path").alias("_shard"),
                F.lpad(number, envelope.POSITION_DIGITS, "0").alias("_position"),
                F.lit(None).cast("binary").alias("_key"),
                F.lit(None).cast(envelope.HEADERS).alias("_headers"),
                F.col("modified").alias("_arrived_at"),
                "payload",
            )
            yield BackfillPart(
                path, records, DuplicateLookUp((F.col("_source") == name) & (F.col("_shard") == path))
            )

    return backfill_parts


def _yield_lines_of_file(file: Any) -> Iterator[tuple[str, int, datetime, bytearray]]:
    path, modified, content = file
    lines = (gzip.decompress(content) if path.endswith(".gz") else bytes(content)).split(b"\n")
    # The last line ends with the file; an empty line between others is a record, and a bad one.
    for number, line in enumerate(lines if lines[-1] else lines[:-1]):
        yield path, number, modified, bytearray(line.removesuffix(b"\r"))
