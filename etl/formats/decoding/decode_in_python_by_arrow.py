"""Decoding in Python: payloads arrive in Arrow's batches and return as Arrow columns."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from ...record.tables import with_all_fields_nullable
from ...services.python_task_start import skip_reading_zip_directories
from .decoder_output_and_checks import decoded_or_dead_letter
from .worker_batch_limit import run_in_portions

Decoded = tuple[dict[str, Any] | None, str | None, str | None]
"""Values by column, or stage and error."""

Answer = TypeVar("Answer")


PayloadDecoder = Callable[[bytes | None], tuple[Decoded, int]]
"""Decodes one payload; returns also the number of its values."""

MOST_VALUES = 1_000_000
"""Most values in one batch of Arrow, plus one payload: Python holds all of them, and Arrow a second copy."""


def can_return_arrow_columns() -> bool:
    """Check that this engine has the modules that PySpark needs to return columns."""
    return all(importlib.util.find_spec(module) is not None for module in ("pandas", "pyarrow"))


def decode_payloads(
    rows: DataFrame, schema: StructType, make_decoder: Callable[[], PayloadDecoder], *, by_arrow: bool
) -> DataFrame:
    """Decode, see :meth:`etl.formats.base.Decoder.decode`.

    Parameters
    ----------
    rows
        With a binary column ``payload``; other columns are kept.
    schema
        Columns of a good record.
    make_decoder
        Makes the function that decodes one payload, once a task.
    by_arrow
        True for columns by Arrow; false for single rows, where the engine has no Arrow.
    """
    answer = StructType(
        [
            StructField("record", with_all_fields_nullable(schema)),
            StructField("stage", StringType()),
            StructField("error", StringType()),
        ]
    )
    with warnings.catch_warnings():
        # PySpark 3.5 compares versions with a deprecated class.
        warnings.simplefilter("ignore", DeprecationWarning)
        # PySpark 4.1 looks for Arrow's types in annotations, and warns that these are none.
        warnings.simplefilter("ignore", UserWarning)
        if by_arrow:

            def decode_portion(frame: DataFrame) -> DataFrame:
                shape = StructType([*frame.schema.fields, StructField("_answer", answer)])
                return frame.mapInArrow(_function_over_arrow_batches(make_decoder, answer), shape)

            answered = run_in_portions(rows, decode_portion, by_arrow=True)
        else:
            one = F.udf(_function_per_payload(make_decoder), answer).asNondeterministic()("payload")
            payload = F.col("payload")
            answered = run_in_portions(
                rows, lambda given: given.withColumn("_answer", one), by_arrow=False, handed=payload
            )
    verdict = F.when(
        F.col("_answer.error").isNotNull(),
        F.struct(F.col("_answer.stage").alias("stage"), F.col("_answer.error").alias("error")),
    )
    held = answered.withColumn("_record", F.col("_answer.record")).withColumn("_verdict", verdict)
    return decoded_or_dead_letter(held.drop("_answer"), schema, "_record", "_verdict")


def _function_over_arrow_batches(
    make_decoder: Callable[[], PayloadDecoder], answer: StructType
) -> Callable[[Iterable[Any]], Iterable[Any]]:
    def decode_batches(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        skip_reading_zip_directories()
        decoder, kind = make_decoder(), to_arrow_type(answer)
        names = answer.fieldNames()
        for whole in batches:
            column = whole.column(whole.schema.get_field_index("payload"))
            start = 0
            for answers in answers_in_parts(map(decoder, column.to_pylist()), MOST_VALUES):
                batch = whole.slice(start, len(answers))
                start += len(answers)
                made = pa.array([dict(zip(names, each, strict=True)) for each in answers], kind)
                yield pa.RecordBatch.from_arrays([*batch.columns, made], [*batch.schema.names, "_answer"])

    return decode_batches


def answers_in_parts(answers: Iterable[tuple[Answer, int]], most: int) -> Iterator[list[Answer]]:
    """Yield answers, each given with its size, in parts of up to ``most`` and one answer; no part is empty."""
    part: list[Answer] = []
    held = 0
    for answer, size in answers:
        if held > most:
            yield part
            part, held = [], 0
        part.append(answer)
        held += size
    if part:
        yield part


def _function_per_payload(
    make_decoder: Callable[[], PayloadDecoder],
) -> Callable[[bytearray | None], Decoded]:
    held: list[PayloadDecoder] = []

    def decode_payload(payload: bytearray | None) -> Decoded:
        if not held:
            skip_reading_zip_directories()
            held.append(make_decoder())
        return held[0](None if payload is None else bytes(payload))[0]

    return decode_payload
