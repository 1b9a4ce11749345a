"""Direct queries with routes read a batch once and write each record once into its sink, also after replays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.formats.decoding.decoder_per_topic import DecodingRoute, RoutingDecoder
from millrace.etl.formats.decoding.redact import WITHHELD, RedactingDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.formats.text import TextDecoder
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.sinks import ParquetSinkSettings
from millrace.etl.launch.sources import KafkaReadingOptions, KafkaSource
from millrace.etl.queries import land
from millrace.etl.queries.direct import (
    DirectBatchWriter,
    DirectRoute,
    refused_rows_as_landing_rows,
    write_replayed_to_sinks,
)
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record import tables
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.base import BatchIdentity, Refuse, WriteCounts, dead_letters_of_refused_rows
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.parquet import ParquetSink, committed_files
from millrace.etl.sources.base import ReplayedLeg
from millrace.etl.sources.batch_offsets import BatchOffsets
from millrace.etl.sources.source_union import batch_offsets_of_legs
from tests.spark.queries.test_direct import NoLookUp
from tests.spark.source_batches import EPOCH, Events, frame

Names = Callable[[str], Table]
GATES = KafkaSource("gates", "gates", "main", "earliest", 100, 3600)
WEB = KafkaSource("web", r"web\..*", "main", "earliest", 100, 3600, KafkaReadingOptions(pattern=True))
KEPT = {"gates": GATES, "clicks": WEB}
Record = tuple[Any, ...]


def record(source: str, topic: str, number: int, payload: bytes) -> Record:
    shard = f"{topic}/0" if source == "web" else "0"
    place = str(number).zfill(20)
    return (f"{topic}/0/{number}", source, shard, place, bytearray(b"k"), None, EPOCH, bytearray(payload))


def gate(n: int) -> Record:
    return record("gates", "gates", n, f"gate {n}".encode())


def click(n: int, topic: str = "web.clicks") -> Record:
    return record("web", topic, n, f"click {n}".encode())


def loud(rows: DataFrame) -> DataFrame:
    return rows.select(*CARRIED, F.upper("text").alias("said"))


class Pipeline:
    """Gates into a table, clicks into files; batches as Spark's offset log tells them."""

    def __init__(self, spark: SparkSession, table: Names, folder: Path) -> None:
        self.spark, self.folder, self.events = spark, folder, Events()
        self.checkpoint = folder / "checkpoint"
        self.gates, self.letters, self.files = table("gates"), table("letters"), folder / "files"
        text = TextDecoder(parse_ddl_schema(spark, "text STRING", "text.ddl"))
        self.router = RoutingDecoder(
            (
                DecodingRoute("gates", "gates", "gates", text),
                DecodingRoute("clicks", "web", "web.clicks", text),
            )
        )
        tables.create_or_evolve_table(spark, self.letters, land.landing_table_schema(self.router.schema))
        self.compose = EnrichThenTransform((), loud, "loud")
        schema = self.compose.checked_sink_schema(spark, self.letters, "gates")
        tables.create_or_evolve_table(spark, self.gates, schema)
        self.sink = ParquetSink(ParquetSinkSettings(str(self.files), 1))
        self.sink.prepare(spark, schema)
        self.start()

    def start(self, **sinks: Any) -> None:
        """As after a restart: nothing is remembered but what tables and files hold."""
        self.checkpoint.mkdir(exist_ok=True)
        (self.checkpoint / "metadata").write_text(f'{{"id":"{self.checkpoint.name}"}}')
        made: dict[str, Any] = {"gates": IcebergSink(self.gates), "clicks": self.sink} | sinks
        places = [Checkpoint(str(self.checkpoint), place) for place in range(2)]
        self.director = DirectBatchWriter(
            "boards",
            self.router,
            tuple(DirectRoute(name, KEPT[name].name, self.compose, sink) for name, sink in made.items()),
            IcebergSink(self.letters),
            (ReplayedLeg((GATES,), places[0]), ReplayedLeg((WEB,), places[1])),
            places[0],
            self.events.reporter,
        )

    def batch(self, number: int, rows: list[Record], gates: int, web: str) -> None:
        """Run a batch; ``gates`` and ``web`` are the ends of its ranges, as Spark's log has them then."""
        (self.checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
        log = f'v1\n{{}}\n{{"gates":{{"0":{gates}}}}}\n{web}'
        (self.checkpoint / "offsets" / str(number)).write_text(log)
        self.director(frame(self.spark, rows), number)

    def accounts(self) -> tuple[int, ...]:
        """read, bad, good, duplicates, filtered, written of the last batch."""
        keys = ("read", "bad", "good", "duplicates", "filtered", "written")
        return tuple(self.events.last()[k] for k in keys)

    def said(self) -> tuple[list[str], list[str]]:
        """What the table and the files hold."""
        files = committed_files(self.spark, str(self.files))
        clicks = self.spark.read.parquet(*files).collect() if files else []
        return (
            sorted(r["said"] for r in self.spark.table(str(self.gates)).collect()),
            sorted(r["said"] for r in clicks),
        )

    def bad(self) -> dict[str, tuple[str, bytes]]:
        rows = self.spark.table(str(self.letters)).where("_error IS NOT NULL").collect()
        assert len({r["_id"] for r in rows}) == len(rows)
        return {r["_id"]: (r["_stage"], bytes(r["_bytes"])) for r in rows}


def web(clicks: int, new: int = 0) -> str:
    return f'{{"web.clicks":{{"0":{clicks}}},"web.new":{{"0":{new}}}}}'


@pytest.fixture
def pipe(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    return Pipeline(spark, table, tmp_path)


def test_each_record_ends_where_its_route_does_and_the_batch_is_read_once(pipe: Pipeline) -> None:
    read = pipe.spark.sparkContext.accumulator(0)

    def counted(row: Record) -> Record:
        read.add(1)
        return row

    rows = [gate(0), gate(1), click(0), click(0, "web.new"), record("gates", "gates", 2, b"\xff")]
    pipe.checkpoint.joinpath("offsets").mkdir()
    (pipe.checkpoint / "offsets" / "0").write_text(f'v1\n{{}}\n{{"gates":{{"0":3}}}}\n{web(1, 1)}')
    plain = frame(pipe.spark, rows)
    jsc: Any = pipe.spark.sparkContext._jsc
    held = set(jsc.getPersistentRDDs())
    pipe.director(pipe.spark.createDataFrame(plain.rdd.map(counted), plain.schema), 0)
    assert read.value == len(rows)
    assert pipe.accounts() == (5, 2, 3, 0, 0, 3)
    assert pipe.said() == (["GATE 0", "GATE 1"], ["CLICK 0"])
    assert pipe.bad() == {
        "gates/0/2": ("decode", b"\xff"),
        "web.new/0/0": ("route", b"click 0"),
    }
    # Other tests of the session hold tables that they enrich with.
    assert set(jsc.getPersistentRDDs()) <= held, "the batch is held forever"


@pytest.mark.slow
def test_a_sink_that_fails_brings_the_batch_again_and_the_others_know_it(pipe: Pipeline) -> None:
    class Killed(ParquetSink):
        def write(self, *_: Any, **__: Any) -> Any:
            raise KeyboardInterrupt

    pipe.start(clicks=Killed(pipe.sink.settings))
    with pytest.raises(KeyboardInterrupt):
        pipe.batch(0, [gate(0), click(0)], 1, web(1))
    assert pipe.said() == (["GATE 0"], [])
    pipe.start()
    pipe.batch(0, [gate(0), click(0)], 1, web(1))
    assert pipe.accounts() == (2, 0, 2, 1, 0, 1)
    # Nothing committed it in the checkpoint: it comes again.
    pipe.start()
    pipe.batch(0, [gate(0), click(0)], 1, web(1))
    assert pipe.accounts() == (2, 0, 2, 2, 0, 0)
    assert pipe.said() == (["GATE 0"], ["CLICK 0"])


@pytest.mark.slow
def test_a_batch_without_records_of_a_route_breaks_no_chain(pipe: Pipeline) -> None:
    pipe.batch(0, [gate(0), click(0)], 1, web(1))
    pipe.batch(1, [click(1)], 1, web(2))
    pipe.start(gates=NoLookUp(pipe.gates))
    pipe.batch(2, [gate(1)], 2, web(2))
    assert pipe.said() == (["GATE 0", "GATE 1"], ["CLICK 0", "CLICK 1"])
    # A new checkpoint begins again, over what is there.
    pipe.checkpoint = pipe.folder / "reset"
    pipe.start()
    pipe.batch(0, [gate(0), gate(1), gate(2), click(0), click(1), click(2)], 3, web(3))
    assert pipe.accounts() == (6, 0, 6, 4, 0, 2)
    assert pipe.said() == (["GATE 0", "GATE 1", "GATE 2"], ["CLICK 0", "CLICK 1", "CLICK 2"])


@pytest.mark.slow
def test_a_past_that_is_read_again_batch_by_batch_is_doubled_nowhere(pipe: Pipeline) -> None:
    for n in range(2):
        pipe.batch(n, [gate(n)], n + 1, web(0))
    pipe.checkpoint = pipe.folder / "reset"
    pipe.start()
    pipe.batch(0, [gate(0)], 1, web(0))
    pipe.batch(1, [click(0)], 1, web(1))
    pipe.start()
    for n in range(1, 3):
        pipe.batch(n + 1, [gate(n)], n + 1, web(1))
    assert pipe.said() == ([f"GATE {n}" for n in range(3)], ["CLICK 0"])


def test_offsets_are_those_of_all_legs(pipe: Pipeline) -> None:
    folder = pipe.checkpoint / "offsets"
    folder.mkdir()
    for number, gates in enumerate(("-", '{"gates":{"0":3}}')):
        (folder / str(number)).write_text(f"v1\n{{}}\n{gates}\n{web(number + 4, number)}")
    first, second = (batch_offsets_of_legs(pipe.spark, pipe.director.replayed, number) for number in range(2))
    assert second is not None
    assert first == BatchOffsets({}, {"web/web.clicks/0": 4, "web/web.new/0": 0})
    assert second.end == {"gates/0": 3, "web/web.clicks/0": 5, "web/web.new/0": 1}
    assert second.start == first.end


@pytest.mark.slow
def test_letters_that_have_a_route_now_go_on_to_its_sink(pipe: Pipeline, tmp_path: Path) -> None:
    pipe.batch(0, [record("gates", "gates", 0, b"\xff"), record("web", "web.clicks", 0, b"\xff")], 1, web(1))
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text('{"id":"gates/0/0","payload":"a"}\n{"id":"web.clicks/0/0","payload":"b"}\n')
    pipe.start(clicks=IcebergSink(pipe.gates))
    onward = partial(write_replayed_to_sinks, pipe.director.routes)
    replayer = DeadLetterReplayer(
        "boards", pipe.letters, pipe.events.reporter, ("gates", "web"), pipe.router, onward
    )
    for _ in range(2):
        assert replayer(pipe.spark, ReplayRequest("boards", (), str(fixed))) == 0
    assert pipe.said() == (["A", "B"], [])


@pytest.mark.slow
def test_a_route_s_sink_that_refuses_a_letter_again_holds_up_no_other_route(
    pipe: Pipeline, tmp_path: Path
) -> None:
    class Refuses(IcebergSink):
        def write(
            self, rows: DataFrame, place: BatchIdentity | None, refuse: Refuse, *_: Any, **__: Any
        ) -> WriteCounts:
            refuse(dead_letters_of_refused_rows(rows, F.lit("no")))
            return WriteCounts(rows.count(), 0, rows.count())

    pipe.batch(0, [record("gates", "gates", 0, b"\xff"), record("web", "web.clicks", 0, b"\xff")], 1, web(1))
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text('{"id":"gates/0/0","payload":"a"}\n{"id":"web.clicks/0/0","payload":"b"}\n')
    pipe.start(gates=Refuses(pipe.gates))
    onward = partial(write_replayed_to_sinks, pipe.director.routes)
    replayer = DeadLetterReplayer(
        "boards", pipe.letters, pipe.events.reporter, ("gates", "web"), pipe.router, onward
    )
    for good, bad, already, landed in ((1, 1, 0, 2), (0, 1, 1, 0)):
        assert replayer(pipe.spark, ReplayRequest("boards", (), str(fixed))) == 0
        counts = {"letters": 2, "good": good, "bad": bad, "already": already, "landed": landed}
        assert counts.items() <= pipe.events.last().items()
        assert pipe.said() == ([], ["B"])
    assert pipe.bad()["gates/0/0#replay"] == ("sink", b"a")


def test_of_a_refused_record_the_letter_holds_what_its_own_route_leaves_of_it(pipe: Pipeline) -> None:
    text = pipe.router.routes[0].decoder
    hiding = DecodingRoute("clicks", "web", "web.clicks", RedactingDecoder(text, ("text",), readable=False))
    router = RoutingDecoder((pipe.router.routes[0], hiding))
    rows = pipe.spark.createDataFrame(
        [("gates/0/0", "gates"), ("web.clicks/0/1", "web")], "_id STRING, _source STRING"
    )
    refused = dead_letters_of_refused_rows(
        rows.withColumns({c: F.lit(EPOCH) for c in ("_arrived_at", "_landed_at")}), F.lit("no")
    )
    # A topic of the same name, of another cluster, has a record of the same identity.
    batch = [gate(0), click(1), record("web", "gates", 0, b"theirs")]
    landed = refused_rows_as_landing_rows(frame(pipe.spark, batch), refused, router).orderBy("_id").collect()
    assert [(r["_bytes"], r["_error"]) for r in landed] == [(b"gate 0", "no"), (None, f"no{WITHHELD}")]
