from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from millrace.benchmark.fit import FitError
from millrace.benchmark.measurements import Batch, Measurements, Point, Run
from millrace.benchmark.result import outcome
from millrace.benchmark.scaling import curve
from millrace.sizing.measured import read

A, WAVE, B = 0.25, 0.02, 30e-6


def session(
    cores: int,
    *,
    alpha: float = 0.0,
    slow_repetition: float = 1.0,
    limits: tuple[int, ...] = (500, 2000, 8000),
) -> Measurements:
    """What a machine of known costs would have been measured as: query ``b`` costs twice as much as ``a``."""
    rng = np.random.default_rng(cores)
    runs = []
    cells = [(limit, partitions) for limit in limits for partitions in (1, 2)]
    for number, (repetition, (limit, partitions)) in enumerate(
        (repetition, cell) for repetition in range(3) for cell in cells
    ):
        for query, factor in (("a", 1), ("b", 2)):
            stretched = 1 + alpha * (cores - 1)
            drift = slow_repetition if repetition == 2 else 1.0
            batches = []
            for batch in range(14):
                task = factor * B * limit / partitions * stretched * drift
                waves = math.ceil(partitions / cores)
                seconds = (A + waves * (WAVE + task)) * rng.lognormal(0, 0.02) * (2.0 if batch < 3 else 1.0)
                tasks = (tuple(task * rng.lognormal(0, 0.1) for _ in range(partitions)),)
                batches.append(
                    Batch(batch=batch, records=limit, seconds={"triggerExecution": seconds}, tasks=tasks)
                )
            runs.append(
                Run(
                    query=query,
                    number=number,
                    limit=limit,
                    partitions=partitions,
                    repetition=repetition,
                    batches=tuple(batches),
                )
            )
    now = datetime(2026, 1, 1, tzinfo=UTC)
    return Measurements(
        version=1, job="flights", engine="sandbox", begun_at=now, ended_at=now, spark="3.5.7", java="17",
        python="3.11", cores=cores, processors=2, processor="Linux x86_64", settings={}, runs=tuple(runs),
    )  # fmt: skip


def test_the_costliest_query_is_what_the_plan_counts_with(tmp_path: Path) -> None:
    found = outcome(
        [session(2, alpha=0.2), session(1)],
        ("a", "b"),
        record_bytes=300,
        where="sandbox",
        worker="a core",
        architecture="x86_64",
    )
    assert found.costliest == "b"
    assert not found.disturbed
    result = found.result
    assert result.core_seconds_per_record.low <= 2 * B <= result.core_seconds_per_record.high
    assert result.overhead_seconds.value == pytest.approx(A, rel=0.1)
    assert result.wave_seconds is not None
    assert result.unevenness is not None
    assert result.held_out_error < 0.05
    # Of one core, though two were measured as well: what the second brings is the curve's.
    assert result.scaling is not None
    assert result.scaling.cores == (1, 2)
    assert {batch.cores for batch in result.batches} == {1, 2}
    assert sum(batch.warm_up for batch in result.batches) == 3 * len(result.batches) // 14
    file = tmp_path / "flights.json"
    file.write_text(result.model_dump_json())
    assert read(file) == result


def test_repetitions_apart_are_evidence() -> None:
    found = outcome(
        [session(1, slow_repetition=1.5)],
        ("a",),
        record_bytes=300,
        where="sandbox",
        worker="a core",
        architecture="x86_64",
    )
    assert len(found.disturbed) == 6
    assert found.result.scaling is None


def test_two_limits_leave_none_to_hold_out() -> None:
    with pytest.raises(FitError, match="three limits"):
        outcome(
            [session(1, limits=(500, 2000))],
            ("a",),
            record_bytes=300,
            where="sandbox",
            worker="a core",
            architecture="x86_64",
        )


def full(cores: int, rate: float, group: int) -> Point:
    return Point(10_000, cores, cores, 10_000 / rate, 1.0, (0.0,), group, 10_000)


def test_contention_comes_out_of_two_levels_and_coherence_out_of_four() -> None:
    def at(cores: int, alpha: float, beta: float) -> float:
        return 5000 * cores / (1 + alpha * (cores - 1) + beta * cores * (cores - 1))

    two = [full(c, at(c, 0.15, 0.0), 10 * c + n) for c in (1, 2) for n in range(3)]
    found = curve(two)
    assert found is not None
    assert found.contention.value == pytest.approx(0.15)
    assert found.coherence.value == 0.0
    assert found.share(2) == pytest.approx(1 / 1.15)
    four = [full(c, at(c, 0.05, 0.01), 10 * c + n) for c in (1, 2, 4, 8) for n in range(3)]
    found = curve(four)
    assert found is not None
    assert (found.contention.value, found.coherence.value) == (pytest.approx(0.05), pytest.approx(0.01))
    assert curve([each for each in two if each.cores == 2]) is None
