"""Batches for a Python worker are bounded by bytes, for records of any size."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.decoding import decode_in_python_by_arrow, decompress, worker_batch_limit
from millrace.etl.formats.decoding.worker_batch_limit import ARROW_BYTES, MOST_BYTES, UNCOUNTED
from millrace.etl.record.envelope import HEADERS

MIB = 1 << 20


class Sizes:
    """A decoder that tells how long a payload is."""

    def __call__(self, payload: bytes | None) -> tuple[decode_in_python_by_arrow.Decoded, int]:
        return ({"size": None if payload is None else len(payload)}, None, None), 1


@pytest.fixture
def handed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Bytes of each batch of Arrow's, and of each series of pandas', that workers of this test were handed."""
    told = tmp_path / "handed"

    def telling(size: Callable[[Any], int], batches: Any) -> Iterator[Any]:
        for batch in batches:
            with told.open("a") as out:
                out.write(f"{size(batch)}\n")
            yield batch

    columns, pandas_udf = decode_in_python_by_arrow._function_over_arrow_batches, decompress.pandas_udf

    def measured(*given: Any) -> Any:
        inner = columns(*given)
        return lambda batches: inner(telling(lambda b: int(b.nbytes), batches))

    def measured_udf(function: Any, kind: Any) -> Any:
        def inner(batches: Any) -> Any:
            yield from function(telling(lambda b: sum(len(each or b"") for each in b), batches))

        inner.__annotations__ = function.__annotations__
        return pandas_udf(inner, kind)

    monkeypatch.setattr(decode_in_python_by_arrow, "_function_over_arrow_batches", measured)
    monkeypatch.setattr(decompress, "pandas_udf", measured_udf)
    return lambda: [int(line) for line in told.read_text().split()]


def records(spark: SparkSession, count: int, payload: str, **more: str) -> DataFrame:
    """So many records in one partition, made where they are read."""
    rows = spark.range(0, count, 1, 1).withColumn("payload", F.expr(payload))
    for name, value in more.items():
        rows = rows.withColumn(name, F.expr(value))
    return rows


def of_size(size: int) -> str:
    return f"CAST(repeat(CAST(id % 10 AS STRING), {size}) AS BINARY)"


@pytest.mark.slow
def test_payloads_of_a_mib_come_in_portions(spark: SparkSession, handed: Callable[[], list[int]]) -> None:
    """2,000 of them are 2 GB, and the heap here is 1 GB."""
    schema = spark.createDataFrame([], "size LONG").schema
    rows = records(spark, 2000, of_size(MIB))
    found = decode_in_python_by_arrow.decode_payloads(rows, schema, Sizes, by_arrow=True).agg(
        F.count("id"), F.sum("id"), F.sum("size")
    )
    assert tuple(found.first() or ()) == (2000, 1999 * 1000, 2000 * MIB)
    sizes = handed()
    assert max(sizes) < MOST_BYTES + 2 * MIB
    assert sum(sizes) > 2000 * MIB


@pytest.mark.slow
def test_keys_headers_and_a_second_copy_count_too(
    spark: SparkSession, handed: Callable[[], list[int]]
) -> None:
    schema = spark.createDataFrame([], "size LONG").schema
    header = f"CAST(array(named_struct('key', 'h', 'value', {of_size(100_000)})) AS {HEADERS})"
    none = f"CAST(NULL AS {HEADERS})"
    rows = records(
        spark,
        1000,
        of_size(10),
        _content=of_size(100_000),
        _key=of_size(100_000),
        _headers=f"IF(id % 2 = 0, {header}, {none})",
    )
    found = decode_in_python_by_arrow.decode_payloads(rows, schema, Sizes, by_arrow=True)
    lengths = ("length(_content)", "length(_key)", "length(_headers[0].value)")
    summed = found.agg(F.count("id"), *(F.sum(F.expr(each)) for each in lengths), F.sum("size")).first()
    assert tuple(summed or ()) == (1000, 100_000_000, 100_000_000, 50_000_000, 10_000)
    assert max(handed()) < MOST_BYTES + 2 * MIB


@pytest.mark.slow
def test_ordinary_records_come_as_many_at_once_as_before(
    spark: SparkSession, handed: Callable[[], list[int]]
) -> None:
    schema = spark.createDataFrame([], "size LONG").schema
    rows = records(spark, 25_000, of_size(500))
    assert decode_in_python_by_arrow.decode_payloads(rows, schema, Sizes, by_arrow=True).agg(
        F.sum("size")
    ).first() == (12_500_000,)
    assert len(handed()) == 3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by_arrow", "given", "then"), [(True, None, UNCOUNTED), (True, "1m", "1m"), (False, None, None)]
)
def test_spark_adds_up_no_bytes_where_portions_limit_them(
    spark: SparkSession, by_arrow: bool, given: str | None, then: str | None
) -> None:
    """It would at each row, for all columns; somebody's own limit stays, and so does that of other queries."""
    query = spark.newSession()
    if given is not None:
        query.conf.set(ARROW_BYTES, given)
    schema = spark.createDataFrame([], "size LONG").schema
    found = decode_in_python_by_arrow.decode_payloads(
        records(query, 10, of_size(3)), schema, Sizes, by_arrow=by_arrow
    )
    assert found.agg(F.sum("size")).first() == (30,)
    assert query.conf.get(ARROW_BYTES, None) == then
    assert spark.newSession().conf.get(ARROW_BYTES, None) is None


@pytest.mark.slow
@pytest.mark.parametrize("by_arrow", [True, False])
def test_compressed_messages_come_in_portions_and_each_is_opened_once(
    spark: SparkSession, handed: Callable[[], list[int]], by_arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_batch_limit, "MOST_BYTES", 2 * MIB)
    monkeypatch.setattr(worker_batch_limit, "FEWEST_BYTES", 1)
    packed = gzip.compress(b"x" * 10, 0)
    # A member behind the other: of so many bytes, and soon opened.
    whole = "".join(f"{byte:02X}" for byte in packed)
    rows = records(spark, 600, f"unhex(repeat('{whole}', 600))").withColumn("_came", F.col("payload"))
    size = len(packed) * 600
    opened = decompress.with_decompressed_column(rows, F.col("payload"), MIB, arrow=by_arrow)
    assert "_place" not in opened.columns
    summed = opened.agg(
        F.count("id"),
        F.sum("id"),
        F.sum(F.length("_opened.content")),
        F.sum(F.length("_came")),
        F.count("_opened.error"),
    )
    assert tuple(summed.first() or ()) == (600, 599 * 300, 600 * 6000, 600 * size, 0)
    if by_arrow:
        assert max(handed()) < 2 * MIB + 2 * size
        assert sum(handed()) == 600 * size


@pytest.mark.slow
def test_rows_without_arrow_are_as_many(spark: SparkSession) -> None:
    schema = spark.createDataFrame([], "size LONG").schema
    rows = records(spark, 300, of_size(MIB))
    found = decode_in_python_by_arrow.decode_payloads(rows, schema, Sizes, by_arrow=False).agg(
        F.count("id"), F.sum("size")
    )
    assert tuple(found.first() or ()) == (300, 300 * MIB)
