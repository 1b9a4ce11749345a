"""Predictions from one core and small limits, compared with real Spark and Kafka on this machine."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from millrace.benchmark.fit import ModelFit, fit_model
from millrace.benchmark.measurements import (
    BatchPoint,
    Disturbance,
    Measurements,
    Run,
    count_warmup_batches,
    find_disturbances,
    to_batch_point,
)
from millrace.benchmark.run_schedule import WARM_UP
from millrace.config import load
from millrace.config.aws.resource_names import Names
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun
from millrace.lifecycle.changes.compare_with_deployed import launch_document_in_assembly
from millrace.sandbox import benchmark
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import cdk, kafka_broker, localstack
from millrace.sandbox.programs.child_processes import RUN, locked_sandbox_without_left_programs
from tests.flight_records import flight_records
from tests.sizing_validation import alternative_duration_models
from tests.sizing_validation.alternative_duration_models import Foretell

JOB, QUERY = "flights", "land-flights"

LIMITS = (500, 1000, 2000, 4000, 8000, 16000, 32000)
TRAINING_LIMIT = 4000
TRAINING_PARTITIONS = (1, 2)
PARTITIONS = (1, 2, 3, 4)
CORES = (1, 2)


@dataclass(frozen=True)
class Score:
    """Errors of one way to foretell, over the medians of held-out runs' batches."""

    rival: str
    of: str
    runs: int
    median: float
    p95: float


def schedule(repetitions: int, batches: int, seed: int) -> list[BenchmarkRun]:
    """Every limit with every count of partitions, in random order within each repetition."""
    order = random.Random(seed)
    runs = [BenchmarkRun(0, LIMITS[-3], max(PARTITIONS), WARM_UP, 60)]
    for repetition in range(repetitions):
        cells = list(itertools.product(LIMITS, PARTITIONS))
        order.shuffle(cells)
        runs += [BenchmarkRun(len(runs) + n, *cell, repetition, batches) for n, cell in enumerate(cells)]
    return runs


def measure(repetitions: int, batches: int, said: Callable[[str], None]) -> list[Measurements]:
    """Measure the example's land query at every limit, count of partitions and core level."""
    assembly = RUN / "validation-cdk.out"
    cdk.synthesise_assembly("local", assembly, localstack.ACCOUNT)
    launch = launch_document_in_assembly(Names(load("local"), ""), assembly, JOB)
    payloads = [
        event.payload
        for event in flight_records(records_from_nycflights.read_departures(month=1), dirty_share=0, seed=1)
    ]
    runs = schedule(repetitions, batches, seed=1)
    subject = benchmark.BenchmarkJob(launch, (QUERY,), {})
    with locked_sandbox_without_left_programs(), kafka_broker.running_broker() as broker:
        held = benchmark.records_needed_by_partition(runs)
        broker.create_topic(benchmark.TOPIC, len(held))
        said(
            f"{benchmark.fill_topic_and_return_records_sent(broker.bootstrap, payloads, held):,} records sent"
        )
        return [
            benchmark.run_benchmark_schedule(
                subject,
                runs,
                broker.bootstrap,
                cores=cores,
                done=lambda n, of, cores=cores: (
                    said(f"{cores} cores: run {n} of {of}") if n % 10 == 0 else None
                ),
            )
            for cores in CORES
        ]


@dataclass(frozen=True)
class Validation:
    """What came of it.

    Attributes
    ----------
    repeated
        Of a run foretold by the other repetitions of its own setting.
    """

    fit: ModelFit
    scores: list[Score]
    repeated: Score
    disturbed: list[Disturbance]
    training: int
    asked: int


def _settled(run: Run, cores: int, group: int) -> list[BatchPoint]:
    first = count_warmup_batches([batch.duration for batch in run.batches])
    return [to_batch_point(batch, run, cores, group) for batch in run.batches[first:]]


def validate(measured: Sequence[Measurements]) -> Validation:
    """Train on one core, one and two partitions and small limits; score on all other cells."""
    every: list[BatchPoint] = []
    training: list[BatchPoint] = []
    trained = []
    asked: dict[str, list[BatchPoint]] = {}
    group = 0
    for session in measured:
        for run in session.runs_of_query(QUERY):
            points = _settled(run, session.cores, group)
            group += 1
            every += points
            if session.cores == 1 and run.limit <= TRAINING_LIMIT and run.partitions in TRAINING_PARTITIONS:
                training += points
                trained.append((run, session.cores, run.batches[len(run.batches) - len(points) :]))
                continue
            if session.cores > 1:
                asked.setdefault("two cores", []).extend(points)
            elif run.limit > TRAINING_LIMIT:
                asked.setdefault("larger limits, one core", []).extend(points)
            else:
                asked.setdefault("other partitions, one core", []).extend(points)
    ways: dict[str, Foretell] = {
        "Millrace": alternative_duration_models.ours(training),
        "constant rate": alternative_duration_models.constant_rate(training),
        "Sparklens": alternative_duration_models.replay(trained),
        "DS2": alternative_duration_models.true_rate(training),
    }
    everything = [p for points in asked.values() for p in points]
    moved = {
        (one.limit, one.partitions, cores)
        for cores in CORES
        for one in find_disturbances([p for p in every if p.cores == cores])
    }
    quiet = [p for p in everything if (p.limit, p.partitions, p.cores) not in moved]
    groups = {**asked, "all": everything, "all but the disturbed": quiet}
    scores = [_score(name, of, way, points) for of, points in groups.items() for name, way in ways.items()]
    return Validation(
        fit_model(training),
        scores,
        _repeated(everything),
        find_disturbances(every),
        len(training),
        len(everything),
    )


def _runs(points: Sequence[BatchPoint]) -> list[list[BatchPoint]]:
    runs: dict[int, list[BatchPoint]] = {}
    for each in points:
        runs.setdefault(each.group, []).append(each)
    return list(runs.values())


def _repeated(points: Sequence[BatchPoint]) -> Score:
    """Foretell each run by the median of the other repetitions of its setting: as near as any way can come."""
    settings: dict[tuple[int, int, int], list[float]] = {}
    for run in _runs(points):
        one = run[0]
        durations = settings.setdefault((one.limit, one.partitions, one.cores), [])
        durations.append(float(np.median([p.duration for p in run])))
    errors = [
        abs(float(np.median([*durations[:n], *durations[n + 1 :]])) - actual) / actual
        for durations in settings.values()
        if len(durations) > 1
        for n, actual in enumerate(durations)
    ]
    return Score("repeated", "all", len(errors), float(np.median(errors)), float(np.percentile(errors, 95)))


def _score(rival: str, of: str, way: Foretell, points: Sequence[BatchPoint]) -> Score:
    runs = _runs(points)
    errors = []
    for run in runs:
        actual = float(np.median([p.duration for p in run]))
        one = run[0]
        records = round(float(np.median([p.records for p in run])))
        errors.append(abs(way(records, one.partitions, one.cores) - actual) / actual)
    return Score(rival, of, len(runs), float(np.median(errors)), float(np.percentile(errors, 95)))


def save(measured: Sequence[Measurements], path: Path) -> None:
    """Keep what was measured, so that it can be scored again."""
    path.write_text(json.dumps([json.loads(each.model_dump_json()) for each in measured]))


def read(path: Path) -> list[Measurements]:
    """Read what was kept."""
    return [Measurements.model_validate(each) for each in json.loads(path.read_text())]
