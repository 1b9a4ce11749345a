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
    place
        Of the source that is meant, among several of the query.
    """

    location: str
    place: int = 0

    def start_of(self, spark: SparkSession, batch: int) -> Any:
        """Offset at which a batch begins.

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
            return parse_offset(read_text(spark, f"{self.location}/offsets/{batch}"), self.place)
        except FileNotFoundError:
            return None

    def begun(self, spark: SparkSession) -> bool:
        """Whether a batch was ever planned from it: then a start position counts for new shards only."""
        return any(name.isdecimal() for name in hadoop.names(spark, f"{self.location}/offsets"))

    def positions(self, spark: SparkSession) -> tuple[Any, ...] | None:
        """Where its sources go on after the last batch that was committed, in the log's order.

        Returns
        -------
        tuple or None
            One offset for each source, decoded from JSON, or None for a source that had no data yet;
            None where a batch was planned and none committed, so that it is not known.
        """
        done = [int(name) for name in hadoop.names(spark, f"{self.location}/commits") if name.isdecimal()]
        if not done:
            return None
        lines = _sources(read_text(spark, f"{self.location}/offsets/{max(done)}"))
        return tuple(None if line == "-" else json.loads(line) for line in lines)

    def committed_at(self, spark: SparkSession, batch: int) -> datetime | None:
        """When a batch was committed; None where it was not, or so long ago that Spark forgot it."""
        try:
            return hadoop.modified(spark, f"{self.location}/commits/{batch}")
        except FileNotFoundError:
            return None


def parse_offset(log: str, place: int = 0) -> Any:
    """A source's offset in an offset log entry; None for ``-`` (no data yet)."""
    line = _sources(log)[place]
    return None if line == "-" else json.loads(line)


def _sources(log: str) -> list[str]:
    """Lines of an offset log entry, one for each source."""
    lines = log.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        raise ValueError(f"not an entry of Spark's offset log: {log[:80]!r}")
    return lines[2:]
