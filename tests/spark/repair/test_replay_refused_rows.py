"""A replay offers refused rows of a derive query to its sink once, without the good rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import boto3
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace.etl.job import build_queries
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.repair import one_off_commands
from millrace.etl.repair.replay_refused_rows import RefusedRowReplayer
from millrace.etl.sinks.base import dead_letters_of_refused_rows
from millrace.etl.sinks.refused_rows_dead_letters import DeadLetterTable
from tests.faults import small_job_documents
from tests.faults.moto_server import make_table, moto
from tests.spark.sink_input_rows import place
from tests.spark.source_batches import Events, drained, frame, good, kafka_rows, lander

Names = Callable[[str], Table]
REGION = "us-east-1"
LARGE = 410_000
"""More than an item of DynamoDB may have."""

NOTE = [LARGE]
"""Characters of the note on flights 4 and 7: what is changed where a transform is mended."""


def noted(rows: DataFrame) -> DataFrame:
    """Leaves out flights of three; of flight 7 there are two rows, the second too large, as flight 4's is."""
    copies = F.when(F.col("flight") == 7, F.array(F.lit("/0"), F.lit("/1"))).otherwise(F.array(F.lit("")))
    made = rows.where(f"flight % 3 <> 0 AND flight < {NOTE[0]}").withColumn("copy", F.explode(copies))
    large = (F.col("flight") == 4) | (F.col("copy") == "/1")
    note = F.when(large, F.repeat(F.lit("x"), NOTE[0])).otherwise(F.lit("short"))
    return made.select(F.concat("_id", "copy").alias("_id"), *CARRIED[1:], "flight", note.alias("note"))


def by_flight(rows: DataFrame) -> DataFrame:
    return rows.groupBy("flight", F.window("_arrived_at", "1 minute")).agg(F.count(F.lit(1)).alias("n"))


@pytest.fixture(scope="module")
def dynamodb() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        with moto() as server:
            yield server.endpoint


class Refusing:
    """A derive query into DynamoDB, over nine flights of which two rows are too large."""

    def __init__(self, spark: SparkSession, table: Names, folder: Path, endpoint: str, **state: Any) -> None:
        self.spark, self.folder, self.events = spark, folder, Events()
        self.landing, self.letters = table("landing"), table("letters")
        self.binds, self.state = {"dynamodb.endpoint": endpoint}, state
        resource = boto3.resource("dynamodb", endpoint_url=endpoint, region_name=REGION)
        self.items = make_table(resource, self.letters.name)
        land = lander(spark, self.landing, Events())
        land(frame(spark, kafka_rows(0, 0, [*(good(n) for n in range(9)), b"bad"])), 0)
        NOTE[0] = LARGE
        (query,) = build_queries.build_queries(JobRun(spark, self.job(), self.binds, self.events.reporter))
        drained(query.rows, query.handle, query.checkpoint)

    def job(self, **changed: Any) -> JobSettings:
        state: dict[str, Any] = {
            "watermark": {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600},
            "distinct": [],
            "key": [],
        }
        state |= {"join": None, "output_mode": "update", **self.state}
        query = {
            "kind": "derive", "name": "noted", "source_table": f"tests.{self.landing.name}", "enrich": [],
            "transform": f"{__name__}:noted", "trigger_seconds": 0.0, "route": None, "latest_by": [],
            "sink": {"kind": "dynamodb", "table": self.letters.name, "region": REGION},
            "state": state if self.state else None, "dead_letters": f"tests.{self.letters.name}", **changed,
        }  # fmt: skip
        return parse_job_settings(small_job_documents.settings("flights", [query], str(self.folder), None))

    def replay(self, *ids: str, corrected: Path | None = None, **changed: Any) -> tuple[int, ...]:
        """Exit status, then letters, good, filtered, bad, already, landed."""
        replayer = one_off_commands.make_replayer(
            JobRun(self.spark, self.job(**changed), self.binds, self.events.reporter), "noted"
        )
        status = replayer(self.spark, ReplayRequest("noted", ids, str(corrected) if corrected else None))
        keys = ("letters", "good", "filtered", "bad", "already", "landed")
        return (status, *(self.events.last()[k] for k in keys))

    def held(self) -> dict[str, str]:
        """Note by identity, of all items."""
        return {item["_id"]: item["note"] for item in self.items.scan()["Items"]}

    def forget(self, identity: str) -> None:
        """Take a good item away: whoever writes it again is found out."""
        self.items.delete_item(Key={"_id": identity, "_source": "flights"})


def letter(n: int, more: str = "") -> str:
    return f"flights-topic/0/{n}{more}"


GOOD = {letter(1), letter(2), letter(5), letter(7, "/0"), letter(8)}


@pytest.mark.slow
def test_a_mended_transform_makes_them_good_and_nothing_else_is_written(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    pipe = Refusing(spark, table, tmp_path, dynamodb)
    assert pipe.held().keys() == GOOD
    # As it was, it is refused again: that says nothing new.
    assert pipe.replay() == (0, 2, 0, 0, 2, 0, 0)
    pipe.forget(letter(1))
    pipe.forget(letter(7, "/0"))
    NOTE[0] = 10
    assert pipe.replay(letter(4), letter(5)) == (1, 1, 1, 0, 0, 0, 1)
    assert pipe.events.last()["unknown_ids"] == [letter(5)]
    assert pipe.replay() == (0, 2, 1, 0, 0, 1, 1)
    assert pipe.replay() == (0, 2, 0, 0, 0, 2, 0)
    # What was good and is gone was not written again; a row of its record that was refused was.
    assert pipe.held().keys() == GOOD - {letter(1), letter(7, "/0")} | {letter(4), letter(7, "/1")}
    assert pipe.held()[letter(7, "/1")] == "x" * 10
    rows = {r["_id"]: r["_error"] for r in spark.table(str(pipe.letters)).collect()}
    assert {i for i, error in rows.items() if error is None} == {letter(4, "#sent"), letter(7, "/1#sent")}


@pytest.mark.slow
def test_what_the_transform_leaves_out_now_is_settled_and_what_lost_its_record_is_not(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    pipe = Refusing(spark, table, tmp_path, dynamodb)
    spark.sql(f"DELETE FROM {pipe.landing} WHERE _id = '{letter(7)}'")  # noqa: S608 - ours
    NOTE[0] = 4
    assert pipe.replay() == (0, 2, 0, 1, 1, 0, 1)
    assert pipe.held().keys() == GOOD


@pytest.mark.slow
def test_a_corrected_row_takes_the_refused_ones_place(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    """Of a query that keeps state, whose row is of no single record."""
    pipe = Refusing(spark, table, tmp_path, dynamodb, distinct=["carrier", "flight"])
    fixed = tmp_path / "fixed.jsonl"
    lines = {letter(4): {"_id": "forged", "flight": 4, "note": "mended"}, letter(7, "/1"): "no row"}
    fixed.write_text(
        "".join(json.dumps({"id": i, "payload": json.dumps(p)}) + "\n" for i, p in lines.items())
    )
    assert pipe.replay(corrected=fixed) == (0, 2, 1, 0, 1, 0, 2)
    assert pipe.held().keys() == GOOD | {letter(4)}
    assert pipe.held()[letter(4)] == "mended"
    # Without a correction the row is what its letter holds: no row at last.
    assert pipe.replay() == (0, 2, 0, 0, 1, 1, 0)
    (item,) = (i for i in pipe.items.scan()["Items"] if i["_id"] == letter(4))
    assert (item["_arrived_at"], int(item["flight"])) == ("2026-01-01T12:00:04.000000Z", 4)


def remarked(rows: DataFrame) -> DataFrame:
    """The column has another name, and is short."""
    return noted(rows).withColumn("remark", F.substring("note", 1, 10)).drop("note")


@pytest.mark.slow
def test_a_letters_value_under_an_earlier_name_is_not_lost(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    """Of a query that keeps state, whose row is what its letter holds."""
    pipe = Refusing(spark, table, tmp_path, dynamodb, distinct=["carrier", "flight"])
    assert pipe.replay(transform=f"{__name__}:remarked") == (0, 2, 0, 0, 2, 0, 0)
    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(
        json.dumps({"id": letter(4), "payload": json.dumps({"flight": 4, "remark": "mended"})}) + "\n"
    )
    assert pipe.replay(corrected=fixed, transform=f"{__name__}:remarked")[2] == 1
    items = {item["_id"]: item.get("remark") for item in pipe.items.scan()["Items"]}
    assert items == {**dict.fromkeys(GOOD), letter(4): "mended"}


@pytest.mark.slow
def test_results_of_many_records_are_not_replayed(
    spark: SparkSession, table: Names, tmp_path: Path, dynamodb: str
) -> None:
    pipe = Refusing(spark, table, tmp_path, dynamodb)
    mark = {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600}
    state = {"watermark": mark, "distinct": [], "key": ["flight"], "join": None, "output_mode": "update"}
    with pytest.raises(StartError, match="which a later result replaces"):
        pipe.replay(state=state, transform=f"{__name__}:by_flight")
    with pytest.raises(
        StartError, match=r"the job has no query with dead letters of this name; it has: none"
    ):
        pipe.replay(dead_letters=None)


def test_rows_that_no_record_identifies_are_letters_once_however_often_their_batch_comes(
    spark: SparkSession, table: Names
) -> None:
    """A result has no source; a transform may lose an identity. The time of the write is another one each time."""
    letters = DeadLetterTable(table("letters"), "totals")
    letters.prepare(spark)
    for hour in (1, 2):
        held = [("k", None, 1), ("k", None, 2), (None, "flights", 1), (None, "flights", 2)]
        rows = spark.createDataFrame(held, "_id STRING, _source STRING, n INT")
        rows = rows.withColumn("_written_at", F.expr(f"TIMESTAMP'2026-01-01 0{hour}:00:00'"))
        letters.refused_row_handler(place(0))(dead_letters_of_refused_rows(rows, F.lit("refused")))
    assert spark.table(str(letters.table)).count() == 4


@pytest.mark.slow
def test_maps_of_a_letter_have_keys_of_their_type(spark: SparkSession, table: Names) -> None:
    """JSON has no other names than texts. A name that is no key of its map makes an unreadable letter, not an error of all."""
    shape = (
        "_id STRING, _source STRING, n MAP<INT, STRING>, d MAP<DECIMAL(4, 2), ARRAY<STRUCT<b: MAP<BOOLEAN, BIGINT>>>>, "
        "s STRUCT<l: MAP<BIGINT, MAP<STRING, DOUBLE>>, t: TIMESTAMP>, f MAP<DOUBLE, INT>"
    )
    at = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
    held = [
        ("a", "x", {1: "one", -2: None}, {Decimal("1.50"): [{"b": {True: 1, False: None}}, None]}, ({2**40: {"": 0.1}}, at), {1e-7: 1, float("inf"): 2}),
        ("b", "x", {}, {}, (None, None), {}),
        ("c", "x", None, None, None, None),
    ]  # fmt: skip
    rows = spark.createDataFrame(held, shape)
    letters = dead_letters_of_refused_rows(rows, F.lit("refused")).withColumn("_root", F.col("_id"))
    wrong = ['{"n": {"one": ""}}', '{"n": {"1": "", "01": ""}}', '{"d": {"7": [{"b": {"no way": 1}}]}}', "[]"]
    wrong += ['{"n": {"3000000000": ""}}', '{"s": {"l": {"": {}}}}']
    fixed = spark.createDataFrame(
        [(str(i), "x", bytearray(each.encode())) for i, each in enumerate(wrong)],
        "_root STRING, _source STRING, _corrected BINARY",
    )
    read, unreadable = read_as_rows(rows.schema, letters.unionByName(fixed, allowMissingColumns=True))
    assert read.schema.simpleString() == rows.schema.simpleString()
    want = {(r["_id"], str(r)) for r in rows.collect()}
    assert {(r["_id"], str(r)) for r in read.collect()} == want
    assert sorted(r["_root"] for r in unreadable.collect()) == [str(i) for i in range(len(wrong))]


def read_as_rows(schema: StructType, letters: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Rows of a sink made of letters, and the letters that are none."""
    replayer: Any = RefusedRowReplayer.__new__(RefusedRowReplayer)
    object.__setattr__(replayer, "schema", schema)
    rows: tuple[DataFrame, DataFrame] = replayer._rows_and_unreadable_letters(letters)
    return rows


CORRECTED = {
    '{"t": 200}': "wrong type: t",
    '{"d": 1e400}': "a number out of range: d",
    '{"d": NaN}': "not exactly one JSON object",
    '{"at": 1700000000000}': "wrong type: at (looks like milliseconds)",
    '{"day": "2026-1-1x"}': "wrong type: day",
    '{"tt": 5, "D": 1, "d": 1.5, "_order": ""}': "no column of this sink: tt, D",
    '{"parts": [{"n": 1, "x": "2"}, {"N": 1, "n": 2, "N": 3}], "t": 5}': "no column of this sink: parts.x, parts.N",
    '{"by": {"one": {"n": 1, "_n": 2}}}': "no column of this sink: by.one._n",
    '{"t": 5} {"t": 6}': "not exactly one JSON object",
    '{"m": {"a": 1, "a": 2}}': "a name twice in a map: m",
    '{"b": "xx!"}': "wrong type: b",
    "{'t': 1}": "not exactly one JSON object",
}


@pytest.mark.slow
def test_a_wrong_correction_stays_a_letter_with_its_reason(spark: SparkSession) -> None:
    shape = (
        "_id STRING, _source STRING, t TINYINT, d DOUBLE, at TIMESTAMP, day DATE, m MAP<STRING, INT>, b BINARY, `a.b` INT, "
        "parts ARRAY<STRUCT<n: INT>>, by STRUCT<one: STRUCT<n: INT>>"
    )
    good = '{"_id": "forged", "t": -5, "at": "2026-01-01T00:00:00Z", "m": {"a": null}, "b": "AAE=", "a.b": 7}'
    given = spark.createDataFrame(
        [(text, "x", None, None, bytearray(b"{}"), bytearray(text.encode())) for text in (good, *CORRECTED)],
        "_root STRING, _source STRING, _arrived_at TIMESTAMP, _landed_at TIMESTAMP, _bytes BINARY, _corrected BINARY",
    )
    read, unreadable = read_as_rows(spark.createDataFrame([], shape).schema, given)
    assert {row["_root"]: row["_why"] for row in unreadable.collect()} == {
        text: f"millrace: {why}" for text, why in CORRECTED.items()
    }
    [row] = read.collect()
    assert tuple(row) == (
        good,
        "x",
        -5,
        None,
        datetime(2026, 1, 1),
        None,
        {"a": None},
        b"\0\1",
        7,
        None,
        None,
    )
    # A sink may have no columns of its own.
    assert read_as_rows(spark.createDataFrame([], "_id STRING, _source STRING").schema, given)[0].count() == 0


SHAPE = """_id STRING, _source STRING, t TINYINT, l BIGINT, b BOOLEAN, f FLOAT, d DOUBLE, n DECIMAL(38, 10), at TIMESTAMP, local TIMESTAMP_NTZ,
day DATE, bytes BINARY, payload STRING, _joined_id STRING, parts ARRAY<STRUCT<d: DOUBLE, at: ARRAY<TIMESTAMP_NTZ>, b: BINARY>>,
m MAP<BIGINT, STRUCT<n: DECIMAL(4, 2), day: DATE>>"""
NOON = datetime(2026, 1, 1, 12, 0, 0, 123456)
WHOLE = (
    "x", -128, 2**63 - 1, True, 0.1, 1e-300, Decimal("-1234567890123456789012345678.0123456789"), NOON, NOON, NOON.date(),
    b"\0\xff", '{"a": 1.50} é 😀 \\u0041 \u2028', "r", [(0.5, [NOON, None], b""), None], {-(2**40): (Decimal("1.50"), NOON.date())},
)  # fmt: skip


@pytest.mark.slow
def test_a_letter_holds_its_row_exactly(spark: SparkSession) -> None:
    """Values of each type, also those that JSON has no form of, and the same letters with a harmless correction."""
    odd = {"d": float("nan"), "f": float("-inf"), "parts": [(float("inf"), [], None)]}
    schema = spark.createDataFrame([], SHAPE).schema
    names = schema.fieldNames()
    held = [
        ("a", *WHOLE),
        ("b", "x", *(odd.get(name) for name in names[2:])),
        ("c", "x", *[None] * (len(names) - 2)),
    ]
    rows = spark.createDataFrame(held, schema)
    letters = dead_letters_of_refused_rows(rows, F.lit("refused")).withColumn("_root", F.col("_id"))
    want = {row["_id"]: str(row) for row in rows.collect()}
    for correction in ("NULL", "_bytes"):
        read, unreadable = read_as_rows(schema, letters.withColumn("_corrected", F.expr(correction)))
        assert {row["_id"]: str(row) for row in read.collect()} == want
        assert unreadable.count() == 0
    written = letters.withColumn("_corrected", F.expr("concat(_bytes, cast(' ' AS BINARY))"))
    read, unreadable = read_as_rows(schema, written)
    assert {row["_id"]: str(row) for row in read.collect()} == {
        n: each for n, each in want.items() if n != "b"
    }
    assert [row["_why"] for row in unreadable.collect()] == ["millrace: wrong type: f, d"]
