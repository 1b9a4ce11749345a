"""Change events of AWS DMS, in JSON, as it writes them to Kinesis and Kafka.

The order of changes is that of ``metadata.timestamp``, and of equal times that of the records in their partition: DMS makes one
record after the other, but the log positions in ``stream-position`` differ in form with each database.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from ...launch.formats import DmsFormat
from .. import schema_files
from ..decoding import times
from .decoder import BY_TIME, CONTROL, DELETE, TRUNCATE, ChangeDecoder, ChangeEnvelope
from .wire_types import WireTypes

_METADATA = StructType(
    [
        StructField(name, StringType())
        for name in ("timestamp", "record-type", "operation", "schema-name", "table-name", "transaction-id")
    ]
)
_DATA = {"load": "snapshot", "insert": "insert", "update": "update", "delete": DELETE}


def open_decoder(
    _form: DmsFormat, spark: SparkSession, schema: str, _open_up_to: int | None
) -> ChangeDecoder:
    """Make the decoder, see :func:`etl.formats.base.open_decoder`."""
    return ChangeDecoder(schema_files.read_ddl_schema(spark, schema), EVENTS)


class _DmsEvents(ChangeEnvelope):
    @property
    def fields_beside_rows(self) -> StructType:
        return StructType([StructField("metadata", _METADATA)])

    def fields_of_rows(self, wire: StructType) -> StructType:
        return StructType([StructField("data", wire), StructField("before-image", wire)])

    def source_struct(self, head: Column) -> Column:
        return head["metadata"]

    def columns_of_change_and_rows(self, head: Column, raw: Column, wire: StructType) -> Mapping[str, Column]:
        metadata, data, image = head["metadata"], F.col("data"), F.col("`before-image`")
        operation = metadata["operation"]
        rows = reduce(lambda found, each: found.when(operation == each[0], each[1]), _DATA.items(), F)
        control = F.when(operation == "truncate-table", TRUNCATE).otherwise(CONTROL)
        named = F.when(metadata["record-type"] == "data", rows).when(
            metadata["record-type"] == "control", control
        )
        return {
            "operation": named,
            "transaction": metadata["transaction-id"],
            "after": data,
            "before": image,
        }

    def columns_of_change_place(self, source: Column, operation: Column) -> Mapping[str, Column]:
        return {
            "table": F.concat_ws(".", source["schema-name"], source["table-name"]),
            "lane": F.lit(BY_TIME),
            "position": F.lit(None).cast("string"),
            "at": times.time_from_text(TimestampType(), source["timestamp"]),
        }


EVENTS = _DmsEvents(WireTypes(hexadecimal=True))
"""Shape of the records."""
