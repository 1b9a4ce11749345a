"""Health of a started job: its triggers end, nothing fails, and records do not grow old."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from millrace.config.aws.pagination import list_all
from millrace.etl.launch.metric_names import BY_NAME
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import TransientError, translating_aws_errors
from millrace.lifecycle.jobs import logs
from millrace.sizing.alarms.reported_metrics import metric_namespace

PATIENCE_SECONDS = 900
POLL_SECONDS = 10.0
_AGE_PERIOD = timedelta(minutes=5)
_PERIOD_SECONDS = 60
_MAX_EVENTS = 20


class UnhealthyJobError(RuntimeError):
    """A started job that failed or ended no trigger; the message has its metrics and log lines."""


@dataclass(frozen=True)
class JobHealth:
    """Health of a job from its metrics and log lines (``docs/metrics.md``, ``docs/launch-document.md``).

    Attributes
    ----------
    waiting
        Queries without any ended trigger yet; a trigger that found nothing to read counts as ended. Of a job that runs in turns,
        all queries until a run has finished: one without records has no trigger.
    failures
        Errors of queries.
    oldest_seconds
        Largest age of records in the last five minutes: at their commit (Kinesis and Kafka alike), at
        a Kinesis reader, or, for a repeated batch, its backlog in seconds; ``None`` without records.
    """

    waiting: tuple[str, ...]
    failures: tuple[str, ...]
    oldest_seconds: float | None


def read_job_health(aws: DeployedEnvironment, job: str, since: float) -> JobHealth:
    """Read a job's metrics and failures since a time.

    Parameters
    ----------
    job
        Its name in the environment's file.
    since
        Seconds of the epoch. CloudWatch counts by the minute: the current one may contain the last
        trigger of an earlier run, so counting starts with the next.

    Raises
    ------
    AwsError
        AWS refused a call.
    """
    queries = aws.names.environment.jobs[job].queries
    begin = datetime.fromtimestamp(math.ceil(since / _PERIOD_SECONDS) * _PERIOD_SECONDS, UTC)
    recent = max(begin, datetime.now(UTC) - _AGE_PERIOD)
    triggers = _metric_values_by_query(aws, job, "Triggers", "Sum", begin)
    ages = [
        values[0]
        for values in _metric_values_by_query(aws, job, "RecordAge", "Maximum", recent).values()
        if values
    ]
    # A repeated batch has no age of its own: its records were committed before.
    behind = _metric_values_by_query(aws, job, "BacklogSeconds", "Maximum", recent).values()
    ages += [values[0] for values in behind if values and values[0] > 0]
    ages += _iterator_ages(aws, [name for query in queries.values() for name in query.source_stream_names])
    waiting = tuple(name for name in queries if sum(triggers[name]) == 0)
    asked = aws.names.environment.jobs[job]
    if asked.has_bounded_runs or (asked.run == "auto" and waiting):
        if logs.logged_events(aws, job, datetime.fromtimestamp(since, UTC), "finished"):
            waiting = ()
        elif asked.has_bounded_runs:
            waiting = tuple(queries)
    return JobHealth(
        waiting,
        tuple(
            f"{each.query or ('a query' if each.kind == 'failed' else 'the job')}: {each.text}"
            for each in logs.newest_failures(aws, job, datetime.fromtimestamp(since, UTC), _MAX_EVENTS)
            if each.kind in ("failed", "refused")
        ),
        max(ages) if ages else None,
    )


def wait_until_healthy(
    aws: DeployedEnvironment,
    job: str,
    *,
    since: float,
    progress: Callable[[str], None],
    patience_seconds: float = PATIENCE_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> JobHealth:
    """Wait until a trigger of every query has ended and no record is older than the SLA.

    A look that AWS does not answer says nothing about the job: it is repeated while there is time.

    Raises
    ------
    UnhealthyJobError
        A query failed, or the time ran out.
    AwsError
        AWS refuses the look permanently; or the time ran out, and AWS did not answer the last look.
    """
    latency = aws.names.environment.jobs[job].latency.total_seconds()
    deadline = time.monotonic() + patience_seconds
    said = ""
    while True:
        try:
            health = read_job_health(aws, job, since)
        except TransientError as error:
            if time.monotonic() > deadline:
                raise
            if said != str(error):
                said = str(error)
                progress(f"{job}: its health cannot be read, trying again: {error}")
            time.sleep(poll_seconds)
            continue
        if health.failures:
            look = f"`millrace logs {job} --env {aws.names.environment.name} --errors` shows the stack trace"
            raise UnhealthyJobError(f"{job}: a query failed after the start: {health.failures[0]}; {look}")
        late = health.oldest_seconds is not None and health.oldest_seconds > latency
        if not health.waiting and not late:
            age = (
                "no record came yet"
                if health.oldest_seconds is None
                else f"{health.oldest_seconds:.0f} s old"
            )
            progress(f"{job}: healthy, every query ends its triggers; records: {age}")
            return health
        news = (
            f"{job}: no trigger has ended yet of {', '.join(health.waiting)}"
            if health.waiting
            else (
                f"{job}: catching up, records are {health.oldest_seconds:.0f} s old, {latency:.0f} s are allowed"
            )
        )
        if news != said:
            progress(news)
            said = news
        if time.monotonic() > deadline:
            raise UnhealthyJobError(
                f"{news}, {patience_seconds:.0f} s after the start; the log group "
                f"/{aws.names.prefix}/jobs/{job} may tell why"
            )
        time.sleep(poll_seconds)


def _metric_values_by_query(
    aws: DeployedEnvironment, job: str, metric: str, statistic: str, begin: datetime
) -> Mapping[str, list[float]]:
    """Return one value a minute of a metric of Millrace, newest first, by query."""
    assert BY_NAME[metric].is_per_query, f"{metric} is not of queries"
    own = aws.names.job(job)
    metrics = {
        query: (metric_namespace(own), metric, {"job": own, "query": query})
        for query in aws.names.environment.jobs[job].queries
    }
    return _metric_values(aws, f"the metric {metric} of {job}", metrics, statistic, begin)


def _iterator_ages(aws: DeployedEnvironment, sources: Iterable[str]) -> list[float]:
    """Return the ages of records that a reader of each source has just received: no commit reports them."""
    metrics = {
        source: (of.namespace, of.age, {of.dimension: aws.names.stream(source)})
        for source in sources
        if (of := aws.names.environment.streams[source].metrics) is not None
    }
    subject = f"the age of records on {', '.join(metrics)}"
    values = _metric_values(aws, subject, metrics, "Maximum", datetime.now(UTC) - _AGE_PERIOD)
    return [each[0] / 1000 for each in values.values() if each]


def _metric_values(
    aws: DeployedEnvironment,
    subject: str,
    metrics: Mapping[str, tuple[str, str, Mapping[str, str]]],
    statistic: str,
    begin: datetime,
) -> dict[str, list[float]]:
    """Return one value a minute, newest first, of each metric: namespace, name and dimensions."""
    queries = [
        {
            "Id": f"q{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": namespace,
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                },
                "Period": _PERIOD_SECONDS,
                "Stat": statistic,
            },
        }
        for number, (namespace, name, dimensions) in enumerate(metrics.values())
    ]
    values: dict[str, list[float]] = {name: [] for name in metrics}
    with translating_aws_errors(f"cannot read {subject}"):
        answers = list_all(
            aws.client("cloudwatch"),
            "get_metric_data",
            "MetricDataResults",
            MetricDataQueries=queries,
            StartTime=begin,
            # Beyond the current minute, and always later than the start.
            EndTime=datetime.now(UTC) + timedelta(seconds=2 * _PERIOD_SECONDS),
            ScanBy="TimestampDescending",
        )
        for result in answers if queries else ():
            values[list(metrics)[int(result["Id"][1:])]] += [float(value) for value in result["Values"]]
    return values
