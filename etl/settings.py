"""A job's settings, as its launch document holds them: strict, immutable, standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from etl import strict
from etl.settings_sources import Connection as Connection
from etl.settings_sources import KafkaReading as KafkaReading
from etl.settings_sources import KafkaSource as KafkaSource
from etl.settings_sources import KinesisSource as KinesisSource
from etl.settings_sources import SecretLogin as SecretLogin
from etl.sinks import SinkSettings

Engine = Literal["glue", "emr", "sandbox"]


@dataclass(frozen=True)
class CsvFormat:
    """Columns between delimiters; ``quote`` is doubled inside quotes, ``null`` is the text that stands for null."""

    kind: Literal["csv"]
    delimiter: str
    quote: str
    null: str


@dataclass(frozen=True)
class AvroFormat:
    """One Avro datum; the query's ``schema`` is the reader's, an ``.avsc`` file.

    Attributes
    ----------
    framing
        What stands before the datum: nothing, or the header of a registry's serializer.
    writers
        Folder below ``pipelines/`` with a writer's schema per id; None where ``registry`` has them, or there
        is but the query's ``schema``.
    registry
        URL of a Confluent registry, whose versions of ``subject`` are read at start.
    """

    kind: Literal["avro"]
    framing: Literal["none", "confluent", "glue"]
    writers: str | None
    registry: str | None
    subject: str | None


@dataclass(frozen=True)
class ProtobufFormat:
    """One Protobuf message; the query's ``schema`` is a descriptor file (``protoc --descriptor_set_out``)."""

    kind: Literal["protobuf"]
    message: str


Format = Literal["json", "text"] | CsvFormat | AvroFormat | ProtobufFormat


@dataclass(frozen=True)
class LandSettings:
    """A query that writes every record to a landing table (``database.table``).

    Attributes
    ----------
    redact
        Fields of the schema whose values reach no table.
    """

    kind: Literal["land"]
    name: str
    source: KinesisSource | KafkaSource
    format: Format
    schema: str
    decompress_up_to: int | None
    redact: tuple[str, ...]
    table: str
    trigger_seconds: float
    repartition: int | None

    @property
    def sources(self) -> tuple[KinesisSource | KafkaSource, ...]:
        """What it reads: one source."""
        return (self.source,)


@dataclass(frozen=True)
class RouteSettings:
    """The records of one topic or stream within a routed query, decoded as those of a land query.

    Attributes
    ----------
    name
        Of the route, and of its column in the landing table.
    origin
        Own name of the topic or stream whose records take the route.
    """

    name: str
    origin: str
    source: KinesisSource | KafkaSource
    format: Format
    schema: str
    decompress_up_to: int | None
    redact: tuple[str, ...]


@dataclass(frozen=True)
class RoutedSettings:
    """A query that writes the records of several topics and streams to one landing table (``database.table``)."""

    kind: Literal["route"]
    name: str
    routes: tuple[RouteSettings, ...]
    table: str
    trigger_seconds: float
    repartition: int | None

    @property
    def sources(self) -> tuple[KinesisSource | KafkaSource, ...]:
        """What it reads; several routes may be topics of one pattern."""
        return tuple(dict.fromkeys(route.source for route in self.routes))


@dataclass(frozen=True)
class EnrichmentSettings:
    """A broadcast join: ``on`` maps stream column to table column, ``columns`` new column to table column."""

    table: str
    on: Mapping[str, str]
    columns: Mapping[str, str]
    refresh_seconds: float


@dataclass(frozen=True)
class WatermarkSettings:
    """Records later than ``delay_seconds`` behind the latest ``time`` (a timestamp column) are left out.

    Attributes
    ----------
    ahead_seconds
        So are those whose ``time`` is later than their arrival by more than that.
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
    """What a derive query keeps from batch to batch.

    Attributes
    ----------
    distinct
        Fields; of records that are equal in them within the watermark the first is taken.
    key
        Columns that identify a result, which a later one replaces; none where rows are records.
    """

    watermark: WatermarkSettings
    distinct: tuple[str, ...]
    key: tuple[str, ...]
    join: JoinSettings | None


@dataclass(frozen=True)
class DeriveSettings:
    """A query over the good records of a landing table (``database.table``).

    Attributes
    ----------
    dead_letters
        Table (``database.table``) that takes the rows which the sink refuses; None where it takes all.
    route
        Of a table with routes, the one whose records are read; None for all, as they are.
    latest_by
        Columns that identify a row, of which the record that landed last is kept; none where rows are records, or
        where ``state`` has a key.
    """

    kind: Literal["derive"]
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

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row that a later one replaces; none where rows are records."""
        return self.latest_by or (self.state.key if self.state is not None else ())


@dataclass(frozen=True)
class DirectSettings:
    """A query from a Kafka topic through a transform into a sink, without a landing table.

    Attributes
    ----------
    dead_letters
        Table (``database.table``), in the shape of a landing table, that takes what could not be decoded.
    """

    kind: Literal["direct"]
    name: str
    source: KafkaSource
    format: Format
    schema: str
    decompress_up_to: int | None
    redact: tuple[str, ...]
    enrich: tuple[EnrichmentSettings, ...]
    transform: str | None
    sink: SinkSettings
    dead_letters: str
    trigger_seconds: float
    repartition: int | None

    @property
    def sources(self) -> tuple[KafkaSource, ...]:
        """What it reads: one source."""
        return (self.source,)


@dataclass(frozen=True)
class DirectRouteSettings:
    """A route of a direct query, with its own transform and sink; otherwise as :class:`RouteSettings`."""

    name: str
    origin: str
    source: KafkaSource
    format: Format
    schema: str
    decompress_up_to: int | None
    redact: tuple[str, ...]
    enrich: tuple[EnrichmentSettings, ...]
    transform: str | None
    sink: SinkSettings


@dataclass(frozen=True)
class RoutedDirectSettings:
    """A query from several Kafka topics, read once, each through a transform into a sink of its own.

    Attributes
    ----------
    dead_letters
        Table (``database.table``), in the shape of a landing table with these routes, for all of them.
    """

    kind: Literal["direct-route"]
    name: str
    routes: tuple[DirectRouteSettings, ...]
    dead_letters: str
    trigger_seconds: float
    repartition: int | None

    @property
    def sources(self) -> tuple[KafkaSource, ...]:
        """What it reads; several routes may be topics of one pattern."""
        return tuple(dict.fromkeys(route.source for route in self.routes))


QuerySettings = LandSettings | RoutedSettings | DeriveSettings | DirectSettings | RoutedDirectSettings
"""Told apart by ``kind``."""


@dataclass(frozen=True)
class TableUpkeep:
    """A table (``database.table``) that the job keeps up.

    Attributes
    ----------
    readers
        Checkpoints of the queries, of whatever job, that derive from it.
    """

    table: str
    readers: tuple[str, ...]


@dataclass(frozen=True)
class UpkeepSettings:
    """What is done to tables now and then: files of ``file_bytes``, past states and orphans of an age deleted."""

    file_bytes: int
    snapshots_kept_seconds: int
    orphans_kept_seconds: int
    tables: tuple[TableUpkeep, ...]


@dataclass(frozen=True)
class JobSettings:
    """Everything the core reads.

    Attributes
    ----------
    version
        Of this format; another one is refused.
    catalog
        Name of the Spark catalog that holds the tables.
    checkpoints
        Prefix; each query keeps its checkpoint below ``checkpoints/query-name``.
    dead_letters_kept_seconds
        Age from which on dead letters are deleted; None keeps them.
    upkeep
        None where somebody else keeps the tables.
    batch_retries
        Failures in a row after which a query that fails is not started again, and the job fails.
    """

    version: Literal[1]
    environment: str
    job: str
    engine: Engine
    catalog: str
    checkpoints: str
    batch_retries: int
    dead_letters_kept_seconds: int | None
    upkeep: UpkeepSettings | None
    connections: Mapping[str, Connection]
    queries: tuple[QuerySettings, ...]


def parse(document: Any) -> JobSettings:
    """Read a job's settings.

    Parameters
    ----------
    document
        The ``settings`` object of a launch document, decoded from JSON.

    Raises
    ------
    etl.strict.SettingsError
        An unknown or missing key or a value of the wrong type, with its path.
    """
    settings = strict.read(JobSettings, document, "settings")
    assert isinstance(settings, JobSettings)
    return settings
