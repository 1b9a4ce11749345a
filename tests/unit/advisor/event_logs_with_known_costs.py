"""Synthetic event logs of queries with known costs, made without code of the product."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapreplace

import numpy as np

from millrace.advisor.logs.application_history_model import (
    Batch,
    BatchSource,
    Executor,
    History,
    Query,
    SparkJob,
    Stage,
    TaskAttempts,
)

BEGIN = 1_700_000_000.0

PARTS = {"latestOffset": 0.1, "getBatch": 0.05, "queryPlanning": 0.25, "walCommit": 0.2, "commitOffsets": 0.2}
"""Shares of a batch's overhead."""


@dataclass(frozen=True)
class Truth:
    """What a query costs and what it is given."""

    cores: int = 2
    partitions: int = 8
    overhead: float = 0.8
    wave: float = 0.02
    per_record: float = 1e-4
    rate: float = 1000.0
    swing: float = 0.3
    trigger: float = 10.0
    limit: int | None = None
    seconds: float = 900.0
    sigma: float = 0.1
    hot: float = 0.0
    reads: int = 1
    seed: int = 0
    counted: bool = True
    offsets: bool = True
    fails: float = 0.0
    name: str = "land"
    waiting: int = 0


def arrived(truth: Truth, at: float) -> float:
    """What waits at the start, and a day that is a hundred seconds long."""
    turn = 2 * math.pi / 100
    return truth.waiting + truth.rate * (at + truth.swing / turn * (1 - math.cos(turn * at)))


def run(truth: Truth) -> tuple[Query, list[float]]:
    """A run, and for each batch how old its oldest record was at the commit."""
    random = np.random.default_rng(truth.seed)
    shares = np.full(truth.partitions, (1 - truth.hot) / truth.partitions)
    shares[0] += truth.hot
    batches: list[Batch] = []
    now, taken, number = 0.0, 0, 0
    positions = np.zeros(truth.partitions, np.int64)
    ages = []
    grid = np.arange(0, truth.seconds + 1, 0.05)
    counts = np.asarray([arrived(truth, at) for at in grid.tolist()])
    while now < truth.seconds:
        latest = int(arrived(truth, now))
        waiting = latest - taken
        if waiting >= truth.partitions:
            records = waiting if truth.limit is None else min(waiting, truth.limit)
            each = np.floor(records * shares).astype(np.int64)
            each[0] += records - each.sum()
            overhead = truth.overhead * random.lognormal(0, 0.03)
            begun, jobs = BEGIN + now, []
            at = begun + overhead * 0.6
            for read in range(truth.reads):
                chance = random.lognormal(-(truth.sigma**2) / 2, truth.sigma, truth.partitions)
                times = (truth.wave + truth.per_record * each) * chance
                # The first attempt of all tasks fails after so many seconds.
                free = [at + truth.fails] * truth.cores
                begins = []
                for seconds in times.tolist():
                    begins.append(free[0])
                    heapreplace(free, free[0] + seconds)
                launched = np.asarray(begins)
                attempts = 2 if truth.fails else 1
                done = np.arange(truth.partitions * attempts) >= truth.partitions * (attempts - 1)
                columns = {
                    "launched": np.where(done, np.tile(launched, attempts), at),
                    "finished": np.where(done, np.tile(launched + times, attempts), at + truth.fails),
                    "run": np.tile(times, attempts),
                    "cpu": np.tile(times, attempts),
                    "index": np.tile(np.arange(truth.partitions), attempts),
                    "records_read": np.tile(each, attempts) * (done if truth.counted else 0),
                    "failed": ~done,
                }
                tasks = TaskAttempts.from_columns(**columns)
                stage = Stage(number * 9 + read, 0, truth.partitions, tasks)
                jobs.append(SparkJob(stage.id, None, (stage,), "x"))
                at = max(free)
            duration = at + overhead * 0.4 - begun
            start = {f"t:{n}": int(position) for n, position in enumerate(positions)}
            positions += each
            end = {f"t:{n}": int(position) for n, position in enumerate(positions)}
            behind = waiting - records
            last = {key: position + (behind if key == "t:0" else 0) for key, position in end.items()}
            source = (
                BatchSource("KafkaV2[Subscribe[t]]", start, end, last, records * truth.reads)
                if truth.offsets
                else BatchSource("KinesisSource[t]", None, None, None, records)
            )
            spent = {name: overhead * share for name, share in PARTS.items()}
            parts = {**spent, "addBatch": duration - sum(spent.values()), "triggerExecution": duration}
            batches.append(Batch(number, begun, duration, parts, source.rows, (source,), jobs=tuple(jobs)))
            oldest = float(grid[np.searchsorted(counts, taken)])
            ages.append(now + duration - oldest)
            taken += records
            number += 1
            finished = now + duration
        else:
            finished = now
        if truth.trigger:
            # The clock's own multiples, as Spark has it.
            next_ = (math.floor((BEGIN + now) / truth.trigger + 1e-9) + 1) * truth.trigger - BEGIN
            now = max(finished, next_)
        else:
            now = finished + 0.01
    return Query(truth.name, "id", f"run of {truth.name}", BEGIN, None, tuple(batches)), ages


def history(truths: Sequence[Truth]) -> History:
    """An application of such queries, all with the same cores."""
    queries = tuple(run(each)[0] for each in truths)
    cores = truths[0].cores
    return History(
        "app-1", "orders", "3.5.6", "spark", BEGIN, BEGIN + truths[0].seconds, False, {},
        (Executor("1", cores, BEGIN, None),), queries,
    )  # fmt: skip
