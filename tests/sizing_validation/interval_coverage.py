"""Coverage of the reported intervals on synthetic measurements with a known true value."""

from __future__ import annotations

from dataclasses import dataclass

from scipy import stats

from millrace.benchmark.fit import fit_model
from tests.unit.benchmark.synthetic_measurements import points

TRUTH = {"a": 0.3, "κ": 0.02, "b": 20e-6}


@dataclass(frozen=True)
class Coverage:
    """How often the 95 % interval of a parameter held the truth; with the interval of that share (Wilson)."""

    parameter: str
    share: float
    low: float
    high: float


def coverage(draws: int) -> list[Coverage]:
    """Fit so many made benchmarks."""
    hits = dict.fromkeys(TRUTH, 0)
    for seed in range(draws):
        made = points(overhead=TRUTH["a"], wave=TRUTH["κ"], per_record=TRUTH["b"], seed=seed)
        results = fit_model(made, seed=seed)
        assert results.wave is not None
        for name, estimate in (("a", results.overhead), ("κ", results.wave), ("b", results.per_record)):
            hits[name] += estimate.low <= TRUTH[name] <= estimate.high
    result = []
    for name, count in hits.items():
        interval = stats.binomtest(count, draws).proportion_ci(0.95, "wilson")
        result.append(Coverage(name, count / draws, float(interval.low), float(interval.high)))
    return result
