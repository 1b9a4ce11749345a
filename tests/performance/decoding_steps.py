"""Time per step of decoding a landed record: ``python -m tests.performance.decoding_steps --records 200000 --rounds 5``.

The same flights, in the shape of Spark's Kafka source and out of the page cache, are made into the columns of a landing table and
written nowhere (Spark's ``noop``). The plan grows by a step at a time, from what is written by hand to the core's own. Steps take
turns; what is measured is the CPU of the tasks, which other programs on the machine touch less than they do the rate.

read
    The record's bytes, hashed.
envelope
    With identity, position, key, headers and times.
by hand
    With ``from_json``: the case ``same_columns`` of :mod:`tests.performance.kafka_landing_speed`.
times as text
    The same, and the moments of a record are not parsed.
with an end
    With a member more in the place of the last brace, by which a second value and a value too many are seen.
record
    With the moments parsed by the core's own way, and a record built of the fields.
judged
    With the questions to a record: whole, required fields there, UTF-8, inside its brackets.
decoder
    The core's decoder, with the ways for what is not fine.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from rich.console import Console

from millrace.etl.formats import json as decode
from millrace.etl.formats.decoding import json_values
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema, read_text_schema_file
from millrace.etl.record import envelope
from millrace.etl.record.tables import with_all_fields_nullable
from millrace.sandbox.programs.child_processes import RUN
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.cpu_time import task_seconds
from tests.performance.hand_written_baselines import SCHEMA
from tests.performance.kafka_landing_speed import pairs
from tests.performance.median_intervals import interval
from tests.performance.preloaded_input import clean

HOME = RUN / "bench-decoding"
PARTS = 4

Step = Callable[[], DataFrame]


def prepare(records: int) -> None:
    """Write flights as Spark's Kafka source has them, in as many files as there are partitions."""
    HOME.mkdir(parents=True)
    payloads = [event.payload for event in clean(records)]
    for part in range(PARTS):
        values = payloads[part::PARTS]
        columns = {
            "key": pa.nulls(len(values), pa.binary()),
            "value": pa.array(values, pa.binary()),
            "topic": pa.repeat("flights", len(values)),
            "partition": pa.repeat(pa.scalar(part, pa.int32()), len(values)),
            "offset": pa.array(range(len(values)), pa.int64()),
            "timestamp": pa.repeat(pa.scalar(datetime.now(UTC), pa.timestamp("us", "UTC")), len(values)),
        }
        pq.write_table(pa.table(columns), HOME / f"{part}.parquet", compression="none")


def steps(spark: SparkSession) -> Mapping[str, Step]:
    """The plans, each with what the one before it has."""
    schema = parse_ddl_schema(spark, read_text_schema_file(spark, SCHEMA), SCHEMA)
    plain, as_text = (
        with_all_fields_nullable(schema),
        with_all_fields_nullable(json_values.parser_schema(schema)),
    )
    decoder = JsonDecoder(schema)

    def records() -> DataFrame:
        return envelope.with_hash_and_landing_time(
            envelope.from_kafka(spark.read.parquet(str(HOME)), "flights")
        )

    kept = tuple(name for name in records().columns if name != "payload")
    texts, judging, _ = decoder._successive_projections(kept)
    record, exact = judging[-2:]

    def with_record(rows: DataFrame, record: Column, *more: Column) -> DataFrame:
        found = rows.select(*kept, record.alias("r"), *more)
        return found.select(*(name for name in found.columns if name != "r"), "r.*")

    def by_hand(kind: StructType) -> DataFrame:
        return with_record(records(), F.from_json(F.col("payload").cast("string"), kind))

    def ended() -> DataFrame:
        return records().select(*texts)

    return {
        "read": lambda: records().select("_hash"),
        "envelope": lambda: records().drop("payload"),
        "by hand": lambda: by_hand(plain),
        "times as text": lambda: by_hand(as_text),
        "with an end": lambda: with_record(ended(), decode._parse_json_column(F.col(decode._TEXT), as_text)),
        "record": lambda: with_record(ended(), record),
        "judged": lambda: with_record(ended(), record, exact.isNull().alias("_fine")),
        "decoder": lambda: decoder.decode(records()),
    }


def micros(spark: SparkSession, step: Step, records: int) -> float:
    """CPU of a step's tasks, in microseconds a record."""
    before = task_seconds(spark)
    step().write.format("noop").mode("overwrite").save()
    return (task_seconds(spark) - before) / records * 1e6


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.performance.decoding_steps",
        description="Where the time of a landed record goes.",
    )
    reading.add_argument("--records", type=int, default=200_000)
    reading.add_argument("--rounds", type=pairs, default=5, help="measured rounds")
    reading.add_argument("--cores", type=int, default=2)
    return reading


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    given = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    prepare(given.records)
    console = Console(width=160, highlight=False)
    with spark_session(given.cores) as spark:
        cases = steps(spark)
        names = list(cases)
        taken: dict[str, list[float]] = {name: [] for name in names}
        # The first two rounds warm the JVM up and are not counted.
        for number in range(given.rounds + 2):
            for name in in_turn(names, number):
                found = micros(spark, cases[name], given.records)
                if number > 1:
                    taken[name].append(found)
    console.print(
        f"{given.records:,} flights, {given.rounds} rounds on {given.cores} cores: µs of the tasks' CPU a record, "
        "median [95 % interval]; and what the step adds to the one before, by rounds"
    )
    for before, name in zip([None, *names], names, strict=False):
        added = np.subtract(taken[name], taken[before]) if before else np.asarray(taken[name])
        console.print(f"  {name:17} {interval(taken[name])!s:20} {interval(added.tolist())!s:>20}")
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
