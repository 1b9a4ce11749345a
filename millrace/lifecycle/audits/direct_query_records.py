"""Records of a direct query from a topic: its sink's table, its dead letters, and the offsets in its commits.

There is no landing table, so a record is looked up by its identity in two tables. Without a transform each record is in one
of them, or it is lost. A transform may leave records out, so the tables alone do not distinguish those from lost ones. But
each commit names the offsets that it holds, and a range between two commits was read by none.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from pyiceberg.table import Table

from millrace.lifecycle.audits.read_landing_table import LandedRecords, translating_catalog_errors, where

QUERY, OFFSETS = "millrace.query", "millrace.offsets"
"""Properties of a direct query's commits (``docs/design/queries.md#direct-queries``)."""

_SLACK = timedelta(hours=1)
"""Difference of two clocks: the driver's, which sets ``_landed_at``, and the brokers'."""

Place = tuple[str, int]
"""Topic and partition."""

Range = tuple[int, int]
"""From the first offset up to, not including, the second."""


@dataclass(frozen=True)
class SinkRecords(LandedRecords):
    """Records of one stream in the table of a sink, by identity and arrival, which every transform keeps."""

    _all: dict[datetime, Mapping[Place, set[int]]] = field(default_factory=dict, repr=False, compare=False)

    def offsets_written_since(self, moment: datetime) -> Mapping[Place, set[int]]:
        """Return the offsets of all records written since a time, whatever their own time; the result is cached."""
        if moment not in self._all:
            rows = where.GreaterThanOrEqual("_landed_at", (moment - _SLACK).isoformat())
            self._all[moment] = self._offsets_by_partition(rows)
        return self._all[moment]


@dataclass(frozen=True)
class SinkAndDeadLetters:
    """Tables in which a record of a direct query is looked up.

    Parameters
    ----------
    letters
        Its dead letters, in the shape of a landing table.
    sink
        Its sink's table.
    """

    letters: LandedRecords
    sink: SinkRecords
    begin: datetime

    def offsets_in_and_around_window(self, begin: datetime, end: datetime) -> dict[Place, set[int]]:
        """Return the offsets in either table, by the records' own time."""
        by_place = self.letters.offsets_in_and_around_window(begin, end)
        for place, offsets in self.sink.offsets_in_and_around_window(begin, end).items():
            by_place.setdefault(place, set()).update(offsets)
        return by_place

    def offsets_between(self, topic: str, partition: int, first: int, last: int) -> set[int]:
        """Return the offsets of a partition in a range, whatever the records' own time."""
        offsets = self.letters.offsets_between(topic, partition, first, last)
        written = self.sink.offsets_written_since(self.begin).get((topic, partition), set())
        return offsets | {offset for offset in written if first <= offset <= last}


def ranges_in_commits(
    table: Table, name: str, places: Mapping[str, Place], *, earliest: bool
) -> dict[Place, list[Range]]:
    """Return the ranges of offsets that a query's commits hold, as far back as the table keeps its snapshots.

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
    return {place: list(_join_ranges(ranges)) for place, ranges in claimed.items()}


def _join_ranges(ranges: Sequence[Range]) -> Iterator[Range]:
    begin, reached = sorted(ranges)[0]
    for start, end in sorted(ranges):
        if start > reached:
            yield begin, reached
            begin = start
        reached = max(reached, end)
    yield begin, reached


def gaps_between_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges between others, first and last included: no commit holds them, and later ones were written."""
    return [(end, start - 1) for (_, end), (start, _) in itertools.pairwise(ranges)]
