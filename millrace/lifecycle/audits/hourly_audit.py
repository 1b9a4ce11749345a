"""Audit of landed records against a source's own counters, hour by hour.

A connector that loses a record does not report it: there is no error and no dead letter, and the
counts of every batch agree. So the audit asks the source. Kafka numbers its records: a missing record
has an offset, and the topic is read there before a record is reported as lost. Kinesis counts records
by the minute (CloudWatch, ``IncomingRecords``), or its shards are read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Literal

HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)

_AROUND = 5
"""Minutes before and after the hours: two clocks differ by less."""

Verdict = Literal["lost", "gone", "nothing"]
"""``lost``: the source has it, the table does not. ``gone``: it has expired in the source, and nobody can tell.
``nothing``: there is no such record (compaction, a transaction's marker, an aborted transaction).
"""


@dataclass(frozen=True)
class MissingRange:
    """Consecutive records of a partition or shard that the table lacks.

    Attributes
    ----------
    shard
        Kafka partition or Kinesis shard.
    first, last
        Offsets or sequence numbers.
    records
        Number of records.
    since, until
        Their arrival at the source, UTC; None where unknown.
    """

    shard: str
    first: str
    last: str
    records: int
    verdict: Verdict
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class HourCounts:
    """Counts of one hour: records that arrived, landed or are missing.

    Attributes
    ----------
    start
        UTC.
    arrived
        Records that the source counts.
    landed
        Of these, the records in the table.
    missing
        Neither landed nor waiting.
    waiting
        Records that the query has not read yet: its backlog.
    left_out
        Records that were read and are in no table: the query's transform may leave records out, and these cannot be
        distinguished from lost ones.
    """

    start: datetime
    arrived: int
    landed: int
    missing: int
    waiting: int = 0
    left_out: int = 0

    def __add__(self, other: HourCounts) -> HourCounts:
        """Add the same hour of another part of the source."""
        return HourCounts(
            self.start,
            self.arrived + other.arrived,
            self.landed + other.landed,
            self.missing + other.missing,
            self.waiting + other.waiting,
            self.left_out + other.left_out,
        )


@dataclass(frozen=True)
class LaggingShard:
    """A shard whose reader is behind those of other shards.

    Attributes
    ----------
    shard
        Its id.
    since
        Arrival of its oldest record that the query has not read, UTC.
    """

    shard: str
    since: datetime


@dataclass(frozen=True)
class NotAudited:
    """A stream that cannot be audited, with the reason; it is always reported.

    Attributes
    ----------
    query
        A query of the job, or ``query/route``.
    stream
        Name of the stream or topic at its service.
    why
        The reason, in words.
    """

    query: str
    stream: str
    why: str


@dataclass(frozen=True)
class AuditResult:
    """Result of the audit of one query and one of its streams.

    Attributes
    ----------
    method
        ``offsets`` (Kafka), ``counters`` (CloudWatch) or ``records`` (the shards were read).
    behind
        Shards that are read later than others: their records are waiting, not lost.
    """

    query: str
    stream: str
    table: str
    method: Literal["offsets", "counters", "records"]
    hours: tuple[HourCounts, ...]
    holes: tuple[MissingRange, ...] = ()
    behind: tuple[LaggingShard, ...] = ()

    @property
    def missing_records(self) -> int:
        """Records that the source took in and the table lacks."""
        return sum(hour.missing for hour in self.hours)

    @property
    def expired_missing_records(self) -> int:
        """Records that the table lacks and that have expired in the source."""
        return sum(hole.records for hole in self.holes if hole.verdict == "gone")


def hour_starts_covering_window(begin: datetime, end: datetime) -> tuple[datetime, ...]:
    """Return the starts of the hours that cover a window, UTC.

    Parameters
    ----------
    begin
        Rounded down to the hour.
    end
        Not in the window; rounded up.
    """
    start = begin.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    rounded_up = -((start - end) // HOUR)
    return tuple(start + number * HOUR for number in range(rounded_up))


def missing_offset_ranges(landed: Iterable[int], first: int, end: int) -> list[tuple[int, int]]:
    """Return the ranges of offsets that are missing.

    Parameters
    ----------
    landed
        Offsets, in any order, each any number of times; those outside the range do not count.
    first, end
        The range that should be there; ``end`` is not part of it.

    Returns
    -------
    list of (first, last)
        Both are part of the missing range.
    """
    ranges, expected = [], first
    for offset in sorted({o for o in landed if first <= o < end}):
        if offset > expected:
            ranges.append((expected, offset - 1))
        expected = offset + 1
    if expected < end:
        ranges.append((expected, end - 1))
    return ranges


def compare_counts_by_hour(
    hours: Sequence[datetime],
    arrived: Mapping[datetime, int],
    landed: Mapping[datetime, int],
    *,
    began: datetime | None = None,
) -> tuple[HourCounts, ...]:
    """Compare counts by the minute, whose clocks may differ by one.

    A lost record stays missing in the sums; a record that two clocks put into different minutes is back in
    the next minute. So sums since the start are compared: the loss by the end of an hour is the smallest
    difference from then on, minus the difference before the window.

    Parameters
    ----------
    hours
        Starts of the hours in a row, UTC.
    arrived
        Records that arrived, by start of the minute; also of the five minutes before and after the hours.
    landed
        Records in the table by the minute of their arrival, likewise.
    began
        Start of the query, if it is in these hours and not at the oldest record; earlier records do not belong to
        the query. None if it started earlier.

    Returns
    -------
    tuple of Hour
        One for each hour.
    """
    begin, end = hours[0] - _AROUND * MINUTE, hours[-1] + HOUR + _AROUND * MINUTE
    minutes = [begin + number * MINUTE for number in range((end - begin) // MINUTE)]
    ends = [minute + MINUTE for minute in minutes]
    behind = list(accumulate(arrived.get(minute, 0) - landed.get(minute, 0) for minute in minutes))
    first = hours[0] if began is None else max(hours[0], began + _AROUND * MINUTE)
    base = max(b for at, b in zip(ends, behind, strict=True) if at <= first)
    # From the last to the first: the minimum from each minute on.
    least = list(accumulate(reversed(behind), min))[::-1]
    lost = {at: max(0, n - base) for at, n in zip(ends, least, strict=True)}
    return tuple(
        HourCounts(
            start,
            _sum_of_hour(arrived, start),
            _sum_of_hour(landed, start),
            missing=lost[start + HOUR] - lost[start],
        )
        for start in hours
    )


def _sum_of_hour(counts: Mapping[datetime, int], start: datetime) -> int:
    return sum(counts.get(start + n * MINUTE, 0) for n in range(60))


@dataclass(frozen=True)
class ShardRecord:
    """A record of a shard: sequence number, and arrival in UTC."""

    sequence: str
    at: datetime


def compare_shards_by_record(
    hours: Sequence[datetime],
    shards: Mapping[str, Sequence[ShardRecord]],
    landed: frozenset[str],
    *,
    read: Mapping[str, float] | None = None,
    began: datetime | None = None,
) -> tuple[tuple[HourCounts, ...], tuple[MissingRange, ...]]:
    """Compare shards, record by record, with a table.

    Shards are read in order. So a record is waiting if it comes after all records of its shard that landed or were read;
    an earlier record that did not land is missing.

    Parameters
    ----------
    hours
        Starts of the hours in a row, UTC.
    shards
        All records of each shard since the start of the window, in the shard's order.
    landed
        Sequence numbers in the table.
    read
        By shard, the last sequence number that was read; infinite where all were. For a shard that is not in it, only
        the table counts.
    began
        If the query started in these hours, and not at the oldest record: arrival of the first record that landed of
        any shard. Records of a shard before its own first landed record do not belong to the query. None if the query
        started earlier.
    """
    arrived, landed_counts, missing, waiting = (
        Counter[datetime](),
        Counter[datetime](),
        Counter[datetime](),
        Counter[datetime](),
    )
    holes: list[MissingRange] = []
    for shard, arrivals in shards.items():
        reached = (read or {}).get(shard, -1)
        newest = max(
            (n for n, a in enumerate(arrivals) if a.sequence in landed or int(a.sequence) <= reached),
            default=-1,
        )
        own = began and min((a.at for a in arrivals if a.sequence in landed), default=began)
        run: list[ShardRecord] = []
        for number, arrival in enumerate(arrivals):
            hour = arrival.at.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
            arrived[hour] += 1
            if arrival.sequence in landed:
                landed_counts[hour] += 1
                holes += _missing_range_of_run(shard, run)
                run = []
            elif number > newest:
                waiting[hour] += 1
            elif own is None or arrival.at >= own:
                missing[hour] += 1
                run.append(arrival)
        holes += _missing_range_of_run(shard, run)
    hourly = tuple(
        HourCounts(start, arrived[start], landed_counts[start], missing[start], waiting[start])
        for start in hours
    )
    return hourly, tuple(holes)


def _missing_range_of_run(shard: str, run: Sequence[ShardRecord]) -> list[MissingRange]:
    if not run:
        return []
    return [MissingRange(shard, run[0].sequence, run[-1].sequence, len(run), "lost", run[0].at, run[-1].at)]
