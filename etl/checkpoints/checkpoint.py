"""Spark's checkpoint: start and end of batches, planned and committed batches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import SparkSession

from ..commits.commit_batch_once import BatchId
from ..record import hadoop_files
from ..record.hadoop_files import read_text


@dataclass(frozen=True)
class Checkpoint:
    """Checkpoint of a query.

    Parameters
    ----------
    location
        Its URL or path.
    place
        Position of the source among those of the query.
    source
        :func:`~etl.commits.commit_batch_once.source_digest` of what the query reads; empty if commits do not name it.
    """

    location: str
    place: int = 0
    source: str = field(default="", compare=False)
    _last: dict[int, str] = field(default_factory=dict, repr=False, compare=False)
    """Entry of the batch that was read last; Spark does not change an entry after it is written."""
    _made: list[tuple[str, int]] = field(default_factory=list, repr=False, compare=False)

    def batch_id(self, spark: SparkSession, number: int) -> BatchId:
        """Return the id under which commits name a batch; errors as in :meth:`id_and_creation_time`."""
        run, created = self.id_and_creation_time(spark)
        return BatchId(run, number, self.source, created)

    def id_and_creation_time(self, spark: SparkSession) -> tuple[str, int]:
        """Return the checkpoint's id (new after a reset) and the time it was made, in whole seconds since 1970.

        Raises
        ------
        FileNotFoundError
            Spark has not written them yet; it does so before the first batch.
        """
        if not self._made:
            url = f"{self.location}/metadata"
            run = str(json.loads(read_text(spark, url))["id"])
            self._made.append((run, int(hadoop_files.modified_at(spark, url).timestamp())))
        return self._made[0]

    def batch_start_offset(self, spark: SparkSession, batch: int) -> Any:
        """Return the offset at which a batch begins.

        It is the end of the batch before, as Spark wrote it to the offset log: a
        version line, a line of metadata, then one line per source.

        Parameters
        ----------
        batch
            Id of the current batch.

        Returns
        -------
        object or None
            The offset, decoded from JSON; None where it is not known, as for the first
            batch of a checkpoint.
        """
        return None if batch == 0 else self.batch_end_offset(spark, batch - 1)

    def batch_end_offset(self, spark: SparkSession, batch: int) -> Any:
        """Return the offset at which a batch ends, which Spark writes before it runs the batch; None where unknown."""
        entry = self._offset_log_entry_text(spark, batch)
        return None if entry is None else source_offset_in_log_entry(entry, self.place)

    def batch_planning_time(self, spark: SparkSession, batch: int) -> datetime | None:
        """Return the time at which Spark planned a batch, the same in each replay; None where unknown."""
        at = self._offset_log_metadata(spark, batch).get("batchTimestampMs")
        return None if at is None else datetime.fromtimestamp(at / 1000, tz=UTC)

    def watermark_milliseconds(self, spark: SparkSession, batch: int) -> int:
        """Return the watermark of a planned batch in milliseconds since 1970; zero for none."""
        return int(self._offset_log_metadata(spark, batch).get("batchWatermarkMs", 0))

    def _offset_log_metadata(self, spark: SparkSession, batch: int) -> Any:
        entry = self._offset_log_entry_text(spark, batch)
        return {} if entry is None else json.loads(entry.splitlines()[1])

    def _offset_log_entry_text(self, spark: SparkSession, batch: int) -> str | None:
        if batch not in self._last:
            try:
                entry = read_text(spark, f"{self.location}/offsets/{batch}")
            except FileNotFoundError:
                return None
            # The entry of the batch before stays: this batch begins where that one ends.
            for old in [each for each in self._last if each != batch - 1]:
                del self._last[old]
            self._last[batch] = entry
        return self._last[batch]

    def url_of_start_position(self, source: int) -> str:
        """Return the URL of the file with the start position of an Iceberg source, by the source's number in the query."""
        return f"{self.location}/sources/{source}/offsets/0"

    def batch_offset_ranges(
        self, spark: SparkSession, batch: int, sources: Sequence[int]
    ) -> list[tuple[Any, Any]]:
        """Return start and end of a batch for each line of Spark's log, where all sources are Iceberg's.

        Parameters
        ----------
        batch
            Id of a planned batch.
        sources
            Spark's source number for each line.

        Returns
        -------
        list of tuple
            Start and end offset for each line, decoded from JSON; None for a source that had no data yet.

        Raises
        ------
        ValueError
            The log is damaged, or has another number of lines.
        """
        ends = _offsets_of_all_sources(read_text(spark, f"{self.location}/offsets/{batch}"))
        if batch:
            return list(
                zip(
                    _offsets_of_all_sources(read_text(spark, f"{self.location}/offsets/{batch - 1}")),
                    ends,
                    strict=True,
                )
            )
        begins = {n: json.loads(read_text(spark, self.url_of_start_position(n))) for n in set(sources)}
        return [(begins[n], end) for n, end in zip(sources, ends, strict=True)]

    def planned_uncommitted_batch(self, spark: SparkSession) -> int | None:
        """Return the batch that is planned but not committed, with which the next start begins; None for none."""
        newest = _newest_batch_number(spark, f"{self.location}/offsets")
        return newest if newest != _newest_batch_number(spark, f"{self.location}/commits") else None

    def last_committed_batch(self, spark: SparkSession) -> int | None:
        """Return the batch that was committed last; None for none."""
        return _newest_batch_number(spark, f"{self.location}/commits")

    def rewrite_planned_batch(
        self, spark: SparkSession, batch: int, ends: Mapping[int, Any], *, no_watermark: bool
    ) -> None:
        """Change a batch that is planned but not committed.

        Parameters
        ----------
        ends
            The new end by line number; the other lines keep theirs.
        no_watermark
            True to set its watermark to zero, so that no record of it is late.
        """
        url = f"{self.location}/offsets/{batch}"
        text = read_text(spark, url)
        head, lines = text.splitlines()[:2], _offset_lines(text)
        if no_watermark:
            head[1] = json.dumps({**json.loads(head[1]), "batchWatermarkMs": 0}, separators=(",", ":"))
        for number, end in ends.items():
            lines[number] = json.dumps(end, separators=(",", ":"))
        hadoop_files.write_text(spark, url, "\n".join([*head, *lines]))
        self._last.pop(batch, None)

    def has_planned_batch(self, spark: SparkSession) -> bool:
        """Check that a batch was planned from it; a start position then applies to new shards only."""
        return any(name.isdecimal() for name in hadoop_files.list_names(spark, f"{self.location}/offsets"))

    def committed_source_offsets(self, spark: SparkSession) -> tuple[Any, ...] | None:
        """Return the offsets from which its sources continue after the last committed batch, in the log's order.

        Returns
        -------
        tuple or None
            One offset for each source, decoded from JSON (None for a source that had no data yet);
            None if a batch is planned and none committed: the offsets are then not known.
        """
        done = _newest_batch_number(spark, f"{self.location}/commits")
        return (
            None
            if done is None
            else tuple(_offsets_of_all_sources(read_text(spark, f"{self.location}/offsets/{done}")))
        )

    def commit_time(self, spark: SparkSession, batch: int) -> datetime | None:
        """Return the time of a batch's commit; None if it is not committed, or Spark has deleted the old entry."""
        try:
            return hadoop_files.modified_at(spark, f"{self.location}/commits/{batch}")
        except FileNotFoundError:
            return None


def snapshots_last_read_by(spark: SparkSession, reader: str, metadata: Any) -> list[Any] | None:
    """Return the snapshots of a table that a derive query has read last.

    Parameters
    ----------
    reader
        Checkpoint of that query.
    metadata
        The table, as Iceberg's Java object.

    Returns
    -------
    list or None
        Iceberg's snapshots: several for a self-join, none where unknown; None for a query that never started.
    """
    checkpoint = Checkpoint(reader)
    if not checkpoint.has_planned_batch(spark):
        return None
    try:
        positions = checkpoint.committed_source_offsets(spark) or ()
    except ValueError:
        return []  # damaged; its reader reports it
    known = (metadata.snapshot(int(at.get("snapshot_id", -1))) for at in positions if isinstance(at, dict))
    # The snapshots of a join's other table have other ids, which are not found here.
    return [state for state in known if state is not None]


def source_offset_in_log_entry(log: str, place: int = 0) -> Any:
    """Return a source's offset from an offset log entry; None for ``-`` (no data yet)."""
    return _offset_from_json(_offset_lines(log)[place])


def _newest_batch_number(spark: SparkSession, folder: str) -> int | None:
    """Return the number of a log's newest entry; None if it has none."""
    return max(
        (int(name) for name in hadoop_files.list_names(spark, folder) if name.isdecimal()), default=None
    )


def _offsets_of_all_sources(log: str) -> list[Any]:
    """Return the offsets of an offset log entry, one for each source."""
    return [_offset_from_json(line) for line in _offset_lines(log)]


def _offset_from_json(line: str) -> Any:
    return None if line == "-" else json.loads(line)


def _offset_lines(log: str) -> list[str]:
    """Return the lines of an offset log entry, one for each source."""
    lines = log.splitlines()
    if len(lines) < 3 or not lines[0].startswith("v"):
        raise ValueError(f"not an entry of Spark's offset log: {log[:80]!r}")
    return lines[2:]
