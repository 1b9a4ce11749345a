"""Kafka into Iceberg with confluent-kafka, DuckDB and PyIceberg."""

import json
import sys
import time

import duckdb  # type: ignore[import-not-found]
import pyarrow as pa
from confluent_kafka import Consumer
from pyiceberg.catalog.sql import SqlCatalog

given = json.loads(sys.argv[1])
table = SqlCatalog("lake", **given["catalog"]).load_table(given["table"])
schema = table.schema().as_arrow()
structure = json.dumps(given["columns"])
settings = {"bootstrap.servers": given["bootstrap"], "group.id": "loop"}
consumer = Consumer({**settings, "enable.auto.commit": False, "auto.offset.reset": "earliest"})
consumer.subscribe([given["topic"]])
payloads: list[bytes] = []
due = time.monotonic()
while True:
    payloads += [each.value() for each in consumer.consume(10_000, 0.1) if not each.error()]
    if not payloads or (time.monotonic() < due and len(payloads) < given["per_batch"]):
        continue
    due = time.monotonic() + given["seconds"]
    raw = pa.table({"payload": pa.array(payloads, pa.binary()).cast(pa.string())})
    parsed = f"SELECT unnest(from_json(payload, '{structure}')) FROM raw WHERE json_valid(payload)"  # noqa: S608
    rows = duckdb.sql(f"SELECT * FROM ({parsed}) WHERE id IS NOT NULL").to_arrow_table()  # noqa: S608
    table.append(rows.cast(schema))
    consumer.commit(asynchronous=False)
    payloads = []
