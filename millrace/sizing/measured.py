"""What a benchmark found, as a plan takes it: each figure with its interval, decided by the pessimistic end.

The file is written by a benchmark and its fit and read by the plan; ``docs/adr/0601-measured-rates.md`` has its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from millrace.config.model import Basis, Environment
from millrace.config.problems import Finding

VERSION = 1


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Interval(_Part):
    """An estimate and its interval, 95 % by default."""

    value: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Interval:
        if not self.low <= self.value <= self.high:
            raise ValueError("low <= value <= high")
        return self


class ScalingCurve(_Part):
    """X(c) = γc / (1 + α(c − 1) + βc(c − 1)): Gunther, "Guerrilla Capacity Planning", 2007.

    Attributes
    ----------
    contention
        α.
    coherence
        β; 0 where fewer than four core levels were measured (Amdahl).
    cores
        Levels that were measured.
    """

    contention: Interval
    coherence: Interval
    cores: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2)

    def share(self, cores: int) -> float:
        """Return what each of so many cores gives, as a share of one alone, at the pessimistic ends."""
        alpha, beta = self.contention.high, self.coherence.high
        return 1 / (1 + alpha * (cores - 1) + beta * cores * (cores - 1))


class BatchRun(_Part):
    """One batch that was measured."""

    limit: int = Field(ge=1)
    partitions: int = Field(ge=1)
    cores: int = Field(ge=1)
    repetition: int = Field(ge=0)
    records: int = Field(ge=0)
    seconds: float = Field(gt=0)
    task_seconds: float = Field(ge=0)
    warm_up: bool = False


class BenchmarkResult(_Part):
    """What one benchmark of one job found.

    Attributes
    ----------
    job
        That was run.
    measured_at
        With its zone.
    where
        Engine that ran it.
    worker, architecture
        Of the cores: another kind makes the plan's numbers assumed.
    machine, versions, settings
        For whoever reads the file.
    record_bytes
        Mean size of the records.
    overhead_seconds
        a.
    core_seconds_per_record
        b.
    wave_seconds
        κ, where partitions were swept; otherwise it is in a.
    unevenness
        Standard deviation of the logarithm of a task's time.
    scaling
        Where more than one core level was measured.
    held_out_error
        Share by which the fit missed the durations at the largest limit, which it had not seen.
    batches
        All of them.
    """

    version: Literal[1]
    job: str
    measured_at: datetime
    where: Literal["sandbox", "glue", "emr"]
    worker: str
    architecture: Literal["x86_64", "arm64"]
    machine: Mapping[str, str] = Field(default_factory=dict)
    versions: Mapping[str, str] = Field(default_factory=dict)
    settings: Mapping[str, str] = Field(default_factory=dict)
    record_bytes: float = Field(gt=0)
    overhead_seconds: Interval
    core_seconds_per_record: Interval
    wave_seconds: Interval | None = None
    unevenness: Interval | None = None
    scaling: ScalingCurve | None = None
    held_out_error: float = Field(ge=0)
    batches: tuple[BatchRun, ...] = ()

    @model_validator(mode="after")
    def _possible(self) -> BenchmarkResult:
        if self.core_seconds_per_record.low <= 0:
            raise ValueError("core_seconds_per_record.low > 0: no record is free")
        return self


@dataclass(frozen=True)
class Speed:
    """How fast a job is, as the plan counts.

    Attributes
    ----------
    per_record
        b in core-seconds.
    overhead
        a in seconds, with one wave's κ.
    basis
        ``measured`` or ``assumed``.
    origin
        In words: who says so.
    wave, unevenness
        κ in seconds and σ of tasks' times: 0 where nobody measured them.
    scaling
        Where it was measured.
    """

    per_record: float
    overhead: float
    basis: Basis
    origin: str
    wave: float = 0.0
    unevenness: float = 0.0
    scaling: ScalingCurve | None = None


class MeasuredError(ValueError):
    """A result that cannot be taken; what is allowed is its text."""


def read(file: Path) -> BenchmarkResult:
    """Read a result file.

    Raises
    ------
    MeasuredError
        No such file, no such shape.
    """
    try:
        return BenchmarkResult.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise MeasuredError("a result file that can be read, as a benchmark wrote it") from error
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise MeasuredError(f"a benchmark's result of version {VERSION}; {place}: {first['msg']}") from error


def speed(environment: Environment, job: str) -> Speed:
    """Return how fast a job is: by its benchmark's pessimistic ends, or as its file says.

    Raises
    ------
    MeasuredError
        The result file cannot be taken.
    """
    settings = environment.jobs[job]
    rate = settings.rate
    if rate.result is None:
        assert rate.records_per_second_per_core is not None
        return Speed(
            1 / rate.records_per_second_per_core,
            rate.batch_overhead.total_seconds(),
            rate.basis,
            f"{rate.records_per_second_per_core:,.0f} records/s a core and "
            f"{rate.batch_overhead.total_seconds():g} s a batch, {rate.basis} by the file",
        )
    found = read(environment.places.root / rate.result)
    wave = found.wave_seconds.high if found.wave_seconds is not None else 0.0
    elsewhere = "" if found.where == settings.engine else f", on {found.where}"
    return Speed(
        per_record=found.core_seconds_per_record.high,
        overhead=found.overhead_seconds.high + wave,
        # A core elsewhere is no core of this engine: what it took there is a guess here.
        basis="measured" if found.where == settings.engine else "assumed",
        origin=f"{rate.result} of {found.measured_at.date().isoformat()}{elsewhere}, at the pessimistic ends",
        wave=wave,
        unevenness=found.unevenness.value if found.unevenness is not None else 0.0,
        scaling=found.scaling,
    )


def problem(environment: Environment, job: str) -> Finding | None:
    """Return what is wrong with a job's result file, if it names one."""
    try:
        speed(environment, job)
    except MeasuredError as error:
        return Finding(("jobs", job, "rate", "result"), str(environment.jobs[job].rate.result), str(error))
    return None
