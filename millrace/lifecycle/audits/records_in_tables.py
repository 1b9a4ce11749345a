"""Records of a source in the tables of a query, read without Spark: landing table, or sink and dead letters of a direct query.

A direct query has no landing table, so a record is looked up by its identity in two tables. Without a transform each record is
in one of them, or it is lost. A transform may leave records out, so the tables alone do not distinguish those from lost ones.
But each commit names the offsets that it holds, and a range between two commits was read by none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Self

import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from millrace.lifecycle.account.deployed_environment import NotDeployedError
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

where: Any = expressions  # pydantic's plugin for mypy misreads its constructors

_REPLAYED = "#replay"
"""Mark in the identity of a replayed dead letter (``docs/design/repair.md#replay-of-dead-letters``): its source sent it once."""

_DIGITS = 20
"""Digits of an offset in ``_position``."""

_APART = timedelta(hours=1)
"""Largest difference between a Kafka record's own time and its arrival before its offset is searched by itself."""

_AT_ONCE = timedelta(hours=1)
"""Window whose records' numbers are held in memory together."""


@contextmanager
def translating_catalog_errors(table: str) -> Iterator[None]:
    """Raise errors of the catalog, and of the store of its files (which are OSErrors), as an :class:`AwsError`."""
    failure = f"cannot read table {table}"
    with translating_aws_errors(failure):
        try:
            yield
        except OSError as error:
            raise AwsError(f"{failure}: {error}") from error


@dataclass(frozen=True)
class LandedRecords:
    """Records of one stream in a landing table.

    Parameters
    ----------
    table
        Refreshed before each read.
    """

    table: Table
    source: str

    @classmethod
    def open(cls, catalog: Catalog, name: str, source: str) -> Self:
        """Open a table.

        Raises
        ------
        NotDeployedError
            The catalog does not have it: nothing has landed yet.
        AwsError
            The catalog or its files refuse access; all other methods raise this, too.
        """
        try:
            with translating_catalog_errors(name):
                return cls(catalog.load_table(name), source)
        except NoSuchTableError:
            raise NotDeployedError(f"table {name} does not exist, because nothing was landed yet") from None

    def offsets_in_and_around_window(self, begin: datetime, end: datetime) -> dict[tuple[str, int], set[int]]:
        """Return the offsets of Kafka records by topic and partition, of a window and an hour around it."""
        return self.offsets_by_partition(_time_window_condition(begin - _APART, end + _APART))

    def offsets_by_partition(self, rows: expressions.BooleanExpression) -> dict[tuple[str, int], set[int]]:
        """Return the offsets in the rows of a condition, by topic and partition."""
        offsets: dict[tuple[str, int], set[int]] = {}
        for batch in self._scan_source(rows, "_id"):
            for identity in batch["_id"].to_pylist():
                # A topic's name has no slash; an ordinal of an explode may follow the offset.
                parts = identity.split("/")
                if _REPLAYED not in identity and len(parts) > 2 and parts[1].isdigit() and parts[2].isdigit():
                    offsets.setdefault((parts[0], int(parts[1])), set()).add(int(parts[2]))
        return offsets

    def offsets_between(self, topic: str, partition: int, first: int, last: int) -> set[int]:
        """Return the offsets of a partition in a range, whatever the records' own time."""
        place = where.And(
            where.GreaterThanOrEqual("_position", str(first).zfill(_DIGITS)),
            where.LessThanOrEqual("_position", str(last).zfill(_DIGITS)),
        )
        start = f"{topic}/{partition}/"
        return {
            int(identity.rsplit("/", 1)[1])
            for batch in self._scan_source(place, "_id")
            for identity in batch["_id"].to_pylist()
            if identity.startswith(start) and _REPLAYED not in identity
        }

    def sequence_numbers_since(self, begin: datetime) -> frozenset[str]:
        """Return the sequence numbers of Kinesis records that arrived since a time."""
        return frozenset(
            identity.split("/")[1]
            for batch in self._scan_source(where.GreaterThanOrEqual("_arrived_at", begin.isoformat()), "_id")
            for identity in batch["_id"].to_pylist()
        )

    def counts_by_minute(self, begin: datetime, end: datetime) -> Counter[datetime]:
        """Return the Kinesis records by the minute of their arrival, UTC; an aggregate of a producer library is one record.

        A record that is in the table twice counts once; otherwise it would hide a lost one.
        """
        counts: Counter[datetime] = Counter()
        while begin < end:
            # An hour at a time: the number of each of its records is held in memory.
            upto = min(begin + _AT_ONCE, end)
            by_minute: dict[str, datetime] = {}
            for batch in self._scan_source(_time_window_condition(begin, upto), "_id", "_arrived_at"):
                minutes = pc.floor_temporal(batch["_arrived_at"], unit="minute").to_pylist()
                for identity, minute in zip(batch["_id"].to_pylist(), minutes, strict=True):
                    if _REPLAYED not in identity:
                        by_minute[identity.split("/")[1]] = minute.astimezone(UTC)
            counts.update(by_minute.values())
            begin = upto
        return counts

    def has_record_before(self, moment: datetime) -> bool:
        """Check that any record arrived before a time."""
        rows = where.And(
            where.EqualTo("_source", self.source), where.LessThan("_arrived_at", moment.isoformat())
        )
        with translating_catalog_errors(self._table_name):
            result = self.table.refresh().scan(row_filter=rows, selected_fields=("_arrived_at",), limit=1)
            return bool(result.to_arrow().num_rows)

    def count_good_records(self, begin: datetime, end: datetime) -> int:
        """Return the number of good records, of all streams in the table, that arrived in a window."""
        good = where.And(_time_window_condition(begin, end), where.IsNull("_error"))
        with translating_catalog_errors(self._table_name):
            return int(self.table.refresh().scan(row_filter=good).count())

    def _scan_source(self, rows: expressions.BooleanExpression, *columns: str) -> Iterator[Any]:
        condition = where.And(where.EqualTo("_source", self.source), rows)
        with translating_catalog_errors(self._table_name):
            scan = self.table.refresh().scan(row_filter=condition, selected_fields=columns)
            yield from scan.to_arrow_batch_reader()

    @property
    def _table_name(self) -> str:
        return ".".join(self.table.name())


def _time_window_condition(begin: datetime, end: datetime) -> expressions.BooleanExpression:
    window: expressions.BooleanExpression = where.And(
        where.GreaterThanOrEqual("_arrived_at", begin.isoformat()),
        where.LessThan("_arrived_at", end.isoformat()),
    )
    return window


QUERY, OFFSETS = "millrace.query", "millrace.offsets"
"""Properties of a direct query's commits (``docs/design/queries.md#direct-queries``)."""

_SLACK = timedelta(hours=1)
"""Difference of two clocks: the driver's, which sets ``_landed_at``, and the brokers'."""

Place = tuple[str, int]
"""Topic and partition."""

Range = tuple[int, int]
"""From the first offset up to, not including, the second."""


@dataclass(frozen=True)
class SinkAndDeadLetters:
    """Tables in which a record of a direct query is looked up.

    Parameters
    ----------
    letters
        Its dead letters, in the shape of a landing table.
    sink
        Its sink's table, whose identities and arrivals every transform keeps.
    begin
        Begin of the window.
    """

    letters: LandedRecords
    sink: LandedRecords
    begin: datetime

    def offsets_in_and_around_window(self, begin: datetime, end: datetime) -> dict[Place, set[int]]:
        """Return the offsets in either table, by the records' own time."""
        by_place = self.letters.offsets_in_and_around_window(begin, end)
        for place, offsets in self.sink.offsets_in_and_around_window(begin, end).items():
            by_place.setdefault(place, set()).update(offsets)
        return by_place

    @cached_property
    def _offsets_written_since_begin(self) -> Mapping[Place, set[int]]:
        """Offsets of all records that the sink has got since then, whatever their own time."""
        rows = where.GreaterThanOrEqual("_landed_at", (self.begin - _SLACK).isoformat())
        return self.sink.offsets_by_partition(rows)

    def offsets_between(self, topic: str, partition: int, first: int, last: int) -> set[int]:
        """Return the offsets of a partition in a range, whatever the records' own time."""
        offsets = self.letters.offsets_between(topic, partition, first, last)
        written = self._offsets_written_since_begin.get((topic, partition), set())
        return offsets | {offset for offset in written if first <= offset <= last}


def gaps_between_commits(
    table: Table, name: str, places: Mapping[str, Place], *, earliest: bool
) -> dict[Place, list[Range]]:
    """Return the ranges of offsets that no commit of a query holds, although an earlier and a later one are in some.

    The commits are known as far back as the table keeps its snapshots.

    Parameters
    ----------
    name
        Name of the query in its commits.
    places
        A partition's name in commits to its topic and number.
    earliest
        Whether a checkpoint's first batch, whose start is in no commit, started at the earliest record.

    Returns
    -------
    dict
        By partition, in order and without overlap.
    """
    claimed: dict[Place, list[Range]] = {}
    with translating_catalog_errors(".".join(table.name())):
        snapshots = table.refresh().metadata.snapshots
    for snapshot in snapshots:
        summary = snapshot.summary
        if summary is None or summary[QUERY] != name or summary[OFFSETS] is None:
            continue
        offsets = json.loads(str(summary[OFFSETS]))
        for partition, end in offsets["end"].items():
            start = offsets["start"].get(partition, 0 if earliest else end)
            if partition in places:
                claimed.setdefault(places[partition], []).append((start, end))
    return {place: list(_gaps_between_ranges(ranges)) for place, ranges in claimed.items()}


def _gaps_between_ranges(ranges: Sequence[Range]) -> Iterator[Range]:
    reached = min(ranges)[0]
    for start, end in sorted(ranges):
        if start > reached:
            yield reached, start
        reached = max(reached, end)
