"""Cost of routes in decoding: a router of one, two and four routes, compared with one decoder.

``python -m tests.performance.routed_decoding --records 200000 --rounds 5``. The same flights as JSON, spread over topics in
turn, are decoded and written nowhere (Spark's ``noop``), with the envelope's columns beside them as a query has
them. The cases take turns; the figures to trust are ratios of a round to the unrouted one.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

from millrace.etl.formats.base import Decoder
from millrace.etl.formats.decoding.decoder_per_topic import DecodingRoute, RoutingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from tests.performance.benchmark_session import spark_session
from tests.performance.case_order import in_turn
from tests.performance.decoding_by_format import DDL, HOME, write
from tests.performance.median_intervals import interval
from tests.performance.preloaded_input import clean


def decoders(spark: SparkSession) -> dict[str, Decoder]:
    """By case; every route has the same schema, so that nothing but the routes differs."""
    schema = parse_ddl_schema(spark, DDL.read_text(), str(DDL))
    found: dict[str, Decoder] = {"unrouted": JsonDecoder(schema)}
    for count in (1, 2, 4):
        routes = (DecodingRoute(f"r{n}", f"s{n}", f"t{n}", JsonDecoder(schema)) for n in range(count))
        found[f"{count} routes"] = RoutingDecoder(tuple(routes))
    return found


def records(spark: SparkSession, routes: int) -> DataFrame:
    """Payloads with an identity and a source, spread over as many topics as there are routes."""
    read = spark.read.parquet(str(HOME / "json"))
    topic = (F.monotonically_increasing_id() % routes).cast("string")
    identity = F.concat(F.lit("t"), topic, F.lit("/0/"), F.monotonically_increasing_id().cast("string"))
    return read.select(identity.alias("_id"), F.concat(F.lit("s"), topic).alias("_source"), "payload")


def parser() -> argparse.ArgumentParser:
    reading = argparse.ArgumentParser(
        prog="tests.performance.routed_decoding", description=__doc__.splitlines()[0]
    )
    reading.add_argument("--records", type=int, default=200_000)
    reading.add_argument("--rounds", type=int, default=5)
    reading.add_argument("--cores", type=int, default=2)
    return reading


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    console = Console(width=160, highlight=False)
    shutil.rmtree(HOME, ignore_errors=True)
    write("json", (event.payload for event in clean(given.records)))
    with spark_session(given.cores, jar_sets=("sandbox", "avro")) as spark:
        cases = decoders(spark)
        counts = {name: getattr(decoder, "routes", (None,)) for name, decoder in cases.items()}
        frames = {n: cases[n].decode(records(spark, len(counts[n]))) for n in cases}
        for name, frame in frames.items():
            bad = frame.where("_error IS NOT NULL").count()
            if bad:
                raise SystemExit(f"{name}: {bad:,} of {given.records:,} records were not decoded")
        taken: dict[str, list[float]] = {name: [] for name in cases}
        names = list(cases)
        # The first round warms the JVM up and is not counted.
        for number in range(given.rounds + 1):
            for name in in_turn(names, number):
                begun = time.monotonic()
                frames[name].write.format("noop").mode("overwrite").save()
                if number:
                    taken[name].append(time.monotonic() - begun)
    console.print(
        f"{given.records:,} flights, {given.rounds} rounds on {given.cores} cores: median [95 % interval]"
    )
    for name, times in taken.items():
        rate, low, high = interval([given.records / t for t in times])
        pairs = [one / t for one, t in zip(taken["unrouted"], times, strict=True)]
        ratio, least, most = interval(pairs)
        console.print(
            f"  {name:9} {rate:9,.0f} rows/s [{low:,.0f}, {high:,.0f}]   of unrouted {ratio:4.2f} [{least:.2f}, {most:.2f}]"
        )
    shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
