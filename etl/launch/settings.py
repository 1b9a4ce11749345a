"""A job's settings, as its launch document holds them: strict, immutable, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from . import typed_json
from .engine_interface_and_registry import Engine, engine_class_path, engine_of
from .formats import Format
from .kafka_connections import Connection as Connection
from .kafka_connections import SecretLogin as SecretLogin
from .sinks import SinkSettings
from .sources import Source


@dataclass(frozen=True)
class RuleSettings:
    """Condition in Spark SQL for each good record.

    Attributes
    ----------
    where
        Condition on the fields of a record and its envelope.
    where_landed
        The same on the columns of the landing table, where a route's fields are in a struct.
    action
        Action for a record that does not meet it: count it, make it a dead letter, or fail before the batch is committed.
    """

    name: str
    where: str
    where_landed: str
    action: Literal["warn", "dead-letter", "fail"]


@dataclass(frozen=True)
class SourceRouteSettings:
    """The records of one topic or stream within a query, and their decoding.

    Attributes
    ----------
    name
        Name of the route and of its column in the landing table; None for the only route of a query without
        routes, whose fields are top-level columns.
    origin
        Own name of the topic or stream whose records take the route; None for all records.
    changes_of
        Table of a database, if only its changes take the route.
    redact
        Fields of the schema whose values reach no table.
    """

    name: str | None
    origin: str | None
    source: Source
    format: Format
    schema: str
    decompress_up_to: int | None
    redact: tuple[str, ...]
    rules: tuple[RuleSettings, ...] = field(default=(), kw_only=True)
    changes_of: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class SourceQuerySettings:
    """Query that reads topics or streams."""

    name: str
    routes: tuple[SourceRouteSettings, ...]

    @property
    def sources(self) -> tuple[Source, ...]:
        """Its sources, each once: several routes may be topics of one pattern."""
        found = [route.source for route in self.routes]
        # By comparison: sources with offsets are not hashable.
        return tuple(source for place, source in enumerate(found) if source not in found[:place])


@dataclass(frozen=True)
class LandSettings(SourceQuerySettings):
    """Query that writes every record to a landing table (``database.table``)."""

    kind: Literal["land", "route"]
    table: str
    trigger_seconds: float
    repartition: int | None


@dataclass(frozen=True)
class EnrichmentSettings:
    """Broadcast join: ``on`` maps stream column to table column, ``columns`` new column to table column."""

    table: str
    on: Mapping[str, str]
    columns: Mapping[str, str]
    refresh_seconds: float


@dataclass(frozen=True)
class WatermarkSettings:
    """Watermark: records with a ``time`` (a timestamp column) more than ``delay_seconds`` before the latest are left out.

    Attributes
    ----------
    ahead_seconds
        Records whose ``time`` is later than their arrival by more than this are left out too.
    """

    time: str
    delay_seconds: float
    ahead_seconds: float


@dataclass(frozen=True)
class JoinSettings:
    """A second landing table (``database.table``) whose good records, of one route or all, a transform joins."""

    source_table: str
    watermark: WatermarkSettings
    route: str | None = None


@dataclass(frozen=True)
class StateSettings:
    """State that a derive query keeps between batches.

    Attributes
    ----------
    distinct
        Fields; the first of the records that are equal in them within the watermark is used.
    key
        Columns that identify a result, which a later one replaces; empty where rows are records.
    output_mode
        Output mode of results: ``append`` writes each once, when the watermark has passed it.
    """

    watermark: WatermarkSettings
    distinct: tuple[str, ...]
    key: tuple[str, ...]
    join: JoinSettings | None
    output_mode: Literal["update", "append"] = "update"


@dataclass(frozen=True)
class DeriveSettings:
    """Query over the good records of a landing table (``database.table``).

    Attributes
    ----------
    dead_letters
        Table (``database.table``) for the rows that the sink refuses; None if it refuses none.
    route
        For a table with routes, the one whose records are read; None for all, unchanged.
    latest_by
        Columns that identify a row, of which the last record is kept; empty where rows are records, or
        where ``state`` has a key.
    latest_order
        Column of the result that says which record is the last; None for the source's own order.
    history
        Whether every version of a row is kept, with the interval in which it was the row.
    rows_per_batch
        Most rows of the landing table in a batch, by complete files: limits the first batch after a pause.
    tasks
        Cores that the plan gives it. A batch of fewer files is spread over as many tasks, if its rows are worth it.
    """

    name: str
    source_table: str
    enrich: tuple[EnrichmentSettings, ...]
    transform: str | None
    sink: SinkSettings
    trigger_seconds: float
    state: StateSettings | None
    dead_letters: str | None = None
    route: str | None = None
    latest_by: tuple[str, ...] = ()
    latest_order: str | None = None
    history: bool = False
    rows_per_batch: int = 1_000_000
    tasks: int = 1
    kind: Literal["derive"] = "derive"

    @property
    def sources(self) -> tuple[Source, ...]:
        """Empty, because it reads tables."""
        return ()

    @property
    def landing_tables(self) -> tuple[str, ...]:
        """Landing tables that it reads."""
        join = None if self.state is None else self.state.join
        return (self.source_table,) if join is None else (self.source_table, join.source_table)

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row, which a later one replaces; empty where rows are records."""
        return self.latest_by or (self.state.key if self.state is not None else ())


@dataclass(frozen=True)
class DirectRouteSettings(SourceRouteSettings):
    """Route of a direct query, with its own transform and sink."""

    enrich: tuple[EnrichmentSettings, ...]
    transform: str | None
    sink: SinkSettings


@dataclass(frozen=True)
class DirectSettings(SourceQuerySettings):
    """Query without a landing table, from sources whose batches replay, read once, each through a transform into a sink.

    Attributes
    ----------
    dead_letters
        Table (``database.table``) for records that could not be decoded, in the shape of a landing table with these routes.
    """

    kind: Literal["direct", "direct-route"]
    routes: tuple[DirectRouteSettings, ...]
    dead_letters: str
    trigger_seconds: float
    repartition: int | None


QuerySettings = LandSettings | DeriveSettings | DirectSettings
"""Distinguished by ``kind``; a land or direct query with routes has a kind of its own in documents."""


@dataclass(frozen=True)
class MaintainedTableSettings:
    """Table (``database.table``) that the job maintains.

    Attributes
    ----------
    readers
        Checkpoints of the queries, in any job, that derive from it.
    """

    table: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class MaintenanceSettings:
    """Table maintenance: files of ``file_bytes``, and the ages at which old snapshots and orphan files are deleted."""

    file_bytes: int
    snapshots_kept_seconds: int
    orphans_kept_seconds: int
    tables: tuple[MaintainedTableSettings, ...]


@dataclass(frozen=True)
class JobSettings:
    """All settings that the core reads.

    Attributes
    ----------
    version
        Version of this format; another one is refused.
    catalog
        Name of the Spark catalog that holds the tables.
    checkpoints
        Prefix; each query keeps its checkpoint below ``checkpoints/query-name``.
    dead_letters_kept_seconds
        Age at which dead letters are deleted; None keeps them.
    erase_share
        Largest share of a table's rows that one erasure may match.
    upkeep
        None if another system maintains the tables.
    batch_retries
        Failures in a row of a query that are retried; the next failure ends the job.
    run_every_seconds
        Seconds from the start of one bounded run to the start of the next; None for a job that runs all the time.
    """

    version: Literal[1]
    environment: str
    job: str
    engine: str
    catalog: str
    checkpoints: str
    batch_retries: int
    dead_letters_kept_seconds: int | None
    erase_share: float
    upkeep: MaintenanceSettings | None
    connections: Mapping[str, Connection]
    queries: tuple[QuerySettings, ...]
    run_every_seconds: float | None = None

    @property
    def runs_on(self) -> Engine:
        """Engine that it runs on."""
        return engine_of(self.engine)


def parse_job_settings(document: Any) -> JobSettings:
    """Read a job's settings.

    Parameters
    ----------
    document
        The ``settings`` object of a launch document, decoded from JSON.

    Raises
    ------
    etl.launch.typed_json.SettingsError
        An unknown or missing key or a value of the wrong type, with its path.
    """
    settings: JobSettings = typed_json.read_typed(JobSettings, document, "settings")
    engine_class_path(settings.engine)
    for place, query in enumerate(settings.queries):
        routes = () if isinstance(query, DeriveSettings) else query.routes
        if isinstance(query, DirectSettings) and not all(source.REPLAYS for source in query.sources):
            raise typed_json.SettingsError(
                f"settings.queries[{place}]: a direct query needs a source that can replay a batch exactly, and "
                f"{query.sources[0].kind!r} cannot"
            )
        if any((route.name is None) != (query.kind in ("land", "direct")) for route in routes):
            raise typed_json.SettingsError(
                f"settings.queries[{place}].routes: land and direct queries need routes without names, "
                f"other queries routes with names; this query is of kind {query.kind!r}"
            )
    return settings
