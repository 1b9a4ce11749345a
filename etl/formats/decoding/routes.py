"""Routes: records of several topics and streams in one table, each decoded as its own topic or stream says.

A routed landing table has one identity for all records and, for each route, one column that holds
the route's decoded fields as a struct; ``_route`` names the route. A record of a topic that no route names
(a pattern finds topics that nobody has thought of) is a dead letter of the stage ``route``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ...launch.settings import RouteSettings
from ...record.errors import StartError
from ...record.tables import nullable
from ..base import Decoder
from . import redact
from .data_rules import with_rules
from .decompress import DecompressingDecoder
from .tombstones import Deleting

COLUMN = "_route"
"""Name of the route, in a routed landing table."""

_RAW = "_raw"
_LETTER = ("_bytes", "_stage", "_error")


@dataclass(frozen=True)
class Route:
    """Which records take it, and how they are decoded.

    Parameters
    ----------
    name
        Of the route, and of its column.
    source
        The stream's logical name (``_source``).
    origin
        Own name of the topic or stream, as identities begin with it.
    decoder
        Of the route's payloads.
    """

    name: str
    source: str
    origin: str
    decoder: Decoder

    def takes(self) -> Column:
        """Whether a record takes this route, by what the envelope says of it; true or false, never null."""
        mine = (F.col("_source") == self.source) & F.col("_id").startswith(f"{self.origin}/")
        return F.coalesce(mine, F.lit(False))


@dataclass(frozen=True)
class Router:
    """A decoder that takes each payload to the decoder of its route, in one pass over the rows.

    Parameters
    ----------
    routes
        At least one; no two of one name or for one topic, as the configuration has seen.
    """

    routes: tuple[Route, ...]

    @property
    def schema(self) -> StructType:
        """``_route``, and a struct for each route."""
        return StructType(
            [
                StructField(COLUMN, StringType()),
                *(StructField(route.name, nullable(route.decoder.schema)) for route in self.routes),
            ]
        )

    def decode(self, rows: DataFrame) -> DataFrame:
        """Replace ``payload`` by ``_route``, the routes' columns, ``_bytes``, ``_stage`` and ``_error``.

        The rows are read once: a filter for each route would read the source as often as there are routes,
        and of Kinesis each time to another end.

        Parameters
        ----------
        rows
            With ``_id``, ``_source`` and a binary ``payload``; other columns are kept.
        """
        kept = [F.col(f"`{name}`") for name in rows.columns if name != "payload"]
        name = reduce(lambda found, route: found.when(route.takes(), F.lit(route.name)), self.routes, F)
        out = rows.select(*kept, name.alias(COLUMN), F.col("payload").alias(_RAW))
        for place, route in enumerate(self.routes):
            out = self._along(out, place, route)
        letters = [F.col(_letter(place)) for place in range(len(self.routes))]
        letter = F.coalesce(*letters, self._unknown())
        return out.select(
            *kept,
            COLUMN,
            *(F.col(_record(place)).alias(route.name) for place, route in enumerate(self.routes)),
            *(letter.getField(part).alias(part) for part in _LETTER),
        )

    def redacted_payload(self, payload: Column) -> Column:
        """See :func:`etl.formats.decoding.redact.redacted_payload`; of each payload as its own route has it."""
        cut = [(route.takes(), redact.redacted_payload(route.decoder, payload)) for route in self.routes]
        kept: Column = reduce(lambda found, one: found.when(*one), cut, F).otherwise(payload)
        return kept

    def _along(self, rows: DataFrame, place: int, route: Route) -> DataFrame:
        """Decode one route's payloads; of the other rows it is handed a null payload, and what it says is left."""
        mine = F.col(COLUMN).eqNullSafe(route.name)
        decoded = route.decoder.decode(rows.withColumn("payload", F.when(mine, F.col(_RAW))))
        fields = [F.col(f"`{name}`") for name in route.decoder.schema.fieldNames()]
        good = mine & F.col("_error").isNull()
        return decoded.select(
            *(F.col(f"`{name}`") for name in rows.columns),
            F.when(good, F.struct(*fields)).alias(_record(place)),
            F.when(mine, F.struct(*_LETTER)).alias(_letter(place)),
        )

    def _unknown(self) -> Column:
        origin = F.element_at(F.split("_id", "/"), 1)
        return F.struct(
            F.col(_RAW).alias("_bytes"),
            F.lit("route").alias("_stage"),
            F.concat(F.lit("no route for "), F.coalesce(origin, F.lit("a record without an identity"))).alias(
                "_error"
            ),
        )


def of_query(spark: SparkSession, query: RouteSettings) -> Decoder:
    """Make the decoder of one route, with whatever else it does to a payload.

    Raises
    ------
    StartError
        As :meth:`etl.launch.format_kinds.Format.decoder`.
    """
    made = query.format.decoder(spark, query.schema, query.decompress_up_to)
    if query.decompress_up_to is not None:
        made = DecompressingDecoder(made, query.decompress_up_to)
    if query.source.null_payload_deletes:
        made = Deleting(made)
    made = with_rules(spark, made, query.rules)
    readable = query.format.NAMES_FIELDS
    return redact.RedactingDecoder(made, query.redact, readable=readable) if query.redact else made


def query_decoder(spark: SparkSession, routes: Sequence[RouteSettings]) -> Decoder:
    """Make the decoder of a query.

    Parameters
    ----------
    routes
        The query's; a single one without a name has the fields of its records as columns of their own.

    Raises
    ------
    StartError
        A schema that cannot be read.
    """
    made = [of_query(spark, route) for route in routes]
    if len(routes) == 1 and routes[0].name is None:
        return made[0]
    return Router(
        tuple(
            Route(str(route.name), route.source.name, str(route.origin), each)
            for route, each in zip(routes, made, strict=True)
        )
    )


def _record(place: int) -> str:
    return f"_record_{place}"


def _letter(place: int) -> str:
    return f"_letter_{place}"


def rows_of_route(rows: DataFrame, route: str | None, table: str) -> DataFrame:
    """Good records of a landing table that took one route, with the route's fields as columns of their own.

    Parameters
    ----------
    rows
        Of a landing table, without its dead letters.
    route
        None for all records, as they are.
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
        raise StartError(f"table {table} has no route {route}; it has: {have}")
    others = [F.col(f"`{name}`") for name in rows.columns if name.startswith("_") and name != COLUMN]
    return rows.where(F.col(COLUMN) == route).select(*others, f"`{route}`.*")
