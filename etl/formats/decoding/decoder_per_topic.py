"""Routes: records of several topics and streams in one table, each decoded by the rules of its topic or stream.

A routed landing table has one identity for all records and, for each route, one column that holds
the route's decoded fields as a struct; ``_route`` names the route. A record of a topic without a route
(a pattern may find unexpected topics) is a dead letter of the stage ``route``, and so is a change of a table that no route of its
stream names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ...launch.settings import SourceRouteSettings
from ...record.errors import StartError
from ...record.tables import with_all_fields_nullable
from ..base import Decoder, DecoderWrapper, open_decoder
from . import redact
from .data_rules import decoder_with_rules
from .decoder_output_and_checks import TOMBSTONE
from .decompress import DecompressingDecoder

COLUMN = "_route"
"""Name of the route, in a routed landing table."""

DELETE = "delete"
"""``_stage`` of a landed row that deletes; its ``_error`` is null, so it is a good record."""

_RAW, _TABLE = "_raw", "_table"
_LETTER = ("_bytes", "_stage", "_error")


@dataclass(frozen=True)
class DecodingRoute:
    """Records of one topic or stream, and their decoder.

    Parameters
    ----------
    name
        Name of the route and of its column.
    source
        Logical name of the stream (``_source``).
    origin
        Own name of the topic or stream, with which identities begin.
    decoder
        Decoder of the route's payloads.
    changes_of
        Table of a database, if only its changes take this route.
    """

    name: str
    source: str
    origin: str
    decoder: Decoder
    changes_of: str | None = None

    def own_record_condition(self) -> Column:
        """Return a condition: a record is of this topic or stream. True or false, never null."""
        mine = (F.col("_source") == self.source) & F.col("_id").startswith(f"{self.origin}/")
        return F.coalesce(mine, F.lit(False))


@dataclass(frozen=True)
class RoutingDecoder(Decoder):
    """Decoder that sends each payload to the decoder of its route, in one pass over the rows.

    Parameters
    ----------
    routes
        At least one; the configuration has checked that names and topics are unique.
    """

    routes: tuple[DecodingRoute, ...]

    @property
    def schema(self) -> StructType:
        """``_route``, and a struct for each route."""
        return StructType(
            [
                StructField(COLUMN, StringType()),
                *(
                    StructField(route.name, with_all_fields_nullable(route.decoder.schema))
                    for route in self.routes
                ),
            ]
        )

    def failing_if_uncertain(self, marking: bool = False) -> RoutingDecoder:
        """See :meth:`etl.formats.base.Decoder.failing_if_uncertain`."""
        return RoutingDecoder(
            tuple(replace(each, decoder=each.decoder.failing_if_uncertain(marking)) for each in self.routes)
        )

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by ``_route``, the routes' columns, ``_bytes``, ``_stage`` and ``_error``.

        The rows are read once: a filter for each route would read the source once per route,
        and Kinesis each time up to another end.

        Parameters
        ----------
        rows
            With ``_id``, ``_source`` and a binary ``payload``; other columns are kept.
        """
        kept = [F.col(f"`{name}`") for name in rows.columns if name != "payload"]
        name = reduce(
            lambda found, route: found.when(self._takes_route_condition(route), F.lit(route.name)),
            self.routes,
            F,
        )
        # A projection of its own only where routes ask for it.
        asked = any(route.changes_of is not None for route in self.routes)
        named = rows.withColumn(_TABLE, self._changed_table()) if asked else rows
        table = F.col(_TABLE) if asked else F.lit("").alias(_TABLE)
        out = named.select(*kept, name.alias(COLUMN), F.col("payload").alias(_RAW), table)
        for place, route in enumerate(self.routes):
            out = self._decode_route(out, place, route)
        letters = [F.col(_letter_column_name(place)) for place in range(len(self.routes))]
        letter = F.coalesce(*letters, self._dead_letter_without_route())
        parts = {part: letter.getField(part) for part in _LETTER}
        if len(self._routes_grouped_by_origin) < len(self.routes):
            # What names no table may be of any, so each table's fields are cut out of it.
            whole, error = parts["_bytes"], parts["_error"]
            parts["_bytes"] = bare = self.redacted_payload(whole)
            parts["_error"] = redact.redacted_error(error, whole, bare)
        return out.select(
            *kept,
            COLUMN,
            *(F.col(_record_column_name(place)).alias(route.name) for place, route in enumerate(self.routes)),
            *(value.alias(part) for part, value in parts.items()),
        )

    def redacted_payload(self, payload: Column) -> Column:
        """See :meth:`etl.formats.base.Decoder.redacted_payload`; each payload is redacted by the routes of its topic or stream."""
        cut = []
        for routes in self._routes_grouped_by_origin:
            hiding = [each.decoder for each in routes if isinstance(each.decoder, redact.RedactingDecoder)]
            bare = payload
            if hiding:
                names = dict.fromkeys(name for each in hiding for name in each.fields)
                bare = replace(hiding[0], fields=tuple(names)).redacted_payload(payload)
            cut.append((routes[0].own_record_condition(), bare))
        kept: Column = reduce(lambda found, one: found.when(*one), cut, F).otherwise(payload)
        return kept

    @cached_property
    def _routes_grouped_by_origin(self) -> list[list[DecodingRoute]]:
        """Routes of each topic or stream: several if they are of tables of a database."""
        found: dict[tuple[str, str], list[DecodingRoute]] = {}
        for route in self.routes:
            found.setdefault((route.source, route.origin), []).append(route)
        return [*found.values()]

    def _changed_table(self) -> Column:
        """Return the table of the change in a payload; empty for a topic or stream whose routes do not ask for it."""
        named = [routes[0] for routes in self._routes_grouped_by_origin if routes[0].changes_of is not None]
        tables = (
            F.when(route.own_record_condition(), route.decoder.changed_table_name(F.col("payload")))
            for route in named
        )
        return F.coalesce(*tables, F.lit(""))

    def _takes_route_condition(self, route: DecodingRoute) -> Column:
        """Return a condition: a record takes a route; what is no change of a table takes the first of its stream."""
        if route.changes_of is None:
            return route.own_record_condition()
        first = any(routes[0] is route for routes in self._routes_grouped_by_origin)
        return route.own_record_condition() & F.col(_TABLE).isin(route.changes_of, *([""] if first else []))

    def _decode_route(self, rows: DataFrame, place: int, route: DecodingRoute) -> DataFrame:
        """Decode one route's payloads; its decoder gets a null payload for other rows, and their result is dropped."""
        mine = F.col(COLUMN).eqNullSafe(route.name)
        decoded = route.decoder.decode(rows.withColumn("payload", F.when(mine, F.col(_RAW))))
        fields = [F.col(f"`{name}`") for name in route.decoder.schema.fieldNames()]
        good = mine & F.col("_error").isNull()
        return decoded.select(
            *(F.col(f"`{name}`") for name in rows.columns),
            F.when(good, F.struct(*fields)).alias(_record_column_name(place)),
            F.when(mine, F.struct(*_LETTER)).alias(_letter_column_name(place)),
        )

    def _dead_letter_without_route(self) -> Column:
        origin = F.element_at(F.split("_id", "/"), 1)
        return F.struct(
            F.col(_RAW).alias("_bytes"),
            F.lit("route").alias("_stage"),
            F.concat(
                F.lit("no route for "),
                F.when(
                    F.col(_TABLE) != "", F.concat(F.lit("changes of "), F.col(_TABLE), F.lit(" in "))
                ).otherwise(""),
                F.coalesce(origin, F.lit("a record without an identity")),
            ).alias("_error"),
        )


def route_decoder(spark: SparkSession, query: SourceRouteSettings) -> Decoder:
    """Make the decoder of one route, with decompression, deletes, rules and redaction.

    Raises
    ------
    StartError
        As in :func:`etl.formats.base.open_decoder`.
    """
    made = open_decoder(query.format, spark, query.schema, query.decompress_up_to)
    if query.decompress_up_to is not None:
        made = DecompressingDecoder(made, query.decompress_up_to)
    if query.source.null_payload_deletes:
        made = TombstoneAsDeleteDecoder(made)
    made = decoder_with_rules(spark, made, query.rules)
    readable = query.format.has_field_names
    return redact.RedactingDecoder(made, query.redact, readable=readable) if query.redact else made


def query_decoder(spark: SparkSession, routes: Sequence[SourceRouteSettings]) -> Decoder:
    """Make the decoder of a query.

    Parameters
    ----------
    routes
        Routes of the query; for a single route without a name the fields are top-level columns.

    Raises
    ------
    StartError
        A schema cannot be read.
    """
    made = [route_decoder(spark, route) for route in routes]
    if len(routes) == 1 and routes[0].name is None:
        return made[0]
    return RoutingDecoder(
        tuple(
            DecodingRoute(str(route.name), route.source.name, str(route.origin), each, route.changes_of)
            for route, each in zip(routes, made, strict=True)
        )
    )


def _record_column_name(place: int) -> str:
    return f"_record_{place}"


def _letter_column_name(place: int) -> str:
    return f"_letter_{place}"


def rows_of_route(rows: DataFrame, route: str | None, table: str) -> DataFrame:
    """Return the good records of a landing table that took one route, with the route's fields as top-level columns.

    Parameters
    ----------
    rows
        Rows of a landing table, without its dead letters.
    route
        None for all records, unchanged.
    table
        Name of the table, for messages.

    Raises
    ------
    StartError
        The table has no such route.
    """
    if route is None:
        return rows
    known = [f.name for f in rows.schema.fields if isinstance(f.dataType, StructType)]
    if COLUMN not in rows.columns or route not in known:
        have = ", ".join(known) if COLUMN in rows.columns else "none"
        raise StartError(f"table {table} has no route {route}; its routes are {have}")
    others = [F.col(f"`{name}`") for name in rows.columns if name.startswith("_") and name != COLUMN]
    return rows.where(F.col(COLUMN) == route).select(*others, f"`{route}`.*")


@dataclass(frozen=True)
class TombstoneAsDeleteDecoder(DecoderWrapper):
    """Decoder that takes a null payload for the delete of its key, as in a compacted topic: it is no bad data."""

    def decode(self, rows: DataFrame) -> DataFrame:
        """Decode, see :meth:`etl.formats.base.Decoder.decode`; a delete has the stage :data:`DELETE` and no error."""
        decoded = self.decoder.decode(rows)
        deletes = F.col("_error").eqNullSafe(TOMBSTONE)
        changed = {
            "_stage": F.when(deletes, F.lit(DELETE)).otherwise(F.col("_stage")).alias("_stage"),
            "_error": F.when(~deletes, F.col("_error")).alias("_error"),
        }
        return decoded.select(*(changed.get(name, F.col(f"`{name}`")) for name in decoded.columns))
