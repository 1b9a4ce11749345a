"""The DDL parser of `validate` accepts and refuses the same schemas as Spark."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.config.formats import ddl as asked
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.record.errors import StartError
from millrace.sandbox.schemas import ddl_and_pyspark_types

ROOT = Path(__file__).parents[3]

GOOD = [
    "a INT",
    "a STRING NOT NULL, b DECIMAL(9,2), c TIMESTAMP",
    "a: INT, b: STRUCT<x: INT>",
    "a DEC, b NUMERIC(5), c REAL, d LONG, e SHORT, f BYTE, g INTEGER, h TIMESTAMP_NTZ, i TIMESTAMP_LTZ",
    "a ARRAY<STRUCT<x: INT, y: MAP<STRING, ARRAY<DOUBLE>>>>, `odd name` BINARY, `of.two` DATE",
    "a CHAR(3), b ARRAY<VARCHAR(9)>, c STRUCT<`t``x`: INT>",
    "a INT COMMENT 'x, y', -- no\n b INT /* no */ NOT NULL",
    "a STRUCT<x: INT NOT NULL, y: STRUCT<z: DATE>>",
    "1a INT, 1_2 INT, e1 INT, 1e INT, `naïve` INT, `1` INT",
    "a STRUCT<at: TIMESTAMP NOT NULL COMMENT 'epoch milliseconds'>",
    "timestamp TIMESTAMP, date DATE, map INT, `select` INT, order INT, interval INT",
    *(file.read_text(encoding="utf-8") for file in sorted((ROOT / "pipelines").rglob("*.ddl"))),
]

BAD = [
    "",
    "a",
    "a NUMBER",
    "a INT b INT",
    "a ARRAY<INT",
    "a INT,, b INT",
    "a INT,",
    "a DECIMAL(39,1)",
    "a DECIMAL(3,5)",
    "a INT DEFAULT 3",
    "_a INT",
    "a INT, A INT",
    "a MAP<INT>",
    "a STRUCT<>",
    "a ARRAY<STRUCT<x: INT, y: STRUCT<>>>",
    "a MAP<STRING, STRUCT<x: INT, X: INT>>",
    "a INT, `` INT",
    "a INT, `tick``ed` DATE",
    "a STRUCT<x INT",
    "a INT NULL NOT",
    "a.b INT",
    "naïve INT",
    "a STRUCT<größe: INT>",
    "1 INT",
    "1e5 INT",
    "1L INT",
    "2bd INT",
    "a DECIMAL(١٠,2)",
    "a VARCHAR(x)",
]


@pytest.mark.parametrize("text", GOOD)
def test_what_is_taken_before_a_start_is_what_spark_makes_of_it(spark: SparkSession, text: str) -> None:
    theirs = parse_ddl_schema(spark, text, "a schema")
    ours = ddl_and_pyspark_types.parse_ddl(text)
    assert [(f.name, f.dataType, f.nullable) for f in ours] == [
        (f.name, f.dataType, f.nullable) for f in theirs
    ]


@pytest.mark.parametrize("text", BAD)
def test_what_spark_refuses_is_refused_before_a_start(spark: SparkSession, text: str) -> None:
    with pytest.raises(StartError):
        parse_ddl_schema(spark, text, "a schema")
    try:
        fields = asked.parse_ddl(text)
    except asked.DdlError:
        return
    assert list(asked.ddl_field_problems(fields))
