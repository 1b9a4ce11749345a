"""Queries of a job: source, decoding, transform, state, sink."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path as FilePath
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from millrace.config.base import Model, Slug, TableName
from millrace.config.formats import DEFAULT, PayloadFormat
from millrace.config.formats.base import schema_file_below_pipelines
from millrace.config.kafka.reading_options import KafkaReading
from millrace.config.processing_rate import Rate
from millrace.config.sinks import Sink
from millrace.config.sinks.base import Column
from millrace.config.units import Duration, Size, Start

TransformName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w]*(\.[A-Za-z_][\w]*)*:[A-Za-z_]\w*$")]
"""``package.module:function``, importable from the repository's root."""

Place = tuple[str, ...]
"""Path below a query in the file."""

RouteName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
"""Name of a route, which is also the name of a column."""

ANY_FIELD = "any_field"
"""Data rule that needs no declaration: a record has at least one of the schema's fields."""


class Enrichment(Model):
    """A broadcast join against a reference table."""

    table: TableName = Field(
        description="The reference table: one of `tables`, or one in the environment's own database."
    )
    on: dict[str, str] = Field(min_length=1, description="Column of the stream: column of the table.")
    columns: dict[str, str] = Field(min_length=1, description="New column: column of the table.")
    refresh: Duration = Field(
        default=timedelta(hours=1), description="Interval after which the table is read again."
    )


class Watermark(Model):
    """Limit for the lateness of records."""

    time: Column = Field(description="A timestamp field of the schema, or _arrived_at.")
    delay: Duration = Field(
        description="Records that are later than this, compared with the latest time seen so far, are left out; "
        "older state is dropped."
    )
    ahead: Duration = Field(
        default=timedelta(hours=1),
        description="Records whose time is later than their arrival by more than this are left out, because one "
        "of them would make all following records late. They stay in the landing table.",
    )


class Join(Model):
    """A second landing table; the transform then gets the good records of both."""

    source: TableName = Field(description="The table of another land query.")
    route: RouteName | None = Field(
        default=None, description="Route whose records are joined, if the table has routes."
    )
    watermark: Watermark = Field(
        description="Event time of the joined table, and the lateness that is allowed."
    )


class State(Model):
    """State of a derive query, which it keeps between batches."""

    watermark: Watermark = Field(
        description="Event time and the lateness that is allowed; older state is dropped."
    )
    distinct: tuple[Column, ...] = Field(
        default=(),
        description="Keeps only the first of the records that are equal in these fields within the delay.",
    )
    key: tuple[Column, ...] = Field(
        default=(),
        description="Columns of the transform's result that identify a row, such as a window and a carrier: a "
        "later row replaces an earlier one. Left out, each record is a row and is appended once.",
    )
    output_mode: Literal["update", "append"] = Field(
        default="update",
        description="Time at which the result of a key is written: `update` with each batch that changes it; "
        "`append` once, after the watermark has passed it. Session windows allow only `append`.",
        examples=["append"],
    )
    join: Join | None = Field(
        default=None, description="A second landing table to join with, within a range of time."
    )


class Rule(Model):
    """Condition for the good records of a query, and the action for a record that breaks it."""

    where: str = Field(
        description="A condition in Spark SQL on the fields of one record. A record breaks the rule if the "
        "condition is false or null.",
        examples=["distance > 0"],
    )
    action: Literal["warn", "dead-letter", "fail"] = Field(
        default="warn",
        description="`warn` counts the record and lands it; `dead-letter` keeps its bytes as a dead letter of stage `rule`; "
        "`fail` fails the query before the batch is committed.",
    )


class Payload(Model):
    """Decoding of payloads."""

    format: PayloadFormat = Field(default=DEFAULT, description="Format of the payloads.")
    schema_: str = Field(
        alias="schema",
        description="File below pipelines/, such as pipelines/flights/schemas/flight.ddl: DDL for json, csv and text, "
        ".avsc for avro, a descriptor file .desc for protobuf.",
    )
    decompress_up_to: Size | None = Field(
        default=None,
        description="Decompresses messages that the producer compressed one by one, up to this size, such as "
        "8MiB; left out, messages are not decompressed.",
    )
    redact: tuple[str, ...] = Field(
        default=(),
        description="Fields of the schema whose values reach no table: null in good records, removed from dead letters.",
    )
    rules: Mapping[RouteName, Rule] = Field(
        default={}, description="Data rules by name: conditions that good records meet."
    )

    def rules_with_any_field_rule(self, root: FilePath) -> Mapping[RouteName, Rule]:
        """Return its data rules, with :data:`ANY_FIELD` for a schema that takes a record with none of its fields."""
        try:
            where = self.format.any_field_set_condition(schema_file_below_pipelines(root, self.schema_))
        except (ValueError, OSError, TypeError, KeyError):
            where = None
        return {**({} if where is None else {ANY_FIELD: Rule(where=where)}), **self.rules}


class Reading(Payload):
    """The records of a stream, and their decoding."""

    source: Slug = Field(description="A stream of this environment.")


class SinkSection(Model):
    """A sink, and the way of rows to it."""

    enrich: tuple[Enrichment, ...] = Field(
        default=(),
        description="Joins with reference tables, before the transform; after it if the query keeps state.",
    )
    transform: TransformName | None = Field(
        default=None,
        description="`module:function` below `pipelines/`, a function from DataFrame to DataFrame; left out, rows "
        "go to the sink unchanged.",
    )
    sink: Sink = Field(description="Target of the rows.")


class QueryBase(Model):
    """A query in its normal form: what it reads and what it writes, each by its place below the query in the file.

    A query with one source or one sink has it at its own place, ``()``; one with routes has one at each route.
    """

    @property
    def stream_readings_by_place(self) -> Mapping[Place, Reading]:
        """Streams that it reads itself, each with its decoding."""
        return {(): self} if isinstance(self, Reading) else {}

    @property
    def sinks_by_place(self) -> Mapping[Place, WritesSink]:
        """Sinks that it writes, each with its transform; none for one that lands."""
        return {(): self} if isinstance(self, DeriveQuery | DirectQuery) else {}

    @property
    def source_tables_and_routes(self) -> tuple[tuple[TableName, RouteName | None], ...]:
        """Landing tables that it derives from, each with its route."""
        return ()

    @property
    def source_stream_names(self) -> tuple[str, ...]:
        """Names of the streams that it reads itself, each once."""
        return tuple(dict.fromkeys(each.source for each in self.stream_readings_by_place.values()))

    @property
    def created_tables_by_place(self) -> dict[Place, TableName]:
        """Tables that it creates and appends to, by the path of their names in the file."""
        sinks = {
            (*place, "sink", end.sink.named_by): end.sink.catalog_table
            for place, end in self.sinks_by_place.items()
        }
        # A key that a model does not have is looked up slowly.
        keys = [key for key in ("table", "dead_letters") if key in type(self).model_fields]
        own = {(key,): getattr(self, key) for key in keys}
        return {place: table for place, table in (sinks | own).items() if table is not None}


class SourceQueryBase(QueryBase):
    """Keys of queries that read streams themselves."""

    start: Start = Field(
        default="earliest",
        description="Start of a query without a checkpoint: earliest, latest, or a time in ISO 8601 with its zone.",
    )
    trigger: Duration | None = Field(
        default=None, description="Pins the trigger; left out, the plan computes it."
    )
    records_per_batch: int | None = Field(
        default=None,
        ge=1,
        description="Pins the limit of records in a batch; left out, the plan computes it.",
    )
    rate: Rate | None = Field(
        default=None, description="Processing rate of this query; left out, the job's `rate`."
    )

    @property
    def kafka_reading(self) -> KafkaReading | None:
        """Options for the Kafka topic that it reads."""
        return getattr(self, "kafka", None)

    @property
    def uses_fan_out(self) -> bool:
        """True if it reads through its own fan-out consumer."""
        return getattr(self, "fan_out", False)


class OneStreamQueryBase(Reading, SourceQueryBase):
    """Keys of queries that read one stream."""

    kafka: KafkaReading | None = Field(default=None, description="Options for reading a Kafka topic.")


class LandingQueryBase(SourceQueryBase):
    """Keys of queries that write an append-only landing table."""

    table: TableName = Field(
        description="The landing table in the environment's database; the first start creates it."
    )


class LandQuery(OneStreamQueryBase, LandingQueryBase):
    """Writes every record, good or bad, to an append-only landing table."""

    kind: Literal["land"]
    fan_out: bool = Field(
        default=False, description="Kinesis: reads through the query's own enhanced fan-out consumer."
    )


class Route(Reading):
    """The records of one stream, of one topic of a pattern, or of one table whose changes a stream has."""

    topic: str | None = Field(
        default=None,
        description="Topic whose records take this route, if the stream is a pattern of topics.",
    )
    changes_of: str | None = Field(
        default=None,
        description="Table of the database whose changes take this route, with its schema, if the stream has changes of several tables.",
        examples=["public.orders"],
    )
    share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Share of the stream's records that take this route, at most; queries that read the route are sized for it.",
        examples=[0.2],
    )


class RoutesBase(SourceQueryBase):
    """Keys of queries with routes."""

    routes: Mapping[RouteName, Route]

    @property
    def stream_readings_by_place(self) -> Mapping[Place, Route]:
        """Its routes."""
        return {("routes", name): route for name, route in self.routes.items()}


class RouteQuery(RoutesBase, LandingQueryBase):
    """Lands several streams in one table; each record is decoded as its route says, into a column with the route's name."""

    kind: Literal["route"]
    routes: Mapping[RouteName, Route] = Field(
        min_length=1,
        description="Routes by name, which is also the column of the landing table for the decoded fields.",
    )


LandingQueries = dict[str, list[tuple[str, str, LandQuery | RouteQuery]]]
"""Job, name and settings of the queries that land each table, by table."""


class DirectQuery(SinkSection, OneStreamQueryBase):
    """Writes a Kafka topic through a transform to a sink, without landing table and state, for lower latency."""

    kind: Literal["direct"]
    dead_letters: TableName = Field(
        description="Table of dead letters: records that cannot be decoded or that the sink refuses, byte for byte."
    )


class DirectRoute(SinkSection, Route):
    """A route with its own transform and sink."""


class DirectRouteQuery(RoutesBase):
    """Writes several Kafka topics, read once, each through a transform to its own sink; no landing table."""

    kind: Literal["direct-route"]
    routes: Mapping[RouteName, DirectRoute] = Field(
        min_length=1,
        description="Routes by name; a column of the table of dead letters has the name of a record's route.",
    )
    dead_letters: TableName = Field(
        description="Table of dead letters of all routes: records that cannot be decoded, that match no route, or "
        "that a sink refuses, byte for byte."
    )

    @property
    def sinks_by_place(self) -> Mapping[Place, WritesSink]:
        """Its routes."""
        return {("routes", name): route for name, route in self.routes.items()}


class LatestBy(Model):
    """Columns that identify a row, and what says which of its records is the last."""

    key: tuple[Column, ...] = Field(
        min_length=1, description="Columns of the transform's result that identify a row."
    )
    order: Column | None = Field(
        default=None,
        description="Column of the transform's result that says which record of a key is the last: a whole number, a DECIMAL, a "
        "DATE or a TIMESTAMP. For keys whose records come from several partitions; left out, the position in the partition does.",
        examples=["updated_at"],
    )
    history: bool = Field(
        default=False,
        description="True for changes of a database: the table has every version of a row, with the interval in which it was the "
        "row (`_valid_from`, `_valid_to`).",
        examples=[True],
    )


def _key_list_as_mapping(value: object) -> object:
    """Take a list for the key; as a tuple, since what a validator returns is no JSON any more."""
    if isinstance(value, str):
        raise ValueError("a list of columns, such as [order_id], or a mapping with key and order")
    if isinstance(value, list | tuple):
        return {"key": tuple(value)}
    key = value.get("key") if isinstance(value, dict) else None
    return {**value, "key": tuple(key)} if isinstance(value, dict) and isinstance(key, list) else value


class DeriveQuery(SinkSection, QueryBase):
    """Reads the good records of a landing table, transforms them and writes a sink."""

    kind: Literal["derive"]
    source: TableName = Field(description="The table of a land query, of this job or of another one.")
    route: RouteName | None = Field(
        default=None,
        description="Route whose records are read, with their fields as columns, if the table has routes.",
    )
    rate: Rate | None = Field(
        default=None, description="Processing rate of this query; left out, the job's `rate`."
    )
    state: State | None = Field(
        default=None,
        description="State for windows, aggregates, deduplication by fields of the payload, and joins of two streams.",
    )
    latest_by: Annotated[
        LatestBy | None,
        BeforeValidator(_key_list_as_mapping, json_schema_input_type=LatestBy | list[Column] | None),
    ] = Field(
        default=None,
        description="Columns of the transform's result that identify a row, as a list or as `key` with `order`. The last record "
        "replaces the row; with null_payload: delete, a record without a payload deletes it. Left out, each "
        "record is a row.",
        examples=[["order_id"]],
    )
    dead_letters: TableName | None = Field(
        default=None,
        description="Table of dead letters for rows that the sink refuses; leave it out if the sink refuses none.",
    )
    trigger: Duration | None = Field(
        default=None, description="Pins the trigger; left out, the plan computes it."
    )

    @property
    def key(self) -> tuple[str, ...]:
        """Columns that identify a row, which a later one replaces; empty if each record is a row."""
        if self.latest_by is not None:
            return self.latest_by.key
        return () if self.state is None else self.state.key

    @property
    def source_tables_and_routes(self) -> tuple[tuple[TableName, RouteName | None], ...]:
        """Landing tables that it reads, each with its route: its own, and the joined one."""
        join = None if self.state is None else self.state.join
        return ((self.source, self.route), *(() if join is None else ((join.source, join.route),)))


Query = Annotated[
    LandQuery | RouteQuery | DirectQuery | DirectRouteQuery | DeriveQuery, Field(discriminator="kind")
]

WritesSink = DeriveQuery | DirectQuery | DirectRoute
"""Query or route that writes records through a transform to a sink."""
