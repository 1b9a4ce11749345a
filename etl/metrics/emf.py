"""CloudWatch's embedded metric format: metrics as lines of a log, without a call that could wait.

Of the specification ("Specification: Embedded metric format", CloudWatch user guide): a line is one JSON
object and nothing else; a metric's value is a number or at most 100 numbers; at most 100 metrics.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

from etl.metrics import sketch
from etl.metrics.catalogue import BY_NAME, NAMESPACE
from etl.metrics.progress import Sample

MOST_VALUES = 100
MOST_METRICS = 100

MOST_BYTES = 8192
"""Of a line: half of what the tightest of the usual log collectors (16 KiB) takes in one piece."""

GATHER_SECONDS = 10.0
"""Batches of so long share lines: alarms look at whole minutes, and a log is paid by its bytes."""


def lines(job: str, samples: Sequence[Sample]) -> Iterator[str]:
    """Write samples as lines, each a JSON object of :data:`MOST_BYTES` at most, without a line end.

    Parameters
    ----------
    job
        Deployed name of the job, the dimension ``job``.
    samples
        Of any queries; those of one query are put together.
    """
    queries = dict.fromkeys(sample.query for sample in samples)
    for query in queries:
        mine = [sample for sample in samples if sample.query == query]
        dimensions = {"job": job} | ({} if query is None else {"query": query})
        batches = [sample.batch for sample in mine if sample.batch is not None]
        facts = {"batches": [min(batches), max(batches)]} if batches else {}
        at = round(max(sample.at for sample in mine) * 1000)
        yield from _packed(at, {**dimensions, **facts}, list(dimensions), _values(mine))


def _values(samples: Sequence[Sample]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.values.items():
            values.setdefault(name, []).append(_short(value))
    ages = [sample.ages for sample in samples if sample.ages is not None]
    if ages:
        values["RecordAge"] = [_short(age) for age in sketch.merge(ages).spread(MOST_VALUES)]
    return values


def _packed(
    at: int, members: Mapping[str, object], dimensions: list[str], values: Mapping[str, list[float]]
) -> Iterator[str]:
    pieces = [
        (name, found[i : i + MOST_VALUES])
        for name, found in values.items()
        for i in range(0, len(found), MOST_VALUES)
    ]
    while pieces:
        taken: dict[str, list[float]] = {}
        line = ""
        for name, found in list(pieces):
            # A metric that has more values than fit goes on in the next line.
            if name in taken or len(taken) == MOST_METRICS:
                continue
            longer = _line(at, members, dimensions, {**taken, name: found})
            if taken and len(longer.encode()) > MOST_BYTES:
                continue
            taken[name], line = found, longer
            pieces.remove((name, found))
        yield line


def _line(
    at: int, members: Mapping[str, object], dimensions: list[str], values: Mapping[str, list[float]]
) -> str:
    metrics = [{"Name": name, "Unit": BY_NAME[name].unit} for name in values]
    directive = {"Namespace": NAMESPACE, "Dimensions": [dimensions], "Metrics": metrics}
    document: dict[str, object] = {"_aws": {"Timestamp": at, "CloudWatchMetrics": [directive]}, **members}
    document |= {name: found[0] if len(found) == 1 else found for name, found in values.items()}
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _short(value: float) -> float:
    """Milliseconds are enough, and large numbers are whole."""
    if not math.isfinite(value):
        raise ValueError(f"no metric has the value {value}")
    return int(value) if value == int(value) else round(value, 3)
