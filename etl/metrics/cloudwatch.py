"""CloudWatch: the metrics of all of a job's queries by ``PutMetricData``, a call for each interval.

Of the API (``PutMetricData`` and ``MetricDatum``, CloudWatch API reference): a call holds at most 1,000 data and 1 MiB, a
datum at most 150 different values, each with how often it came. Percentiles are worked out of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from ..record.batch_accounts import Reporter
from ..record.errors import StartError
from ..services import bundled
from ..services.aws import as_start_error
from . import sketch
from .catalogue import BY_NAME, PREFIX
from .progress import Sample

MOST_VALUES = 150
MOST_DATA = 1000

MOST_NUMBERS = 8000
"""Of a call: with its count a value takes less than 128 bytes of the query protocol, so that it stays below 1 MiB."""

GATHER_SECONDS = 30.0
"""Batches of so long share a call: alarms look at whole minutes, and calls are paid one by one."""

_MINUTE = 60


@dataclass
class CloudWatch:
    """Sends a job's metrics. What cannot be sent is dropped and counted; the first time that a reason occurs it is said.

    Parameters
    ----------
    job
        Deployed name of the job: the dimension ``job``, and the end of the namespace.
    region
        Where its alarms are.
    report
        Is told why something could not be sent: the event ``metrics_unsent``.
    """

    job: str
    region: str
    report: Reporter
    _client: Any = field(default=None, init=False, repr=False)
    _told: set[str] = field(default_factory=set, init=False, repr=False)

    def write(self, samples: Sequence[Sample]) -> None:
        """Send samples.

        Raises
        ------
        OSError
            CloudWatch, or the way there, refused some.
        """
        try:
            with as_start_error("CloudWatch takes no metrics"):
                if self._client is None:
                    self._client = self._connected()
                for data in calls(self.job, samples):
                    self._client.put_metric_data(Namespace=f"{PREFIX}/{self.job}", MetricData=data)
        except StartError as error:
            reason = str(error)
            if reason not in self._told:
                self._told.add(reason)
                self.report.emit("metrics_unsent", error=reason)
            raise OSError(reason) from error

    def _connected(self) -> Any:
        boto3 = bundled.boto3("to send metrics")
        from botocore.config import Config

        # Nobody waits for a call but those behind it in the same queue.
        patience = Config(
            connect_timeout=5, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4}
        )
        return boto3.client("cloudwatch", region_name=self.region, config=patience)


def calls(job: str, samples: Sequence[Sample]) -> Iterator[list[dict[str, Any]]]:
    """Write samples as the ``MetricData`` of calls.

    Parameters
    ----------
    job
        Deployed name of the job, the dimension ``job``.
    samples
        Of any queries; those of one query and minute are put together.

    Raises
    ------
    ValueError
        A value that is no number.
    """
    call: list[dict[str, Any]] = []
    numbers = 0
    for datum in _data(job, samples):
        if len(call) == MOST_DATA or numbers + len(datum["Values"]) > MOST_NUMBERS:
            yield call
            call, numbers = [], 0
        call.append(datum)
        numbers += len(datum["Values"])
    if call:
        yield call


def _data(job: str, samples: Sequence[Sample]) -> Iterator[dict[str, Any]]:
    together: dict[tuple[str | None, int], list[Sample]] = {}
    for sample in samples:
        together.setdefault((sample.query, int(sample.at // _MINUTE)), []).append(sample)
    for (query, _), mine in together.items():
        dimensions = {"job": job} | ({} if query is None else {"query": query})
        at = datetime.fromtimestamp(max(sample.at for sample in mine), UTC)
        for name, found in _values(mine).items():
            pairs = list(found.items())
            for first in range(0, len(pairs), MOST_VALUES):
                part = pairs[first : first + MOST_VALUES]
                yield {
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                    "Timestamp": at,
                    "Values": [value for value, _ in part],
                    "Counts": [count for _, count in part],
                    "Unit": BY_NAME[name].unit,
                }


def _values(samples: Sequence[Sample]) -> Mapping[str, Mapping[float, int]]:
    """Each metric's values, and how often each came."""
    values: dict[str, Counter[float]] = {}
    for sample in samples:
        for name, value in sample.values.items():
            values.setdefault(name, Counter())[_short(value)] += 1
    ages = [sample.ages for sample in samples if sample.ages is not None]
    if ages:
        values["RecordAge"] = Counter(map(_short, sketch.merge(ages).spread(MOST_VALUES)))
    return values


def _short(value: float) -> float:
    """Milliseconds are enough."""
    if not math.isfinite(value):
        raise ValueError(f"no metric has the value {value}")
    return round(float(value), 3)
