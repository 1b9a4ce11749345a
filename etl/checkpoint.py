"""What Spark's checkpoint says about the batch at hand: where it begins."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from etl import hadoop
from etl.hadoop import read_text


@dataclass(frozen=True)
class Checkpoint:
    """A query's checkpoint.

    Parameters
    ----------
    location
        URL or path of the query's checkpoint.
    """

    location: str

    def start_of(self, spark: SparkSession, batch: int) -> Any:
        """Offset at which a batch of a query with one source begins.

        It is the end of the batch before, as Spark wrote it to the offset log: a
        version line, a line of metadata, then one line per source.

        Parameters
        ----------
        spark
            Whose file systems are used.
        batch
            Id of the batch at hand.

        Returns
        -------
        object or None
            The offset, decoded from JSON; None where nothing is known, which is so
            for the first batch of a checkpoint.
        """
        return None if batch == 0 else self.end_of(spark, batch - 1)

    def end_of(self, spark: SparkSession, batch: int) -> Any:
        """Offset at which a batch ends, which Spark writes before it runs the batch; None where unknown."""
        try:
            return parse_offset(read_text(spark, f"{self.location}/offsets/{batch}"))
        except FileNotFoundError:
            return None

    def begun(self, spark: SparkSession) -> bool:
        """Whether a batch was ever planned from it: then a start position counts for new shards only."""
        return any(name.isdecimal() for name in hadoop.names(spark, f"{self.location}/offsets"))

    def committed_at(self, spark: SparkSession, batch: int) -> datetime | None:
        """When a batch was committed; None where it was not, or so long ago that Spark forgot it."""
        try:
            return hadoop.modified(spark, f"{self.location}/commits/{batch}")
        except FileNotFoundError:
            return None


def parse_offset(log: str) -> Any:
    """The one source's offset in an offset log entry; None for ``-`` (no data yet)."""
    lines = log.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        raise ValueError(f"not an entry of Spark's offset log: {log[:80]!r}")
    return None if lines[2] == "-" else json.loads(lines[2])
