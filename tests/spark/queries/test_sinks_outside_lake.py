"""Derive and direct queries into sinks outside the lake: accounts, dead letters, replay."""

from __future__ import annotations

import gzip
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.formats.base import Decoder
from millrace.etl.formats.decoding.decompress import DecompressingDecoder
from millrace.etl.formats.decoding.redact import WITHHELD, RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.job import build_queries
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.launch.sinks import DynamoDbSinkSettings, JdbcSinkSettings, ParquetSinkSettings
from millrace.etl.queries import direct as direct_query
from millrace.etl.queries import land
from millrace.etl.queries.direct import DirectBatchWriter, DirectRoute, write_replayed_to_sinks
from millrace.etl.queries.transform import EnrichThenTransform, Transform
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import BatchAccounts
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.errors import AccountsError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks import jdbc
from millrace.etl.sinks.base import (
    BatchIdentity,
    Refuse,
    Reread,
    Sink,
    WriteCounts,
    dead_letters_of_refused_rows,
)
from millrace.etl.sinks.dynamodb import DynamoDbSink
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sinks.jdbc import JdbcSink
from millrace.etl.sinks.parquet import ParquetSink, committed_files
from millrace.etl.sources.base import ReplayedLeg
from tests import postgres
from tests.faults import postgres_proxy, small_job_documents
from tests.faults.moto_server import make_table, moto
from tests.spark.queries.test_change_order import TRUNCATED, decoder_of, inserted, record
from tests.spark.simulated_database_changes import DDL as CHANGES_DDL
from tests.spark.source_batches import (
    DDL,
    KAFKA,
    Events,
    drained,
    frame,
    good,
    kafka_rows,
    lander,
    log_offsets,
)

pytestmark = pytest.mark.slow

Names = Callable[[str], Table]
REGION = "us-east-1"


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        with moto() as server:
            yield server.endpoint


@pytest.fixture
def items(dynamodb: str) -> Any:
    """A table keyed by identity."""
    made = make_table(boto3.resource("dynamodb", endpoint_url=dynamodb, region_name=REGION), "flights")
    yield made
    made.delete()


def keyed_items(endpoint: str, name: str) -> Any:
    """A table keyed by the identity of a result."""
    return boto3.resource("dynamodb", endpoint_url=endpoint, region_name=REGION).create_table(
        TableName=name,
        AttributeDefinitions=[{"AttributeName": "_id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "_id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )


def unfit(rows: DataFrame) -> DataFrame:
    """Leaves out every third flight; flight 4 becomes an item that is too large, flight 7 has two rows."""
    note = F.when(F.col("flight") == 4, F.repeat(F.lit("x"), 410_000))
    copies = F.when(F.col("flight") == 7, F.array(F.lit("/0"), F.lit("/1"))).otherwise(F.array(F.lit("")))
    made = rows.where("flight % 3 <> 0").withColumn("copy", F.explode(copies))
    return made.select(F.concat("_id", "copy").alias("_id"), *CARRIED[1:], "flight", note.alias("note"))


def totals(flights: DataFrame) -> DataFrame:
    """Count flights of each parity."""
    return flights.groupBy((F.col("flight") % 2).alias("parity")).agg(F.count(F.lit(1)).alias("flights"))


def settings(
    landing: Table, checkpoints: Path, sink: Mapping[str, Any], letters: str | None, **others: Any
) -> JobSettings:
    derive = {
        "kind": "derive",
        "name": "derive-flights",
        "source_table": f"{landing.database}.{landing.name}",
        "enrich": [],
        "transform": "tests.spark.queries.test_sinks_outside_lake:unfit",
        "sink": dict(sink),
        "trigger_seconds": 0.0,
        "state": None,
        "dead_letters": letters,
        "route": None,
        "latest_by": [],
        **others,
    }
    return parse_job_settings(small_job_documents.settings("flights", [derive], str(checkpoints), None))


def derive(spark: SparkSession, job: JobSettings, binds: Mapping[str, str], events: Events) -> None:
    """Run the job's query over what is there, then end."""
    (query,) = build_queries.build_queries(JobRun(spark, job, binds, events.reporter))
    drained(query.rows, query.handle, query.checkpoint, query.output_mode)


def accounts(events: Events) -> list[tuple[int, ...]]:
    """read, duplicates, filtered, written, refused of each batch."""
    keys = ("read", "duplicates", "filtered", "written", "refused")
    return [tuple(e[k] for k in keys) for e in events.all() if e["event"] == "batch"]


@pytest.mark.slow
def test_a_derive_query_into_a_service_keeps_what_it_refuses(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str, items: Any
) -> None:
    landing, letters, events = table("landing"), table("letters"), Events()
    lander(spark, landing, Events())(
        frame(spark, kafka_rows(0, 0, [*(good(n) for n in range(9)), b"bad"])), 0
    )
    sink = {"kind": "dynamodb", "table": "flights", "region": REGION}
    job = settings(landing, tmp_path / "one", sink, f"{letters.database}.{letters.name}")
    derive(spark, job, {"dynamodb.endpoint": dynamodb}, events)
    assert accounts(events) == [(9, 0, 2, 6, 1)]
    assert sorted(int(i["flight"]) for i in items.scan()["Items"]) == [1, 2, 5, 7, 7, 8]
    # On a new checkpoint everything comes again, and is there once.
    again = settings(landing, tmp_path / "two", sink, f"{letters.database}.{letters.name}")
    derive(spark, again, {"dynamodb.endpoint": dynamodb}, events)
    assert len(items.scan()["Items"]) == 6
    (letter,) = spark.table(str(letters)).collect()
    assert (letter["_id"], letter["_source"], letter["_stage"]) == ("flights-topic/0/4", "flights", "sink")
    assert "Item size has exceeded the maximum allowed size" in letter["_error"]
    assert len(letter["_bytes"]) > 410_000


@pytest.mark.slow
def test_a_truncate_is_a_letter_where_the_rows_of_a_sink_cannot_be_listed(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    landing, letters, events = table("landing"), table("letters"), Events()
    held = keyed_items(dynamodb, "truncated")
    decoder = decoder_of(spark, CHANGES_DDL, "postgresql")
    write = replace(lander(spark, landing, Events(), ddl=CHANGES_DDL), decoder=decoder)
    tables.create_or_evolve_table(spark, landing, land.landing_table_schema(decoder.schema))
    sink = {"kind": "dynamodb", "table": "truncated", "region": REGION}
    named = f"{letters.database}.{letters.name}"
    job = settings(landing, tmp_path, sink, named, latest_by=["id"], transform=None)
    changes = [inserted(10, 9, 1), inserted(12, 11, 2), TRUNCATED(20, 19), inserted(30, 29, 3)]
    records = [record(0, n, n, change) for n, change in enumerate(changes)]
    for number, batch in enumerate((records[:1], records[1:])):
        write(frame(spark, batch), number)
        derive(spark, job, {"dynamodb.endpoint": dynamodb}, events)
    # The second was truncated in its batch; the first is for a person to delete.
    assert sorted(int(i["id"]) for i in held.scan()["Items"]) == [1, 3]
    (letter,) = spark.table(str(letters)).collect()
    assert (letter["_id"], letter["_stage"]) == ("t/0/2", "sink")
    assert "truncated" in letter["_error"]
    assert accounts(events)[-1] == (3, 0, 1, 1, 1)


@pytest.mark.slow
@pytest.mark.faults
def test_results_of_a_later_batch_and_of_a_later_checkpoint_win(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    made = keyed_items(dynamodb, "totals")
    landing, events, binds = table("landing"), Events(), {"dynamodb.endpoint": dynamodb}
    state = {
        "watermark": {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600}, "distinct": [], "key": ["parity"], "join": None, "output_mode": "update",
    }  # fmt: skip

    def job(checkpoints: str) -> JobSettings:
        sink = {"kind": "dynamodb", "table": "totals", "region": REGION}
        return settings(
            landing, tmp_path / checkpoints, sink, None, state=state, transform=f"{__name__}:totals"
        )

    def held() -> dict[int, tuple[int, int]]:
        return {int(i["parity"]): (int(i["flights"]), int(i["_version"])) for i in made.scan()["Items"]}

    land_ = lander(spark, landing, Events())
    land_(frame(spark, kafka_rows(0, 0, [good(n) for n in range(3)])), 0)
    # A checkpoint that was made an hour ago.
    first = tmp_path / "one" / "derive-flights" / "metadata"
    first.parent.mkdir(parents=True)
    first.write_text('{"id":"0b4b1d1c-4d0e-4c0f-9d3c-000000000001"}')
    begun = int(time.time()) - 3600
    os.utime(first, (begun, begun))
    derive(spark, job("one"), binds, events)
    assert held() == {0: (2, begun * 2**30), 1: (1, begun * 2**30)}
    land_(frame(spark, kafka_rows(0, 3, [good(4)])), 1)
    derive(spark, job("one"), binds, events)
    later = begun * 2**30 + max(e["batch"] for e in events.all() if e["event"] == "batch" and e["written"])
    assert later > begun * 2**30
    assert held() == {0: (3, later), 1: (1, begun * 2**30)}
    # A driver that was cut off writes its batch after all.
    (cut_off,) = build_queries.build_queries(JobRun(spark, job("one"), binds, events.reporter))
    late = spark.createDataFrame([('{"parity":0}', 0, 2)], "_id STRING, parity INT, flights BIGINT")
    cut_off.handle(late, 0)
    assert accounts(events)[-1][1] == 1  # a duplicate
    assert held()[0] == (3, later)
    # A checkpoint that starts from the beginning: its first batch counts as 0 again, and takes the place of all before.
    derive(spark, job("two"), binds, events)
    renewed = held()
    assert min(version for _, version in renewed.values()) > later
    cut_off.handle(late, 1)
    assert held() == renewed
    made.delete()


@pytest.mark.slow
def test_a_derive_query_into_files(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, events, files = table("landing"), Events(), tmp_path / "files"
    land_ = lander(spark, landing, Events())
    land_(frame(spark, kafka_rows(0, 0, [good(n) for n in range(9)])), 0)
    sink = {"kind": "parquet", "path": str(files), "files_per_batch": 1}
    derive(spark, settings(landing, tmp_path / "one", sink, None), {}, events)
    land_(frame(spark, kafka_rows(0, 9, [good(10)])), 1)
    derive(spark, settings(landing, tmp_path / "one", sink, None), {}, events)
    derive(spark, settings(landing, tmp_path / "two", sink, None), {}, events)
    assert accounts(events)[:2] == [(9, 0, 2, 7, 0), (1, 0, 0, 1, 0)]
    assert sum(written for *_, written, _ in accounts(events)[2:]) == 0
    written = spark.read.parquet(*committed_files(spark, str(files)))
    assert sorted(r["flight"] for r in written.collect()) == [1, 2, 4, 5, 7, 7, 8, 10]


class Direct:
    """A direct query on one partition into a sink, and what it printed."""

    def __init__(
        self,
        spark: SparkSession,
        table: Names,
        checkpoint: Path,
        sink: Sink,
        transform: Transform | None = None,
        redact: tuple[str, ...] = (),
    ) -> None:
        self.spark, self.checkpoint, self.events, self.sink = spark, checkpoint, Events(), sink
        self.letters = table("letters")
        plain = JsonDecoder(parse_ddl_schema(spark, DDL, "test.ddl"))
        self.decoder: Decoder = (
            RedactingDecoder(DecompressingDecoder(plain, 1024), redact) if redact else plain
        )
        tables.create_or_evolve_table(spark, self.letters, land.landing_table_schema(self.decoder.schema))
        self.compose = EnrichThenTransform((), transform or unfit, "unfit")
        sink.prepare(spark, self.compose.checked_sink_schema(spark, self.letters))
        checkpoint.mkdir()
        (checkpoint / "metadata").write_text(f'{{"id":"{checkpoint.name}"}}')

    def batch(self, number: int, first: int, payloads: list[bytes | None]) -> None:
        checkpoint = Checkpoint(str(self.checkpoint))
        direct = DirectBatchWriter(
            "direct-flights",
            self.decoder,
            (DirectRoute(None, "flights", self.compose, self.sink),),
            IcebergSink(self.letters),
            (ReplayedLeg((KAFKA,), checkpoint),),
            checkpoint,
            self.events.reporter,
        )
        log_offsets(self.checkpoint, number, {KAFKA.topic: {"0": first + len(payloads)}})
        direct(frame(self.spark, kafka_rows(0, first, payloads)), number)

    def accounts(self) -> tuple[int, ...]:
        """read, bad, good, duplicates, filtered, written, refused of the last batch."""
        keys = ("read", "bad", "good", "duplicates", "filtered", "written", "refused")
        return tuple(self.events.last()[k] for k in keys)


def test_a_direct_query_keeps_the_bytes_of_what_the_sink_refuses_and_replays_them(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str, items: Any
) -> None:
    sink = DynamoDbSink(DynamoDbSinkSettings("flights", REGION), dynamodb)
    direct = Direct(spark, table, tmp_path / "one", sink)
    direct.batch(0, 0, [*(good(n) for n in range(5)), b"bad"])
    assert direct.accounts() == (6, 1, 5, 0, 2, 2, 1)
    held = {r["_id"]: r for r in spark.table(str(direct.letters)).collect()}
    assert len(held) == spark.table(str(direct.letters)).count() == 2
    letter = held["flights-topic/0/4"]
    assert (bytes(letter["_bytes"]), letter["_stage"], letter["_shard"]) == (good(4), "sink", "0")
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text('{"id":"flights-topic/0/4","payload":"{\\"carrier\\":\\"AA\\",\\"flight\\":14}"}\n')
    onward = partial(write_replayed_to_sinks, (DirectRoute(None, "flights", direct.compose, sink),))
    replayer = DeadLetterReplayer(
        "direct", direct.letters, direct.events.reporter, ("flights",), direct.decoder, onward
    )
    assert replayer(spark, ReplayRequest("direct", (), str(fixed))) == 0
    assert sorted(int(i["flight"]) for i in items.scan()["Items"]) == [1, 2, 14]


@pytest.mark.slow
def test_a_direct_query_into_a_database_keeps_its_dead_letters(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    with postgres.running() as server:
        to = JdbcSinkSettings(server.url, "public.flights", "arn", REGION, 2, "off")
        sink = JdbcSink(to, lambda: (postgres.USER, postgres.PASSWORD))
        direct = Direct(spark, table, tmp_path / "one", sink, lambda rows: rows.select(*CARRIED, "flight"))
        batch = [good(1), b"bad", good(2), None]
        for written in (2, 0):
            direct.batch(0, 0, batch)
            assert direct.accounts() == (4, 2, 2, 2 - written, 0, written, 0)
        letters = spark.table(str(direct.letters)).select("_id", "_bytes").orderBy("_id").collect()
        assert [tuple(r) for r in letters] == [("flights-topic/0/1", b"bad"), ("flights-topic/0/3", None)]
        assert server.run("SELECT flight FROM flights ORDER BY 1") == [["1"], ["2"]]


@pytest.mark.slow
def test_a_direct_query_into_files_that_comes_again_on_a_new_checkpoint(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    files = tmp_path / "files"
    sink = ParquetSink(ParquetSinkSettings(str(files), 1))
    direct = Direct(spark, table, tmp_path / "one", sink)
    direct.batch(0, 0, [good(1), b"bad"])
    direct.batch(0, 0, [good(1), b"bad"])
    assert direct.accounts() == (2, 1, 1, 1, 0, 0, 0)
    again = Direct(spark, table, tmp_path / "two", ParquetSink(sink.settings))
    again.batch(0, 0, [good(1), b"bad", good(2)])
    assert again.accounts() == (3, 1, 2, 1, 0, 1, 0)
    written = spark.read.parquet(*committed_files(spark, str(files)))
    assert sorted(r["flight"] for r in written.collect()) == [1, 2]


class _Killed(BaseException):
    """The driver's end."""


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("kind", ["parquet", "iceberg", "dynamodb"])
def test_a_schema_that_is_corrected_between_the_sinks_write_and_the_letters_loses_no_record(
    spark: SparkSession,
    table: Names,
    tmp_path: Path,
    dynamodb: str,
    items: Any,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    held = table("flights")

    def new_sink() -> Sink:
        if kind == "parquet":
            return ParquetSink(ParquetSinkSettings(str(tmp_path / "files"), 1))
        if kind == "iceberg":
            return IcebergSink(held)
        return DynamoDbSink(DynamoDbSinkSettings("flights", REGION), dynamodb)

    def flights() -> list[int]:
        if kind == "dynamodb":
            return sorted(int(item["flight"]) for item in items.scan()["Items"])
        files = committed_files(spark, str(tmp_path / "files")) if kind == "parquet" else []
        rows = spark.read.parquet(*files) if files else spark.table(str(held))
        return sorted(r["flight"] for r in rows.collect())

    def killed(*_: object) -> None:
        raise _Killed

    direct = Direct(
        spark, table, tmp_path / "one", new_sink(), lambda rows: rows.select(*CARRIED, "carrier", "flight")
    )
    records = [good(0), b'{"flight": 1}', good(2)]  # carrier is NOT NULL
    with monkeypatch.context() as patch:
        patch.setattr(direct_query._DeadLetterWriter, "append", killed)
        with pytest.raises(_Killed):
            direct.batch(0, 0, records)
    assert flights() == [0, 2]
    nullable = "carrier STRING, flight INT NOT NULL, delay DOUBLE"
    direct.decoder = JsonDecoder(parse_ddl_schema(spark, nullable, "test.ddl"))
    direct.sink = new_sink()
    direct.batch(0, 0, records)
    assert [direct.events.last()[name] for name in ("read", "bad", "good")] == [3, 0, 3]
    assert flights() == [0, 1, 2]
    assert spark.table(str(direct.letters)).count() == 0


@pytest.mark.slow
def test_a_refused_row_of_no_record_is_told(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    sink = _RefusesAll()
    renames = Direct(spark, table, tmp_path / "one", sink, lambda rows: rows.withColumn("_id", F.lit("mine")))
    with pytest.raises(
        AccountsError, match=r"the sink refused row mine \(no\), but the batch has no record with this _id"
    ):
        renames.batch(0, 0, [good(1)])
    direct = Direct(spark, table, tmp_path / "two", sink)
    # Two rows of flight 7 are one letter, with the bytes of its record.
    direct.batch(0, 0, [good(7), good(8)])
    letters = spark.table(str(direct.letters)).collect()
    assert sorted((r["_id"], bytes(r["_bytes"])) for r in letters) == [
        ("flights-topic/0/0", good(7)), ("flights-topic/0/1", good(8)),
    ]  # fmt: skip


def test_of_a_refused_record_the_letter_holds_no_redacted_field(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    direct = Direct(spark, table, tmp_path / "one", _RefusesAll(), redact=("carrier",))
    direct.batch(0, 0, [good(7), gzip.compress(good(8))])
    letters = spark.table(str(direct.letters)).orderBy("_id").collect()
    cut = good(7).replace(b'"AA"', b"null")
    assert [(r["_bytes"], r["_error"]) for r in letters] == [(cut, "no"), (None, f"no{WITHHELD}")]


@dataclass
class _RefusesAll:
    """A server that takes no row."""

    acts_on_rdd: bool = False

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Nothing is needed."""

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        letters = dead_letters_of_refused_rows(rows, F.lit("no"))
        count = letters.count()
        refuse(letters)
        return WriteCounts(count, 0, count)


def test_accounts_balance_or_say_so() -> None:
    # As the sinks of each kind of query tell them, which the advisor, dashboards and metrics read.
    assert BatchAccounts(5, 4, 2, refused=1).event_fields() == {
        "read": 5, "duplicates": 1, "filtered": 1, "written": 2, "refused": 1,
    }  # fmt: skip
    for impossible in ((5, 0, 0, 6, 0), (5, 4, 4, None, 1), (5, 4, -1), (5, 4, 1, -1), (5, 4, 1, None, -1)):
        with pytest.raises(AccountsError, match="do not add up"):
            BatchAccounts(*impossible)


def by_parity(rows: DataFrame) -> DataFrame:
    """Count the flights of each parity in a minute."""
    made = rows.groupBy(F.window("_arrived_at", "1 minute").alias("w"), (F.col("flight") % 2).alias("k")).agg(
        F.count("*").alias("n")
    )
    return made.select(F.col("w.start").alias("minute"), "k", "n")


@dataclass
class CutOnce:
    """Cuts one connection, before a statement that fills the staging table."""

    cut: int = 0

    def statement(self, sql: str, _text: str) -> str:
        if self.cut or not sql.lstrip().startswith("INSERT"):
            return "passed"
        self.cut += 1
        return "cut"

    def answered(self, kind: str) -> None:
        """Nothing follows."""


@pytest.mark.faults
def test_the_account_of_results_holds_through_a_lost_connection(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task that comes again reads its results from the cache, below which nothing is counted again."""
    monkeypatch.setattr(jdbc, "read_login", lambda *_: ("writer", "w"))
    landing, letters, events, fates = table("landing"), table("letters"), Events(), CutOnce()
    lander(spark, landing, Events())(frame(spark, kafka_rows(0, 0, [good(n) for n in range(8)])), 0)
    mark = {"time": "_arrived_at", "delay_seconds": 30, "ahead_seconds": 3600 * 24 * 36500}
    state = {"watermark": mark, "distinct": [], "key": ["minute", "k"], "join": None, "output_mode": "update"}
    with postgres.running() as server, postgres_proxy.before(server.port, fates) as port:
        server.run("CREATE ROLE writer LOGIN PASSWORD 'w'; CREATE SCHEMA shop AUTHORIZATION writer")
        sink = {
            "kind": "jdbc", "url": f"jdbc:postgresql://127.0.0.1:{port}/postgres", "table": "shop.counts", "secret": "a",
            "region": REGION, "connections": 2, "tls": "off", "authorities": None,
        }  # fmt: skip
        job = settings(
            landing,
            tmp_path,
            sink,
            f"{letters.database}.{letters.name}",
            transform=f"{__name__}:by_parity",
            state=state,
        )
        fates.cut = 1
        (query,) = build_queries.build_queries(JobRun(spark, job, {}, events.reporter))
        fates.cut = 0
        drained(query.rows, query.handle, query.checkpoint, query.output_mode)
        assert fates.cut == 1
        assert server.run("SELECT k, n FROM shop.counts ORDER BY k") == [["0", "4"], ["1", "4"]]
    (batch,) = (event for event in events.all() if event["event"] == "batch" and event["written"])
    assert {name: batch[name] for name in ("read", "duplicates", "filtered", "written")} == {
        "read": 2, "duplicates": 0, "filtered": 0, "written": 2,
    }  # fmt: skip
