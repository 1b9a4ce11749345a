"""Decoding depends on payload and schema alone: same values on another day, in another zone, locale and Spark line."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from millrace.config.engines.versions import LINES
from millrace.etl.formats import avro, protobuf
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.changes import debezium, dms
from millrace.etl.formats.changes.decoder import ChangeDecoder
from millrace.etl.formats.csv import CsvDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.sandbox.programs import jars, open_spark_session
from millrace.sandbox.programs.toolchain import installed_spark_line, spark_submit_variables
from tests import payloads_with_expected_values
from tests.run import FIRST_COMPILER
from tests.spark.formats import test_values_by_other_parsers
from tests.spark.formats.test_decode_csv_avro_protobuf import PLAIN
from tests.suite_parts import NEWEST

SHIFT = 400 * 86_400 + 5 * 3_600
"""Seconds from this day to the other one."""

CLOCK = f"""
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {{
  int failed = syscall(SYS_clock_gettime, id, at);
  if (!failed && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) at->tv_sec += {SHIFT};
  return failed;
}}
int gettimeofday(struct timeval *restrict at, void *restrict zone) {{
  struct timespec now;
  int failed = clock_gettime(CLOCK_REALTIME, &now);
  at->tv_sec = now.tv_sec;
  at->tv_usec = now.tv_nsec / 1000;
  return failed;
}}
time_t time(time_t *at) {{
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (at) *at = now.tv_sec;
  return now.tv_sec;
}}
"""
"""A library that stands before the clock of the machine, for the JVM and for Python."""

ELSEWHERE = f"{FIRST_COMPILER} -Duser.timezone=America/St_Johns -Duser.language=tr -Duser.country=TR"


KINDS = (
    *(
        "DECIMAL(10,2)",
        "DATE",
        "TIMESTAMP",
        "TIMESTAMP_NTZ",
        "TIMESTAMP COMMENT 'epoch milliseconds'",
        "STRING",
    ),
    *("ARRAY<TIMESTAMP>", "STRUCT<id: STRING, n: TINYINT, day: DATE>"),
)
"""Types of JSON that could depend on day, zone or language: with all others, decoders take minutes to plan."""

CHANGED = ("DATE", "TIMESTAMP")
"""Those of rows in change events."""


def cases(spark: SparkSession) -> Iterator[tuple[Decoder, list[bytes]]]:
    """Yield the decoder of each format, with payloads."""

    def schema(kinds: Sequence[str]) -> StructType:
        return parse_ddl_schema(
            spark,
            ", ".join(f"{payloads_with_expected_values.TYPES[each][0]} {each}" for each in kinds),
            "test.ddl",
        )

    def as_json(kinds: Sequence[str]) -> list[bytes]:
        named = test_values_by_other_parsers.json_cases().items()
        return [payload for name, (_, payload, _) in named if name.partition(": ")[0] in kinds]

    yield JsonDecoder(schema(KINDS)), as_json(KINDS)
    csv = CsvDecoder(
        parse_ddl_schema(spark, payloads_with_expected_values.CSV_DDL, "test.ddl"),
        payloads_with_expected_values.COMMA,
    )
    yield csv, [payload for _, payload, _ in test_values_by_other_parsers.csv_cases().values()]
    yield (
        avro.make_avro_decoder(spark, PLAIN, json.dumps(payloads_with_expected_values.AVSC), "values.avsc"),
        [each.payload for each in payloads_with_expected_values.AVRO],
    )
    oneof = protobuf.make_protobuf_decoder(payloads_with_expected_values.ONEOF, "values.Either", "oneof.desc")
    yield oneof, [payload for payload, _ in payloads_with_expected_values.PROTOBUF.values()]
    created = [b'{"op":"c","ts_ms":1,"after":%b}' % each for each in as_json(CHANGED)]
    yield ChangeDecoder(schema(CHANGED), debezium.debezium_envelope()), created
    head = b'"metadata":{"operation":"insert","record-type":"data"}'
    inserted = [b'{"data":%b,%b}' % (each, head) for each in as_json(CHANGED)]
    yield ChangeDecoder(schema(CHANGED), dms.EVENTS), inserted


def everything(spark: SparkSession) -> list[str]:
    # PySpark 4.1 returns bytes where 3.5 returns a bytearray.
    return [
        str([bytes(each) if isinstance(each, bytearray) else each for each in row])
        for decoder, payloads in cases(spark)
        for row in test_values_by_other_parsers.decoded(spark, decoder, payloads)
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("cc") is None, reason="the other clock is a library of C, to be compiled")
def test_decoded_on_another_day_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "clock.c").write_text(CLOCK)
    library = tmp_path / "clock.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(tmp_path / "clock.c")], check=True)
    now = time.time()
    other = LINES[NEWEST] if installed_spark_line().is_default_line else installed_spark_line()
    environment = spark_submit_variables(other)
    with subprocess.Popen(
        [environment["PYSPARK_PYTHON"], "-m", __name__, str(tmp_path)],
        env={**os.environ, **environment, "LD_PRELOAD": str(library), "JDK_JAVA_OPTIONS": ELSEWHERE, "TZ": "America/St_Johns"},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        here = everything(spark)
        said, complained = child.communicate(timeout=240)
    assert child.returncode == 0, complained[-2000:]
    (line, language, *clocks), rows = json.loads(said.splitlines()[-1])
    assert (line, language) == (other.spark, "tr")
    assert min(clocks) - now > SHIFT
    assert rows == here


def main(folder: Path) -> None:
    """Print line, language and times of Python and Spark, and all that is decoded."""
    files = [path for path in jars.jar_files("sandbox") if path.name.startswith("iceberg-")] + jars.jar_files(
        "avro"
    )
    settings = {"spark.driver.memory": "1g", "spark.local.dir": str(folder / "tmp")}
    with open_spark_session.running_spark_session(files, settings, warehouse=folder / "lake") as spark:
        jvm: Any = spark._jvm
        language = jvm.java.util.Locale.getDefault().getLanguage()
        [row] = spark.sql("SELECT unix_timestamp() AS at").collect()
        at = spark.version, language, time.time(), row["at"]
        sys.stdout.write(f"{json.dumps([at, everything(spark)])}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
