"""Bad input from Kafka and Kinesis lands completely: as good rows, or with bytes and reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from millrace.etl.launch.sources import KafkaSource, KinesisSource
from millrace.etl.queries.land import LandBatchWriter
from millrace.etl.record import batch_accounts
from millrace.etl.record.tables import Table
from tests.faults import bad_record_examples
from tests.spark.formats.test_decode_json import records
from tests.spark.source_batches import EPOCH, KAFKA, KINESIS, Events, frame, lander

pytestmark = pytest.mark.faults

Names = Callable[[str], Table]
Row = tuple[Any, ...]


def of_kafka(number: int, key: str | None, payload: bytes | None) -> Row:
    return (
        f"flights-topic/0/{number}", "flights", "0", str(number).zfill(20),
        None if key is None else bytearray(key.encode()), [("trace", bytearray(b"\x00\xff"))], EPOCH,
        None if payload is None else bytearray(payload),
    )  # fmt: skip


def of_kinesis(number: int, key: str | None, payload: bytes | None) -> Row:
    """Kinesis has neither null keys nor null payloads: its connectors give empty ones."""
    return (
        f"flights-stream/{number}", "flights", None, str(number), bytearray((key or "-").encode()), None,
        batch_accounts.utc_now(), bytearray(payload or b""),
    )  # fmt: skip


SOURCES: dict[str, tuple[KafkaSource | KinesisSource, Callable[[int, str | None, bytes | None], Row]]] = {
    "kafka": (KAFKA, of_kafka),
    "kinesis": (KINESIS, of_kinesis),
}
KINDS = ["kafka", pytest.param("kinesis", marks=pytest.mark.slow)]


def landing_of(
    spark: SparkSession, table: Table, events: Events, source: KafkaSource | KinesisSource
) -> LandBatchWriter:
    return lander(spark, table, events, source=source, ddl=bad_record_examples.DDL)


def rows_of(spark: SparkSession, table: Table) -> dict[str, Any]:
    rows = spark.table(str(table)).select("_id", "_key", "_bytes", "_stage", "_error").collect()
    assert len(rows) == len({r["_id"] for r in rows})
    return {r["_id"]: r for r in rows}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_the_whole_list_lands(spark: SparkSession, table: Names, name: str) -> None:
    source, row = SOURCES[name]
    landing, events = table("landing"), Events()
    write = landing_of(spark, landing, events, source)
    spoiled, taken = list(bad_record_examples.spoiled()), list(bad_record_examples.taken())
    sent = [(p, stage) for _, p, stage in spoiled] + [(p, None) for _, p, _ in taken]
    keys = [None, "", *bad_record_examples.KEYS]
    rows = [row(n, keys[n % len(keys)], p) for n, (p, _) in enumerate(sent)]
    # A batch of bad records only, an empty one, one of all kinds, and that one again.
    for batch, accounted in (
        (rows[: len(spoiled)], (len(spoiled), 0, len(spoiled), 0, len(spoiled))),
        ([], (0, 0, 0, 0, 0)),
        (rows, (len(rows), len(spoiled), len(taken), len(taken), 0)),
        (rows, (len(rows), len(rows), 0, 0, 0)),
    ):
        write(frame(spark, batch), 0)
        assert events.accounts() == accounted
    result = rows_of(spark, landing)
    for sent_row, (payload, stage) in zip(rows, sent, strict=True):
        kept = result[sent_row[0]]
        assert kept["_stage"] == stage
        assert kept["_key"] == sent_row[4]
        if stage is None:
            assert (kept["_error"], kept["_bytes"]) == (None, None)
        else:
            assert kept["_error"]
            assert kept["_bytes"] == sent_row[7], payload


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_any_records_land_once_good_or_kept(spark: SparkSession, table: Names, name: str) -> None:
    source, row = SOURCES[name]
    landing, events = table("landing"), Events()
    write = landing_of(spark, landing, events, source)
    sent: dict[str, Row] = {}

    # Each batch is made of new records and of some of those before, in any order.
    @hypothesis.settings(max_examples=3, suppress_health_check=list(hypothesis.HealthCheck))
    @hypothesis.given(
        st.lists(st.tuples(st.none() | st.text(max_size=5), st.none() | records), min_size=20, max_size=60),
        st.randoms(use_true_random=False),
    )
    def batches(fresh: Sequence[tuple[str | None, bytes | None]], choose: Any) -> None:
        new = [row(len(sent) + n, key, payload) for n, (key, payload) in enumerate(fresh)]
        old = choose.sample(sorted(sent.values(), key=lambda r: r[0]), min(10, len(sent)))
        batch = [*new, *old]
        choose.shuffle(batch)
        sent.update({r[0]: r for r in new})
        write(frame(spark, batch), 0)
        read, duplicates, landed, good, bad_ones = events.accounts()
        assert (read, duplicates, landed) == (len(batch), len(old), len(new))
        assert good + bad_ones == landed

    batches()
    result = rows_of(spark, landing)
    assert result.keys() == sent.keys()
    for identity, kept in result.items():
        if kept["_error"] is not None:
            assert kept["_bytes"] == sent[identity][7]
            assert kept["_stage"] in ("decode", "schema")
