"""CloudWatch output: the metrics of all of a job's queries by ``PutMetricData``, one call per interval.

Limits of the API (``PutMetricData`` and ``MetricDatum``, CloudWatch API reference): a call has at most 1,000 data and 1 MiB, a
datum at most 150 different values, each with its count, which may be a fraction. CloudWatch computes percentiles from them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ..launch.metric_names import BY_NAME, PREFIX
from ..record.batch_accounts import EventReporter
from ..record.errors import SinkError, StartError
from ..services import aws_clients
from ..services.backoff import START_SECONDS, Backoff
from .trigger_metrics import MetricSample

MOST_VALUES = 150
MOST_DATA = 1000

MOST_NUMBERS = 8000
"""Most values of a call: with its count a value takes less than 128 bytes of the query protocol, so a call stays below 1 MiB."""

GATHER_SECONDS = 30.0
"""Seconds of batches that share a call: alarms evaluate whole minutes, and each call costs money."""

_MINUTE = 60


@dataclass
class CloudWatchSender:
    """Sender of a job's metrics. Metrics that cannot be sent are dropped and counted; each reason is reported once.

    Parameters
    ----------
    job
        Deployed name of the job: the dimension ``job``, and the end of the namespace.
    region
        Region of its alarms.
    report
        Gets the reason why metrics could not be sent: the event ``metrics_unsent``.
    """

    job: str
    region: str
    report: EventReporter
    _client: Any = field(default=None, init=False, repr=False)
    _told: set[str] = field(default_factory=set, init=False, repr=False)

    def write(self, samples: Sequence[MetricSample]) -> None:
        """Send samples.

        Raises
        ------
        OSError
            CloudWatch refused samples or was not reached.
        """
        try:
            with aws_clients.errors_as_start_error("CloudWatch takes no metrics"):
                # Only later calls in the same queue wait for this one.
                self._client = self._client or aws_clients.make_client(
                    "cloudwatch", self.region, None, (5, 10)
                )
                for data in put_metric_data_calls(self.job, samples):
                    namespace = f"{PREFIX}/{self.job}"
                    sent = partial(self._client.put_metric_data, Namespace=namespace, MetricData=data)
                    aws_clients.call_until_answered(sent, Backoff("CloudWatch", patience=START_SECONDS))
        except (StartError, SinkError) as error:
            reason = str(error)
            if reason not in self._told:
                self._told.add(reason)
                self.report.emit("metrics_unsent", error=reason)
            raise OSError(reason) from error


def put_metric_data_calls(job: str, samples: Sequence[MetricSample]) -> Iterator[list[dict[str, Any]]]:
    """Yield samples as the ``MetricData`` of calls.

    Parameters
    ----------
    job
        Deployed name of the job, the dimension ``job``.
    samples
        Samples of any queries; those of one query and minute are merged.
    """
    call: list[dict[str, Any]] = []
    numbers = 0
    for datum in _metric_data(job, samples):
        if len(call) == MOST_DATA or numbers + len(datum["Values"]) > MOST_NUMBERS:
            yield call
            call, numbers = [], 0
        call.append(datum)
        numbers += len(datum["Values"])
    if call:
        yield call


def _metric_data(job: str, samples: Sequence[MetricSample]) -> Iterator[dict[str, Any]]:
    together: dict[tuple[str | None, int], list[MetricSample]] = {}
    for sample in samples:
        together.setdefault((sample.query, int(sample.at // _MINUTE)), []).append(sample)
    for (query, _), mine in together.items():
        dimensions = {"job": job} | ({} if query is None else {"query": query})
        at = datetime.fromtimestamp(max(sample.at for sample in mine), UTC)
        for name, values in _values_by_metric(mine).items():
            pairs = list(values.items())
            for first in range(0, len(pairs), MOST_VALUES):
                part = pairs[first : first + MOST_VALUES]
                yield {
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                    "Timestamp": at,
                    "Values": [value for value, _ in part],
                    "Counts": [round(count, 3) for _, count in part],
                    "Unit": BY_NAME[name].unit,
                }


def _values_by_metric(samples: Sequence[MetricSample]) -> Mapping[str, Mapping[float, float]]:
    """Return each metric's values with their counts, rounded to milliseconds and thousandths of a record."""
    values: dict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        for name, value in sample.values.items():
            values[name][round(float(value), 3)] += 1
        if sample.ages is not None:
            for age, weight in (*sample.ages.points, (sample.ages.most, 1)):
                values["RecordAge"][round(age, 3)] += round(weight, 3)
    return values
