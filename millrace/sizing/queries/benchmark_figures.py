"""Benchmark results for planning: each figure with its interval; the plan uses the pessimistic end.

A benchmark and its fit write the file and the plan reads it; ``docs/design/benchmark.md#result-file`` has its format.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from millrace.config.base import Model
from millrace.config.document.problems import Finding
from millrace.config.model import Basis, Environment
from millrace.config.processing_rate import Rate
from millrace.config.queries import Query, SourceQueryBase
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.sizing_formulas import InfeasibleError
from millrace.sizing.readable_numbers import rate_text

VERSION = 1


class EstimateWithInterval(Model):
    """An estimate and its interval, 95 % by default."""

    value: float = Field(ge=0)
    low: float = Field(ge=0)
    high: float = Field(ge=0)

    @model_validator(mode="after")
    def _check_low_value_high_order(self) -> EstimateWithInterval:
        if not self.low <= self.value <= self.high:
            raise ValueError("value must lie between low and high")
        return self


class ScalingCurve(Model):
    """X(c) = γc / (1 + α(c − 1) + βc(c − 1)): Gunther, "Guerrilla Capacity Planning", 2007.

    Attributes
    ----------
    contention
        α.
    coherence
        β; 0 if fewer than four numbers of cores were measured (Amdahl).
    cores
        Numbers of cores that were measured.
    """

    contention: EstimateWithInterval
    coherence: EstimateWithInterval
    cores: tuple[Annotated[int, Field(ge=1)], ...] = Field(min_length=2)

    def work_share_per_core(self, cores: int) -> float:
        """Return the work of each of a number of cores as a share of a single core's, at the pessimistic ends."""
        alpha, beta = self.contention.high, self.coherence.high
        return 1 / (1 + alpha * (cores - 1) + beta * cores * (cores - 1))


class BatchRun(Model):
    """One measured batch."""

    limit: int = Field(ge=1)
    partitions: int = Field(ge=1)
    cores: int = Field(ge=1)
    repetition: int = Field(ge=0)
    records: int = Field(ge=0)
    seconds: float = Field(gt=0)
    task_seconds: float = Field(ge=0)
    warm_up: bool = False


class BenchmarkResult(Model):
    """Result of one benchmark of one job.

    Attributes
    ----------
    job
        The job that ran.
    measured_at
        With its zone.
    where
        Engine that ran it.
    worker, architecture
        Kind of the cores: with another kind, the plan's numbers are assumed.
    versions
        Of ``spark``, ``java`` and ``python``; with another line of Spark, the plan's numbers are assumed.
    machine, settings
        Only for people.
    record_bytes
        Mean size of the records.
    overhead_seconds
        a.
    core_seconds_per_record
        b.
    wave_seconds
        κ, if the number of partitions was varied; otherwise it is in a.
    unevenness
        Standard deviation of the logarithm of a task's time.
    scaling
        Present if several numbers of cores were measured.
    held_out_error
        Relative error of the fit for the durations at the largest limit, which the fit did not use.
    batches
        All batches.
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
    overhead_seconds: EstimateWithInterval
    core_seconds_per_record: EstimateWithInterval
    wave_seconds: EstimateWithInterval | None = None
    unevenness: EstimateWithInterval | None = None
    scaling: ScalingCurve | None = None
    held_out_error: float = Field(ge=0)
    batches: tuple[BatchRun, ...] = ()

    @property
    def spark_line(self) -> str | None:
        """Line of Spark of the measurement; None if the file does not say it."""
        spark = self.versions.get("spark")
        return None if spark is None else ".".join(spark.split(".")[:2])

    @model_validator(mode="after")
    def _check_rate_above_zero(self) -> BenchmarkResult:
        if self.core_seconds_per_record.low <= 0:
            raise ValueError("core_seconds_per_record.low must be larger than 0")
        return self


@dataclass(frozen=True)
class QuerySpeed:
    """Speed of a query for the plan.

    Attributes
    ----------
    per_record
        b in core-seconds.
    overhead
        a in seconds, with one wave's κ.
    basis
        ``measured`` or ``assumed``.
    origin
        Source, in words.
    wave, unevenness
        κ in seconds and σ of tasks' times: 0 if they were not measured.
    scaling
        Present if it was measured.
    other_line
        Spark line of the measurement, in words, if the job has another one.
    """

    per_record: float
    overhead: float
    basis: Basis
    origin: str
    wave: float = 0.0
    unevenness: float = 0.0
    scaling: ScalingCurve | None = None
    other_line: str = ""


class UnusableResultError(ValueError):
    """A result that cannot be used; its text says what is allowed."""


def read_result(file: Path) -> BenchmarkResult:
    """Return the content of a result file.

    Raises
    ------
    UnusableResultError
        The file does not exist, cannot be read, or has another format.
    """
    try:
        return BenchmarkResult.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableResultError("a readable result file, as `millrace bench` writes it") from error
    except ValidationError as error:
        first: Any = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise UnusableResultError(
            f"a benchmark's result file of format version {VERSION}; {place}: {first['msg']}"
        ) from error


def speed_of_query(environment: Environment, job: str, query: str) -> QuerySpeed:
    """Return the speed of a query: from its benchmark's pessimistic ends, from its file, or a cautious default.

    Raises
    ------
    UnusableResultError
        The result file cannot be used.
    """
    settings = environment.jobs[job]
    asked = settings.queries[query]
    rate = asked.rate or settings.rate
    if rate is None:
        return _default_speed(environment, asked)
    if rate.result is None:
        assert rate.records_per_second_per_core is not None
        return QuerySpeed(
            1 / rate.records_per_second_per_core,
            rate.batch_overhead.total_seconds(),
            rate.basis,
            f"{rate_text(rate.records_per_second_per_core)} records/s a core and "
            f"{rate.batch_overhead.total_seconds():g} s a batch, {rate.basis} by the file",
        )
    found = read_result(environment.value_locations.root / rate.result)
    wave = found.wave_seconds.high if found.wave_seconds is not None else 0.0
    own = settings.spark_line.name
    other_line = (
        "" if found.spark_line in (None, own) else f"with Spark {found.spark_line} where the job has {own}"
    )
    elsewhere = [
        *([] if found.where == settings.engine else [f"on {found.where}"]),
        *filter(None, [other_line]),
    ]
    return QuerySpeed(
        per_record=found.core_seconds_per_record.high,
        overhead=found.overhead_seconds.high + wave,
        # A core of another engine or Spark line is not a core of this job: its figures are assumptions here.
        basis="measured" if not elsewhere else "assumed",
        origin=", ".join(
            (
                f"{rate.result} of {found.measured_at.date().isoformat()}",
                *elsewhere,
                "at the pessimistic ends",
            )
        ),
        other_line=other_line,
        wave=wave,
        unevenness=found.unevenness.value if found.unevenness is not None else 0.0,
        scaling=found.scaling,
    )


def _default_speed(environment: Environment, query: Query) -> QuerySpeed:
    """Return the default rate until one is measured: that of a laptop's core for this format, with a safety factor.

    Both engines have the same rate, because neither was measured.
    """
    table = service_limits()
    if isinstance(query, SourceQueryBase):
        formats = {each.format.kind: each.format.decoding for each in query.stream_readings_by_place.values()}
        kind = max(formats, key=lambda each: formats[each])
        decoding, what = formats[kind], f"a record of {kind}"
        size = max(float(environment.streams[name].traffic.record_size) for name in query.source_stream_names)
    else:
        # The cost of a transform is unknown: assumed equal to decoding JSON, for records that are read as columns.
        decoding, what, size = 1.0, "a record that is transformed", table["rate.record_bytes"]
    taken = table["rate.landing.core_seconds"] + decoding * table["rate.decoding.core_seconds"]
    taken *= max(1.0, size / table["rate.record_bytes"]) * table["rate.caution"]
    overhead = Rate(records_per_second_per_core=1).batch_overhead.total_seconds()
    return QuerySpeed(
        taken,
        overhead,
        "assumed",
        f"{rate_text(1 / taken)} records/s a core and {overhead:g} s a batch, a default for {what}: a laptop's core does "
        f"{table['rate.caution']:g} times as many; `millrace bench` measures yours",
    )


def yaml_path_of_rate(environment: Environment, job: str, query: str) -> tuple[str, ...]:
    """Return the path at which the file gives, or would give, the rate of a query."""
    own = environment.jobs[job].queries[query].rate is not None
    return ("jobs", job, *(("queries", query) if own else ()), "rate")


def result_file_problems(environment: Environment, job: str) -> list[Finding]:
    """Return the problems of the result files that a job and its queries name, each once."""
    found: dict[tuple[str, ...], Finding] = {}
    for query, asked in environment.jobs[job].queries.items():
        try:
            speed_of_query(environment, job, query)
        except UnusableResultError as error:
            path = yaml_path_of_rate(environment, job, query)
            rate = asked.rate or environment.jobs[job].rate
            assert rate is not None
            found[path] = Finding((*path, "result"), str(rate.result), str(error))
    return list(found.values())


def cores_with_contention(needed: float, curve: ScalingCurve | None) -> float:
    """Return the cores that do the work of ``needed`` cores without contention.

    Parameters
    ----------
    needed
        Cores as a real number.
    curve
        Scaling of the benchmark; without it all cores count the same, up to what one driver can handle.

    Raises
    ------
    InfeasibleError
        An additional core adds too little before the number is reached.
    """
    if curve is None or needed <= 1:
        return needed
    worth = service_limits()["spark.scaling.worth"]
    given, cores = 1.0, 1
    while given < needed:
        more = (cores + 1) * curve.work_share_per_core(cores + 1)
        if more - given < worth:
            raise InfeasibleError(
                "scaling",
                f"the query needs the work of {needed:.1f} cores, but beyond {cores} cores each further "
                f"core adds less than {worth:.0%} of the work of the first",
            )
        if more >= needed:
            return cores + (needed - given) / (more - given)
        given, cores = more, cores + 1
    return float(cores)
