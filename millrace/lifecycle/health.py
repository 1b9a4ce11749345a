"""Whether a job that was started works: batches are committed, and records do not grow old."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.config.model import KinesisStream, LandQuery
from millrace.lifecycle.problems import told
from millrace.lifecycle.verbs import Aws

_PATIENCE_SECONDS = 900
_POLL_SECONDS = 10.0
_AGE_PERIOD = timedelta(minutes=5)


class UnhealthyError(RuntimeError):
    """A started job that failed or committed nothing; says what its lines say."""


@dataclass(frozen=True)
class Health:
    """What a job's own lines and the streams' metrics tell (``docs/launch-document.md``).

    Attributes
    ----------
    waiting
        Queries that have not committed a batch yet.
    failures
        Errors of queries.
    oldest_seconds
        Largest age of a record that a Kinesis reader got in the last five minutes;
        ``None`` where nothing is known, as for Kafka.
    """

    waiting: tuple[str, ...]
    failures: tuple[str, ...]
    oldest_seconds: float | None


def look(aws: Aws, job: str, since: float) -> Health:
    """Read a job's batch lines since a moment (seconds of the epoch), and its streams' iterator age."""
    queries = aws.names.environment.jobs[job].queries
    with told(f"reading the lines of {job}"):
        events = list(_events(aws, job, since))
    committed = {event.get("query") for event in events if event["event"] == "batch"}
    failures = tuple(str(event.get("error")) for event in events if event["event"] == "failed")
    ages = [
        age for query in queries.values() if isinstance(query, LandQuery) for age in _ages(aws, query.source)
    ]
    return Health(
        tuple(name for name in queries if name not in committed), failures, max(ages) if ages else None
    )


def wait_until_healthy(
    aws: Aws,
    job: str,
    *,
    since: float,
    progress: Callable[[str], None],
    patience_seconds: float = _PATIENCE_SECONDS,
    poll_seconds: float = _POLL_SECONDS,
) -> Health:
    """Wait until every query has committed a batch and no record is older than the SLA.

    Raises
    ------
    UnhealthyError
        A query failed, or the time ran out.
    AwsError
        AWS refused a call.
    """
    latency = aws.names.environment.jobs[job].latency.total_seconds()
    deadline = time.monotonic() + patience_seconds
    said = ""
    while True:
        found = look(aws, job, since)
        if found.failures:
            raise UnhealthyError(f"{job}: a query failed after the start: {found.failures[0]}")
        late = found.oldest_seconds is not None and found.oldest_seconds > latency
        if not found.waiting and not late:
            progress(f"{job}: healthy, every query commits")
            return found
        news = (
            f"{job}: no batch yet of {', '.join(found.waiting)}"
            if found.waiting
            else (
                f"{job}: catching up, records are {found.oldest_seconds:.0f} s old, {latency:.0f} s are allowed"
            )
        )
        if news != said:
            progress(news)
            said = news
        if time.monotonic() > deadline:
            raise UnhealthyError(
                f"{news}, {patience_seconds:.0f} s after the start; its log group tells more"
            )
        time.sleep(poll_seconds)


def _events(aws: Aws, job: str, since: float) -> Iterator[dict[str, Any]]:
    logs = aws.client("logs")
    # Glue appends the name of the security configuration to a group's name.
    prefix = f"/{aws.names.prefix}/jobs/{job}"
    groups = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=prefix)
    for group in [group["logGroupName"] for page in groups for group in page["logGroups"]]:
        pages = logs.get_paginator("filter_log_events").paginate(
            logGroupName=group, startTime=int(since * 1000), filterPattern='"event"'
        )
        for line in (event["message"].strip() for page in pages for event in page["events"]):
            if line.startswith("{") and line.endswith("}"):
                parsed = json.loads(line)
                if isinstance(parsed, dict) and "event" in parsed:
                    yield parsed


def _ages(aws: Aws, source: str) -> Iterator[float]:
    if not isinstance(aws.names.environment.streams[source], KinesisStream):
        return
    now = datetime.now(UTC)
    with told(f"reading the age of records on {source}"):
        found = aws.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Kinesis",
            MetricName="GetRecords.IteratorAgeMilliseconds",
            Dimensions=[{"Name": "StreamName", "Value": aws.names.stream(source)}],
            StartTime=now - _AGE_PERIOD,
            EndTime=now,
            Period=60,
            Statistics=["Maximum"],
        )["Datapoints"]
    if found:
        newest = max(found, key=lambda point: point["Timestamp"])
        yield float(newest["Maximum"]) / 1000
