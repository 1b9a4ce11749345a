"""What a simulated query reads: the backlog of its source, the records of its next batch, and what it has committed."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.scenario_model import QueryLoad, Reshard

_NOTHING = 1e-9
"""Number of records below which the rest is a rounding error."""


@dataclass
class PartitionGroup:
    """Equal partitions and their read position, in records of the complete stream.

    A lane with a share of a quarter that is read to 100 has delivered 25 records.
    """

    share: float
    count: int
    begin: float
    read: float
    end: float = math.inf

    @property
    def total_share(self) -> float:
        """Share of all its partitions together."""
        return self.share * self.count

    @property
    def is_drained(self) -> bool:
        """True if a reshard closed it and all its records were read."""
        return (self.end - self.read) * self.total_share < _NOTHING


@dataclass
class BatchRecords:
    """Records of a batch: start and end for each lane, and the records of each partition.

    With the seconds of its start and of the first record's read, and the backlog at its start.
    """

    spans: list[tuple[int, float, float]] = field(default_factory=list)
    taken: list[tuple[float, int]] = field(default_factory=list)
    records: float = 0.0
    begun: float = 0.0
    reads: float = 0.0
    waiting: float = 0.0


class SourceReader:
    """A query over its source: backlog, next batch, commits."""

    def __init__(self, load: QueryLoad, upstream: SourceReader | None) -> None:
        self.load, self._upstream = load, upstream
        self.arrivals: Arrivals = upstream.arrivals if upstream is not None else _arrivals_of_load(load)
        self.lanes: list[PartitionGroup] = []
        self._kept = 0.0
        if upstream is None:
            self.lanes = [PartitionGroup(part.share, part.count, 0.0, 0.0) for part in load.parts]
            self._kept = (load.limit_per_part or 0.0) * sum(part.count for part in load.parts)

    def reshard(self, change: Reshard, now: float) -> None:
        """Close the partitions and open others; a batch reads the new ones after the old ones are drained."""
        begin = self.arrivals.arrived_before(now)
        for lane in self.lanes:
            lane.end = min(lane.end, begin)
        self.lanes += [PartitionGroup(part.share, part.count, begin, begin) for part in change.parts]

    def next_batch_records(self, now: float) -> BatchRecords:
        """Return the records of a batch that begins now; empty if there is no backlog."""
        if self._upstream is not None:
            return self._next_batch_of_landed_records(self._upstream)
        arrived = self.arrivals.arrived_before(now)
        closed = [n for n, lane in enumerate(self.lanes) if lane.end < math.inf and not lane.is_drained]
        numbers = closed or [n for n, lane in enumerate(self.lanes) if lane.end == math.inf]
        waiting = {n: max(0.0, min(arrived, self.lanes[n].end) - self.lanes[n].read) for n in numbers}
        if self._kept:
            each = self._kept / sum(self.lanes[n].count for n in numbers)
            waiting = {n: min(size, each / self.lanes[n].share) for n, size in waiting.items()}
        total = sum(size * self.lanes[n].total_share for n, size in waiting.items())
        part = 1.0 if self.load.limit is None or total <= self.load.limit else self.load.limit / total
        found = BatchRecords()
        for number, size in waiting.items():
            lane = self.lanes[number]
            take = size * part
            found.spans.append((number, lane.read, lane.read + take))
            found.taken.append((take * lane.share, lane.count))
            found.records += take * lane.total_share
        return found if found.records > _NOTHING else BatchRecords()

    def _next_batch_of_landed_records(self, upstream: SourceReader) -> BatchRecords:
        found = BatchRecords()
        for number, lane in enumerate(upstream.lanes):
            if number == len(self.lanes):
                self.lanes.append(PartitionGroup(lane.share, lane.count, lane.begin, lane.begin))
            own = self.lanes[number]
            if lane.read > own.read:
                found.spans.append((number, own.read, lane.read))
                found.taken.append(((lane.read - own.read) * lane.share, lane.count))
                found.records += (lane.read - own.read) * lane.total_share
        return found if found.records > _NOTHING else BatchRecords()

    def next_record_time(self) -> float:
        """Return the time of the next record that no batch has read; infinity if there is none."""
        reads = [lane.read for lane in self.lanes if not lane.is_drained]
        return self.arrivals.next_arrival_time(min(reads)) if reads else math.inf

    def commit(self, batch: BatchRecords) -> None:
        """Mark a batch as done."""
        for number, _, last in batch.spans:
            self.lanes[number].read = last

    def backlog_at(self, now: float) -> float:
        """Return the backlog: records that arrived and are not committed, over all lanes."""
        arrived = self.arrivals.arrived_before(now)
        if self._upstream is None:
            return sum(max(0.0, min(arrived, lane.end) - lane.read) * lane.total_share for lane in self.lanes)
        landed = sum(
            (lane.read - (self.lanes[n].read if n < len(self.lanes) else lane.begin)) * lane.total_share
            for n, lane in enumerate(self._upstream.lanes)
        )
        return landed + self._upstream.backlog_at(now)


def _arrivals_of_load(load: QueryLoad) -> Arrivals:
    assert isinstance(load.source, Arrivals), f"{load.name} reads {load.source}, which comes after it"
    assert load.parts, f"{load.name} reads a source without partitions"
    return load.source
