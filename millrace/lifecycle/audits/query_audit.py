"""Audit of one query, wherever its environment is deployed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog

from millrace.config.base import arn_region_account_resource
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.model import Environment, Stream
from millrace.config.queries import (
    DirectQuery,
    DirectRouteQuery,
    LandingQueryBase,
    Reading,
    Route,
    SourceQueryBase,
    WritesSink,
)
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, NotDeployedError
from millrace.lifecycle.account.kafka_access import Settings, cluster_connection_settings
from millrace.lifecycle.audits.hourly_audit import (
    AuditResult,
    HourCounts,
    MissingRange,
    NotAudited,
    hour_starts_covering_window,
)
from millrace.lifecycle.audits.kafka import TopicReader, compare_offsets_by_hour
from millrace.lifecycle.audits.kinesis import (
    COUNTED,
    Progress,
    audit_stream_by_counts,
    audit_stream_by_records,
    lagging_shards,
)
from millrace.lifecycle.audits.records_in_tables import (
    LandedRecords,
    Place,
    Range,
    SinkAndDeadLetters,
    gaps_between_commits,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.jobs.checkpoints import JobCheckpoints


@dataclass(frozen=True)
class AuditedDeployment(DeployedEnvironment):
    """A deployment of an environment, for the audit.

    Attributes
    ----------
    catalog
        Opens the catalog of the environment's tables.
    kafka
        Returns the settings of librdkafka for a cluster, by its logical name.
    counts
        Whether CloudWatch has counts of its streams; if not, streams are read.
    """

    catalog: Callable[[], Catalog]
    kafka: Callable[[str], Settings]
    counts: bool = True


def deployment_on_aws(aws: DeployedEnvironment) -> AuditedDeployment:
    """Return the deployment of an environment in its account."""

    def catalog() -> Catalog:
        return load_catalog("lake", type="glue", **{"client.region": aws.names.environment.region})

    return AuditedDeployment(
        aws.names,
        aws.client,
        catalog,
        lambda cluster: cluster_connection_settings(aws.names, cluster, aws.client),
    )


def audit_query(
    place: AuditedDeployment,
    job: str,
    query_name: str,
    begin: datetime,
    end: datetime,
    *,
    read: bool = False,
    progress: Progress = lambda _: None,
) -> tuple[AuditResult | NotAudited, ...]:
    """Compare the records that a query's streams took in with the landed ones, or with those that a direct query wrote.

    Parameters
    ----------
    place
        The deployment.
    job, query_name
        A query of the environment that reads streams.
    begin, end
        The window, rounded to whole hours.
    read
        Read a Kinesis stream's records again instead of its counts.
    progress
        Called with the number of records that were read.

    Returns
    -------
    tuple
        One for each stream of the query; for a direct query with routes, one for each route.

    Raises
    ------
    NotDeployedError
        Nothing landed yet.
    AwsError
        A service refuses, or the window is older than the counters' retention.
    """
    query = place.names.environment.jobs[job].queries[query_name]
    window = _QueryAuditInWindow(place, job, query_name, begin, end, read, progress)
    if isinstance(query, LandingQueryBase):
        return tuple(window.audit_landing_table(query, stream) for stream in query.source_stream_names)
    assert isinstance(query, DirectQuery | DirectRouteQuery), f"{query_name} reads no stream"
    return tuple(
        window.audit_direct_route(
            query,
            DirectQueryOrRoute("/".join((query_name, *place[1:])), reading, query.sinks_by_place[place]),
        )
        for place, reading in query.stream_readings_by_place.items()
    )


@dataclass(frozen=True)
class DirectQueryOrRoute:
    """A direct query, or one route of it.

    Attributes
    ----------
    name
        Its name in commits.
    reading, what
        Its stream, and its transform and sink.
    """

    name: str
    reading: Reading
    what: WritesSink

    @property
    def topic(self) -> str | None:
        """The topic of a pattern that the route takes; None for the complete stream."""
        return self.reading.topic if isinstance(self.reading, Route) else None


@dataclass(frozen=True)
class _QueryAuditInWindow:
    """The audit of one query in one window."""

    place: AuditedDeployment
    job: str
    query: str
    begin: datetime
    end: datetime
    read: bool
    progress: Progress

    @property
    def hours(self) -> tuple[datetime, ...]:
        return hour_starts_covering_window(self.begin, self.end)

    def audit_landing_table(self, query: LandingQueryBase, stream: str) -> AuditResult | NotAudited:
        names, table = self.place.names, self.place.names.table(query.table)
        landed = LandedRecords.open(self.place.catalog(), table, stream)
        name = names.stream(stream)
        kind = names.environment.streams[stream]
        if kind.counted:
            result, holes = self._compare_topics(query, stream, None, landed)
            return AuditResult(self.query, name, table, "offsets", result, holes)
        if kind.metrics is None:
            return NotAudited(
                self.query, name, f"a {kind.title} cannot be audited: nothing counts what it holds"
            )
        _, owner, _ = arn_region_account_resource(names.stream_arn(stream))
        if self.place.counts and owner != names.account:
            # Asked by name only, the service would answer for a stream of this account with the same name, or for none.
            why = f"it belongs to account {owner}, and this command asks account {names.account} only"
            return NotAudited(self.query, name, why)
        kinesis, read, whole = (
            self.place.client("kinesis"),
            self._committed_positions(query, stream),
            query.start == "earliest",
        )
        if self.read or not self.place.counts:
            return audit_stream_by_records(
                kinesis,
                landed,
                self.hours,
                self.progress,
                query=self.query,
                stream=name,
                table=table,
                positions=read,
                whole=whole,
            )
        if self.begin < datetime.now(UTC) - COUNTED:
            raise AwsError(
                f"CloudWatch keeps counts per minute for only {COUNTED.days} days; choose a smaller --hours"
            )
        hours = _ended_hours(self.hours, self.end)
        return audit_stream_by_counts(
            self.place.client("cloudwatch"),
            landed,
            hours,
            query=self.query,
            stream=name,
            table=table,
            unread=lagging_shards(kinesis, name, read),
            whole=whole,
        )

    def audit_direct_route(
        self, query: DirectQuery | DirectRouteQuery, route: DirectQueryOrRoute
    ) -> AuditResult | NotAudited:
        names, sink, stream = self.place.names, route.what.sink, route.reading.source
        name, letters = route.topic or names.stream(stream), query.dead_letters
        if sink.catalog_table is None:
            why = (
                f"its sink is {sink.kind}, whose identities this command does not read; dead letters are in "
                f"{names.table(letters)}"
            )
            return NotAudited(route.name, name, why)
        catalog, table = self.place.catalog(), names.table(sink.catalog_table)
        sunk = LandedRecords.open(catalog, table, stream)
        kept = SinkAndDeadLetters(
            LandedRecords.open(catalog, names.table(letters), stream), sunk, self.hours[0]
        )
        result, holes = self._compare_topics(query, stream, route.topic, kept, route)
        return AuditResult(route.name, name, f"{table} and {names.table(letters)}", "offsets", result, holes)

    def _committed_positions(self, query: SourceQueryBase, stream: str) -> dict[str, Any]:
        """Return the positions at which the query continues after its last committed batch.

        Returns
        -------
        dict
            Kafka: the next offset by topic and by partition as text; Kinesis: as the connector writes it. Empty where
            nothing of it was read yet.

        Raises
        ------
        NotDeployedError
            No batch was ever committed.
        """
        names = self.place.names
        with translating_aws_errors("cannot read the query's checkpoint"):
            checkpoints = JobCheckpoints(self.place.client("s3"), names, self.job)
            positions = checkpoints.read_undamaged_contents(self.query).positions
        if not positions:
            raise NotDeployedError(
                f"no batch of {names.checkpoints_url(self.job)}/{self.query} was committed yet"
            )
        return positions[line_number_in_offset_log(names.environment, query, stream)] or {}

    def _compare_topics(
        self,
        query: SourceQueryBase,
        name: str,
        topic: str | None,
        records: LandedRecords | SinkAndDeadLetters,
        route: DirectQueryOrRoute | None = None,
    ) -> tuple[tuple[HourCounts, ...], tuple[MissingRange, ...]]:
        """Compare each topic of a stream; for a pattern, those that the query has read."""
        names = self.place.names
        stream, reading = names.environment.streams[name], query.kafka_reading or KafkaReading()
        assert stream.cluster_name is not None, f"{name} has no cluster"
        read = self._committed_positions(query, name)
        topics = [topic or names.stream(name)] if topic or stream.topic_pattern is None else sorted(read)
        holes: list[MissingRange] = []
        sums = {start: HourCounts(start, 0, 0, 0) for start in self.hours}
        for each in topics:
            next_ = {int(partition): offset for partition, offset in read.get(each, {}).items()}
            result, lacking = compare_offsets_by_hour(
                TopicReader(each, self.place.kafka(stream.cluster_name)),
                records,
                self.hours,
                only=reading.partitions,
                read=next_,
                whole=query.start == "earliest" and reading.start_offsets is None,
                gaps=None
                if route is None
                else _gaps_between_commits_if_filtered(query, records, route, stream, each, next_),
            )
            sums = {hour.start: sums[hour.start] + hour for hour in result}
            holes += (replace(h, shard=f"{each}/{h.shard}") if len(topics) > 1 else h for h in lacking)
        return tuple(sums.values()), tuple(holes)


def _gaps_between_commits_if_filtered(
    query: SourceQueryBase,
    records: LandedRecords | SinkAndDeadLetters,
    route: DirectQueryOrRoute,
    stream: Stream,
    topic: str,
    partitions: Iterable[int],
) -> dict[Place, list[Range]] | None:
    """Return the ranges between commits, where a transform may leave records out; None where each record has a row."""
    if route.what.transform is None:
        return None
    assert isinstance(records, SinkAndDeadLetters), "a direct query"
    several = f"{topic}/" if stream.topic_pattern is not None else ""
    before = f"{route.reading.source}/" if isinstance(query, DirectRouteQuery) else ""
    places = {f"{before}{several}{p}": (topic, p) for p in partitions}
    return gaps_between_commits(records.sink.table, route.name, places, earliest=query.start == "earliest")


def line_number_in_offset_log(environment: Environment, query: SourceQueryBase, stream: str) -> int:
    """Return the line of a stream in the query's offset log; the order is that of ``etl.launch.sources.group_sources_into_legs``.

    Parameters
    ----------
    query
        The query that reads the stream.
    stream
        Its logical name.
    """
    kinds = {name: environment.streams[name] for name in query.source_stream_names}
    legs = {name: (each.kind, *each.offset_log_key(name)) for name, each in kinds.items()}
    return sorted(set(legs.values())).index(legs[stream])


def _ended_hours(hours: Sequence[datetime], end: datetime) -> Sequence[datetime]:
    """Return the hours that are over, with the minutes that CloudWatch may need to count them."""
    if not (done := [hour for hour in hours if hour + timedelta(hours=1, minutes=5) <= datetime.now(UTC)]):
        raise AwsError(
            f"CloudWatch has no counts yet of a full hour before {end:%Y-%m-%d %H:%M} UTC; look further back "
            "with --hours, or read the stream itself with --read"
        )
    return done
