"""Streaming jobs written by hand, for comparison: the shortest expert version, and that of tutorials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace.etl.formats.schema_files import parse_ddl_schema, read_text_schema_file
from millrace.etl.record import envelope, tables
from millrace.etl.record.tables import Table
from millrace.sandbox.programs.child_processes import RUN

if TYPE_CHECKING:
    from tests.performance.kafka_landing_speed import Bench

SCHEMA = "pipelines/flights/schemas/flight.ddl"
HOME = RUN / "bench-core"


def plain(bench: Bench, name: str) -> Any:
    schema = parse_ddl_schema(bench.spark, read_text_schema_file(bench.spark, SCHEMA), SCHEMA)
    parsed = F.from_json(F.col("value").cast("string"), schema)
    rows = bench.source(bench.per_batch).select(parsed.alias("r"), F.col("timestamp").alias("_arrived_at"))
    rows = rows.select("r.*", "_arrived_at")
    tables.create_or_evolve_table(bench.spark, Table("lake", "bench", name), rows.schema)
    return (
        rows.writeStream.format("iceberg")
        .option("checkpointLocation", str(HOME / name))
        .toTable(f"lake.bench.{name}")
    )


def _like_ours(bench: Bench, limit: int | None) -> tuple[DataFrame, list[Column]]:
    """The topic in the envelope's shape, and the columns that a landing table has of it beside the payload's."""
    records = envelope.from_kafka(bench.source(limit, headers=True), "flights")
    beside = [F.xxhash64("payload").alias("_hash"), F.current_timestamp().alias("_landed_at")]
    return records, [*(F.col(name) for name in envelope.COLUMNS), *beside]


def same_columns(bench: Bench, name: str) -> Any:
    schema = parse_ddl_schema(bench.spark, read_text_schema_file(bench.spark, SCHEMA), SCHEMA)
    parsed = F.from_json(F.col("payload").cast("string"), schema)
    records, columns = _like_ours(bench, bench.per_batch)
    rows = records.select(*columns, parsed.alias("r"))
    rows = rows.select(*(c for c in rows.columns if c != "r"), "r.*")
    tables.create_or_evolve_table(bench.spark, Table("lake", "bench", name), rows.schema)
    query = rows.writeStream.format("iceberg").option("checkpointLocation", str(HOME / name))
    return query.toTable(f"lake.bench.{name}")


def tutorial(bench: Bench, name: str) -> Any:
    rows = bench.source().select(F.col("value").alias("payload"), F.col("timestamp").alias("_arrived_at"))
    return _taught(bench, name, rows, [F.col("_arrived_at")])


def tutorial_same_columns(bench: Bench, name: str) -> Any:
    return _taught(bench, name, *_like_ours(bench, None))


def _taught(bench: Bench, name: str, rows: DataFrame, columns: list[Column]) -> Any:
    schema = parse_ddl_schema(bench.spark, read_text_schema_file(bench.spark, SCHEMA), SCHEMA)
    kinds: dict[str, type | tuple[type, ...]] = {
        f.name: {"int": int, "double": (int, float)}.get(f.dataType.simpleString(), str) for f in schema
    }
    required = [f.name for f in schema if not f.nullable]

    @F.udf("struct<good: string, error: string>")
    def check(value: bytes) -> tuple[str | None, str | None]:
        try:
            record = json.loads(value)
            for field, kind in kinds.items():
                if record.get(field) is not None and not isinstance(record[field], kind):
                    return None, f"wrong type: {field}"
            missing = [field for field in required if record.get(field) is None]
        except (ValueError, AttributeError) as error:
            return None, str(error)
        return (None, f"missing: {missing}") if missing else (json.dumps(record), None)

    checked = rows.withColumn("checked", check("payload"))

    def fine(batch: DataFrame) -> DataFrame:
        good = batch.where("checked.good is not null")
        parsed = good.select(*columns, F.from_json("checked.good", schema).alias("r"))
        return parsed.select(*(c for c in parsed.columns if c != "r"), "r.*")

    def bad(batch: DataFrame) -> DataFrame:
        told = F.col("checked.error").alias("error")
        return batch.where("checked.good is null").select("payload", "_arrived_at", told)

    for table, part in ((name, fine), (f"{name}_bad", bad)):
        tables.create_or_evolve_table(bench.spark, Table("lake", "bench", table), part(checked).schema)

    def write(batch: DataFrame, _id: int) -> None:
        fine(batch).writeTo(f"lake.bench.{name}").append()
        bad(batch).writeTo(f"lake.bench.{name}_bad").append()

    return checked.writeStream.foreachBatch(write).option("checkpointLocation", str(HOME / name)).start()
