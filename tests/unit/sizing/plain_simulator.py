"""A plain simulator of a plan at its constant peak with all its workers, to judge the product's: no code is shared.

Time is in seconds, records are a fluid. A batch begins at a multiple of its trigger, or at once if the one before took longer;
its partitions are equal. A query that is alone runs them in waves over the job's cores; several share these task by task.
"""

from __future__ import annotations

import heapq
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

    def tasks(self, records: float) -> tuple[int, float]:
        """Return the number of a batch's tasks and the seconds of each, where it has no cores of its own."""
        number = self.partitions if self.partitions and not self.spread else self.cores
        work = records * self.per_record * (SHUFFLE if self.spread else 1.0) / number
        reading = records * self.shard_bytes / SHARD_OUT / max(1, min(self.partitions, number))
        return number, max(work, reading - (0.0 if self.alone else self.overhead))


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


@dataclass
class _State:
    """A query between two batches: how far it has read, in seconds of arrivals of each of its tables or of its stream."""

    query: PlainQuery
    landed: list[PlainResult]
    seconds: float
    result: PlainResult = field(default_factory=PlainResult)

    def __post_init__(self) -> None:
        self.places = [0] * len(self.landed)
        # A join's records come with each table's commits, in equal parts; one table or a stream is the usual case.
        self.read = [0.0] * max(1, len(self.landed))
        self.there = list(self.read)
        self.start = self.taken = 0.0

    def following(self, start: float) -> float:
        return (math.floor(start / self.query.trigger + 1e-9) + 1) * self.query.trigger

    def begin(self, start: float) -> float:
        """Take what is there, and return its records; 0 if nothing is."""
        if self.landed:
            self.there = []
            for number, each in enumerate(self.landed):
                while (
                    self.places[number] < len(each.commits) and each.commits[self.places[number]][0] <= start
                ):
                    self.places[number] += 1
                self.there.append(each.commits[self.places[number] - 1][1] if self.places[number] else 0.0)
        else:
            self.there = [min(start, self.read[0] + self.query.limit / self.query.rate)]
        self.start = start
        self.taken = sum(now - then for now, then in zip(self.there, self.read, strict=True)) / len(self.read)
        return self.taken * self.query.rate if self.taken > 1e-9 else 0.0

    def end(self, end: float) -> float:
        """Commit the batch, and return when the next one begins."""
        result, start = self.result, self.start
        if start >= self.seconds / 2:
            quarter = 0 if start < self.seconds * 3 / 4 else 1
            waiting = (start - min(self.read)) * self.query.rate
            result.backlogs[quarter] = max(result.backlogs[quarter], waiting)
            result.judged += self.taken
            oldest = end - min(then for now, then in zip(self.there, self.read, strict=True) if now > then)
            result.late += min(self.taken, max(0.0, oldest - self.query.sla * (1 + 1e-6)))
        self.read = self.there
        result.commits.append((end, min(self.there)))
        return max(end, self.following(start))


def play(
    queries: Mapping[str, PlainQuery], seconds: float = 24 * 3600.0, cores: int = 0, at_once: float = math.inf
) -> dict[str, PlainResult]:
    """Simulate a job; queries that land come before those that read their tables. Several share the job's cores.

    The driver serves the fixed costs of so many batches at full speed.
    """
    states: dict[str, _State] = {}
    for name, query in queries.items():
        states[name] = _State(query, [states[each].result for each in query.landed_by], seconds)
    if len(states) == 1:
        for state in states.values():
            start = 0.0
            while start < seconds:
                records = state.begin(start)
                start = state.end(start + state.query.seconds(records)) if records else state.following(start)
    else:
        _share(list(states.values()), seconds, cores, at_once)
    return {name: state.result for name, state in states.items()}


def _share(states: list[_State], seconds: float, cores: int, at_once: float) -> None:
    """Run the tasks of all queries, one by one: a core that is free takes one of the query that has the fewest on cores."""
    # What happens: a batch begins (0), one of its tasks has ended (1).
    events = [(0.0, number, 0) for number in range(len(states))]
    waiting, running, left, took = (
        [0] * len(states),
        [0] * len(states),
        [0] * len(states),
        [0.0] * len(states),
    )
    # What is left of the fixed costs of batches that the driver plans.
    now, fixed = 0.0, dict[int, float]()
    while True:
        slower = max(1.0, len(fixed) / at_once)
        first, rest = min(((rest, number) for number, rest in fixed.items()), default=(math.inf, -1))[::-1]
        planned = now + rest * slower
        until = min(planned, events[0][0] if events else math.inf)
        if until >= seconds:
            return
        fixed = {number: each - (until - now) / slower for number, each in fixed.items()}
        now = until
        if not events or planned <= events[0][0]:
            del fixed[first]
            waiting[first] = left[first]
        else:
            _, number, what = heapq.heappop(events)
            state = states[number]
            if what == 0:
                records = state.begin(now)
                if records:
                    left[number], took[number] = state.query.tasks(records)
                    fixed[number] = state.query.overhead
                else:
                    heapq.heappush(events, (state.following(now), number, 0))
            else:
                running[number] -= 1
                left[number] -= 1
                if not left[number]:
                    heapq.heappush(events, (state.end(now), number, 0))
        while sum(running) < cores and any(waiting):
            first = min((each for each in range(len(states)) if waiting[each]), key=running.__getitem__)
            waiting[first] -= 1
            running[first] += 1
            heapq.heappush(events, (now + took[first], first, 1))
