"""Each sink keeps the last record of each key, for any cut of a history into batches."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.record import batch_accounts
from millrace.etl.record.errors import StartError
from millrace.etl.record.tables import Table
from millrace.etl.sinks import iceberg_keyed
from millrace.etl.sinks.base import Sink
from millrace.etl.sinks.delivery.kept_deletes import KeptDeletes
from millrace.etl.sinks.delivery.keyed_rows import newest_of_each_key
from millrace.etl.sinks.delivery.record_order import order_prefix, with_position_struct
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from millrace.etl.sinks.jdbc import JdbcSink
from tests.faults.moto_server import moto
from tests.opensearch import OpenSearch
from tests.postgres import Postgres
from tests.spark.key_histories import History, frame_of
from tests.spark.sink_input_rows import none_refused, place
from tests.spark.sinks.test_dynamodb_kinesis import credentials as credentials
from tests.spark.sinks.test_dynamodb_kinesis import make_table, table_sink
from tests.spark.sinks.test_jdbc import server as server
from tests.spark.sinks.test_jdbc import sink as jdbc_sink
from tests.spark.sinks.test_opensearch import Index
from tests.spark.source_batches import EPOCH

_numbers = count()


def latest(rows: DataFrame, order: str | None = None) -> DataFrame:
    """As a derive query makes them of good records."""
    return newest_of_each_key(
        with_position_struct(rows).select("_position", "_deleted", "k", "n"), ("k",), "t", order
    )


@dataclass
class End:
    """A sink, and the number that it holds for each key."""

    sink: Sink
    read: Callable[[], dict[str, int]]


@pytest.fixture(
    params=[
        "iceberg",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("jdbc", "dynamodb", "opensearch")),
    ]
)
def end(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[End]:
    # moto and PostgreSQL keep the tables of the tests before.
    name = f"latest_{next(_numbers)}"
    if request.param == "iceberg":
        lake: Table = request.getfixturevalue("table")(name)
        yield End(
            KeyedIcebergSink(lake, key=("k",)),
            lambda: {r["k"]: r["n"] for r in spark.table(str(lake)).collect()},
        )
    elif request.param == "dynamodb":
        with moto() as endpoint:
            items = make_table(endpoint.endpoint, name, "_id")
            yield End(
                table_sink(endpoint.endpoint, name),
                lambda: {str(i["k"]): int(i["n"]) for i in items.scan()["Items"]},
            )
    elif request.param == "opensearch":
        domain: OpenSearch = request.getfixturevalue("domain")
        index = Index(domain)
        yield End(index.sink(), lambda: {d["k"]: d["n"] for d in index.documents().values()})
    else:
        database: Postgres = request.getfixturevalue("server")
        made: JdbcSink = jdbc_sink(database, name)
        query = f"SELECT k, n FROM shop.{name}"  # noqa: S608 - a name of ours
        yield End(made, lambda: {k: int(n) for k, n in database.run(query)})


def test_whatever_batches_a_history_comes_in(spark: SparkSession, end: End, tmp_path: Path) -> None:
    history = History(seed=20261127)
    kept = KeptDeletes(str(tmp_path / "deletes"))
    end.sink.prepare(spark, latest(frame_of(spark, [])).drop("_lanes").schema)
    for number, records in enumerate(history.batches(3)):
        for _ in range(1 + number % 2):  # a batch comes again
            rows = kept.without_rows_older_than_deletes(
                latest(frame_of(spark, records)).drop("_lanes")
            ).persist()
            kept.keep_deletes_of(rows)
            end.sink.write(rows, place(number), none_refused)
            rows.unpersist()
        kept = KeptDeletes(kept.folder)  # the job was started again
    assert end.read() == {key: n for key, n in history.last.items() if n is not None}


@pytest.mark.slow
def test_a_lane_is_as_late_as_its_latest_record(spark: SparkSession, end: End) -> None:
    """The last record of a partition arrived before the one it replaces; one of another partition arrived between."""
    record = History(seed=1).records[0]
    end.sink.prepare(spark, latest(frame_of(spark, [])).drop("_lanes").schema)
    for n, (shard, seconds) in enumerate((("0", 10), ("0", 5), ("1", 7))):
        more = {
            "_shard": shard,
            "_position": str(n).zfill(20),
            "_id": f"t/{shard}/{n}",
            "n": n,
            "_deleted": False,
        }
        rows = frame_of(spark, [{**record, **more, "_arrived_at": EPOCH + timedelta(seconds=seconds)}])
        end.sink.write(latest(rows).drop("_lanes"), place(n), none_refused)
    assert end.read() == {"k0": 1}


@pytest.mark.slow
def test_a_key_that_comes_from_two_partitions_in_turn_is_counted(
    spark: SparkSession, end: End, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch after the other, each of one partition only; a line of a backfilled file is older than all, and no question."""
    monkeypatch.setattr(iceberg_keyed, "COMPARED_EVERY", 0.0)
    record = History(seed=1).records[0]
    end.sink.prepare(spark, latest(frame_of(spark, [])).drop("_lanes").schema)
    told = []
    for n, shard in enumerate(("s3:/backfill", "0", "0", "1", "0", "0")):
        more = {"_shard": shard, "_position": str(n).zfill(20), "_id": f"{shard}/{n}", "n": n}
        more |= {"_deleted": False, "_arrived_at": EPOCH + timedelta(seconds=n)}
        rows = latest(frame_of(spark, [{**record, **more}]))
        for _ in range(1 + n % 2):  # a batch that comes again has nothing new
            told.append(end.sink.write(rows.drop("_lanes"), place(n), none_refused).unordered)
    assert told == [0, 0, 0, 0, 1, 0, 1, 0, 0]


def test_of_a_file_and_a_stream_the_order_is_known(spark: SparkSession) -> None:
    record = History(seed=1).records[0]
    lines = [{**record, "_shard": f"s3:/{n}", "_id": f"s3:/{n}/1"} for n in range(2)]
    told = latest(frame_of(spark, [record, *lines])).select("_lanes").collect()
    assert told == [(False,)]
    moved = {**record, "_shard": "1", "_id": "t/1/1"}
    assert latest(frame_of(spark, [record, moved])).select("_lanes").collect() == [(True,)]


@pytest.mark.slow
def test_a_kept_delete_goes_when_it_is_too_old(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It holds a key, which may be personal; the next run removes it, though nothing else is deleted."""
    record = {**History(seed=1).records[0], "_deleted": True}
    kept, folder, begun = (
        KeptDeletes(str(tmp_path / "deletes")),
        tmp_path / "deletes",
        batch_accounts.utc_now(),
    )

    def next_batch(days: float) -> int:
        monkeypatch.setattr(batch_accounts, "utc_now", lambda: begun + timedelta(days=days))
        older = latest(frame_of(spark, [{**record, "_position": "0".zfill(20), "_deleted": False}]))
        rows = kept.without_rows_older_than_deletes(older.drop("_lanes")).persist()
        kept.keep_deletes_of(rows)
        result = rows.count()
        rows.unpersist()
        return result

    kept.without_rows_older_than_deletes(latest(frame_of(spark, [record])))
    kept.keep_deletes_of(latest(frame_of(spark, [record])).drop("_lanes"))
    assert [next_batch(days) for days in (0, 1, 6.9)] == [0, 0, 0]
    kept = KeptDeletes(str(folder))
    assert next_batch(7.5) == 0, "the batch in which it goes"
    assert next_batch(7.6) == 1
    assert not [path for path in folder.rglob("*.parquet") if spark.read.parquet(str(path)).count()]


@pytest.mark.parametrize(
    "kind",
    ["BIGINT", "TINYINT", "DECIMAL(9,3)", "DECIMAL(37,0)", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ"],
)
def test_a_column_that_orders_sorts_as_its_values(spark: SparkSession, kind: str) -> None:
    most = 2**63 - 1 if kind in ("BIGINT", "TINYINT") else 90_000
    values = [(v,) for v in (-most, -100, -7, 0, 3, 20, most, None)]
    cast = {"DATE": "date_from_unix_date(CAST(v AS INT))", "TIMESTAMP": "timestamp_micros(v)"}
    cast["TIMESTAMP_NTZ"] = f"CAST({cast['TIMESTAMP']} AS TIMESTAMP_NTZ)"
    value = cast.get(kind, "v / 8" if "3" in kind else "v")
    rows = spark.createDataFrame(values, "v BIGINT").selectExpr(f"try_cast({value} AS {kind}) AS v")
    prefix = order_prefix(rows.schema, "v", "t")
    result = [tuple(r) for r in rows.select("v", prefix.alias("p")).collect()]
    known = sorted((v, p) for v, p in result if v is not None)
    assert len(known) > 3
    assert [p for _, p in known] == sorted(p for _, p in known)
    assert len({len(p) for _, p in result}) == 1
    assert all(p <= known[0][1] for v, p in result if v is None)


@pytest.mark.parametrize(
    ("kind", "wider"),
    [
        ("SMALLINT", "INT"),
        ("INT", "BIGINT"),
        ("DECIMAL(3,2)", "DECIMAL(12,2)"),
        ("DECIMAL(37,36)", "DECIMAL(38,36)"),
        ("DECIMAL(38,38)", "DECIMAL(38,38)"),
        ("DECIMAL(38,0)", "DECIMAL(38,0)"),
    ],
)
def test_an_order_stays_when_its_column_becomes_wider(spark: SparkSession, kind: str, wider: str) -> None:
    """A row of the sink has the order of the narrower column, and is compared with records of the wider one."""
    texts = [
        "-9",
        "-1.01",
        "-1",
        "-0.01",
        "-1E-36",
        "0",
        "1E-38",
        "1E-36",
        "0.01",
        "1",
        "1.01",
        "9",
        "99999999999999999999999999999999999999",
        "no",
    ]
    rows = spark.createDataFrame([(each,) for each in texts], "t STRING")
    rows = rows.selectExpr(f"CAST(t AS {kind}) AS v").withColumn("w", F.col("v").cast(wider))
    both = [order_prefix(rows.schema, name, "t").alias(f"o{name}") for name in ("v", "w")]
    result = [(r["v"], r["ov"]) for r in rows.select("*", *both).collect() if r["ov"] == r["ow"]]
    assert len(result) == len(texts)
    known = sorted((v, o) for v, o in result if v is not None)
    assert len({v for v, _ in known}) == len({o for _, o in known}) > 1
    assert [o for _, o in known] == sorted(o for _, o in known)
    assert max(o for v, o in result if v is None) < known[0][1]


def test_a_column_decides_before_the_position(spark: SparkSession) -> None:
    rows = frame_of(spark, History(seed=1).records).withColumn("n", -F.col("n"))
    assert {r["k"]: r["n"] for r in latest(rows, "n").collect()} == {f"k{n}": -n for n in range(9)}
    assert not latest(rows, "n").where("_lanes").count()
    assert latest(rows).where("_lanes").count() == 3, "keys that moved are counted"
    for column, kind in (("k", "string"), ("gone", "lacks column gone")):
        with pytest.raises(StartError, match=kind):
            latest(rows, column)


def test_between_equal_values_of_the_column_the_arrival_of_their_own_records_decides(
    spark: SparkSession,
) -> None:
    """A late record of a lower value says nothing of the time of a higher one, in one batch as in several."""
    choose = random.Random(20261202)
    records, values, wanted = [], [], {}
    for key in range(40):
        offsets = {"0": 0, "1": 0}
        for _ in range(6):
            shard, n = choose.choice("01"), len(values)
            values.append(choose.choice((0, 1, 2)))
            offsets[shard] += 1
            record = {
                "_source": "t",
                "_shard": shard,
                "_id": f"t/{shard}/{offsets[shard]}",
                "k": f"k{key}",
                "n": n,
            }
            record |= {
                "_position": str(offsets[shard]).zfill(20),
                "_arrived_at": EPOCH + timedelta(seconds=n),
            }
            records.append({**record, "_deleted": False})
        wanted[f"k{key}"] = max((value, n) for n, value in enumerate(values) if n >= 6 * key)[1]
    value = F.expr(f"element_at(array({', '.join(map(str, values))}), n + 1)")
    rows = with_position_struct(frame_of(spark, records)).withColumn("v", value)
    rows = rows.select("_position", "_deleted", "k", "n", "v")
    assert {r["k"]: r["n"] for r in newest_of_each_key(rows, ("k",), "t", "v").collect()} == wanted


def test_a_copy_of_the_position_is_no_column_of_a_result(spark: SparkSession) -> None:
    rows = with_position_struct(frame_of(spark, [])).withColumn("offset", F.col("_position"))
    with pytest.raises(StartError, match="offset is a copy of _position"):
        newest_of_each_key(rows.select("_position", "_deleted", "k", "offset"), ("k",), "t")
