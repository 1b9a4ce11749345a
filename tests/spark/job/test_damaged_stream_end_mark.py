"""A mark of a stream's end that cannot be read is reported with the remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.record.errors import SinkError
from millrace.etl.sinks.delivery.sink_end_offset_marks import FOLDER, StreamEndMarks
from tests.spark.sink_input_rows import place


@pytest.mark.faults
@pytest.mark.parametrize("part", [b"", b'{"stream": "alerts", "run"', b'{"stream": "\xff"}'])
def test_a_damaged_mark_is_told_and_without_it_the_batch_goes_on(
    spark: SparkSession, tmp_path: Path, part: bytes
) -> None:
    here = place(3, notes=tmp_path)
    assert StreamEndMarks("alerts").mark_before_write(spark, here, lambda: {"0": 7}) is None
    mark = StreamEndMarks("alerts").mark_before_write(spark, here, lambda: {"0": 9})
    assert mark is not None
    assert mark.end == {"0": 7}
    (file,) = (tmp_path / FOLDER).glob("*.json")
    file.write_bytes(part)
    with pytest.raises(
        SinkError,
        match=f"{file}, which records where stream alerts ended before the batch, cannot be read: .*Delete it",
    ):
        StreamEndMarks("alerts").mark_before_write(spark, here, lambda: {"0": 9})
    file.unlink()
    assert StreamEndMarks("alerts").mark_before_write(spark, here, lambda: {"0": 9}) is None
