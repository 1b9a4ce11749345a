"""Batches of 5 and 20 queries of one job that begin together, predicted from those of one query."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from millrace.sizing.queries.driver import fixed_cost_factor
from millrace.sizing.queries.partition_tasks import divide_stream
from millrace.sizing.simulation import Arrivals, FixedExecutors, QueryLoad, Scenario, simulate
from tests.performance.preloaded_input import PARTITIONS
from tests.performance.simultaneous_batches import Burst, Cell, measure

CORES = 2
RECORDS = (500, 4000, 16_000)

WARM_UP = Cell(20, 1000, 15.0, bursts=1, warm_up=2)
"""Java compiles the code in it: a query that runs alone in a new JVM takes twice the CPU."""
CELLS = (
    WARM_UP,
    *(Cell(20, each, 25.0, bursts=4, warm_up=1) for each in RECORDS),
    *(Cell(5, each, 6.0) for each in RECORDS),
    *(Cell(1, each, 3.0, bursts=10) for each in RECORDS),
)


@dataclass(frozen=True)
class Alone:
    """Batches of one query.

    Attributes
    ----------
    overhead, wave, per_record
        a in seconds, κ in seconds of a task, and b in core-seconds, of lines through the figures of its batches.
    cores_per_batch
        Cores that the driver's part of the smallest batch keeps busy.
    """

    overhead: float
    wave: float
    per_record: float
    cores_per_batch: float


@dataclass(frozen=True)
class Shared:
    """The slowest batch of several queries that begin together: median seconds, predicted and measured."""

    queries: int
    records: int
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Relative error of the prediction."""
        return abs(self.predicted - self.measured) / self.measured


def run(path: Path, said: Callable[[str], None]) -> None:
    """Measure all cells, and write them to a file."""
    bursts = measure(CELLS, CORES, lambda burst: said(burst.line()), "kafka")
    path.write_text(json.dumps([asdict(each) for each in bursts]))


def read(path: Path) -> list[Burst]:
    """Read what was measured last."""
    return [Burst(**{**each, "cell": Cell(**each["cell"])}) for each in json.loads(path.read_text())]


def fit_alone(bursts: Sequence[Burst]) -> Alone:
    """Fit the batches of one query: a task for each partition, which share the cores, and what is left is the driver's."""
    own = [each for each in bursts if each.cell.queries == 1]
    records = [each.cell.records for each in own]
    per_record, held = np.polyfit(records, [each.held for each in own], 1)
    wave = float(held) / PARTITIONS
    driver = [each.batch - each.held / CORES for each in own]
    smallest = own[int(np.argmin(records))]
    busy = (smallest.cpu - smallest.tasks) / min(driver)
    return Alone(float(np.median(driver)), wave, float(per_record), busy)


def predict(alone: Alone, cell: Cell) -> float:
    """Return the median seconds of the slowest batch of a burst by the simulator."""
    seconds = cell.trigger * (cell.bursts + cell.warm_up + 1)
    loads = tuple(
        QueryLoad(
            name=f"query-{number}",
            overhead=alone.overhead * fixed_cost_factor(cell.queries, CORES / alone.cores_per_batch),
            per_record=alone.per_record,
            wave=alone.wave,
            trigger=cell.trigger,
            source=Arrivals.constant(cell.records / cell.trigger, seconds),
            parts=divide_stream(PARTITIONS),
        )
        for number in range(cell.queries)
    )
    played = simulate(Scenario(seconds, loads, CORES, FixedExecutors(1)))
    batches = [each.ends - each.starts for each in played.queries.values()]
    counted = min(len(each) for each in batches)
    return float(np.median(np.max([each[:counted] for each in batches], axis=0)))


def validate(bursts: Sequence[Burst]) -> tuple[Alone, list[Shared]]:
    """Return the fit of one query, and each prediction for several beside what was measured."""
    alone = fit_alone(bursts)
    return alone, [
        Shared(each.cell.queries, each.cell.records, predict(alone, each.cell), each.slowest)
        for each in bursts
        if each.cell.queries > 1 and each.cell != WARM_UP
    ]
