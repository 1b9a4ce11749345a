"""A plain simulator of a plan at its constant peak with all its workers, to judge the product's: no code is shared.

Time is in seconds, records are a fluid. A batch begins at a multiple of its trigger, or at once if the one before took longer;
its partitions are equal, and run in waves over the query's cores.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

SHARD_OUT = 2 * 1024 * 1024
SHUFFLE = 1.1
"""Work for each record where a batch is spread over the cores."""


@dataclass(frozen=True)
class PlainQuery:
    """Numbers of one query: from the file (rate, a, b) and from its plan (all others)."""

    rate: float
    overhead: float
    per_record: float
    sla: float
    trigger: float
    cores: int
    partitions: int = 0
    limit: float = math.inf
    spread: bool = False
    shard_bytes: float = 0.0
    """Bytes of a record times the readers that share a shard; 0 where nothing limits the reading."""
    alone: bool = True
    landed_by: tuple[str, ...] = ()

    def seconds(self, records: float) -> float:
        """Return the duration of a batch."""
        if not self.partitions or self.spread:
            work = records * self.per_record * (SHUFFLE if self.spread else 1.0) / self.cores
        else:
            work = math.ceil(self.partitions / self.cores) * records / self.partitions * self.per_record
        if not self.shard_bytes:
            return self.overhead + work
        waves = math.ceil(self.partitions / self.cores)
        reading = waves * records / self.partitions * self.shard_bytes / SHARD_OUT
        return max(self.overhead + work, reading + (self.overhead if waves == 1 and self.alone else 0.0))


@dataclass
class PlainResult:
    """Result of one query: the share of records in time in the second half, and the largest backlog of its two quarters."""

    late: float = 0.0
    judged: float = 0.0
    backlogs: list[float] = field(default_factory=lambda: [0.0, 0.0])
    commits: list[tuple[float, float]] = field(default_factory=list)

    @property
    def kept(self) -> bool:
        """Whether 99.9 % of the records are in time and the backlog does not grow."""
        third, last = self.backlogs
        return self.judged > 0 and self.late <= 0.001 * self.judged and last <= 1.001 * third + 1


def play(queries: Mapping[str, PlainQuery], seconds: float = 24 * 3600.0) -> dict[str, PlainResult]:
    """Simulate a job; queries that land come before those that read their tables."""
    found: dict[str, PlainResult] = {}
    for name, query in queries.items():
        found[name] = _played(query, [found[each] for each in query.landed_by], seconds)
    return found


def _played(query: PlainQuery, landed: list[PlainResult], seconds: float) -> PlainResult:
    result = PlainResult()
    places = [0] * len(landed)
    # A join's records come with each table's commits, in equal parts; one table or a stream is the usual case.
    read = [0.0] * max(1, len(landed))
    start = 0.0
    while start < seconds:
        if landed:
            there = []
            for number, each in enumerate(landed):
                while places[number] < len(each.commits) and each.commits[places[number]][0] <= start:
                    places[number] += 1
                there.append(each.commits[places[number] - 1][1] if places[number] else 0.0)
        else:
            there = [min(start, read[0] + query.limit / query.rate)]
        # Positions are in seconds of arrivals.
        taken = sum(now - then for now, then in zip(there, read, strict=True)) / len(read)
        following = (math.floor(start / query.trigger + 1e-9) + 1) * query.trigger
        if taken <= 1e-9:
            start = following
            continue
        end = start + query.seconds(taken * query.rate)
        if start >= seconds / 2:
            quarter = 0 if start < seconds * 3 / 4 else 1
            waiting = (start - min(read)) * query.rate
            result.backlogs[quarter] = max(result.backlogs[quarter], waiting)
            result.judged += taken
            oldest = end - min(then for now, then in zip(there, read, strict=True) if now > then)
            result.late += min(taken, max(0.0, oldest - query.sla * (1 + 1e-6)))
        read = there
        result.commits.append((end, there[0] if len(there) == 1 else min(there)))
        start = max(end, following)
    return result
