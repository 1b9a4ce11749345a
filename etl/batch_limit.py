"""The limit of a derive query's batches, in terms that the engine's Iceberg keeps to without standing still."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import SparkSession

ROWS, FILES = "streaming-max-rows-per-micro-batch", "streaming-max-files-per-micro-batch"

TAKES_LARGER_FILES = (1, 10)
"""Iceberg from this version on takes a file of more rows than the limit by itself (apache/iceberg#12988, "Make
maxRecordPerMicrobatch a soft limit"). Up to 1.9 ``SparkMicroBatchStream.latestOffset`` ends every batch before such a file:
the stream stands still there for good, without an error. Glue 5.0 has 1.7.1; Glue 5.1 and emr-7.13 have 1.10.0 ("Migrating
AWS Glue for Spark jobs to AWS Glue version 5.1"; "Iceberg release history" of the EMR release guide)."""

FILES_PER_BATCH = 100
"""Where a limit of rows is unsafe. A landing batch writes a file for each task, so this many are several landing batches, and a
query that is behind catches up."""


def batch_limit(spark: SparkSession, rows: int) -> tuple[str, str]:
    """Name and value of the option that bounds a batch of Iceberg's streaming source.

    Parameters
    ----------
    spark
        Whose Iceberg reads.
    rows
        Most rows in a batch, where it takes such a limit by whole files.
    """
    if version_of(build(spark)) >= TAKES_LARGER_FILES:
        return ROWS, str(rows)
    return FILES, str(FILES_PER_BATCH)


def build(spark: SparkSession) -> str:
    """What the engine's Iceberg says of its version; empty where it does not say."""
    jvm: Any = spark._jvm
    try:
        return str(jvm.org.apache.iceberg.IcebergBuild.version())
    except TypeError:  # it has no such class
        return ""


def version_of(text: str) -> tuple[int, int]:
    """Major and minor number; 0.0 where the text has none.

    Examples
    --------
    >>> version_of("1.10.0-amzn-1")
    (1, 10)
    """
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
