"""Schemas of Connect in events: a hostile one ends no executor."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DecimalType, StructField, StructType

from millrace.etl.formats.changes.connect_schemas import fields_of_other_schema

ROW = StructType([StructField("price", DecimalType(12, 2))])


def test_a_schema_of_many_or_long_texts_overflows_no_stack(spark: SparkSession) -> None:
    price = {"type": "bytes", "parameters": {"scale": "4"}, "default": None, "field": "price"}
    many = ",".join(['"a":"b"'] * 200_000)
    events = [
        json.dumps({"schema": {"fields": [price]}, "payload": {}}),
        f'{{"schema":{{"scale":"4",{many},"field":"price"}},"payload":{{}}}}',
        json.dumps({"schema": {"scale": "4", "doc": '"' * 400_000}, "payload": {}}),
        json.dumps({"schema": {"scale": "4", "doc": '"' * 400_000, "field": "price"}, "payload": {}}),
    ]
    rows = spark.createDataFrame([(event,) for event in events], "event STRING")
    found = F.concat_ws(", ", *fields_of_other_schema(ROW, F.col("event"), unscaled=True))
    assert [row[0] for row in rows.select(found).collect()] == ["price", "", "", "price"]
