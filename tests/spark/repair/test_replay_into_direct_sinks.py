"""Replayed dead letters of a direct query: each row is in its sink once, and a refusal concerns its own letter alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.queries.direct import write_replayed_to_sinks
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.base import (
    BatchIdentity,
    Refuse,
    Reread,
    WriteCounts,
    dead_letters_of_refused_rows,
)
from millrace.etl.sinks.iceberg import IcebergSink
from tests.spark.queries.test_direct import Pipeline
from tests.spark.source_batches import good

Names = Callable[[str], Table]


class Refusing(IcebergSink):
    """A table that refuses some rows, as sinks outside the lake do."""

    def refused(self) -> Column:
        return F.lit(False)

    def write(
        self, rows: DataFrame, place: BatchIdentity | None, refuse: Refuse, reread: Reread | None = None
    ) -> WriteCounts:
        letters = dead_letters_of_refused_rows(rows.where(self.refused()), F.lit("too large"))
        done = super().write(rows.where(~self.refused()), place, refuse, reread)
        count = letters.count()
        if count:
            refuse(letters)
        return WriteCounts((done.offered or 0) + count, done.written, count)


def with_hash(rows: DataFrame) -> DataFrame:
    return rows.select(*CARRIED, "_hash", "flight")


def in_parts(rows: DataFrame) -> DataFrame:
    parts = rows.withColumn("part", F.explode(F.array(F.lit(0), F.lit(1))))
    return parts.withColumn("_id", F.concat("_id", F.lit("/"), "part")).select(
        *CARRIED, "_hash", "flight", "part"
    )


def replay(pipe: Pipeline, corrected: Path | None = None) -> tuple[int, ...]:
    """Replay with the pipeline's decoder and sink; letters, good, bad, already, landed, duplicates."""
    onward = partial(write_replayed_to_sinks, pipe.director.routes)
    replayer = DeadLetterReplayer(
        "direct-flights", pipe.letters, pipe.events.reporter, "flights", pipe.decoder, onward
    )
    request = ReplayRequest("direct-flights", (), None if corrected is None else str(corrected))
    assert replayer(pipe.spark, request) == 0
    keys = ("letters", "good", "bad", "already", "landed", "duplicates")
    return tuple(pipe.events.last()[key] for key in keys)


def letters(pipe: Pipeline) -> dict[str, tuple[str | None, str | None, bytes | None]]:
    rows = pipe.spark.table(str(pipe.letters)).collect()
    assert len({r["_id"] for r in rows}) == len(rows)
    return {
        r["_id"].removeprefix("flights-topic/0/"): (
            r["_stage"],
            r["_error"],
            None if r["_bytes"] is None else bytes(r["_bytes"]),
        )
        for r in rows
    }


def refusing(pipe: Pipeline, condition: str) -> None:
    """Let the pipeline's sink refuse the rows that meet a condition."""

    class Now(Refusing):
        def refused(self) -> Column:
            return F.expr(condition)

    pipe.director = pipe.restarted(sink=Now(pipe.sink))


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("reset", marks=pytest.mark.slow), "killed"])
def test_a_batch_that_comes_again_after_a_replay_doubles_nothing(
    spark: SparkSession, table: Names, tmp_path: Path, how: str
) -> None:
    """The record is good now, and the sink has its row by the replay."""
    pipe = Pipeline(spark, table, tmp_path / "one", with_hash)
    payloads = [good(1), b'{"flight": 2}', b'{"flight": 3}', good(4)]
    pipe.batch(0, 0, payloads)
    assert (pipe.flights(), pipe.accounts()[:2]) == ([1, 4], (4, 2))
    pipe.decoder = JsonDecoder(
        parse_ddl_schema(spark, "carrier STRING, flight INT NOT NULL, delay DOUBLE", "x")
    )
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(json.dumps({"id": "flights-topic/0/2", "payload": '{"flight": 33}'}))
    assert replay(pipe, fixed) == (1, 1, 0, 0, 1, 0)
    assert replay(pipe) == (2, 1, 0, 1, 1, 0)
    assert pipe.flights() == [1, 2, 4, 33]
    if how == "reset":
        pipe.checkpoint = tmp_path / "two"
    pipe.director = pipe.restarted()
    pipe.batch(0, 0, payloads)
    assert pipe.accounts() == (4, 0, 4, 4, 0, 0)
    assert pipe.flights() == [1, 2, 4, 33]


def test_of_a_record_that_was_refused_in_part_only_the_missing_rows_are_written(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path, in_parts)
    refusing(pipe, "flight = 2 AND part = 1")
    pipe.batch(0, 0, [good(1), good(2)])
    assert (pipe.flights(), [*letters(pipe)]) == ([1, 1, 2], ["1"])
    refusing(pipe, "false")
    assert replay(pipe) == (1, 1, 0, 0, 1, 1)
    rows = spark.table(str(pipe.sink)).collect()
    assert sorted((r["flight"], r["part"]) for r in rows) == [(1, 0), (1, 1), (2, 0), (2, 1)]
    assert {r["_id"] for r in rows if r["flight"] == 2} == {f"flights-topic/0/1/{part}" for part in (0, 1)}


@pytest.mark.slow
def test_a_letter_that_is_refused_again_holds_up_no_other(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "one", with_hash)
    offered: list[int] = []

    class Sends(Refusing):
        """Counts what it is offered: a topic would hold it that often."""

        condition = "flight >= 1"

        def refused(self) -> Column:
            return F.expr(self.condition)

        def write(self, rows: DataFrame, *more: Any, **named: Any) -> WriteCounts:
            offered.extend(r["flight"] for r in rows.where(~self.refused()).collect())
            return super().write(rows, *more, **named)

    pipe.director = pipe.restarted(sink=Sends(pipe.sink))
    pipe.batch(0, 0, [good(1), good(2), b"{broken"])
    assert offered == []
    Sends.condition = "flight >= 2"
    fixed = tmp_path / "fixed.jsonl"
    line = {"id": "flights-topic/0/2", "payload": good(3).decode()}
    fixed.write_text(json.dumps(line))
    assert replay(pipe) == (3, 1, 2, 0, 1, 0)
    assert replay(pipe, fixed) == (1, 0, 1, 0, 1, 0)
    assert offered == [1]
    assert letters(pipe) == {
        "0": ("sink", "too large", good(1)),
        "0#replay": (None, None, None),
        "1": ("sink", "too large", good(2)),
        "2": ("decode", letters(pipe)["2"][1], b"{broken"),
        "2#replay": ("sink", "too large", good(3)),
    }
    assert replay(pipe) == (3, 0, 2, 1, 0, 0)
    Sends.condition = "false"
    assert replay(pipe) == (3, 2, 0, 1, 2, 0)
    assert (sorted(offered), pipe.flights()) == ([1, 2, 3], [1, 2, 3])
    assert letters(pipe).keys() == {"0", "0#replay", "1", "1#replay", "2", "2#replay", "2#replay2"}


@pytest.mark.slow
def test_a_letter_that_decodes_now_but_is_refused_has_the_sink_s_reason(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path, with_hash)
    pipe.batch(0, 0, [b'{"flight": 2}'])
    pipe.decoder = JsonDecoder(
        parse_ddl_schema(spark, "carrier STRING, flight INT NOT NULL, delay DOUBLE", "x")
    )
    refusing(pipe, "true")
    assert replay(pipe) == (1, 0, 1, 0, 1, 0)
    assert replay(pipe) == (1, 0, 1, 0, 0, 0)
    assert letters(pipe)["0#replay"] == ("sink", "too large", b'{"flight": 2}')


@pytest.mark.slow
def test_of_a_correction_that_is_refused_the_letter_holds_no_redacted_value(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    pipe = Pipeline(spark, table, tmp_path / "one", with_hash)
    pipe.decoder = RedactingDecoder(pipe.decoder, ("carrier",))
    refusing(pipe, "true")
    pipe.batch(0, 0, [b"{broken"])
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(json.dumps({"id": "flights-topic/0/0", "payload": '{"carrier":"Jo","flight":3}'}))
    assert replay(pipe, fixed) == (1, 0, 1, 0, 1, 0)
    assert letters(pipe)["0#replay"] == ("sink", "too large", b'{"carrier":null,"flight":3}')


@pytest.mark.slow
def test_rows_that_a_replay_left_in_the_sink_when_it_was_killed_are_told(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sink keeps the first correction, so another one must not pass for what it holds."""
    pipe = Pipeline(spark, table, tmp_path / "one", with_hash)
    pipe.batch(0, 0, [b"{broken"])
    fixed = tmp_path / "fixed.jsonl"

    class Killed(IcebergSink):
        def append(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    fixed.write_text(json.dumps({"id": "flights-topic/0/0", "payload": good(111).decode()}))
    with monkeypatch.context() as killing:
        killing.setattr("millrace.etl.repair.replay_dead_letters.IcebergSink", Killed)
        with pytest.raises(KeyboardInterrupt):
            replay(pipe, fixed)
    fixed.write_text(json.dumps({"id": "flights-topic/0/0", "payload": good(222).decode()}))
    assert replay(pipe, fixed) == (1, 1, 0, 0, 1, 1)
    assert pipe.flights() == [111]
