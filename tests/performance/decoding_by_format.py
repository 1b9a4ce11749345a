"""Speed of decoding each payload format, compared with JSON in the same run.

``python -m tests.performance.decoding_by_format --records 200000 --rounds 5``. The same flights in every format,
from the page cache, are decoded and written nowhere (Spark's ``noop``): what is measured is the decoder
with its verdicts, not a table. The formats take turns, so that what else the machine does falls on all of
them; the figures to trust are ratios of a round.

json, csv, text, avro
    By Spark's own parsers.
confluent
    Avro behind a registry's header, with schemas of two writers.
protobuf
    In Python, by Arrow.
protobuf, rows
    The same on an engine without Arrow.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from rich.console import Console

from millrace.config.formats import KINDS
from millrace.config.formats.base import FormatConfig
from millrace.config.formats.protobuf import ProtobufFormat
from millrace.etl.formats import avro, protobuf
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.formats.text import TextDecoder
from millrace.etl.launch.formats import AvroFormat, CsvFormat
from millrace.sandbox.payloads import payload_writers, records_from_nycflights
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.toolchain import ROOT
from tests import protobuf_without_protoc as pb
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.median_intervals import interval

HOME = RUN / "bench-formats"
DDL = ROOT / "pipelines/flights/schemas/flight.ddl"
_PROTOBUF = {"string": pb.STRING, "int": pb.INT32, "double": pb.DOUBLE}


def rows(count: int) -> Iterator[dict[str, object]]:
    """Flights, from the year's beginning and again."""
    table = records_from_nycflights.read_departures(month=1).to_pylist()
    for row in itertools.islice(itertools.cycle(table), count):
        hour = datetime.fromisoformat(str(row["time_hour"]).replace("Z", "+00:00"))
        yield row | {"time_hour": hour if hour.tzinfo else hour.replace(tzinfo=UTC)}


def schemas(fields: Mapping[str, tuple[str, bool]]) -> tuple[str, bytes]:
    """The same fields as an Avro schema and as a descriptor file."""
    kinds = {"string": "string", "int": "int", "double": "double"}
    moment = {"type": "long", "logicalType": "timestamp-micros"}
    avsc = {
        "type": "record",
        "name": "Flight",
        "fields": [
            {"name": name, "type": kinds.get(kind, moment) if required else ["null", kinds.get(kind, moment)]}
            for name, (kind, required) in fields.items()
        ],
    }
    stamp = pb.file(
        "t.proto",
        "google.protobuf",
        [pb.message("Timestamp", [pb.Declared("seconds", 1, pb.INT64), pb.Declared("nanos", 2, pb.INT32)])],
    )
    declared = [
        pb.Declared(name, number, pb.MESSAGE, of="google.protobuf.Timestamp")
        if kind == "timestamp"
        else pb.Declared(name, number, _PROTOBUF[kind], oneof=None if required else number)
        for number, (name, (kind, required)) in enumerate(fields.items(), start=1)
    ]
    message = pb.message("Flight", declared)
    return json.dumps(avsc), pb.descriptor_set(
        stamp, pb.file("f.proto", "demo", [message], imports=["t.proto"])
    )


def write(name: str, made: Iterator[bytes]) -> None:
    """Keep payloads as files that Spark reads in as many tasks."""
    folder = HOME / name
    folder.mkdir(parents=True)
    table = pa.table({"payload": pa.array(list(made), pa.binary())})
    for part in range(4):
        share = table.slice(part * len(table) // 4, (part + 1) * len(table) // 4 - part * len(table) // 4)
        pq.write_table(share, folder / f"{part}.parquet", compression="none")


def prepare(spark: SparkSession, count: int) -> dict[str, tuple[str, Decoder]]:
    """Write the flights in every format; give folder and decoder of each case."""
    schema = parse_ddl_schema(spark, DDL.read_text(), str(DDL))
    fields = {f.name: (f.dataType.simpleString(), not f.nullable) for f in schema}
    avsc, descriptor = schemas(fields)
    HOME.mkdir(parents=True)
    (HOME / "f.avsc").write_text(avsc)
    (HOME / "f.desc").write_bytes(descriptor)
    asked: dict[str, tuple[FormatConfig, Path]] = {
        "json": (KINDS["json"](kind="json"), DDL),
        "csv": (KINDS["csv"](kind="csv"), DDL),
        "avro": (KINDS["avro"](kind="avro"), HOME / "f.avsc"),
        "protobuf": (ProtobufFormat(kind="protobuf", message="demo.Flight"), HOME / "f.desc"),
    }
    for name, (form, path) in asked.items():
        encode = payload_writers(form, path).encode
        write(name, (encode(row) for row in rows(count)))
    encode = payload_writers(*asked["avro"]).encode
    write("confluent", (b"\0\0\0\0" + bytes([1 + n % 2]) + encode(row) for n, row in enumerate(rows(count))))
    of_avro = avro.make_avro_decoder(spark, AvroFormat("none", None, None, None), avsc, "f.avsc")
    registered = avro.AvroDecoder(of_avro.schema, avsc, "confluent", {"1": avsc, "2": avsc})
    message = protobuf.make_protobuf_decoder(descriptor, "demo.Flight", "f.desc").message
    return {
        "json": ("json", JsonDecoder(schema)),
        "csv": ("csv", CsvDecoder(schema, CsvFormat(",", '"', ""))),
        "text": ("json", TextDecoder(parse_ddl_schema(spark, "line STRING", "text"))),
        "avro": ("avro", of_avro),
        "confluent": ("confluent", registered),
        "protobuf": ("protobuf", protobuf.ProtobufDecoder(message, True)),
        "protobuf, rows": ("protobuf", protobuf.ProtobufDecoder(message, False)),
    }


def seconds(spark: SparkSession, folder: str, decoder: Decoder) -> float:
    """Decode everything once."""
    frame = decoder.decode(spark.read.parquet(str(HOME / folder)))
    started = time.monotonic()
    frame.write.format("noop").mode("overwrite").save()
    return time.monotonic() - started


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="tests.performance.decoding_by_format", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args(arguments)
    console = Console(width=200, highlight=False)
    shutil.rmtree(HOME, ignore_errors=True)
    with spark_session(given.cores, jar_sets=("sandbox", "avro")) as spark:
        cases = prepare(spark, given.records)
        for name, (folder, decoder) in cases.items():
            bad = decoder.decode(spark.read.parquet(str(HOME / folder))).where("_error IS NOT NULL").count()
            if bad:
                raise SystemExit(f"{name}: {bad:,} of {given.records:,} records were not decoded")
        taken: dict[str, list[float]] = {name: [] for name in cases}
        names = list(cases)
        # The first round warms the JVM up and is not counted.
        for number in range(given.rounds + 1):
            for name in in_turn(names, number):
                found = seconds(spark, *cases[name])
                if number:
                    taken[name].append(found)
    console.print(
        f"{given.records:,} flights, {given.rounds} rounds on {given.cores} cores: median [95 % interval]"
    )
    for name, times in taken.items():
        rate, low, high = interval([given.records / t for t in times])
        ratio, least, most = interval([j / t for j, t in zip(taken["json"], times, strict=True)])
        console.print(
            f"  {name:15} {rate:10,.0f} rows/s [{low:,.0f}, {high:,.0f}]   of JSON's rate "
            f"{ratio:5.2f} [{least:.2f}, {most:.2f}]"
        )
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
