"""From a query to the decoder of its payloads."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ...launch.settings import RouteSettings
from ..base import Decoder
from .data_rules import ruled
from .decompress import Opening
from .redact import Redacting
from .tombstones import Deleting


def of_query(spark: SparkSession, query: RouteSettings) -> Decoder:
    """Make the decoder of a route, with whatever else it does to a payload.

    Raises
    ------
    StartError
        As :meth:`etl.launch.format_kinds.Format.decoder`, and for a redacted field that is not there.
    """
    made = query.format.decoder(spark, query.schema, query.decompress_up_to)
    if query.decompress_up_to is not None:
        made = Opening(made, query.decompress_up_to)
    if query.source.deletes:
        made = Deleting(made)
    made = ruled(spark, made, query.rules)
    return Redacting(made, query.redact, readable=query.format.NAMES_FIELDS) if query.redact else made
