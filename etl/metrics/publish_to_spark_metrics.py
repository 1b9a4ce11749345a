"""Output of metrics to Spark's own metrics system, beside those of Spark: for its servlet, and for EMR's remote write.

It uses ``DoubleAccumulatorSource`` ("Metrics", Spark's monitoring guide), which makes gauges of accumulators.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from ..launch.metric_names import BY_NAME
from .trigger_metrics import MetricSample

_QUANTILES = (0.5, 0.95, 0.99, 1.0)


class SparkGauges:
    """Gauges ``QUERY.METRIC`` of the driver's source ``AccumulatorSource``.

    Totals count from the start; the age of records has four gauges, such as ``QUERY.RecordAge.p95``.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._jvm: Any = spark._jvm
        self._context: Any = spark._jsc.sc()
        self._accumulators: dict[str, Any] = {}
        self._levels: dict[str, float] = {}

    def write(self, samples: Sequence[MetricSample]) -> None:
        """Set the gauges.

        Raises
        ------
        OSError
            The JVM does not answer, or refuses.
        """
        figures = [each for sample in samples for each in _gauge_values(sample)]
        try:
            self._register_gauges({name for name, _, _ in figures} - self._accumulators.keys())
            for name, value, total in figures:
                # Add the difference to the new value: between a reset and an add a reader could see nothing.
                change = value if total else value - self._levels.get(name, 0.0)
                self._levels[name] = value
                self._accumulators[name].add(float(change))
        except (Py4JError, CapturedException) as error:
            raise OSError(f"Spark's metrics: {error}") from error

    def _register_gauges(self, names: set[str]) -> None:
        if not names:
            return
        made = {name: self._context.doubleAccumulator(name) for name in sorted(names)}
        # A Scala object, which has no static method of that name.
        source = getattr(self._jvm.org.apache.spark.metrics.source, "DoubleAccumulatorSource$")
        getattr(source, "MODULE$").register(self._context, self._jvm.PythonUtils.toScalaMap(made))
        self._accumulators |= made


def _gauge_values(sample: MetricSample) -> Iterator[tuple[str, float, bool]]:
    """Yield gauge name, value, and True for a total."""
    prefix = "" if sample.query is None else f"{sample.query}."
    for name, value in sample.values.items():
        yield f"{prefix}{name}", value, BY_NAME[name].kind == "total"
    if sample.ages is not None:
        for q in _QUANTILES:
            yield (
                f"{prefix}RecordAge.{'max' if q == 1 else f'p{q * 100:.0f}'}",
                sample.ages.quantile(q),
                False,
            )
