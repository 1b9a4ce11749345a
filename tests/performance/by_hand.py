"""What people write by hand: the least code of an expert, with columns like ours, and the way of the tutorials."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from etl import envelope, tables
from etl.decode import parse_schema
from etl.formats.build import read_schema
from etl.tables import Table
from millrace.sandbox.process import RUN

if TYPE_CHECKING:
    from tests.performance.core import Bench

SCHEMA = "pipelines/flights/schemas/flight.ddl"
HOME = RUN / "bench-core"


def plain(bench: Bench, name: str) -> Any:
    schema = parse_schema(bench.spark, read_schema(bench.spark, SCHEMA), SCHEMA)
    parsed = F.from_json(F.col("value").cast("string"), schema)
    rows = bench.source(bench.per_batch).select(parsed.alias("r"), F.col("timestamp").alias("_arrived_at"))
    rows = rows.select("r.*", "_arrived_at")
    tables.ensure(bench.spark, Table("lake", "bench", name), rows.schema)
    return (
        rows.writeStream.format("iceberg")
        .option("checkpointLocation", str(HOME / name))
        .toTable(f"lake.bench.{name}")
    )


def same_columns(bench: Bench, name: str) -> Any:
    schema = parse_schema(bench.spark, read_schema(bench.spark, SCHEMA), SCHEMA)
    parsed = F.from_json(F.col("payload").cast("string"), schema)
    records = envelope.from_kafka(bench.source(bench.per_batch, headers=True), "flights")
    rows = records.select(
        *envelope.COLUMNS,
        F.xxhash64("payload").alias("_hash"),
        F.current_timestamp().alias("_landed_at"),
        parsed.alias("r"),
    ).select(*envelope.COLUMNS, "_hash", "_landed_at", "r.*")
    tables.ensure(bench.spark, Table("lake", "bench", name), rows.schema)
    query = rows.writeStream.format("iceberg").option("checkpointLocation", str(HOME / name))
    return query.toTable(f"lake.bench.{name}")


def tutorial(bench: Bench, name: str) -> Any:
    schema = parse_schema(bench.spark, read_schema(bench.spark, SCHEMA), SCHEMA)
    wanted = {
        f.name: {"int": int, "double": (int, float)}.get(f.dataType.simpleString(), str) for f in schema
    }
    required = [f.name for f in schema if not f.nullable]

    @F.udf("struct<good: string, error: string>")
    def check(value: bytes) -> tuple[str | None, str | None]:
        try:
            record = json.loads(value)
            for field, kind in wanted.items():
                if record.get(field) is not None and not isinstance(record[field], kind):
                    return None, f"wrong type: {field}"
            missing = [field for field in required if record.get(field) is None]
        except (ValueError, AttributeError) as error:
            return None, str(error)
        return (None, f"missing: {missing}") if missing else (json.dumps(record), None)

    rows = bench.source().select("value", F.col("timestamp").alias("_arrived_at"))
    checked = rows.withColumn("checked", check("value"))
    good = F.from_json("checked.good", schema).alias("r")
    tables.ensure(
        bench.spark,
        Table("lake", "bench", name),
        checked.select(good, "_arrived_at").select("r.*", "_arrived_at").schema,
    )
    tables.ensure(
        bench.spark, Table("lake", "bench", name + "_bad"), rows.withColumn("error", F.lit("")).schema
    )

    def write(batch: DataFrame, _id: int) -> None:
        fine, bad = batch.where("checked.good is not null"), batch.where("checked.good is null")
        fine.select(good, "_arrived_at").select("r.*", "_arrived_at").writeTo(f"lake.bench.{name}").append()
        bad.select("value", "_arrived_at", F.col("checked.error").alias("error")).writeTo(
            f"lake.bench.{name}_bad"
        ).append()

    return checked.writeStream.foreachBatch(write).option("checkpointLocation", str(HOME / name)).start()
