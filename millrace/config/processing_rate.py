"""Processing rate of a job or query, as an environment file states it."""

from __future__ import annotations

from datetime import timedelta

from pydantic import Field, model_validator

from millrace.config.base import Model
from millrace.config.sources.base import Basis
from millrace.config.units import Duration


class Rate(Model):
    """Processing rate: the result of a benchmark, or an assumption that is marked as such."""

    records_per_second_per_core: float | None = Field(
        default=None,
        ge=0.01,
        le=1e9,
        description="Processing rate of one core: 1/b of the sizing model; left out with `result`.",
    )
    batch_overhead: Duration = Field(
        default=timedelta(seconds=2), description="Fixed time of a batch: a of the sizing model."
    )
    basis: Basis = Field(
        default="assumed",
        description="`measured`, or `assumed`, which marks every number that depends on it.",
    )
    result: str | None = Field(
        default=None,
        description="Result file of a benchmark, relative to the project; it replaces the keys above.",
    )

    @model_validator(mode="after")
    def _require_one_source(self) -> Rate:
        if self.result is None and self.records_per_second_per_core is None:
            raise ValueError("either records_per_second_per_core, or result, the result file of a benchmark")
        keys = self.model_fields_set - {"result"}
        if self.result is not None and keys:
            raise ValueError(
                f"result alone, without {', '.join(sorted(keys))}, which the result file replaces"
            )
        return self
