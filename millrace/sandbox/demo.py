"""``millrace demo``: the trial of the flights example, with the departures from New York in 2013 as records."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from millrace.config import Environment, load
from millrace.config.engines.versions import VERSIONS, SparkLine
from millrace.config.queries import DeriveQuery, LandQuery
from millrace.sandbox.environment_trial import TrialFeed
from millrace.sandbox.payloads import PayloadWriters, payload_writers_of_query
from millrace.sandbox.payloads.records_from_nycflights import read_departures
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.records.traffic import TrafficFeed, TrafficShape
from millrace.sandbox.trial_results import TableAfterTrial

Records = Literal["few", "month", "all"]

JOBS = ("departures", "flights")
"""Jobs of the example, which an environment for the demo must have."""

_DIRTY_SHARE = 0.01
_SEED = 2013
_SECONDS = 60
"""Time in which all records are sent, if the servers take them so fast."""

_SHARE_AFTER_KILL = 0.4

_ADDED = (
    *("produced", "landed", "derived", "dead_letters"),
    *("lost", "duplicated", "dead_letters_altered", "different", "unknown"),
)
_SLOWEST = ("latency_p50_seconds", "latency_p95_seconds", "recovery_seconds")


def write_environment_with_spark_version(environment: str, line: SparkLine) -> Path:
    """Write an environment that extends another one and whose jobs run on a Spark line.

    Returns
    -------
    Path
        Its file. A job keeps its engine if that has a version of the line.
    """
    file = RUN / f"spark{line.name.replace('.', '')}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    over: dict[str, dict[str, str | None]] = {}
    for name, job in load(environment).jobs.items():
        versions = [each for each in VERSIONS if each.spark_line == line]
        version = next((each for each in versions if each.engine == job.engine), versions[0])
        over[name] = {"engine": version.engine, "version": version.name}
        if version.engine != job.engine and "worker" in job.model_fields_set:
            over[name]["worker"] = None  # another engine has other workers: the plan chooses
    file.write_text(json.dumps({"extends": environment, "jobs": over}))
    return file


def departures_feed(
    departures: pa.Table, payloads: PayloadWriters, *, per_second: float, dirty: float, seed: int = _SEED
) -> TrafficFeed:
    """Return a feed of departures in their order; the same seed spoils the same ones in the same way."""
    rows = (row for batch in departures.to_batches(max_chunksize=10_000) for row in batch.to_pylist())
    shape = TrafficShape(per_second=per_second, dirty=dirty, key="flight")
    return TrafficFeed(lambda _number, _now: next(rows), payloads, shape, random.Random(seed))


def feed_by_stream(environment: Environment, records: Records) -> dict[str, TrialFeed]:
    """Return the records of each job's stream: Kinesis gets ten days (LocalStack slows down with volume), Kafka a month or all."""
    kinesis = read_departures(days=2 if records == "few" else 10)
    kafka = (
        read_departures(days=5)
        if records == "few"
        else read_departures(month=1 if records == "month" else None)
    )
    feeds = {}
    for job, departures in zip(JOBS, (kinesis, kafka), strict=True):
        query = next(q for q in environment.jobs[job].queries.values() if isinstance(q, LandQuery))
        payloads = payload_writers_of_query(query, environment.value_locations.root)
        most = departures.num_rows
        feed = departures_feed(departures, payloads, per_second=most / _SECONDS, dirty=_DIRTY_SHARE)
        feeds[query.source] = TrialFeed(feed, most, round(most * _SHARE_AFTER_KILL))
    return feeds


def demo_summary(environment: Environment, tables: Mapping[str, TableAfterTrial]) -> dict[str, Any]:
    """Return the demo's closing JSON object: the sums of all jobs, with one entry per job below ``jobs``."""
    jobs = {job: _job_summary(environment, job, tables) for job in JOBS}
    sums = {name: sum(each[name] for each in jobs.values()) for name in _ADDED}
    return {**sums, **{name: max(each[name] for each in jobs.values()) for name in _SLOWEST}, "jobs": jobs}


def _job_summary(environment: Environment, job: str, tables: Mapping[str, TableAfterTrial]) -> dict[str, Any]:
    queries = environment.jobs[job].queries.values()
    landed = tables[next(query.table for query in queries if isinstance(query, LandQuery))]
    account, after_kill = landed.account, landed.after_kill
    assert account is not None, f"the query of {job} reads its stream from the beginning"
    assert after_kill is not None, "the demo sends records after the kill"
    ends = (query.created_tables_by_place.items() for query in queries if isinstance(query, DeriveQuery))
    derived = [tables[name] for own in ends for place, name in own if place[0] == "sink"]
    comparisons = [each.comparison for each in derived if each.comparison is not None]
    return {
        "produced": account.produced,
        "landed": account.landed,
        "derived": sum(each.rows for each in derived),
        "dead_letters": account.dead_letters,
        "lost": account.lost + sum(each.lost for each in comparisons),
        "duplicated": account.duplicated + sum(each.doubled for each in comparisons),
        "dead_letters_altered": account.altered + account.misjudged,
        "different": sum(each.different for each in comparisons),
        "unknown": account.unknown + sum(each.unknown for each in comparisons),
        "latency_p50_seconds": after_kill.p50_seconds,
        "latency_p95_seconds": after_kill.p95_seconds,
        "latency_records": after_kill.records,
        "recovery_seconds": after_kill.recovery_seconds,
    }
