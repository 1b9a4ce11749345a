"""Each record of a sample decodes by the schema that is inferred from the sample, or is counted as unreadable."""

from __future__ import annotations

import csv
import io
import itertools
import json
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession

from millrace.etl.formats.base import open_decoder
from millrace.etl.launch.formats import CsvFormat, Format, JsonFormat
from millrace.sandbox.schemas.ddl_and_pyspark_types import schema_as_ddl
from millrace.sandbox.schemas.infer import InferenceError, InferredSchema, infer_from_csv, infer_from_json

NUMBERS = (
    *(
        "0",
        "-0",
        "7",
        "-2147483649",
        "9223372036854775807",
        "9223372036854775808",
        "9" * 38,
        "9" * 39,
        "9" * 400,
    ),
    *(
        "0.5",
        "1.50",
        "-0.00",
        "99999999999999.99",
        "1e5",
        "1E-7",
        "1e-400",
        "1e308",
        "1.7976931348623157e308",
    ),
    *("1.7976931348623159e308", "1e309", "-1e400", "4.9e-324", f"0.{'3' * 60}", "9" * 990),
)
TEXTS = (
    "",
    "true",
    "x",
    "1",
    "NaN",
    "2024-02-30",
    "0001-01-01",
    "9999-12-31",
    "2024-02-29",
    "é\u2028",
    "12:30",
)


def moments() -> list[str]:
    """Return times at the ends of what a column holds, each with offsets at the ends of what a zone has."""
    days = (
        "0001-01-01T00:00:00",
        "0001-01-01 23:59:59.123456789",
        "2024-06-30T12:00:00",
        "9999-12-31T23:59:59.9",
    )
    zones = ("", "Z", "+00:00", "-0000", "+1800", "-18:00", "+18:01", "-18:30", "+23:59", "+12:00", "-12:00")
    return [f"{day}{zone}" for day, zone in itertools.product(days, zones)]


def failures(
    spark: SparkSession, form: Format, found: InferredSchema, payloads: list[bytes], file: Path
) -> list[str]:
    """Decode the records; return the error and the beginning of each dead letter."""
    file.write_text(schema_as_ddl(found.schema))
    rows = spark.createDataFrame([(bytearray(each),) for each in payloads], "payload BINARY")
    decoded = open_decoder(form, spark, str(file)).decode(rows).where("_error IS NOT NULL")
    return [
        f"{row['_error']}: {bytes(row['_bytes'])[:80]!r}"
        for row in decoded.select("_error", "_bytes").collect()
    ]


def samples_of(values: list[str], inferred: dict[str, str], pairs: int) -> list[list[str]]:
    """Return the values of each inferred type as a sample, as a field for each value is more than Java compiles, and pairs."""
    of_type: dict[str, list[str]] = {}
    for value in values:
        of_type.setdefault(inferred[value], []).append(value)
    draw = Random(7)
    return [*of_type.values(), *(draw.sample(values, 2) for _ in range(pairs))]


def type_of_field(value: str) -> str:
    """Return the type that is inferred from one value; empty if the record is unreadable, which the command says."""
    try:
        return infer_from_json([f'{{"x":{value}}}'.encode()]).schema.simpleString()
    except InferenceError:
        return ""


@pytest.mark.slow
def test_json(spark: SparkSession, tmp_path: Path) -> None:
    draw = Random(7)
    values = [
        *NUMBERS,
        *map(json.dumps, (*TEXTS, *moments())),
        "true",
        "null",
        r'"\ud83d\ude00"',
        r'"\ud800"',
        "NaN",
    ]
    values += [f"[{draw.choice(values)}, {draw.choice(values)}]" for _ in range(15)]
    values += [f'{{"a": {draw.choice(values)}, "b": [{draw.choice(values)}]}}' for _ in range(15)]
    inferred = {value: type_of_field(value) for value in values}
    samples = samples_of([each for each in values if inferred[each]], inferred, 12)
    payloads = [
        f'{{"f{number}":{value}}}'.encode() for number, sample in enumerate(samples) for value in sample
    ]
    assert {r'"\ud800"', "NaN"} <= {value for value, kind in inferred.items() if not kind}
    assert len(inferred) - len(payloads) < 10, "few are unreadable"
    found = infer_from_json(payloads)
    assert found.unreadable == 0
    assert failures(spark, JsonFormat(), found, payloads, tmp_path / "sample.ddl") == []


@pytest.mark.slow
def test_csv(spark: SparkSession, tmp_path: Path) -> None:
    values = [*NUMBERS, *filter(None, TEXTS), *moments(), "TRUE", "１２", "007", "+1", "1.", ".5"]
    inferred = {
        value: infer_from_csv([value.encode()], ["x"], delimiter=",").schema.simpleString()
        for value in values
    }
    samples, payloads = samples_of(values, inferred, 12), []
    for number, sample in enumerate(samples):
        for value in sample:
            line = io.StringIO()
            columns = [value if place == number else "" for place in range(len(samples))]
            csv.writer(line, lineterminator="").writerow(columns)
            payloads.append(line.getvalue().encode())
    found = infer_from_csv(payloads, None, delimiter=",")
    assert found.unreadable == 0
    assert failures(spark, CsvFormat(",", '"', ""), found, payloads, tmp_path / "sample.ddl") == []


@pytest.mark.parametrize("names", ["sſ", "iİ"])
def test_names_of_one_column(spark: SparkSession, tmp_path: Path, names: str) -> None:
    payloads = [json.dumps({names[0]: 1, names[1]: 2, "in": dict.fromkeys(names, 1)}).encode()]
    found = infer_from_json(payloads)
    assert failures(spark, JsonFormat(), found, payloads, tmp_path / "sample.ddl") == []
