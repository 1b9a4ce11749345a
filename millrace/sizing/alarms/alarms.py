"""Alarms with thresholds from the plan: deployed by infra, counted in the bill, silenced by a stop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment, MskCluster
from millrace.config.queries import DeriveQuery, LandingQueryBase, SourceQueryBase
from millrace.config.sources.stream_metrics import LATE_PERIODS, StreamReaderTiming
from millrace.etl.launch.metric_names import BY_NAME
from millrace.sizing.alarms.alarm_windows import (
    HOUR,
    MINUTE,
    TRIGGERS_MISSED,
    consecutive_window_period_and_counts,
    late_window_period_and_counts,
    window_period_and_count,
)
from millrace.sizing.alarms.reported_metrics import metric_namespace, queries_with_rules
from millrace.sizing.plan_model import Alarm, ClusterPlan, JobPlan, Missing, QueryPlan

BATCH_SHARE = 1.2
"""Threshold from AWS' rule for Glue streaming: a batch longer than 120 % of its window, for ten minutes."""

_SUSTAINED_SECONDS = 600
_DISK_PERCENT = 85
"""MSK developer guide, "Best practices": act when KafkaDataLogsDiskUsed reaches 85 %."""


def alarms(
    environment: Environment, jobs: Mapping[str, JobPlan], clusters: Mapping[str, ClusterPlan]
) -> tuple[Alarm, ...]:
    """Return every alarm of an environment.

    Parameters
    ----------
    jobs, clusters
        Plans whose triggers and latencies become thresholds.
    """
    names = Names(environment, environment.account or "")
    readers = _landing_readers_by_stream(environment, jobs)
    groups = (
        *(_job_alarms(names, plan) for plan in jobs.values()),
        *(_stream_alarms(names, name, readers.get(name, [])) for name in environment.streams),
        *(_cluster_alarms(names, name, cluster) for name, cluster in clusters.items()),
    )
    return tuple(alarm for group in groups for alarm in group)


def alarm_names_silenced_by_stop(alarms: tuple[Alarm, ...], job: str) -> tuple[str, ...]:
    """Return the names of the alarms that a deliberately stopped job would set off."""
    return tuple(a.name for a in alarms if a.subject == f"job/{job}" and a.goes_off_in_silence)


def _job_alarms(names: Names, plan: JobPlan) -> Iterator[Alarm]:
    for query in plan.queries.values():
        yield from _query_alarms(names, plan, query)
    restarts, expected = names.environment.jobs[plan.name].restarts_per_hour, plan.scheduled_starts_per_hour
    yield _own_metric_alarm(
        names,
        plan.name,
        None,
        "restarts",
        "Starts",
        "Sum",
        threshold=expected + max(1, restarts // 2),
        period=HOUR,
        why=f"the job keeps ending: after {expected + restarts} starts in an hour it stays ended",
    )
    if plan.run is not None:
        # The next start may be the slowest after the fastest, and a run that is late starts when the one before has ended.
        times = (plan.run.every_seconds.value, plan.run.start_seconds.value, plan.run.longest_seconds.value)
        length, count = window_period_and_count(sum(times))
        yield _own_metric_alarm(
            names,
            plan.name,
            None,
            "no-run",
            "Starts",
            "Sum",
            threshold=1,
            above=False,
            period=length,
            periods=count,
            of=count,
            missing="missing",
            why=f"no run started in the time of a period, a start and a run, {sum(times):g} s",
        )


def _query_alarms(names: Names, plan: JobPlan, query: QueryPlan) -> Iterator[Alarm]:
    trigger, latency = query.trigger_seconds.value, query.latency_seconds.value
    job, name = plan.name, query.name
    period, late, of = late_window_period_and_counts(LATE_PERIODS, trigger)
    yield _own_metric_alarm(
        names,
        job,
        name,
        "record-age",
        "RecordAge",
        "Maximum",
        threshold=latency,
        period=period,
        periods=late,
        of=of,
        why=f"records are committed later than {latency:g} s after their arrival: {query.latency_seconds.why}",
    )
    # Two halves: one slow batch, such as the first after a start, is in only one of them.
    period, sustained, of = consecutive_window_period_and_counts(2, _SUSTAINED_SECONDS // 2, trigger)
    yield _own_metric_alarm(
        names,
        job,
        name,
        "batch-duration",
        "BatchDuration",
        "Average",
        threshold=round(BATCH_SHARE * trigger, 3),
        period=period,
        periods=sustained,
        of=of,
        why=f"batches take longer than {BATCH_SHARE:.0%} of their trigger of {trigger:g} s",
    )
    length, count = window_period_and_count(TRIGGERS_MISSED * trigger)
    # A bounded run without records has no batch; the alarm no-run watches it.
    if plan.run is None:
        yield _own_metric_alarm(
            names,
            job,
            name,
            "no-batch",
            "Triggers",
            "SampleCount",
            threshold=1,
            above=False,
            period=length,
            periods=count,
            of=count,
            missing="missing",
            why=f"no trigger ended in the time of {TRIGGERS_MISSED}, {TRIGGERS_MISSED * trigger:g} s",
        )
    yield _own_metric_alarm(
        names,
        job,
        name,
        "failures",
        "QueryFailures",
        "Sum",
        threshold=0,
        period=MINUTE,
        why="the query ended with an error",
    )
    period, sustained, of = consecutive_window_period_and_counts(3, 5 * MINUTE, trigger)
    yield _own_metric_alarm(
        names,
        job,
        name,
        "retried-tasks",
        "RetriedTasks",
        "Sum",
        threshold=0,
        period=period,
        periods=sustained,
        of=of,
        why="tasks keep failing and are run again: executors are lost, or a source throttles",
    )
    asked = names.environment.jobs[job].queries[name]
    refusing = isinstance(asked, DeriveQuery) and asked.dead_letters is not None
    if isinstance(asked, SourceQueryBase) or refusing:
        yield _own_metric_alarm(
            names,
            job,
            name,
            "dead-letters",
            "BadRecords",
            "Sum",
            threshold=0,
            period=5 * MINUTE,
            why=("the sink refuses rows" if refusing else "records could not be decoded")
            + "; they are in the query's table of dead letters",
        )
    if (job, name) in queries_with_rules(names.environment):
        yield _own_metric_alarm(
            names,
            job,
            name,
            "broken-rules",
            "BrokenRules",
            "Sum",
            threshold=0,
            period=5 * MINUTE,
            why="records break data rules; the job's log has the count of each rule, in the field rules of a batch",
        )
    if isinstance(asked, DeriveQuery) and asked.state is not None:
        for kind, metric, why in (
            ("late-rows", "LateRows", "rows come behind the watermark and are missing in the results"),
            ("early-rows", "EarlyRows", "records claim times far ahead of their arrival and are left out"),
        ):
            yield _own_metric_alarm(
                names, job, name, kind, metric, "Sum", threshold=0, period=5 * MINUTE, why=why
            )
    if isinstance(asked, DeriveQuery) and asked.latest_by is not None and asked.latest_by.order is None:
        yield _own_metric_alarm(
            names,
            job,
            name,
            "unordered-keys",
            "UnorderedKeys",
            "Sum",
            threshold=0,
            period=5 * MINUTE,
            why="records of one key come from several partitions or partition keys, so that the one that arrived last counts; "
            "name a column in latest_by.order",
        )


def _own_metric_alarm(
    names: Names,
    job: str,
    query: str | None,
    name: str,
    metric: str,
    statistic: Literal["Maximum", "Sum", "Average", "SampleCount"],
    *,
    threshold: float,
    period: int,
    why: str,
    periods: int = 1,
    of: int = 1,
    above: bool = True,
    missing: Missing = "notBreaching",
) -> Alarm:
    assert BY_NAME[metric].is_per_query is (query is not None), f"{metric} has other dimensions"
    dimensions = {"job": names.job(job)} | ({} if query is None else {"query": query})
    middle = job if query is None else f"{job}/{query}"
    return Alarm(
        f"job/{middle}/{name}",
        f"job/{job}",
        metric_namespace(names.job(job)),
        metric,
        dimensions,
        statistic,
        threshold,
        above,
        period,
        periods,
        of,
        missing,
        why,
    )


def _landing_readers_by_stream(
    environment: Environment, jobs: Mapping[str, JobPlan]
) -> dict[str, list[StreamReaderTiming]]:
    """Return the queries that land each stream."""
    found: dict[str, list[StreamReaderTiming]] = {}
    for job, name, settings in environment.queries:
        if isinstance(settings, LandingQueryBase):
            query = jobs[job].queries[name]
            latency, trigger = query.latency_seconds.value, query.trigger_seconds.value
            reader = StreamReaderTiming(job, name, latency, trigger, settings.uses_fan_out)
            for stream in settings.source_stream_names:
                found.setdefault(stream, []).append(reader)
    return found


def _stream_alarms(names: Names, name: str, readers: Sequence[StreamReaderTiming]) -> Iterator[Alarm]:
    stream = names.environment.streams[name]
    for each in stream.alarms(name, names, readers):
        assert stream.metrics is not None, f"{name} has alarms and no metrics"
        trigger = each.trigger
        period, periods, of = (
            (MINUTE, each.periods, each.periods)
            if trigger is None
            else late_window_period_and_counts(each.periods, trigger)
        )
        yield Alarm(
            f"stream/{name}/{each.name}",
            f"stream/{name}",
            stream.metrics.namespace,
            each.metric,
            each.dimensions,
            each.statistic,
            each.threshold,
            True,
            period,
            periods,
            of,
            "notBreaching",
            each.why,
        )


def _cluster_alarms(names: Names, name: str, plan: ClusterPlan) -> Iterator[Alarm]:
    settings = names.environment.kafka[name]
    assert isinstance(settings, MskCluster)
    if settings.existing is not None or settings.tier != "standard":
        return  # Express and Serverless keep disks and partitions in order themselves
    dimensions = {"Cluster Name": names.cluster(name)}
    topics = sorted(stream for stream, each in names.environment.streams.items() if each.cluster_name == name)
    about = f"topics {', '.join(topics)}" if topics else "none is a topic of this environment"
    yield Alarm(
        f"cluster/{name}/offline-partitions",
        f"cluster/{name}",
        "AWS/Kafka",
        "OfflinePartitionsCount",
        dimensions,
        "Maximum",
        0,
        True,
        MINUTE,
        3,
        3,
        "notBreaching",
        f"partitions without a leader ({about})",
    )
    for broker in range(1, (0 if plan.brokers is None else plan.brokers.value) + 1):
        yield Alarm(
            f"cluster/{name}/disk-{broker}",
            f"cluster/{name}",
            "AWS/Kafka",
            "KafkaDataLogsDiskUsed",
            dimensions | {"Broker ID": str(broker)},
            "Maximum",
            _DISK_PERCENT,
            True,
            5 * MINUTE,
            3,
            3,
            "notBreaching",
            "a broker's disk fills: shorter retention, or more storage",
        )
